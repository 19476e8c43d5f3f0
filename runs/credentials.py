"""Credentials: named rights obtained from a provider at the time of use, renewed once when refused.

Providers are registered in Python by name; they keep the value, where every process finds it. Nothing of it is
stored here: the database knows that a credential exists, how often it was renewed, and whether its owner has to
authorise it again. Values handed out are scrubbed from whatever is recorded afterwards (`redaction`).
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q

from runs import holds, journal, points, redaction, timers
from runs.actors import SYSTEM, Actor
from runs.clock import Now, now
from runs.exceptions import Away, CredentialRefused, NeedsAuthorisation, NotFound, Obstacle, Unavailable
from runs.models import Credential, Hold
from runs.states import Cause
from runs.tools.declared import CREDENTIAL

T = TypeVar("T")
RENEWS_WITHIN = 30.0  # seconds until another worker may try a renewal that has not ended
MARGIN = 5.0  # seconds before that in which a renewal is stopped


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
    """Says who provides a credential: in a module that AGENTS names, so that web and workers know it.

    `name`: letters, digits, `_`, `.` and `-`. Neither function keeps a value in its process: workers are many.
    """
    if not CREDENTIAL.fullmatch(name):
        raise ValueError(f"{name!r} is no name for a credential: letters, digits, _ . - and at most 100")
    _providers[name] = Provider(obtain, renew, owner)


def owner(name: str) -> str:
    """The e-mail address of who authorises it; empty: operators do."""
    provider = _providers.get(name)
    return provider.owner if provider else ""


# -- Obtaining --------------------------------------------------------------------------


def obtain(names: Sequence[str]) -> dict[str, str]:
    """The values of these credentials, as they are now. Raises an Obstacle that names the first that has none."""
    return {name: value(name) for name in names}


def value(name: str) -> str:
    """The value of one credential now; also for `verify=` and facts. Raises NeedsAuthorisation, Away."""
    points.reach("before-obtain")
    given = _asked(name, _provider(name).obtain)
    points.reach("after-obtain")
    if problem := _unfit(given):
        raise _needed(name, NeedsAuthorisation("", problem))
    redaction.keep_out(name, given)
    return given


def _provider(name: str) -> Provider:
    provider = _providers.get(name)
    if provider is None:
        raise _needed(name, NeedsAuthorisation("", "nobody provides it; see credentials.register"))
    return provider


def _unfit(given: object) -> str:
    if not isinstance(given, str):
        return f"its provider gave {type(given).__name__}, and not text"
    if len(given) < redaction.SHORTEST:
        least = redaction.SHORTEST
        return f"its value has fewer than {least} characters: too short to be kept out of what is recorded"
    return ""


def _asked(name: str, ask: Callable[[], T], within: float | None = None) -> T:
    """What an author's provider answers; whatever else it does is an obstacle, and tried again later."""
    limit = settings.CREDENTIAL_TIMEOUT if within is None else within
    try:
        with timers.limit(limit):
            return ask()
    except Obstacle as needed:
        if not isinstance(needed, NeedsAuthorisation):
            raise
        raise _needed(name, needed) from None
    except Unavailable as away:
        raise _away(away) from None
    except timers.OutOfTime:
        problem = f"no answer in {limit:g} s"
    except Exception as error:  # an author's code
        problem = redaction.said(error, 300)
    trouble = _needed(name, NeedsAuthorisation("", f"its provider failed ({problem}); it is asked again"))
    trouble.look_again_in = settings.LOOK_AGAIN
    raise trouble


def _away(error: Unavailable) -> Away:
    away = Away(redaction.kept(error.dependency, 100), redaction.kept(str(error), 1000))
    away.look_again_in = settings.LOOK_AGAIN
    return away


def _needed(name: str, needed: NeedsAuthorisation) -> NeedsAuthorisation:
    """The same, with the credential's name; kept, so that its owner sees it."""
    url, why = redaction.kept(needed.url, 2000), redaction.kept(needed.why, 500)
    _keep_problem(name, url, why)
    told = NeedsAuthorisation(url, f"The credential “{name}”: {why}")
    told.subject = name
    return told


def _keep_problem(name: str, url: str, problem: str) -> None:
    with transaction.atomic():
        Credential.objects.get_or_create(name=name)
        found = Credential.objects.select_for_update().get(pk=name)
        if (found.needs_url, found.problem) != (url, problem):
            Credential.objects.filter(pk=name).update(needs_url=url, problem=problem, changed_at=Now())
            journal.write(found, SYSTEM, "needed", why=problem, url=url)


