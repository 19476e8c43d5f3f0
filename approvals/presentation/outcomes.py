"""What followed a decision, and what is next for who made it."""

import json
from datetime import datetime
from typing import Any

from approvals import inbox
from approvals.models import Decision, Request
from approvals.presentation.pages import ENDS, headline
from approvals.states import RequestState
from runs.models import Step

MOST_WHY = 200
VOIDED = "It no longer counts: what it was about changed."


def outcome(request: Request, decision: Decision) -> tuple[list[dict[str, Any]], bool]:
    """What followed a decision, and whether nothing more will come."""
    if is_undone(decision):
        return [{"at": decision.undone.made_at, "what": _taken_back(decision), "tone": "bad"}], True
    if decision.revision.number != request.number:
        return [{"at": decision.made_at, "what": VOIDED, "tone": "bad"}], True
    if request.is_pending:
        waits = "It counts, and waits for somebody else's approval."
        return [{"at": decision.made_at, "what": waits, "tone": "still"}], True
    step, run = request.step, request.run
    told = []
    if request.decided_at is not None and request.state != RequestState.DECIDED:
        told.append({"at": request.decided_at, "what": "In force: the run has been told.", "tone": "still"})
    if step.dispatched_at is not None and step.permit:
        told.append({"at": step.dispatched_at, "what": "The call was made.", "tone": _while(step)})
    if step.settled_at is not None:
        told.append({"at": step.settled_at, "settles": True, **_settled(step)})
    if step.effect == "in_doubt":
        told.append(
            {"at": step.dispatched_at, "what": "Its outcome is in doubt; operators see it.", "tone": "bad"}
        )
    if run.ended_at is not None:
        told.append({"at": run.ended_at, "what": f"The run {ENDS[run.status]}.", "tone": _ended(run.status)})
    return told, run.ended or step.settled_at is not None


def _while(step: Step) -> str:
    return "moving" if step.settled_at is None else "still"


def _ended(status: str) -> str:
    return {"succeeded": "good", "failed": "bad"}.get(status, "still")


def is_undone(decision: Decision) -> bool:
    """Whether somebody took it back."""
    return hasattr(decision, "undone")


def _taken_back(decision: Decision) -> str:
    undo = decision.undone
    if undo.person_id == decision.person_id:
        return "Taken back before it was in force."
    return f"Stopped by {undo.person_name} before it was in force."


def _settled(step: Step) -> dict[str, str]:
    if step.status == "done":
        return {"what": "It succeeded." if step.effect else "The agent has the answer.", "tone": "good"}
    kind = json.loads(step.result or "{}").get("type", "an error").rpartition(":")[2]
    if kind == "Rejected":
        return {"what": "The agent read the rejection.", "tone": "still"}
    return {"what": f"It ended with {kind}{_why(step)}", "tone": "bad"}


def _why(step: Step) -> str:
    """The last text of what a recorded error says, which is its sentence where it has one."""
    said = [
        each
        for each in json.loads(step.result or "{}").get("args", [])
        if isinstance(each, str) and each.strip()
    ]
    return f": {said[-1][:MOST_WHY].rstrip('.')}." if said else "."


def awaited(request: Request) -> str:
    """What a decision's outcome still waits for."""
    if request.state == RequestState.DECIDED:
        return "It is not in force yet."
    if request.run.status == "suspended":
        return "Something else holds the run."
    return "The run goes on."


def next_item(person: Any, after: Request, now: datetime) -> dict[str, Any] | None:
    """The request at the head of this person's inbox."""
    found = inbox.first(person, now, but=after)
    if found is None:
        return None
    request, revision = found.request, found.revision
    return {
        "url": request.get_absolute_url(),
        "tier": request.tier,
        "headline": headline(request, revision),
        "decide_by": request.decide_by,
        "opened_at": revision.created_at,
    }
