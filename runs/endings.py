"""The only way a run ends: its holds are closed, whoever hangs on it is told, then `lifecycle`.

A worker that finishes takes the short way (one statement) where nothing stands open. Everything else comes
through `end`, under the run's lock.
"""

import uuid

from django.db import transaction

from runs import allowance, claims, effects, holds, journal, lifecycle, signals, stops
from runs.actors import SYSTEM, Actor
from runs.clock import Now, now
from runs.exceptions import EpochLost, LostRace, RunEnded
from runs.lifecycle import Fence
from runs.models import Hold, Run, Step
from runs.states import EffectState, RunStatus, Then


def end(
    run: Run,
    status: RunStatus,
    actor: Actor,
    *,
    result: str | None = None,
    error: str | None = None,
    why: str = "",
) -> None:
    """Ends a live run. `run` is locked. Effects in doubt stay in doubt and visible.

    Raises RunEnded: it ended before. LostRace: it may not go to `status` from where it is.
    """
    if run.ended:
        raise RunEnded(f"run {run.pk} has ended: {run.status}")
    _close_holds(run, actor)
    _settle_or_leave_in_doubt(run, actor)
    allowance.close(run)
    claims.owe(run)
    lifecycle.close(run, status, actor, result=result, error=error, why=why)
    run.refresh_from_db()
    signals.run_ended.send(Run, run=run, actor=actor, why=why)


def _close_holds(run: Run, actor: Actor) -> None:
    closed = (
        Hold.objects.open()
        .filter(run=run)
        .update(
            released_at=Now(),
            released_by_kind=actor.kind,
            released_by_id=actor.id,
            released_by_name=actor.name,
            released_through=actor.door,
            resolution="run_ended",
        )
    )
    if closed:
        Step.objects.filter(run=run, open_holds__gt=0).update(open_holds=0)
        Run.objects.filter(pk=run.pk).update(open_holds=0)
        journal.write(run, actor, "holds_closed", count=closed)


def _settle_or_leave_in_doubt(run: Run, actor: Actor) -> None:
    """What is known of an effect, and the run did not get to adopt, is in the ledger. One whose worker died before
    its receipt says that it is open. Nobody looks at either any more."""
    for step in Step.objects.filter(run=run).effects().pending():
        if step.compensated_by_id is None and (known := effects.from_evidence(step)):
            if not lifecycle.left(run):  # it goes on elsewhere, and adopts it there
                effects.settle_ledger(step, known)
        elif step.effect == EffectState.DISPATCHED:
            Step.objects.filter(pk=step.pk).update(effect=EffectState.IN_DOUBT)
            why = "the run ended first"
            journal.write(run, actor, "in_doubt", index=step.index, attempt=step.attempt, why=why)


def finish(
    fence: Fence,
    status: RunStatus,
    *,
    result: str | None = None,
    error: str | None = None,
    quick: bool = True,
) -> None:
    """Ends a run its worker has driven to the end. Raises EpochLost. Not `quick`: somebody has to hear of it.

    A cancel that was asked for while the last call ran wins over success: nothing of it is undone, and the
    record says what happened.
    """
    if quick and lifecycle.finish(fence, status, result=result, error=error):
        return
    with transaction.atomic():
        run = lifecycle.lock_fenced(fence)
        if run.stop_requested:
            _end_as_asked(run)
        else:
            end(run, status, fence.actor, result=result, error=error)


def stop(fence: Fence) -> None:
    """Ends a run that was asked to stop, at a boundary of its worker. Raises EpochLost."""
    with transaction.atomic():
        _end_as_asked(lifecycle.lock_fenced(fence))


def _end_as_asked(run: Run) -> None:
    asked = run.stop_requested
    if asked is None:
        raise LostRace(f"nobody asked run {run.pk} to stop")
    end(run, RunStatus(asked["end"]), Actor(**asked["by"]), why=asked["why"])


def cancel(run_id: uuid.UUID, *, actor: Actor, why: str = "") -> Run:
    """Ends a run at once, or, where a call in flight has to be finished, with its receipt; nothing new starts
    after this returns.

    Raises NotFound, RunEnded.
    """
    with transaction.atomic():
        run = lifecycle.lock(run_id)
        if run.ended:
            raise RunEnded(f"run {run_id} has ended: {run.status}")
        free = run.status != RunStatus.RUNNING
        if not free and lifecycle.request_stop(run, actor, why=why):
            free = stops.interrupt(run, actor, "cancelled")
        if free:
            end(run, RunStatus.CANCELLED, actor, why=why)
    run.refresh_from_db()
    return run


def leave(fence: Fence) -> bool:
    """Whether a worker need not wait for its calls in flight, all of which may be left: it has lost the run, or
    a person stopped it, and then it is let go of here, or ended."""
    run = Run.objects.get(pk=fence.run)
    if (run.status, run.epoch, run.token) != (RunStatus.RUNNING, fence.epoch, fence.token):
        return True
    if not stops.asked(run):
        return False
    try:
        with transaction.atomic():
            return _leave(lifecycle.lock_fenced(fence), fence.actor)
    except EpochLost:
        return True


def _leave(run: Run, actor: Actor) -> bool:
    if not stops.asked(run) or not stops.may_be_left(run):
        return False
    lifecycle.interrupt(run, actor, "its calls in flight may be left")
    if run.stop_requested:
        _end_as_asked(run)
    return True


def stop_lapsed(run_id: uuid.UUID) -> bool:
    """Ends a queued run whose stop was asked for before its worker died. False: no such run."""
    with transaction.atomic():
        run = lifecycle.lock(run_id)
        if run.status != RunStatus.QUEUED or not run.stop_requested:
            return False
        _end_as_asked(run)
    return True


def expire_hold(hold_id: uuid.UUID) -> bool:
    """Does what is to come of a hold whose time is up. False: not due, or closed before."""
    hold = Hold.objects.get(pk=hold_id)
    if hold.on_expiry == Then.CANCEL:
        return _cancel_expired(hold)
    return holds.overdue(hold_id) if hold.on_expiry == Then.WAIT else holds.expire(hold_id)


def _cancel_expired(hold: Hold) -> bool:
    with transaction.atomic():
        run = lifecycle.lock(hold.run_id)
        if not Hold.objects.expired(now()).filter(pk=hold.pk).exists():
            return False
        why = f"nothing came of the {hold.cause} hold in time"
        if run.status == RunStatus.RUNNING:
            return lifecycle.request_stop(run, SYSTEM, why=why)
        end(run, RunStatus.CANCELLED, SYSTEM, why=why)
    return True


def expire(run_id: uuid.UUID, max_suspended: float) -> bool:
    """Ends a run that stood still for longer than `max_suspended` seconds. False: it moved, or a cause
    whose end is *waits* is open."""
    with transaction.atomic():
        run = lifecycle.lock(run_id)
        if run.status != RunStatus.SUSPENDED or run.suspended_at is None:
            return False
        stood = (now() - run.suspended_at).total_seconds()
        if stood < max_suspended or Hold.objects.outlasting().filter(run=run).exists():
            return False
        end(run, RunStatus.EXPIRED, SYSTEM, why=f"suspended for {stood:.0f} s")
    return True
