"""Taking a decision back before it is in force, in the transaction that `take_effect` would need too.

Who decided may; at R3 and R4 also another reviewer who may decide, with a reason. The request is open again: the same
revision, the same deadline, and what others said of it still counts. Where the deadline has passed meanwhile, it
expires.
"""

import uuid
from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth.models import User
from django.db import transaction

from approvals import notifications, reviewers, rights
from approvals.decisions import checks
from approvals.exceptions import ApprovalsError, Closed, NotEligible, NotVisible
from approvals.models import Decision, Request, Undo
from approvals.states import PENDING, STANDING, RequestState
from runs import holds, journal, lifecycle
from runs.actors import SYSTEM
from runs.clock import now
from runs.models import Run

#: Tiers at which others who may decide can stop a decision.
STOPPED_BY_OTHERS = frozenset({"R3", "R4"})
UNKNOWN = "It doesn't exist, or isn't assigned to you."
NOT_YOURS = "It is not your decision, so you cannot take it back."


@dataclass(frozen=True, slots=True)
class Undone:
    """`again`: it was taken back before, nothing new was written. `expired`: its time was up meanwhile."""

    request: Request
    undo: Undo
    again: bool = False
    expired: bool = False


def undo(decision_id: uuid.UUID, *, person: User, reason: str = "", door: str = "page") -> Undone:
    """Takes a decision back.

    Raises NotVisible, NotEligible (somebody else's, below R3, or not a reviewer of it), Unfit (somebody else's, and
    no reason), and Closed: `too_late`, it was used or its window ended; or however the request ended otherwise.
    """
    try:
        with transaction.atomic():
            return _undo(decision_id, person, reason, door)
    except NotVisible:
        raise
    except ApprovalsError as refused:
        _journal_refusal(decision_id, person, door, refused)
        raise


def _journal_refusal(decision_id: uuid.UUID, person: User, door: str, refused: ApprovalsError) -> None:
    with transaction.atomic():
        decision = Decision.objects.select_related("request").get(pk=decision_id)
        request, told = decision.request, {"verb": "undo", "code": refused.code, "digest": decision.digest}
        told |= {"decision": str(decision_id)}
        journal.write(request, rights.actor(person, door), "refused", **told)


def _undo(decision_id: uuid.UUID, person: User, reason: str, door: str) -> Undone:
    decision, request, run = _locked(decision_id)
    fresh, at = User.objects.filter(pk=person.pk).first(), now()
    if fresh is None or not reviewers.eligibility(fresh, request).sees:
        raise NotVisible(UNKNOWN)
    mine = decision.person_id == str(person.pk)
    before = Undo.objects.filter(decision=decision).first()
    if not mine:
        _require_may_stop(fresh, decision, request)
    if before is not None:
        return Undone(request, before, again=True, expired=request.state == RequestState.EXPIRED)
    _require_in_time(decision, request, at)
    reason = checks.words(reason, "reason", needed="" if mine else "Say why: it is somebody else’s decision.")
    return _write(decision, request, run, fresh, reason, door, at)


def _locked(decision_id: uuid.UUID) -> tuple[Decision, Request, Run]:
    decision = Decision.objects.select_related("revision").filter(pk=decision_id).first()
    if decision is None:
        raise NotVisible(UNKNOWN)
    run_id = Request.objects.filter(pk=decision.request_id).values_list("run_id", flat=True).get()
    run = lifecycle.lock(run_id)
    rows = Request.objects.select_for_update(of=("self",)).select_related("hold", "group", "step")
    request = rows.get(pk=decision.request_id)
    request.run = run
    return decision, request, run


def may_stop(person: User, decision: Decision, request: Request) -> bool:
    """Whether a person who did not make it may stop it while it is not in force."""
    high = decision.revision.judgement.get("tier", "R4") in STOPPED_BY_OTHERS
    return high and reviewers.eligibility(person, request).decides


def _require_may_stop(person: User, decision: Decision, request: Request) -> None:
    if why := reviewers.eligibility(person, request).why_not:
        raise NotEligible(why)
    if not may_stop(person, decision, request):
        raise NotEligible(NOT_YOURS)


def _require_in_time(decision: Decision, request: Request, at: datetime) -> None:
    if request.state in PENDING:
        raise Closed("waits", "It is not decided yet: others still have to approve it.")
    if request.state not in STANDING and request.state not in (RequestState.CONSUMED, RequestState.REJECTED):
        raise checks.closed(request)
    if request.number != decision.revision.number:
        raise Closed("void", "It no longer counts: what it was about changed.")
    last = carrying(request)
    if request.state == RequestState.DECIDED and last is not None and last.verb != decision.verb:
        said = f"{last.person_name} decided otherwise: what you said has no effect that could be taken back."
        raise Closed("decided", said, by=last.person_name, at=last.made_at, verb=last.verb)
    until = request.takes_effect_at
    if request.state != RequestState.DECIDED or until is None or until <= at:
        raise Closed("too_late", _used(request), at=until or request.step.dispatched_at or request.decided_at)


def carrying(request: Request) -> Decision | None:
    """The decision whose verb takes effect: others that stand may have said something else before."""
    said = request.decisions.standing().filter(revision__number=request.number)
    return said.select_related("revision").order_by("made_at").last()


def _used(request: Request) -> str:
    if request.step.dispatched_at is not None:
        return "The run has used it."
    if request.state == RequestState.DECIDED:
        return "The time in which it could be taken back is over."
    return "It is in force, and the run has been told."


def _write(
    decision: Decision, request: Request, run: Run, person: User, reason: str, door: str, at: datetime
) -> Undone:
    actor = rights.actor(person, door)
    made = Undo.objects.create(
        decision=decision, person_id=str(person.pk), person_name=actor.name, reason=reason, door=door
    )
    asked = request.inquiries.filter(answered_at=None, number=request.number).exists()
    state = str(RequestState.NEEDS_INFO if asked else RequestState.OPEN)
    changes = {"state": state, "decided_at": None, "takes_effect_at": None}
    told = {"decision": str(decision.pk), "by": decision.person_name, "revision": request.number}
    told |= {"digest": decision.digest}
    journal.move(request, actor, "undone", changes, **told, why=reason)
    holds.set_expiry(
        run, request.hold, request.decide_by, actor=SYSTEM
    )  # the run’s history names no reviewer
    expired = request.decide_by is not None and request.decide_by <= at
    if expired:
        holds.release_locked(run, request.hold, actor=SYSTEM, resolution="expired")
    else:
        _tell(decision, request, person)
    request.refresh_from_db()
    request.run = run
    return Undone(request, made, expired=expired)


def _tell(decision: Decision, request: Request, person: User) -> None:
    """Who made it hears that another stopped it; they may decide again."""
    if decision.person_id != str(person.pk):
        notifications.tell(
            request, f"stopped.{decision.nth}", User.objects.filter(pk=int(decision.person_id))
        )
