"""Holds: placing one, releasing one, and the pause that people place.

`release` is the one way back: it closes one hold, whatever the cause, and where something may start again
asks `lifecycle.resume`. Both lock the run's row first, so that two releases, a release and an expiry, or a
pause and a call are decided by who comes first.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import F, QuerySet, Subquery

from runs import journal, lifecycle, points, prepared, redaction, signals, statements
from runs.actors import SYSTEM, Actor
from runs.clock import now
from runs.exceptions import HoldClosed, NotFound, RunEnded, WrongState
from runs.models import Hold, Run, Step
from runs.states import RUN_SCOPED, Cause, EffectState, RunStatus, Scope, StepStatus, Then

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Terms:
    """When a hold's time is up and when to look again, in seconds from now; None: never."""

    expires_in: float | None = None
    look_again_in: float | None = None


NO_END = Terms()
_RUN_OF = Hold.objects.filter(pk=prepared.Given("hold")).order_by().values("run")
_RUN = prepared.Query(lambda: Run.objects.select_for_update().filter(pk=Subquery(_RUN_OF)).order_by())
_HOLD = prepared.Query(lambda: Hold.objects.select_for_update().filter(pk=prepared.Given("hold")).order_by())
_TIMERS = prepared.Rows(
    lambda: (
        Hold.objects.filter(pk=prepared.Given("hold"), on_expiry=Then.RELEASE).order_by().values_list("pk")
    )
)
_OF_STEP = prepared.Query(lambda: Step.objects.filter(pk=prepared.Given("step")))
_HELD_IN_DOUBT = prepared.Update(_OF_STEP.made, open_holds=F("open_holds") + 1)
_HELD = prepared.Update(_OF_STEP.made, open_holds=F("open_holds") + 1, status=StepStatus.HELD)
_WAITING = prepared.Rows(
    lambda: (
        Step.objects.filter(run=prepared.Given("run")).pending().order_by().values_list("pk", "open_holds")
    )
)
WHY, SUBJECT = 8000, 100  # characters that are kept

#: What comes of a hold of each cause whose time is up. Nothing here approves or allows.
THEN = {
    Cause.APPROVAL: Then.CALL,
    Cause.QUESTION: Then.CALL,
    Cause.EVENT: Then.CALL,
    Cause.TIMER: Then.RELEASE,
    Cause.ALLOWANCE: Then.CANCEL,
    Cause.CREDENTIAL: Then.CANCEL,
    Cause.DEPENDENCY: Then.WAIT,
    Cause.DIVERGED: Then.WAIT,
    Cause.VERSION: Then.WAIT,
}


def default_end(cause: Cause) -> float | None:
    """Seconds until a hold's time is up where nobody says otherwise; None: it has no end of its own."""
    return {
        Cause.ALLOWANCE: settings.ALLOWANCE_HOLD,
        Cause.CREDENTIAL: settings.CREDENTIAL_HOLD,
        Cause.DEPENDENCY: settings.DEPENDENCY_HOLD,
        Cause.DIVERGED: settings.DIVERGED_HOLD,
        Cause.VERSION: settings.DIVERGED_HOLD,
    }.get(cause)


def place(
    run: Run,
    *,
    cause: Cause,
    actor: Actor,
    step: Step | None = None,
    why: str = "",
    detail: dict[str, Any] | None = None,
    subject: str = "",
    child: Run | None = None,
    terms: Terms = NO_END,
    context: object = None,
    at: datetime | None = None,
) -> Hold:
    """A new open hold. `run` is locked. `context` goes to those who hear of it (what a request is made of); `at` is
    the time, where it was read under the lock.

    Raises RunEnded.
    """
    if run.ended:
        raise RunEnded(f"run {run.pk} has ended: {run.status}")
    why, subject = redaction.kept(why, WHY), redaction.kept(subject, SUBJECT)
    detail = redaction.scrub_value(detail or {})
    hold = _made(
        run, cause, actor, step, terms, at or now(), why=why, detail=detail, subject=subject, child=child
    )
    told = {"cause": str(cause), "index": step.index if step else None, "why": why, "hold": str(hold.pk)}
    with prepared.Batch():
        prepared.insert(hold)
        journal.move(run, actor, "held", _counted(run, step, cause), **told)
    signals.hold_placed.send(Hold, run=run, hold=hold, step=step, context=context)
    return hold


