"""What must be true of a decision, in the order of `DESIGN.md`; each check raises the answer it gives."""

import json
from datetime import datetime
from typing import Any

from approvals import answers, looks, requests, reviewers
from approvals.decisions.case import MAX_REASON, Case, Choice
from approvals.exceptions import Closed, NotEligible, Stale, Unfit
from approvals.models import Request
from approvals.states import PENDING, RequestKind, RequestState, Verb
from runs import values
from runs.exceptions import BadValue
from runs.models import FactReading, Run


def require_open(case: Case) -> None:
    require_pending(case.request, case.run, case.at)
    for mine in case.mine:
        if mine.revision_id == case.revision.pk:
            said = "You decided it before."
            raise Closed("decided", said, by=mine.person_name, at=mine.made_at, verb=mine.verb)


def require_pending(request: Request, run: Run, at: datetime) -> None:
    """Something can still be said of it. Raises Closed."""
    if request.state not in PENDING:
        raise closed(request)
    if asked := run.stop_requested:
        by = asked["by"]["name"] if asked["by"]["kind"] in requests.BY_NAME else ""
        raise Closed("cancelled", asked["why"] or "The run is being cancelled.", by=by, at=at)
    if request.decide_by is not None and request.decide_by <= at:
        raise Closed("expired", "It expired before a decision.", at=request.decide_by)


def closed(request: Request) -> Closed:
    """The answer for a request that is not open: its standing state, who and when."""
    if request.state in (
        RequestState.DECIDED,
        RequestState.IN_FORCE,
        RequestState.CONSUMED,
        RequestState.REJECTED,
    ):
        last = request.decisions.standing().order_by("made_at").last()
        if last is not None:
            said = f"{last.person_name} decided it first."
            return Closed("decided", said, by=last.person_name, at=last.made_at, verb=last.verb)
    at = request.decide_by if request.state == RequestState.EXPIRED else request.closed_at
    said = request.closed_why or f"It is {request.state}."
    return Closed(request.state, said, by=requests.closed_by(request), at=at)


def require_eligible(case: Case) -> None:
    allowed = reviewers.eligibility(case.person, case.request)
    if not allowed.decides:
        raise NotEligible(allowed.why_not)
    if case.choice.verb == Verb.APPROVE and reviewers.is_author(case.person, case.revision):
        raise NotEligible("You edited this action, so somebody else approves it.")


def require_fits(case: Case) -> None:
    """The verb belongs to the kind of request, and what comes with it is complete."""
    verbs = {
        RequestKind.APPROVAL: {Verb.APPROVE, Verb.REJECT},
        RequestKind.QUESTION: {Verb.RESPOND, Verb.REJECT},
    }
    allowed = sorted(map(str, verbs[RequestKind(case.request.kind)]))
    if case.choice.verb not in allowed:
        raise Unfit({"decision": f"{case.choice.verb!r} is none of {', '.join(allowed)}"})
    if case.choice.edit is not None and case.choice.verb != Verb.APPROVE:
        raise Unfit({"edited": "Only an approval can carry an edit."})
    _check_reason(case.choice)
    if case.choice.verb == Verb.RESPOND:
        _check_answer(case)


def _check_reason(choice: Choice) -> None:
    if choice.verb == Verb.REJECT and not choice.reason.strip():
        raise Unfit({"reason": "Say why: the agent reads it."})
    if len(choice.reason) > MAX_REASON:
        raise Unfit({"reason": f"{len(choice.reason):,} characters; at most {MAX_REASON:,}."})
    try:
        values.check(choice.reason)
    except BadValue as error:
        raise Unfit({"reason": error.message}) from None


def _check_answer(case: Case) -> None:
    schema = json.loads(case.revision.arguments)["form"]
    if errors := answers.misfits(schema, case.choice.answer):
        raise Unfit(errors)


def require_digest(case: Case) -> None:
    if case.choice.digest != case.revision.digest:
        raise Stale("It changed while you were reading.", changes=_since(case))


def _since(case: Case) -> list[dict[str, Any]]:
    """What changed after the revision whose digest the person saw."""
    seen = case.request.revisions.filter(digest=case.choice.digest).first()
    later = case.request.revisions.filter(number__gt=seen.number if seen else case.request.number - 1)
    return [change for revision in later for change in revision.changes]


def require_facts(case: Case, readings: list[FactReading]) -> None:
    """Blocking facts that moved since the proposal forbid approving; material ones must be ticked, at R1 and R2
    also those that could not be read."""
    moved = looks.moved(case.request, case.revision, readings)
    if blocks := looks.blocks(case.request, moved):
        raise Stale(
            "Approving isn't possible now: " + "; ".join(looks.sentence(m) for m in blocks), changes=blocks
        )
    unseen = [m for m in moved if m["kind"] == "material" and m["name"] not in case.choice.seen]
    if unseen:
        raise Unfit({f"ack-{m['name']}": f"Tick that you have seen: {looks.sentence(m)}" for m in unseen})


def words(text: str, field: str, *, needed: str = "Write something.", most: int = MAX_REASON) -> str:
    """A text as it is kept. Raises Unfit."""
    kept = text.replace("\r\n", "\n").strip()
    if not kept and needed:
        raise Unfit({field: needed})
    if len(kept) > most:
        raise Unfit({field: f"{len(kept):,} characters; at most {most:,}."})
    try:
        values.check(kept)
    except BadValue as error:
        raise Unfit({field: error.message}) from None
    return kept
