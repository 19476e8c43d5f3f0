"""What must always hold (DESIGN §10), checked against every row of the database.

`broken()` gives a sentence for each thing that is not as it must be; tests ask for the fixture `invariants`,
which fails when there is one. Items 1 to 4, 7, 10 and 11, as far as rows show them.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator

from runs import effects, journal, snapshots, values
from runs.models import Hold, JournalEntry, Run, Step
from runs.states import ENDED, Cause, EffectState, RunStatus, StepStatus
from runs.tools import declared


def broken() -> list[str]:
    found = [sentence for run in Run.objects.order_by("created_at") for sentence in _of(run)]
    return found + [f"journal: {b.stream} #{b.seq} {b.what}" for b in journal.broken([Run])]


def _of(run: Run) -> Iterator[str]:
    steps = list(Step.objects.filter(run=run).order_by("index"))
    holds = list(Hold.objects.filter(run=run))
    for check in (_stranded, _counts, _effects, _record, _ended, _journalled):
        for sentence in check(run, steps, holds):
            yield f"{run.agent} {run.short_id} ({run.status}): {sentence}"


def _stranded(run: Run, steps: list[Step], holds: list[Hold]) -> Iterator[str]:
    """1. Queued and rung, running under a lease, or held by an open hold."""
    if run.status == RunStatus.QUEUED and run.rung_at is None:
        yield "1: queued and never rung"
    if run.status == RunStatus.SUSPENDED and not any(h.is_open for h in holds):
        yield "1: suspended and nothing holds it"
    if run.status == RunStatus.SUSPENDED and not run.open_holds:
        waiting = [s for s in steps if s.settled is None]
        if not waiting or any(s.open_holds == 0 for s in waiting):
            yield "1: suspended although something it wants may start"


def _counts(run: Run, steps: list[Step], holds: list[Hold]) -> Iterator[str]:
    """The counts that guards read are those of the open holds. 7: nothing dispatched is held."""
    of_run = sum(1 for h in holds if h.is_open and h.step_id is None)
    if run.open_holds != of_run:
        yield f"open_holds is {run.open_holds}, and {of_run} are open"
    for step in steps:
        of_step = [h for h in holds if h.is_open and h.step_id == step.pk]
        if step.open_holds != len(of_step):
            yield f"step {step.index}: open_holds is {step.open_holds}, and {len(of_step)} are open"
        binding = [h for h in of_step if h.cause != Cause.IN_DOUBT]
        if binding and step.status in (StepStatus.DISPATCHED, StepStatus.DONE, StepStatus.RAISED):
            yield f"7: step {step.index} is {step.status} while {binding[0].cause} holds it"


def _effects(run: Run, steps: list[Step], holds: list[Hold]) -> Iterator[str]:
    """2: one key a call. 4: what is stored as sent is what its digest says, and so is what was proposed."""
    for step in steps:
        if step.key and step.key != effects.key(run.pk, step.index):
            yield f"2: step {step.index} has another key"
        if (
            step.attempt > 1
            and (tool := declared.get(step.tool))
            and not tool.repeatable
            and not tool.properties.retries
        ):
            yield f"2: step {step.index} ({step.tool}) was dispatched {step.attempt} times"
        if values.digest(step.arguments) != step.arguments_digest:
            yield f"4: step {step.index}: the arguments are not those of the digest"
        if step.executed is not None and values.digest(step.executed) != step.executed_digest:
            yield f"4: step {step.index}: what was sent is not what its digest says"
        if step.status == StepStatus.DISPATCHED and not step.effect:
            yield f"step {step.index} is dispatched and has no effect"


def _record(run: Run, steps: list[Step], holds: list[Hold]) -> Iterator[str]:
    """3, 9: the record is a chain over the settled steps, in the order in which they settled."""
    settled = sorted((s for s in steps if s.settled is not None), key=lambda s: s.settled or 0)
    if [s.settled for s in settled] != list(range(1, run.position + 1)):
        yield f"position is {run.position}, and these settled: {[s.settled for s in settled]}"
    if [s.index for s in steps] != list(range(len(steps))):
        yield f"steps have the indexes {[s.index for s in steps]}"
    head = b""
    for s in settled:
        entry = snapshots.entry(
            s.index, s.tool, s.tool_version, s.arguments_digest, s.executed_digest, s.status, s.result or ""
        )
        head = hashlib.sha256(head + entry).digest()
    if bytes(run.record) != head:
        yield "the record's hash is not that of its steps"


def _ended(run: Run, steps: list[Step], holds: list[Hold]) -> Iterator[str]:
    """10: nothing hangs on a run that ended; what is in doubt says so."""
    if run.status not in ENDED:
        return
    if any(h.is_open for h in holds):
        yield "10: ended with an open hold"
    for step in steps:
        if step.effect == EffectState.DISPATCHED:
            yield f"10: ended, and step {step.index} is still dispatched, neither settled nor in doubt"


def _journalled(run: Run, steps: list[Step], holds: list[Hold]) -> Iterator[str]:
    """11: every change of state has a row."""
    rows = list(JournalEntry.objects.of(run.stream))
    count = Counter(row.verb for row in rows)
    if not rows or rows[0].verb != "submitted":
        yield "11: its journal does not begin with its submission"
    if run.status in ENDED and count[run.status] != 1:
        yield f"11: {count[run.status]} rows say that it {run.status}"
    if count["held"] != len(holds):
        yield f"11: {len(holds)} holds, and {count['held']} rows that say held"
    released = sum(1 for h in holds if not h.is_open and h.resolution != "run_ended")
    if count["released"] != released:
        yield f"11: {released} releases, and {count['released']} rows of them"
    if count["suspended"] != run.snapshots.count():
        yield f"11: {count['suspended']} stops, and {run.snapshots.count()} snapshots"
    if count["taken"] != run.epoch - count["recovered"] - count["handed_back"]:
        yield f"11: epoch {run.epoch}, and {count['taken']} rows that say taken"