def _made(
    run: Run, cause: Cause, actor: Actor, step: Step | None, terms: Terms, at: datetime, **said: Any
) -> Hold:
    ends = terms.expires_in if terms.expires_in is not None else default_end(cause)
    looks = terms.look_again_in
    return Hold(
        run=run,
        step=step,
        cause=str(cause),
        scope=str(Scope.RUN if cause in RUN_SCOPED else Scope.CALL),
        opened_at=at,
        opened_by_kind=actor.kind,
        opened_by_id=actor.id,
        opened_by_name=actor.name,
        opened_through=actor.door,
        by_operator=actor.operator,
        expires_at=None if ends is None else at + timedelta(seconds=ends),
        on_expiry=THEN.get(cause, "") if ends is not None else "",
        look_again_at=None if looks is None else at + timedelta(seconds=looks),
        **said,
    )


def _counted(run: Run, step: Step | None, cause: Cause) -> dict[str, Any]:
    """The counts that guards read: the call's, and what changes of the run. A call in doubt stays dispatched; any
    other held call is `held`."""
    if step is None:
        run.open_holds += 1
        return {"open_holds": run.open_holds, "changed_at": journal.AT}
    stays = cause == Cause.IN_DOUBT or step.effect == EffectState.IN_DOUBT
    (_HELD_IN_DOUBT if stays else _HELD).write(step=step.pk)
    return {"changed_at": journal.AT}


def release(
    hold_id: uuid.UUID,
    *,
    actor: Actor,
    resolution: str,
    answer: str | None = None,
    only_expired: bool = False,
    only_due: bool = False,
) -> Hold:
    """Closes one hold and resumes its run where something may start again.

    Raises HoldClosed: somebody released it first, its run ended, its time is not up (`only_expired`), or it is not
    to be looked at again now (`only_due`).
    """
    with transaction.atomic():
        run, hold = _locked(hold_id)
        if only_expired and not (hold.expires_at and hold.expires_at <= now()):
            raise HoldClosed(f"hold {hold_id} has not expired")
        if only_due and not (hold.look_again_at and hold.look_again_at <= now()):
            raise HoldClosed(f"hold {hold_id} is not to be looked at now")
        return release_locked(run, hold, actor=actor, resolution=resolution, answer=answer)


def release_locked(
    run: Run,
    hold: Hold,
    *,
    actor: Actor,
    resolution: str,
    answer: str | None = None,
    waiting: Sequence[prepared.Row] | None = None,
) -> Hold:
    """`release` for those who hold the run's lock already. Raises HoldClosed.

    `waiting`: as `waiting(run)`, where it and the hold were read under the lock: then all of it is one round trip.
    """
    told = {"cause": hold.cause, "resolution": resolution, "hold": str(hold.pk)}
    parameters = {
        "run": run.pk,
        "hold": hold.pk,
        "resolution": resolution,
        "answer": answer,
        **journal.parameters(actor, "released", told),
    }

    def released(row: prepared.Row | None) -> None:
        if row is None:
            raise HoldClosed(f"hold {hold.pk} was released before: {hold.resolution}")
        points.committing("released")
        run.open_holds, run.wakes, hold.released_at = row
        hold.resolution, hold.answer = resolution, answer
        hold.released_by_kind, hold.released_by_id = actor.kind, actor.id
        hold.released_by_name, hold.released_through = actor.name, actor.door
        signals.hold_released.send(Hold, run=run, hold=hold)

    with prepared.Batch() as batch:
        prepared.write(statements.RELEASE, parameters, then=released)
        if waiting is None:
            asked = batch.ask(_WAITING, run=run.pk)
        elif _will_start(run, hold, waiting):
            lifecycle.resume_known(run, actor)
    if waiting is None and _may_start(run, asked.all()):
        lifecycle.resume(run, actor)
    return hold


