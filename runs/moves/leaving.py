"""A run leaves: its bundle is kept first, then it ends here, in one transaction under its lock."""

import uuid
from collections.abc import Callable
from typing import Any

from django.db import transaction

from runs import claims, endings, lifecycle
from runs.actors import Actor
from runs.clock import now
from runs.exceptions import RunEnded, WrongState
from runs.models import Allowance, Draw, Event, FactReading, Hold, JournalEntry, Run, Snapshot, Step
from runs.moves import bundle, contract
from runs.moves.rows import out
from runs.states import EXCEPTIONAL, Cause, EffectState, RunStatus

MOVED = "moved to another installation"


def leave(run_id: uuid.UUID, *, actor: Actor, keep: Callable[[str], None]) -> Run:
    """Hands the bundle to `keep`, and ends the run as cancelled. `keep` runs before the commit, so that there is
    never a moved run without its bundle: it must have kept it when it returns, and what it raises undoes all.

    Raises NotFound, RunEnded, WrongState: it is at work, or something ties it to this place.
    """
    with transaction.atomic():
        run = lifecycle.lock(run_id)
        _refuse(run)
        text = bundle.write(_body(run))
        claims.travel(run, actor)
        lifecycle.leave(run, actor)
        endings.end(run, RunStatus.CANCELLED, actor, why=MOVED)
        keep(text)
    return run


# -- What cannot leave -------------------------------------------------------------------


def _refuse(run: Run) -> None:
    if run.ended:
        raise RunEnded(f"run {run.pk} has ended: {run.status}")
    if why_not := _at_work(run) or _tied(run) or _may_act(run):
        raise WrongState(f"run {run.pk} cannot be moved: {why_not}")


def _at_work(run: Run) -> str:
    """A run leaves while it stands still: suspended, or queued for a version that nobody here has."""
    if run.stop_requested:
        return "it is to stop"
    waits = Hold.objects.open().filter(run=run, cause=Cause.VERSION).exists()
    if run.status == RunStatus.SUSPENDED or (run.status == RunStatus.QUEUED and waits):
        return ""
    return f"it is {run.status}. Pause it, and export it when it is suspended"


def _tied(run: Run) -> str:
    if run.parent_id is not None:
        return f"it is a child of run {run.parent_id}"
    if run.children.live().exists():
        return "children of it have not ended"
    if Hold.objects.open().filter(run=run, cause=Cause.CHILD).exists():
        return "it has yet to hear of a child's end"
    if run.compensates.exists():
        return "it undoes what another run here did"
    undone = run.steps.filter(compensated_by__isnull=False, effect=EffectState.IN_DOUBT).first()
    if undone is not None:
        return f"a run here is undoing its step {undone.index}"
    return ""


def _may_act(run: Run) -> str:
    """A call that may still act brings what it did here, and it would be missing there."""
    busy = Step.objects.filter(run=run, effect__in=sorted(EXCEPTIONAL), may_act_until__gt=now()).first()
    if busy is None or busy.may_act_until is None:
        return ""
    return f"step {busy.index} may still act until {busy.may_act_until:%Y-%m-%d %H:%M:%S} UTC"


# -- What leaves -------------------------------------------------------------------------


def _body(run: Run) -> bundle.Body:
    drawn = list(run.allowances.order_by("pk"))
    own = {row.pk: row.unit for row in drawn if not row.shared}
    draws = Draw.objects.filter(run=run, allowance__in=own).order_by("pk")
    readings = FactReading.objects.filter(step__run=run).select_related("step").order_by("pk")
    return bundle.Body(
        run=out(run),
        steps=[out(row) for row in Step.objects.filter(run=run).order_by("index")],
        holds=[_hold(row) for row in Hold.objects.filter(run=run).select_related("step")],
        readings=[out(row, step=row.step.index) for row in readings],
        snapshots=[out(row) for row in Snapshot.objects.filter(run=run).order_by("number")],
        events=[out(row, step=_index(row)) for row in Event.objects.filter(run=run).select_related("step")],
        allowances=[out(row) for row in drawn if not row.shared],
        shared=[(row.name, row.unit) for row in drawn if row.shared],
        draws=[out(row, unit=own[row.allowance_id]) for row in draws],
        journal=[out(row) for row in JournalEntry.objects.of(run.stream)],
        parts={name: part.leave(run) for name, part in contract.parts().items()},
    )


def _index(row: Any) -> int | None:
    return row.step.index if row.step_id is not None else None


def _hold(hold: Hold) -> dict[str, Any]:
    waits = hold.cause == Cause.ALLOWANCE and hold.subject.isdecimal()
    row = Allowance.objects.filter(pk=int(hold.subject)).first() if waits else None
    return out(hold, step=_index(hold), allowance=None if row is None else [row.name, row.unit])
