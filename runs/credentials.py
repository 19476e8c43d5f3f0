"""Credentials: named rights obtained from a provider at the time of use, renewed once when refused.

Providers are registered in Python by name. No value is stored: the database knows that a credential exists, how
often it was renewed, and whether its owner has to authorise it again. Values handed out are scrubbed from whatever
is recorded afterwards (`redaction`).
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from django.db import transaction
from django.db.models import F, Q

from runs import journal, redaction
from runs.actors import Actor
from runs.clock import Now, now
from runs.exceptions import CredentialRefused, NeedsAuthorisation
from runs.models import Credential, Hold
from runs.states import Cause

RENEWS_WITHIN = 30.0  # seconds a renewal may take until another worker may try


@dataclass(frozen=True, slots=True)
class Provider:
    """`obtain()` gives the value as it is now; `renew()` has a new one made, wherever the provider keeps it.

    Both raise NeedsAuthorisation(url) when a person is needed. `owner` is the e-mail address of who
    authorises it; operators may too.
    """

    obtain: Callable[[], str]
    renew: Callable[[], None] | None = None
    owner: str = ""


_providers: dict[str, Provider] = {}


def register(
    name: str, obtain: Callable[[], str], *, renew: Callable[[], None] | None = None, owner: str = ""
) -> None:
    _providers[name] = Provider(obtain, renew, owner)


def owner(name: str) -> str:
    """The e-mail address of who authorises it; empty: operators do."""
    provider = _providers.get(name)
    return provider.owner if provider else ""


def obtain(names: Sequence[str]) -> dict[str, str]:
    """The values of these credentials, as they are now. Raises NeedsAuthorisation, naming the first that does."""
    return {name: _obtain(name) for name in names}


def _obtain(name: str) -> str:
    provider = _providers.get(name)
    if provider is None:
        raise _needed(name, NeedsAuthorisation("", f"nobody provides the credential {name}"))
    try:
        value = provider.obtain()
    except NeedsAuthorisation as needed:
        raise _needed(name, needed) from None
    redaction.keep_out(name, value)
    return value


def _needed(name: str, needed: NeedsAuthorisation) -> NeedsAuthorisation:
    """The same, with the credential's name; kept, so that its owner sees it."""
    Credential.objects.update_or_create(
        name=name, defaults={"needs_url": needed.url, "problem": needed.why[:500], "changed_at": now()}
    )
    needed.subject = name
    needed.detail = {"url": needed.url}
    return needed


def version(name: str) -> int:
    """How often it was renewed: taken before a call, so that `renew` knows which one was refused."""
    return Credential.objects.filter(pk=name).values_list("version", flat=True).first() or 0


def renew(name: str, refused: int) -> None:
    """Renews what was refused, unless another worker has done so since version `refused`; waits for one that does.

    Raises NeedsAuthorisation: the provider cannot renew it.
    """
    Credential.objects.get_or_create(name=name)
    deadline = time.monotonic() + RENEWS_WITHIN
    while version(name) == refused and time.monotonic() < deadline:
        if _claim(name, refused):
            _renew(name)
            return
        time.sleep(0.05)


def _claim(name: str, refused: int) -> bool:
    free = Q(renewing_until__isnull=True) | Q(renewing_until__lt=Now())
    until = Now() + timedelta(seconds=RENEWS_WITHIN)
    return bool(Credential.objects.filter(free, pk=name, version=refused).update(renewing_until=until))


def _renew(name: str) -> None:
    provider = _providers[name]
    try:
        if provider.renew is None:
            raise NeedsAuthorisation("", f"{name} was refused, and its provider cannot renew it")
        provider.renew()
    except NeedsAuthorisation as needed:
        Credential.objects.filter(pk=name).update(renewing_until=None)
        raise _needed(name, needed) from None
    except BaseException:
        Credential.objects.filter(pk=name).update(renewing_until=None)
        raise
    Credential.objects.filter(pk=name).update(renewing_until=None, version=F("version") + 1, changed_at=now())


def renewed(names: Sequence[str], error: CredentialRefused, given: Mapping[str, str]) -> dict[str, str]:
    """Every credential of a call once more, after the one that was refused was renewed: at most once for all who
    were refused the same value. Raises NeedsAuthorisation."""
    name = error.credential
    if _obtain(name) == given.get(name):  # nobody has renewed it since
        renew(name, version(name))
    return obtain(names)


def refused(names: Sequence[str], error: BaseException | None) -> NeedsAuthorisation:
    """What a call waits for that was refused once more after a renewal, or whose tool asks for a person."""
    if isinstance(error, NeedsAuthorisation):
        return error if error.subject else _needed(names[0] if names else "", error)
    assert isinstance(error, CredentialRefused)
    return _needed(error.credential, NeedsAuthorisation("", str(error)))


def authorised(name: str, *, actor: Actor, why: str = "") -> int:
    """Its owner has authorised it again: what waits for it goes on. How many calls wait."""
    with transaction.atomic():
        found = Credential.objects.select_for_update().get(pk=name)
        Credential.objects.filter(pk=name).update(needs_url="", problem="", changed_at=now())
        journal.write(found, actor, "authorised", why=why)
        waiting = Hold.objects.waiting_for(Cause.CREDENTIAL, name)
        return waiting.update(look_again_at=Now())
