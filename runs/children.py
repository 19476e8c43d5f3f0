"""Runs below runs: starting one, what came of it, and what a run above does to those below.

A run below asks those above in the transaction in which it starts anything (`share`), so that nothing starts
below a run that is held, is to stop or has ended. What else goes from run to run goes on by idempotent verbs, one
run at a time and never under two locks: the sweeper finds their work, and who makes it rings for it.
"""

import json
import uuid
from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.db import transaction

from runs import agents, endings, holds, journal, points, queues, signals, values
from runs.actors import SYSTEM, Actor
from runs.exceptions import AncestorHeld, ChildFailed, HoldClosed, RunEnded
from runs.models import Hold, JournalEntry, Run, Step
from runs.states import Cause, RunStatus, Scope

#: How a child "ended" that was never started.
NOT_STARTED = "not_started"
AT_ONCE = 500


def share(ancestors: Sequence[uuid.UUID]) -> None:
    """Locks the runs above against changes, root first, until the transaction ends.

    Raises AncestorHeld when one is held, is to stop or has ended. Costs a root run nothing.
    """
    above = held_above(ancestors)
    if above is not None:
        why = f"A run above it, {above.agent} {above.short_id}, {_stands(above)}."
        raise AncestorHeld(str(above.pk), why)


def held_above(ancestors: Sequence[uuid.UUID]) -> Run | None:
    """The first of them, from the root, below which nothing may start; all are locked as `share` does."""
    if not ancestors:
        return None
    return next(
        (run for run in _shared(ancestors) if run.open_holds or run.stop_requested or run.ended), None
    )


def _shared(ancestors: Sequence[uuid.UUID]) -> list[Run]:
    """PostgreSQL locks what it has sorted: in the order of the tree, not of an index."""
    sql = (
        "SELECT id, agent, status, open_holds, stop_requested FROM runs_run WHERE id = ANY(%s)"
        " ORDER BY cardinality(ancestors) FOR SHARE"
    )
    return list(Run.objects.raw(sql, [list(ancestors)]))


def _stands(run: Run) -> str:
    if run.ended:
        return f"has ended ({run.status})"
    return "is being cancelled" if run.stop_requested else "is held"


# -- Who is above ---------------------------------------------------------------------


def chain(run: Run) -> list[Run]:
    """The run and those above it, the root first. No query for a root run."""
    if not hasattr(run, "_above"):
        know_chains([run])
    return [*run._above, run]  # type: ignore[attr-defined]


def know_chains(runs: Sequence[Run]) -> None:
    """Reads what is above many runs at once, for `chain`; it never changes."""
    wanted = {pk for run in runs for pk in run.ancestors}
    found = Run.objects.defer("input", "result", "error").in_bulk(wanted) if wanted else {}
    for run in runs:
        run._above = [found[pk] for pk in run.ancestors]  # type: ignore[attr-defined]


# -- Starting ------------------------------------------------------------------------


def refuse(agent: str, version: str, depth: int) -> ChildFailed | None:
    """Why no such child is started below a run that has `depth` runs above it; None: it may be."""
    if agents.find(agent, version) is None:
        return ChildFailed("", NOT_STARTED, "UnknownAgent", f"no agent {agent}@{version} is registered here")
    if depth >= settings.MAX_CHILD_DEPTH:
        most = f"runs are nested at most {settings.MAX_CHILD_DEPTH} deep"
        return ChildFailed("", NOT_STARTED, "TooDeep", most)
    return None


def create(parent: Run, step: Step, agent: str, version: str, arguments: dict[str, Any]) -> Run:
    """A queued child of `parent` (locked), on whose allowances it draws."""
    made = agents.find(agent, version)
    assert made is not None
    actor = Actor("run", str(parent.pk), f"{parent.agent} {parent.short_id}", "worker")
    child = Run.objects.create(
        agent=made.name,
        agent_version=made.version,
        code_digest=made.code_digest,
        input=values.canonical(arguments),
        labels=parent.labels,
        on_behalf_of=parent.on_behalf_of,
        submitter_kind=parent.submitter_kind,
        submitter_id=parent.submitter_id,
        submitter_name=parent.submitter_name,
        owner_id=parent.owner_id,
        parent=parent,
        ancestors=[*parent.ancestors, parent.pk],
        metered=parent.metered,
    )
    if parent.metered:
        child.allowances.set(parent.allowances.all())
    journal.write(child, actor, "submitted", agent=str(made), parent=str(parent.pk), index=step.index)
    queues.ring(child.pk)
    return child