def _locked(hold_id: uuid.UUID) -> tuple[Run, Hold]:
    """A hold's run and the hold, locked in this order. Raises NotFound."""
    with prepared.Batch() as batch:
        runs, found = batch.ask(_RUN, hold=hold_id), batch.ask(_HOLD, hold=hold_id)
    run, hold = runs.first(), found.first()
    if run is None or hold is None:
        raise NotFound(f"there is no hold {hold_id}")
    return run, hold


def waiting(run: Run) -> list[prepared.Row]:
    """The run's pending calls, each with how many holds it has. `run` is locked."""
    return _WAITING.all(run=run.pk)


def may_start(run: Run) -> bool:
    """Whether something that a suspended run wants may start: no hold binds the run, and a call of it is
    free, or it stopped between two calls. `run` is locked."""
    return _may_start(run, waiting(run))


def _may_start(run: Run, waiting: Sequence[prepared.Row]) -> bool:
    """`waiting`: its pending calls, each with how many holds it has."""
    if run.status != RunStatus.SUSPENDED or run.open_holds:
        return False
    return not waiting or any(holds == 0 for _, holds in waiting)


def _will_start(run: Run, hold: Hold, waiting: Sequence[prepared.Row]) -> bool:
    """Whether something may start as soon as an open hold is released; `run` and `waiting` are as before."""
    if run.status != RunStatus.SUSPENDED or run.open_holds != (hold.step_id is None):
        return False
    left = [holds - (step == hold.step_id) for step, holds in waiting]
    return not left or 0 in left


def expire(hold_id: uuid.UUID) -> bool:
    """Releases a hold whose time is up: the call it held ends `Expired`, or a timer has run. False: not due,
    or closed before."""
    resolution = "due" if _TIMERS.first(hold=hold_id) else "expired"
    try:
        release(hold_id, actor=SYSTEM, resolution=resolution, only_expired=True)
    except HoldClosed:
        return False
    return True


def overdue(hold_id: uuid.UUID) -> bool:
    """Notes that a hold outlasted its time, and says so to who listens; it stays. False: not due, or told before."""
    with transaction.atomic():
        run, hold = _locked(hold_id)
        at = now()
        if not Hold.objects.expired(at).filter(pk=hold_id).update(overdue_at=at):
            return False
        hold.overdue_at = at
        journal.write(run, SYSTEM, "overdue", hold=str(hold_id), cause=hold.cause)
        log.warning("hold_overdue", run=str(run.pk), cause=hold.cause, subject=hold.subject, why=hold.why)
        signals.hold_overdue.send(Hold, run=run, hold=hold)
    return True


def set_expiry(run: Run, hold: Hold, expires_at: datetime | None, *, actor: Actor) -> None:
    """Moves the end of an open hold; None: it has none any more. `run` is locked."""
    if Hold.objects.open().filter(pk=hold.pk).update(expires_at=expires_at):
        told = expires_at.isoformat() if expires_at else None
        journal.write(run, actor, "expiry_set", hold=str(hold.pk), expires_at=told)


def let_go(waiting: QuerySet[Hold]) -> int:
    """Gives holds the times at which they are looked at again: RELEASE_RATE a second, the longest waiting first.
    How many. One that somebody is working on keeps its own."""
    with transaction.atomic():
        rows = list(waiting.select_for_update(of=("self",), skip_locked=True).order_by("opened_at", "pk"))
        at = now()
        for place, hold in enumerate(rows):
            hold.look_again_at = at + timedelta(seconds=place / settings.RELEASE_RATE)
        Hold.objects.bulk_update(rows, ["look_again_at"], batch_size=500)
    return len(rows)