# -- Renewing -----------------------------------------------------------------------------


def version(name: str) -> int:
    """How often it was renewed: read before a value is obtained, so that `renew` knows which one was refused."""
    return Credential.objects.filter(pk=name).values_list("version", flat=True).first() or 0


def renewed(names: Sequence[str], error: CredentialRefused, given: Mapping[str, str]) -> dict[str, str]:
    """Every credential of a call once more, after the one that was refused was renewed: once for all who were
    refused the same value. Raises NeedsAuthorisation, Away."""
    name = _named(names, error)
    for _ in range(
        2
    ):  # once more where another worker renewed, and this process's provider has not heard of it
        seen = version(name)
        if value(name) != given.get(name):
            break
        renew(name, seen)
    return obtain(names)


def _named(names: Sequence[str], error: CredentialRefused) -> str:
    """The credential that was refused: one of those its tool names."""
    if error.credential in names:
        return error.credential
    said = redaction.kept(error.credential, 50)
    why = f"The tool says that “{said}” was refused, which it does not name in credentials=."
    raise _needed(names[0] if names else "unknown", NeedsAuthorisation("", why))


def renew(name: str, refused: int) -> None:
    """Renews what was refused, unless another worker has done so since version `refused`; waits for one that
    does. Raises NeedsAuthorisation, Away: the provider cannot."""
    Credential.objects.get_or_create(name=name)
    points.reach("before-renewal-claimed")
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
    ask = _provider(name).renew
    points.reach("before-provider-renews")
    try:
        if ask is None:
            why = "It was refused, and its provider cannot renew it."
            raise _needed(name, NeedsAuthorisation("", why))
        _asked(name, ask, RENEWS_WITHIN - MARGIN)
        points.reach("after-provider-renews")
    except BaseException:
        Credential.objects.filter(pk=name).update(renewing_until=None)
        raise
    with transaction.atomic():
        found = Credential.objects.select_for_update().get(pk=name)
        found.version += 1
        journal.write(found, SYSTEM, "renewed", version=found.version)
        Credential.objects.filter(pk=name).update(
            renewing_until=None, version=F("version") + 1, changed_at=Now()
        )


# -- Refused and authorised --------------------------------------------------------------------


def refused(names: Sequence[str], error: BaseException | None) -> Obstacle:
    """What a call waits for that was refused once more after a renewal, or whose tool asks for a person."""
    if isinstance(error, Obstacle) and error.subject:
        return error
    if isinstance(error, NeedsAuthorisation):
        return _needed(names[0] if names else "unknown", error)
    assert isinstance(error, CredentialRefused)
    try:
        name = _named(names, error)
    except NeedsAuthorisation as needed:
        return needed
    return _needed(name, NeedsAuthorisation("", f"it was refused, also after a renewal ({error})"))


def succeeded(names: Sequence[str]) -> None:
    """A call got through with them: whatever was wrong with one is over, and what waits for it goes on."""
    if names:
        for name in Credential.objects.standing().filter(pk__in=names).values_list("pk", flat=True):
            _over(name, SYSTEM, "worked", "a call got through with it")


def authorised(name: str, *, actor: Actor, why: str = "") -> int:
    """Its owner has authorised it again: what waits for it goes on. How many calls wait. Twice is once.

    Raises NotFound.
    """
    if not Credential.objects.filter(pk=name).exists():
        raise NotFound(f"no call has asked for a credential {name}")
    return _over(name, actor, "authorised", why)


def _over(name: str, actor: Actor, verb: str, why: str) -> int:
    with transaction.atomic():
        found = Credential.objects.select_for_update().get(pk=name)
        waiting = Hold.objects.waiting_for(Cause.CREDENTIAL, name)
        if not found.problem and not waiting.exists():
            return 0
        Credential.objects.filter(pk=name).update(needs_url="", problem="", changed_at=now())
        journal.write(found, actor, verb, why=why)
    return release_waiting(name)


def release_waiting(name: str) -> int:
    """Lets what waits for a credential go on, a few calls a second; how many there are."""
    return holds.let_go(Hold.objects.waiting_for(Cause.CREDENTIAL, name))


def forgotten() -> set[str]:
    """Names that calls wait for although nothing is wrong any more: placed just after it was over."""
    waiting = Hold.objects.open().filter(cause=Cause.CREDENTIAL, look_again_at__isnull=True)
    named = set(waiting.values_list("subject", flat=True).distinct())
    return named - set(Credential.objects.standing().filter(pk__in=named).values_list("pk", flat=True))
