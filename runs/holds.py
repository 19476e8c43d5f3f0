"""Holds: placing one, releasing one, and the pause that people place.

`release` is the one way back: it closes one hold, whatever the cause, and where something may start again
asks `lifecycle.resume`. Both lock the run's row first, so that two releases, a release and an expiry, or a
pause and a call are decided by who comes first.
"""

import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import F

from runs import journal, lifecycle, signals, statements
from runs.actors import SYSTEM, Actor
from runs.clock import Now, now
from runs.exceptions import HoldClosed, NotFound, RunEnded, WrongState
from runs.models import Hold, Run, Step
from runs.states import RUN_SCOPED, Cause, RunStatus, Scope, StepStatus


@dataclass(frozen=True, slots=True)
class Terms:
    """When a hold ends by itself and when to look again, in seconds from now; None: never."""

    expires_in: float | None = None
    look_again_in: float | None = None


NO_END = Terms()


def place(
    run: Run,
    *,
    cause: Cause,
    actor: Actor,
    step: Step | None = None,
    why: str = "",
    detail: dict[str, Any] | None = None,
    terms: Terms = NO_END,
    context: object = None,
) -> Hold:
    """A new open hold. `run` is locked. `context` goes to those who hear of it (what a request is made of).

    Raises RunEnded.
    """
    if run.ended:
        raise RunEnded(f"run {run.pk} has ended: {run.status}")
    hold = _create(run, cause, actor, step, why, detail or {}, terms)
    _count(run, step, cause)
    journal.write(
        run, actor, "held", cause=str(cause), index=step.index if step else None, why=why, hold=str(hold.pk)
    )
    signals.hold_placed.send(Hold, run=run, hold=hold, step=step, context=context)
    return hold


def _create(
    run: Run, cause: Cause, actor: Actor, step: Step | None, why: str, detail: dict[str, Any], terms: Terms
) -> Hold:
    at = now()
    return Hold.objects.create(
        run=run,
        step=step,
        cause=cause,
        scope=Scope.RUN if cause in RUN_SCOPED else Scope.CALL,
        why=why,
        detail=detail,
        opened_at=at,
        opened_by_kind=actor.kind,
        opened_by_id=actor.id,
        opened_by_name=actor.name,
        opened_through=actor.door,
        by_operator=actor.operator,
        expires_at=at + timedelta(seconds=terms.expires_in) if terms.expires_in is not None else None,
        look_again_at=at + timedelta(seconds=terms.look_again_in)
        if terms.look_again_in is not None
        else None,
    )


def _count(run: Run, step: Step | None, cause: Cause) -> None:
    """The counts that guards read. A call in doubt stays dispatched; any other held call is `held`."""
    if step is None:
        Run.objects.filter(pk=run.pk).update(open_holds=F("open_holds") + 1, changed_at=Now())
        run.open_holds += 1
        return
    Run.objects.filter(pk=run.pk).update(changed_at=Now())
    changes: dict[str, Any] = {"open_holds": F("open_holds") + 1}
    if cause != Cause.IN_DOUBT:
        changes["status"] = StepStatus.HELD
    Step.objects.filter(pk=step.pk).update(**changes)


def release(
    hold_id: uuid.UUID,
    *,
    actor: Actor,
    resolution: str,
    answer: str | None = None,
    only_expired: bool = False,
) -> Hold:
    """Closes one hold and resumes its run where something may start again.

    Raises HoldClosed: somebody released it first, its run ended, or (`only_expired`) its time is not up.
    """
    with transaction.atomic():
        run = lifecycle.lock(_run_of(hold_id))
        hold = Hold.objects.select_for_update().get(pk=hold_id)
        if only_expired and not (hold.expires_at and hold.expires_at <= now()):
            raise HoldClosed(f"hold {hold_id} has not expired")
        return release_locked(run, hold, actor=actor, resolution=resolution, answer=answer)


def release_locked(run: Run, hold: Hold, *, actor: Actor, resolution: str, answer: str | None = None) -> Hold:
    """`release` for those who hold the run's lock already. Raises HoldClosed."""
    told = {"cause": hold.cause, "resolution": resolution, "hold": str(hold.pk)}
    closed = statements.row(
        statements.RELEASE,
        {
            "run": run.pk,
            "hold": hold.pk,
            "resolution": resolution,
            "answer": answer,
            **journal.parameters(actor, "released", told),
        },
    )
    if closed is None:
        raise HoldClosed(f"hold {hold.pk} was released before: {hold.resolution}")
    run.open_holds, run.wakes, hold.released_at = closed
    hold.resolution, hold.answer = resolution, answer
    hold.released_by_kind, hold.released_by_id = actor.kind, actor.id
    hold.released_by_name, hold.released_through = actor.name, actor.door
    signals.hold_released.send(Hold, run=run, hold=hold)
    if may_start(run):
        lifecycle.resume(run, actor)
    return hold


def _run_of(hold_id: uuid.UUID) -> uuid.UUID:
    found: uuid.UUID | None = Hold.objects.filter(pk=hold_id).values_list("run_id", flat=True).first()
    if found is None:
        raise NotFound(f"there is no hold {hold_id}")
    return found


def may_start(run: Run) -> bool:
    """Whether something that a suspended run wants may start: no hold binds the run, and a call of it is
    free, or it stopped between two calls. `run` is locked."""
    if run.status != RunStatus.SUSPENDED or run.open_holds:
        return False
    waiting = list(Step.objects.filter(run=run).pending().values_list("open_holds", flat=True))
    return not waiting or 0 in waiting


def expire(hold_id: uuid.UUID) -> bool:
    """Releases a hold whose time is up; the call it held ends `Expired`. False: not due, or closed before."""
    try:
        release(hold_id, actor=SYSTEM, resolution="expired", only_expired=True)
    except HoldClosed:
        return False
    return True


def set_expiry(run: Run, hold: Hold, expires_at: datetime | None, *, actor: Actor) -> None:
    """Moves the end of an open hold; None: it has none any more. `run` is locked."""
    if Hold.objects.open().filter(pk=hold.pk).update(expires_at=expires_at):
        told = expires_at.isoformat() if expires_at else None
        journal.write(run, actor, "expiry_set", hold=str(hold.pk), expires_at=told)


def look_again(hold_id: uuid.UUID) -> bool:
    """Lets the worker look again at a doubt or a dependency. False: closed before."""
    try:
        release(hold_id, actor=SYSTEM, resolution="look_again")
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
        run = lifecycle.lock(run_id)
        standing = Hold.objects.open().filter(run=run, cause=Cause.PERSON).first()
        if standing is None:
            return place(run, cause=Cause.PERSON, actor=actor, why=why)
        if actor.operator and not standing.by_operator:
            Hold.objects.filter(pk=standing.pk).update(by_operator=True)
            journal.write(run, actor, "pause_taken_over", hold=str(standing.pk), why=why)
        return standing


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