def hold_back(waiting: QuerySet[Hold]) -> int:
    """Takes those times away: they wait until somebody lets them go. How many."""
    with transaction.atomic():
        dated = waiting.filter(look_again_at__isnull=False)
        rows = list(dated.select_for_update(of=("self",), skip_locked=True).values_list("pk", flat=True))
        return Hold.objects.open().filter(pk__in=rows).update(look_again_at=None)


def look_again(hold_id: uuid.UUID, *, only_due: bool = False) -> bool:
    """Lets the worker look again at a doubt, a dependency or a credential. False: closed before, or (`only_due`)
    put off since it was found."""
    try:
        release(hold_id, actor=SYSTEM, resolution="look_again", only_due=only_due)
    except HoldClosed:
        return False
    return True


# -- Pause ------------------------------------------------------------------------


def pause(run_id: uuid.UUID, *, actor: Actor, why: str = "") -> Hold:
    """Nothing new starts after this returns; a call in flight is finished. Pausing twice is one pause: the
    first and its reason stay, but an operator's pause takes over a submitter's.

    Raises RunEnded.
    """
    with transaction.atomic():
        return pause_locked(lifecycle.lock(run_id), actor=actor, why=why)


def pause_locked(run: Run, *, actor: Actor, why: str, detail: dict[str, Any] | None = None) -> Hold:
    """`pause` for those who hold the run's lock already. Raises RunEnded."""
    standing = Hold.objects.open().filter(run=run, cause=Cause.PERSON).first()
    if standing is None:
        return place(run, cause=Cause.PERSON, actor=actor, why=why, detail=detail)
    if run.ended:
        raise RunEnded(f"run {run.pk} has ended: {run.status}")
    if actor.operator and not standing.by_operator:
        Hold.objects.filter(pk=standing.pk).update(by_operator=True)
        standing.by_operator = True
        journal.write(run, actor, "pause_taken_over", hold=str(standing.pk), why=why)
    return standing


def mark(hold: Hold, **words: Any) -> None:
    """Adds to what an open hold tells of itself; None takes a word away. Its run is locked."""
    hold.detail = {key: value for key, value in {**hold.detail, **words}.items() if value is not None}
    Hold.objects.open().filter(pk=hold.pk).update(detail=hold.detail)


def unpause(run_id: uuid.UUID, *, actor: Actor, why: str = "") -> Run:
    """Releases the pause, and nothing else.

    Raises RunEnded; WrongState when the run is not paused, or its pause is somebody else's to lift.
    """
    with transaction.atomic():
        run = lifecycle.lock(run_id)
        if run.ended:
            raise RunEnded(f"run {run_id} has ended: {run.status}")
        standing = Hold.objects.open().filter(run=run, cause=Cause.PERSON).first()
        if standing is None:
            raise WrongState(f"run {run_id} is not paused; it is {run.status}")
        if why_not := not_theirs(run, standing, actor):
            raise WrongState(why_not)
        release_locked(run, standing, actor=actor, resolution="resumed", answer=why or None)
        run.refresh_from_db()
    return run


def not_theirs(run: Run, pause: Hold, actor: Actor) -> str:
    """Why a pause is not this actor's to lift; empty: they may.

    An operator lifts any. The submitter's side (the owner, by page or by key) lifts its own, whoever else
    paused lifts theirs.
    """
    if actor.operator:
        return ""
    if pause.by_operator:
        return "an operator paused this run; only an operator can resume it"
    placed, asks = (pause.opened_by_kind, pause.opened_by_id), (actor.kind, actor.id)
    if placed == asks or (_submits(run, *placed) and _submits(run, *asks)):
        return ""
    return f"{pause.opened_by_name or 'a reviewer'} paused this run; only they or an operator can resume it"


def _submits(run: Run, kind: str, actor_id: str) -> bool:
    return kind in ("key", "command") or (kind == "person" and actor_id == run.owner_id)
