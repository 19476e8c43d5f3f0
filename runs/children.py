"""Runs below runs: starting one, what came of it, and what a run above does to those below.

A child asks its ancestors in the transaction in which it starts anything (`share`), so that nothing starts below
a run that is held or is to stop. What else goes from run to run goes on by idempotent verbs, one run at a time.
"""

import json
import uuid
from collections.abc import Sequence
from typing import Any

from django.conf import settings

from runs import agents, endings, holds, journal, queues, values
from runs.actors import SYSTEM, Actor
from runs.exceptions import AncestorHeld, ChildFailed, HoldClosed, RunEnded
from runs.models import Hold, Run, Step
from runs.states import RunStatus


class CannotStart(Exception):
    """A child that may not be started; recorded for the agent as `ToolFailed`."""


def share(ancestors: Sequence[uuid.UUID]) -> None:
    """Locks the runs above against changes, root first. Raises AncestorHeld when one is held or is to stop."""
    if not ancestors:
        return
    rows = {run.pk: run for run in _shared(ancestors)}
    for pk in ancestors:
        run = rows[pk]
        if run.open_holds or run.stop_requested or run.ended:
            why = f"A run above it, {run.agent} {run.short_id}, is held or has stopped."
            raise AncestorHeld(str(pk), why)


def _shared(ancestors: Sequence[uuid.UUID]) -> list[Run]:
    """One statement a run: the order of the locks is that of the tree, not of an index."""
    sql = "SELECT id, agent, status, open_holds, stop_requested FROM runs_run WHERE id = %s FOR SHARE"
    return [run for pk in ancestors for run in Run.objects.raw(sql, [pk])]


# -- Starting ------------------------------------------------------------------------


def refuse(agent: str, version: str, depth: int) -> None:
    """Raises CannotStart: there is no such agent here, or the runs are nested too deep."""
    if agents.find(agent, version) is None:
        raise CannotStart(f"there is no agent {agent}@{version}")
    if depth >= settings.MAX_CHILD_DEPTH:
        raise CannotStart(f"runs are nested at most {settings.MAX_CHILD_DEPTH} deep")


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
    child.allowances.set(parent.allowances.all())
    journal.write(child, actor, "submitted", agent=str(made), parent=str(parent.pk), index=step.index)
    queues.ring(child.pk)
    return child


def failure(child: Run) -> Exception | None:
    """The error its parent gets; None: it succeeded."""
    if child.status == RunStatus.SUCCEEDED:
        return None
    said: dict[str, Any] = json.loads(child.error) if child.error else {"type": "", "args": []}
    message = ", ".join(map(str, said["args"]))[:1000]
    return ChildFailed(str(child.pk), child.status, said["type"], message)


# -- Afterwards: verbs of the sweeper, rung as soon as there is something to do -------------


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


def cancel_orphan(run_id: uuid.UUID) -> bool:
    """Ends a run below one that ended or is to stop. False: it ended first, or was asked before."""
    child = Run.objects.select_related("parent").get(pk=run_id)
    if child.parent is None or child.ended or child.stop_requested:
        return False
    try:
        endings.cancel(run_id, actor=SYSTEM, why=f"the run above it, {child.parent}, stopped")
    except RunEnded:
        return False
    return True


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
