"""The small verbs beside the decision: each parses a form, calls one verb of `desk`, and shows the request again.

What a verb refuses is said on the page, with what was typed.
"""

import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST

from approvals import decisions, desk
from approvals.exceptions import Closed, NotEligible, NotVisible, Taken, Unfit
from approvals.models import Request
from approvals.presentation import pages
from approvals.views.afterwards import show_receipt
from approvals.views.page import find, page, person_of
from approvals.views.request import show
from runs import clock

LONGEST = 30 * 86400
#: Where on the page what is wrong stands.
PLACES = {
    "question": "ask-text",
    "comment": "comment-text",
    "to": "to",
    "reason": "to-reason",
    "until": "until",
}


@page
@require_POST
def ask(request: HttpRequest, ref: str) -> HttpResponse:
    text = request.POST.get("question", "")
    return _act(request, ref, lambda who: desk.ask(ref, person=who, text=text))


@page
@require_POST
def comment(request: HttpRequest, ref: str) -> HttpResponse:
    text = request.POST.get("comment", "")
    return _act(request, ref, lambda who: desk.comment(ref, person=who, text=text))


@page
@require_POST
def delegate(request: HttpRequest, ref: str) -> HttpResponse:
    reason, to = request.POST.get("reason", ""), _person(request.POST.get("to", ""))

    def do(who: User) -> object:
        if to is None:
            raise Unfit({"to": "Choose whom you pass it on to."})
        return desk.delegate(ref, person=who, to=to, reason=reason)

    return _act(request, ref, do)


def _person(text: str) -> User | None:
    return User.objects.filter(pk=int(text)).first() if text.isdecimal() and len(text) < 10 else None


@page
@require_POST
def snooze(request: HttpRequest, ref: str) -> HttpResponse:
    seconds = request.POST.get("for", "")

    def do(who: User) -> object:
        if not (seconds.isdecimal() and len(seconds) < 10 and 0 < int(seconds) <= LONGEST):
            raise Unfit({"until": "Choose for how long."})
        return desk.snooze(ref, person=who, until=clock.now() + timedelta(seconds=int(seconds)))

    return _act(request, ref, do, to="inbox")


@page
@require_POST
def wake(request: HttpRequest, ref: str) -> HttpResponse:
    return _act(request, ref, lambda who: desk.wake(ref, person=who))


@page
@require_POST
def reserve(request: HttpRequest, ref: str) -> HttpResponse:
    return _act(request, ref, lambda who: desk.reserve(ref, person=who))


@page
@require_POST
def let_go(request: HttpRequest, ref: str) -> HttpResponse:
    return _act(request, ref, lambda who: desk.let_go(ref, person=who))


@page
@require_POST
def more_time(request: HttpRequest, ref: str) -> HttpResponse:
    seen = request.POST.get("seen", "")
    times = int(seen) if seen.isdecimal() and len(seen) < 4 else 0
    return _act(request, ref, lambda who: desk.more_time(ref, person=who, seen=times))


def _act(
    request: HttpRequest, ref: str, verb: Callable[[User], object], *, to: str = "request"
) -> HttpResponse:
    found = find(request, ref)
    try:
        verb(person_of(request))
    except (Unfit, Taken) as error:
        said = error.errors if isinstance(error, Unfit) else {"": str(error)}
        errors = [(PLACES.get(name, "decide"), text) for name, text in said.items()]
        return show(request, find(request, ref), status=error.status, errors=errors)
    except (Closed, NotEligible) as error:
        return refused(request, found.ref, error)
    return redirect(to, ref=ref) if to == "request" else redirect(to)


def refused(request: HttpRequest, ref: str, error: Closed | NotEligible, **more: Any) -> HttpResponse:
    """Why it was not done, with what was typed kept."""
    found, now = find(request, ref), clock.now()
    names = {"question": "Your question", "comment": "Your comment", "reason": "Your reason"}
    typed = [(label, request.POST.get(name, "")) for name, label in names.items()]
    context = {
        "now": now,
        "item": pages.item(found, found.revision, now),
        "closed": pages.not_done(found, error),
        "typed": [(label, text) for label, text in typed if text],
        "again": False,
        "refresh": None,
        "run_url": found.run.get_absolute_url(),
        "run_short": found.run.short_id,
        **more,
    }
    return render(request, "approvals/closed.html", context, status=error.status)


@page
@require_POST
def undo(request: HttpRequest, decision_id: uuid.UUID) -> HttpResponse:
    """Takes a decision back, or stops somebody else's; then its receipt says so."""
    found = Request.objects.filter(decisions=decision_id).first()
    if found is None:
        raise NotVisible("It doesn't exist, or isn't assigned to you.")
    try:
        decisions.undo(decision_id, person=person_of(request), reason=request.POST.get("reason", ""))
    except Unfit as error:
        errors = [("stop-reason", text) for text in error.errors.values()]
        return show_receipt(request, decision_id, status=error.status, errors=errors)
    except (Closed, NotEligible) as error:
        return refused(request, found.ref, error, stops=error.code == "too_late")
    return redirect("receipt", decision_id=decision_id)
