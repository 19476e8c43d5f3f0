"""What must always hold (DESIGN §10), checked against every row of the database.

`broken()` gives a sentence for each thing that is not as it must be; tests ask for the fixture `invariants`,
which fails when there is one. Items 1 to 5, 7, 9 to 12 and 14, as far as rows and one process show them. 6 is
asked of requests (`tests/approvals/fixtures.py`), 8 of processes (`tests/crashes`), 13 of doors.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator

from runs import clock, effects, journal, lifecycle, redaction, snapshots, sweeper, values
from runs.lease import lease
from runs.models import Allowance, Credential, Dependency, Hold, JournalEntry, Run, Step
from runs.states import ENDED, Cause, ClaimState, EffectState, RunStatus, StepStatus
from runs.tools import declared


def broken() -> list[str]:
    found = [sentence for run in Run.objects.order_by("created_at") for sentence in _of(run)]
    found += [sentence for row in Allowance.objects.all() for sentence in _drawn(row)]
    streams = [Run, Credential, Dependency, Allowance]
    return found + [f"journal: {b.stream} #{b.seq} {b.what}" for b in journal.broken(streams)]


def _of(run: Run) -> Iterator[str]:
    steps = list(Step.objects.filter(run=run).order_by("index"))
    holds = list(Hold.objects.filter(run=run))
    of_rows = (_family, _stranded, _counts, _effects, _record, _ended, _journalled)
    for check in (*of_rows, _never_by_itself, _secrets, _at_rest):
        for sentence in check(run, steps, holds):
            yield f"{run.agent} {run.short_id} ({run.status}): {sentence}"


def _drawn(row: Allowance) -> Iterator[str]:
    """10: nothing is reserved for a run that ended; an allowance's sums are those of its draws."""
    draws = list(row.draws.select_related("run"))
    if row.reserved != sum(d.estimate for d in draws if d.settled_at is None):
        yield f"{row}: reserved is {row.reserved}, and its open draws are {[str(d) for d in draws]}"
    if row.used != sum(d.used for d in draws if d.used is not None):
        yield f"{row}: used is {row.used}, and its settled draws are {[str(d) for d in draws]}"
    for draw in draws:
        if draw.settled_at is None and draw.run.status in ENDED:
            yield f"10: {draw.run} has ended, and {row} is reserved for its step {draw.index}"


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


def _family(run: Run, steps: list[Step], holds: list[Hold]) -> Iterator[str]:
    """A child hangs where its parent started it, once; what holds a call for a child names that child."""
    above = [] if run.parent is None else [*run.parent.ancestors, run.parent.pk]
    if run.ancestors != above:
        yield f"its ancestors are {run.ancestors}, and those above it are {above}"
    started = [h.child_id for h in holds if h.cause == Cause.CHILD]
    if sorted(map(str, started)) != sorted(str(child.pk) for child in run.children.all()):
        yield f"it waited for {len(started)} children, and has {run.children.count()}"


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
        if (
            binding
            and step.effect != EffectState.IN_DOUBT
            and step.status in (StepStatus.DISPATCHED, StepStatus.DONE, StepStatus.RAISED)
        ):
            yield f"7: step {step.index} is {step.status} while {binding[0].cause} holds it"


def _effects(run: Run, steps: list[Step], holds: list[Hold]) -> Iterator[str]:
    """2: one key a call. 4: what is stored as sent is what its digest says, and so is what was proposed."""
    unsent = _certainly_not_sent(run)
    for step in steps:
        if step.key and step.key != effects.key(run.pk, step.index):
            yield f"2: step {step.index} has another key"
        if (
            step.attempt - unsent[step.index] > 1
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


def _certainly_not_sent(run: Run) -> Counter[int]:
    """How many attempts of each step are journalled as having done nothing, or a person said so."""
    rows = JournalEntry.objects.of(run.stream).filter(verb__in=["not_sent", "settled"])
    found = [json.loads(detail) for detail in rows.values_list("detail", flat=True)]
    return Counter(said["index"] for said in found if said.get("answer") in (None, "did_not_happen"))


def _never_by_itself(run: Run, steps: list[Step], holds: list[Hold]) -> Iterator[str]:
    """5: what expired or was rejected did not start after it."""
    nos = {h.step_id: h for h in holds if h.step_id and h.resolution in ("expired", "rejected")}
    for step in steps:
        no = nos.get(step.pk)
        if no and no.released_at and step.dispatched_at and step.dispatched_at > no.released_at:
            yield f"5: step {step.index} started after its {no.cause} was {no.resolution}"


def _secrets(run: Run, steps: list[Step], holds: list[Hold]) -> Iterator[str]:
    """12: no value of a credential that this process was given stands in a row."""
    for step in steps:
        kept = "\n".join((step.arguments, step.executed or "", step.result or "", json.dumps(step.evidence)))
        if redaction.scrub(kept) != kept:
            yield f"12: step {step.index} keeps a secret"
    for hold in holds:
        kept = "\n".join((hold.why, json.dumps(hold.detail), hold.answer or ""))
        if redaction.scrub(kept) != kept:
            yield f"12: the {hold.cause} hold keeps a secret"


def _at_rest(run: Run, steps: list[Step], holds: list[Hold]) -> Iterator[str]:
    """14: a run that stands still has no lease, no token and nobody who renews one."""
    if run.status == RunStatus.SUSPENDED and (run.token or run.lease_until):
        yield "14: suspended under a lease"
    if run.status == RunStatus.SUSPENDED and (fence := lease._fence) and fence.run == run.pk:
        yield "14: suspended, and this process renews its lease"


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
        open_still = step.effect == EffectState.IN_DOUBT and step.compensated_by_id is None
        if open_still and effects.from_evidence(step) and not lifecycle.went_elsewhere(run):
            yield f"10: ended, and step {step.index} is in doubt although what came of it is known"
        yield from _claim_found(run, step)


def _claim_found(run: Run, step: Step) -> Iterator[str]:
    """10: what an ended run has reserved is given back, shown as owed or stuck, or found by the sweeper."""
    tool = declared.get(step.tool)
    reserved = (
        step.effect == EffectState.CONFIRMED and tool is not None and tool.properties.release is not None
    )
    moved = JournalEntry.objects.of(run.stream).filter(verb="claims_moved").exists()
    if reserved and not step.claim and not moved:
        yield f"10: ended, and nobody knows that step {step.index} has reserved something"
    if step.claim == ClaimState.HELD and run.pk not in set(sweeper._verbs["owe"].find(clock.now())):
        yield f"10: ended, and nobody will give back what step {step.index} has reserved"
    if step.claim in (ClaimState.OWED, ClaimState.GIVING) and step.claim_due_at is None:
        yield f"10: the claim of step {step.index} is {step.claim} and never due"


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
    if count["taken"] != run.epoch - count["recovered"] - count["handed_back"] - count["interrupted"]:
        yield f"11: epoch {run.epoch}, and {count['taken']} rows that say taken"
