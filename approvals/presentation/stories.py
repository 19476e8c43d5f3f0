"""What people know of a run beyond its record: headlines, who decided, the address of a step's request.

`runs` draws the page and knows none of this; it asks through `runs.views.tell_with`. An address is told only
to those who may see the request.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.http import HttpRequest
from django.urls import reverse

from approvals import reviewers, rights
from approvals.models import Decision, Request
from approvals.presentation import outcomes, quorum, shown
from approvals.states import PENDING
from runs import callers
from runs.callers import Caller
from runs.models import Hold, Step
from runs.views import Event

NAMED = 3
SAID = {"approve": "Approved", "edit": "Edited and approved", "reject": "Rejected", "respond": "Answered"}


def tell(request: HttpRequest, steps: list[Step], held: list[Hold]) -> None:
    """Sets `headline`, `decided` and `request_url` of steps, `request_url` of holds and, of the first
    that is open, `people`: who may decide. Two queries, and those of who may decide."""
    wanted = {step.pk for step in steps} | {hold.step_id for hold in held}
    found = reviewers.visible_to(request.user).filter(step__in=wanted - {None}).distinct()
    seen = {row.step_id: row for row in found.select_related("group", "run")}
    urls = {pk: row.get_absolute_url() for pk, row in seen.items()}
    for step in steps:
        step.headline = shown.headline(step.tool, step.sent)  # type: ignore[attr-defined]
        step.decided = _decided(step)  # type: ignore[attr-defined]
        step.request_url = urls.get(step.pk, "")  # type: ignore[attr-defined]
    caller = callers.of(request)
    for hold in held:
        hold.request_url = urls.get(hold.step_id or 0, "")  # type: ignore[attr-defined]
        hold.question = _question(caller, hold)  # type: ignore[attr-defined]
    asking = [h for h in held if h.is_open and h.step_id in seen and seen[h.step_id].state in PENDING]
    for hold in asking[:1]:
        hold.people = _people(seen[hold.step_id or 0])  # type: ignore[attr-defined]


def _question(caller: Caller, hold: Hold) -> dict[str, Any] | None:
    """What a reviewer asked, to who may answer it; in the words that its hold tells, which name nobody."""
    asked = hold.detail.get("inquiry") if hold.is_open else None
    if not asked or not caller.own(hold.run):
        return None
    at = datetime.fromisoformat(asked["at"])
    return {"text": asked["text"], "at": at, "url": reverse("answer", args=[hold.run_id, asked["id"]])}


def _people(request: Request) -> str:
    """`Ana R. or Ben B.`; a larger group by its name, and nobody as such."""
    if request.group is not None and request.group.user_set.count() > NAMED:
        return f"somebody of “{request.group.name}”"
    names = [rights.display_name(person) for person in reviewers.candidates(request)]
    return " or ".join(names) or "somebody (nobody may at present)"


def decisions(request: HttpRequest, steps: Sequence[Step]) -> list[Event]:
    """What people said of these steps, for those who may see the requests. One query."""
    theirs = reviewers.visible_to(request.user).filter(step__in=[step.pk for step in steps])
    known = quorum.told(Decision.objects.filter(request__in=theirs), str(request.user.pk))
    made = list(known.select_related("request__step", "revision", "undone"))
    back = [_taken_back(each) for each in made if outcomes.is_undone(each)]
    return back + [
        Event(
            each.made_at,
            "decided",
            _said(each),
            each.person_name,
            each.door,
            each.reason,
            each.request.step.index,
        )
        for each in made
    ]


def _taken_back(decision: Decision) -> Event:
    undo, index = decision.undone, decision.request.step.index
    what = "Taken back" if undo.person_id == decision.person_id else "Decision stopped"
    return Event(undo.made_at, "hold", what, undo.person_name, undo.door, undo.reason, index)


def _said(decision: Decision) -> str:
    edited = decision.revision.edited and decision.verb == "approve"
    return SAID.get("edit" if edited else decision.verb, str(decision.verb).capitalize())


def _decided(step: Step) -> str:
    """`Approved by Ana R.: as agreed with the customer`; empty where nobody was asked."""
    if not step.decision:
        return ""
    verb, by, note = (str(step.decision.get(key) or "") for key in ("verb", "by", "note"))
    said = f"{SAID.get(verb, verb.capitalize())} by {by}" if by else SAID.get(verb, verb.capitalize())
    return f"{said}: {note}" if note else said
