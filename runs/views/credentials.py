"""The owner's button: a credential that calls wait for, where it is authorised again, and saying that it is.

Its owner and operators may; who may see a run that waits for it sees that it does. Nothing of a value is here.
"""

import uuid
from dataclasses import dataclass
from urllib.parse import urlsplit

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from runs import callers, clock, credentials, journal
from runs.callers import Caller
from runs.models import Credential, Hold, Run
from runs.states import Cause


@dataclass(frozen=True, slots=True)
class Authorise:
    """What a page offers. `url`: where it is authorised, if that is an address to follow; `may`: to say that it is.
    `known` is empty where no call ever got as far as to ask for it."""

    name: str
    url: str
    owner: str
    may: bool
    known: bool


def show(standing: list[Hold], caller: Caller) -> None:
    """Gives each open hold for a credential what to do about it; none where it goes on by itself."""
    for hold in standing:
        if hold.cause == Cause.CREDENTIAL and hold.subject:
            found = Credential.objects.filter(pk=hold.subject).first()
            hold.authorise = _offer(hold.subject, found, caller)  # type: ignore[attr-defined]


def _offer(name: str, found: Credential | None, caller: Caller) -> Authorise:
    url = _address(found.needs_url) if found else ""
    return Authorise(name, url, credentials.owner(name), _may(caller, name), found is not None)


def _address(url: str) -> str:
    """A provider's address, if it is one that a browser may follow."""
    try:
        return url if urlsplit(url).scheme in ("https", "http") else ""
    except ValueError:
        return ""


def _may(caller: Caller, name: str) -> bool:
    owner = credentials.owner(name)
    return caller.operator or bool(owner and caller.has_address(owner))


def _sees(caller: Caller, name: str) -> bool:
    waiting = Hold.objects.filter(cause=Cause.CREDENTIAL, subject=name).values("run")
    return _may(caller, name) or caller.visible(Run.objects.filter(pk__in=waiting)).exists()


@require_safe
@never_cache
@login_required
def detail(request: HttpRequest, name: str) -> HttpResponse:
    """One credential, also for an owner who may see none of the runs that wait for it."""
    caller, found = callers.of(request), _find(name)
    if found is None or not _sees(caller, name):
        return render(request, "404.html", status=404)
    return _page(request, found, caller)


def _page(request: HttpRequest, found: Credential, caller: Caller) -> HttpResponse:
    waiting, authorise = (
        Hold.objects.waiting_for(Cause.CREDENTIAL, found.name),
        _offer(found.name, found, caller),
    )
    if not authorise.may:  # what they may not see is not counted either
        waiting = waiting.filter(run__in=caller.visible(Run.objects.all()).values("pk"))
    context = {
        "now": clock.now(),
        "credential": found,
        "authorise": authorise,
        "waiting": waiting.count(),
    }
    return render(request, "runs/credential.html", context)


def _find(name: str) -> Credential | None:
    return None if "\x00" in name else Credential.objects.filter(pk=name).first()


@require_POST
@never_cache
@login_required
def authorised(request: HttpRequest, name: str) -> HttpResponse:
    """Its owner has authorised it: 303 to where they came from. 404, 403."""
    caller, found = callers.of(request), _find(name)
    if found is None or not _sees(caller, name):
        return render(request, "404.html", status=404)
    if not _may(caller, name):
        with transaction.atomic():
            journal.write(found, caller.actor, "refused", asked="authorised", code="forbidden")
        why = "Its owner says that this credential is authorised, or an operator."
        return render(request, "403.html", {"why": why}, status=403)
    waiting = credentials.authorised(name, actor=caller.actor)
    messages.success(request, _said(waiting))
    response = redirect(_back(request, caller, name))
    response.status_code = 303
    return response


def _said(waiting: int) -> str:
    if not waiting:
        return "Nothing waits for it any more."
    goes = "One call goes on" if waiting == 1 else f"{waiting} calls go on"
    return f"{goes}. If it is refused again, this page says so."


def _back(request: HttpRequest, caller: Caller, name: str) -> str:
    """The run whose page had the button, where this caller sees it."""
    try:
        run = caller.visible(Run.objects.all()).filter(pk=uuid.UUID(request.POST.get("run", ""))).first()
    except ValueError:
        run = None
    return run.get_absolute_url() if run else reverse("credential", args=[name])