def failure(child: Run) -> ChildFailed | None:
    """The error its parent gets; None: it succeeded."""
    if child.status == RunStatus.SUCCEEDED:
        return None
    if child.error is None:
        return ChildFailed(str(child.pk), child.status, "", _why(child))
    said = json.loads(child.error)
    kind, args = said["type"].rpartition(":")[2], said["args"]
    if kind == "ToolFailed" and len(args) == 2:  # stands for a type nobody declared, and carries its name
        kind, args = args[0], args[1:]
    return ChildFailed(str(child.pk), child.status, kind, ", ".join(map(str, args))[:1000])


def _why(child: Run) -> str:
    """Why it was cancelled or expired, as the journal has it."""
    last = JournalEntry.objects.of(child.stream).filter(verb=child.status).last()
    return str(json.loads(last.detail).get("why", ""))[:1000] if last is not None else ""


def unfit(child: Run, problem: str) -> ChildFailed:
    """The error for a result that does not fit the type its parent knows."""
    return ChildFailed(str(child.pk), child.status, "BadResult", problem[:1000])


# -- Afterwards: verbs of the sweeper, rung for as soon as there is work ------------------------


def connect() -> None:
    """Called once, when the app is ready."""
    signals.run_ended.connect(_on_run_ended, dispatch_uid="runs.children")
    signals.hold_released.connect(_on_hold_released, dispatch_uid="runs.children")


def _on_run_ended(sender: Any, *, run: Run, **kwargs: Any) -> None:
    """Its parent is told as soon as this is committed: only then, because nobody holds two runs' locks."""
    if run.parent_id is not None:
        transaction.on_commit(lambda: _tell(run.pk), robust=True)
    if Run.objects.live().filter(parent=run).exists():
        queues.enqueue("runs.jobs.cancel_below", str(run.pk))


def _on_hold_released(sender: Any, *, run: Run, hold: Hold, **kwargs: Any) -> None:
    if hold.scope == Scope.RUN and not run.open_holds and _held_below(run.pk).exists():
        queues.enqueue("runs.jobs.free_below", str(run.pk))


def _held_below(run_id: uuid.UUID) -> Any:
    return Hold.objects.open().filter(cause=Cause.ANCESTOR, run__ancestors__contains=[run_id])


def _tell(child_id: uuid.UUID) -> None:
    points.reach("before-tell-parent")
    for hold in Hold.objects.open().filter(cause=Cause.CHILD, child=child_id):
        tell_parent(hold.pk)


def tell_parent(hold_id: uuid.UUID) -> bool:
    """Releases the hold of a call whose child has ended. False: it has not, or somebody did."""
    hold = Hold.objects.select_related("child").get(pk=hold_id)
    if hold.child is None or not hold.child.ended:
        return False
    try:
        holds.release(hold_id, actor=SYSTEM, resolution="child_ended")
    except HoldClosed:
        return False
    return True


def cancel_below(run_id: uuid.UUID) -> int:
    """Cancels the live children of a run that ended or is to stop; they see to theirs. How many."""
    due = Run.objects.orphaned().filter(parent=run_id, stop_requested__isnull=True)
    return sum(cancel_orphan(pk) for pk in due.values_list("pk", flat=True)[:AT_ONCE])


def cancel_orphan(run_id: uuid.UUID) -> bool:
    """Ends a run below one that ended or is to stop. False: it ended first, or was asked before."""
    child = Run.objects.select_related("parent").get(pk=run_id)
    above = child.parent
    if above is None or child.stop_requested or not (above.ended or above.stop_requested):
        return False
    try:
        endings.cancel(run_id, actor=SYSTEM, why=f"the run above it, {above}, {_stands(above)}")
    except RunEnded:
        return False
    return True


def free_all_below(run_id: uuid.UUID) -> int:
    """Releases the `ancestor` holds below a run that is free again, where all others above are too. How many."""
    due = _held_below(run_id).values_list("pk", flat=True)[:AT_ONCE]
    return sum(free_below(pk) for pk in due)


def free_below(hold_id: uuid.UUID) -> bool:
    """Releases an `ancestor` hold when no run above is held any more. False: one still is, or somebody did."""
    hold = Hold.objects.select_related("run").get(pk=hold_id)
    above = Run.objects.filter(pk__in=hold.run.ancestors)
    if any(run.open_holds or run.stop_requested or run.ended for run in above):
        return False
    try:
        holds.release(hold_id, actor=SYSTEM, resolution="ancestor_free")
    except HoldClosed:
        return False
    return True
