"""Stop now: a pause for which calls in flight are treated as their tools say (`on_interrupt`).

Where every effect in flight may be left (`cancel`, `detach`), the epoch rises in the transaction of the button:
the run waits for its worker no longer, and what the call brings is evidence. One that says `finish` keeps its
worker until the receipt. Calls without a row (pure ones) are known to their worker alone; its lease thread asks
`asked` and lets go of the run itself.
"""

import uuid
from collections.abc import Iterator

from django.db import transaction

from runs import holds, journal, lifecycle
from runs.actors import Actor
from runs.models import Hold, Run, Step
from runs.states import Cause, RunStatus
from runs.tools import declared


def stop_now(run_id: uuid.UUID, *, actor: Actor, why: str = "") -> Hold:
    """Pauses a run and leaves the calls in flight that may be left, its children's too. Stopping twice is one
    stop; a pause that stands becomes one, and its first reason stays. Raises NotFound, RunEnded."""
    with transaction.atomic():
        hold = stop_locked(lifecycle.lock(run_id), actor=actor, why=why)
    below(run_id, actor)
    return hold


def below(run_id: uuid.UUID, actor: Actor) -> None:
    """Leaves the calls in flight of the runs below one that was stopped now, each in its own transaction."""
    for each in _below(run_id):
        with transaction.atomic():
            interrupt(lifecycle.lock(each), actor, "a run above it was stopped now")


def stop_locked(run: Run, *, actor: Actor, why: str) -> Hold:
    """`stop_now` of one run alone, which is locked. Raises RunEnded."""
    hold = holds.pause_locked(run, actor=actor, why=why)
    if not hold.detail.get("stop_now"):
        holds.mark(hold, stop_now=True)
        journal.write(run, actor, "stopped_now", hold=str(hold.pk), why=why)
    interrupt(run, actor, "stopped now")
    return hold


def in_flight(run: Run) -> list[Step]:
    """Effects that are being called: an intent, no receipt, and nobody in doubt yet."""
    return list(Step.objects.in_flight().filter(run=run).order_by("index"))


def interrupt(run: Run, actor: Actor, why: str) -> bool:
    """Takes a running run from its worker, if effects are in flight and all of them may be left. `run` is
    locked. False: its worker goes on to the next boundary."""
    if run.status != RunStatus.RUNNING:
        return False
    words = {_word(step) for step in in_flight(run)}
    if not words or "finish" in words:
        return False
    lifecycle.interrupt(run, actor, why)
    return True


def may_be_left(run: Run) -> bool:
    """Whether no effect in flight has to be finished."""
    return "finish" not in {_word(step) for step in in_flight(run)}


def asked(run: Run) -> bool:
    """Whether a person wants this run stopped now."""
    if run.stop_requested is not None:
        return True
    stands = Hold.objects.open().filter(run=run, cause=Cause.PERSON, detail__stop_now=True)
    return bool(run.open_holds) and stands.exists()


def _word(step: Step) -> str:
    """What a tool says; one that this process does not know is finished."""
    tool = declared.get(step.tool)
    return "finish" if tool is None else tool.properties.on_interrupt


def _below(run_id: uuid.UUID) -> Iterator[uuid.UUID]:
    """Live runs below this one, level by level. Those that start meanwhile ask their ancestors first."""
    level = [run_id]
    while level:
        level = list(Run.objects.live().filter(parent__in=level).values_list("pk", flat=True))
        yield from level
