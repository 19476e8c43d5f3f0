"""Making what an agent wants: each call through the gate, intents committed, calls side by side, receipts.

A call whose intent is committed is in flight, also when a hold stops those behind it: it is made. What an
effect's tool raises does not say whether it happened; `effects` resolves it.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import structlog
from django.conf import settings

from runs import clock, credentials, dependencies, effects, gate, invocation, points, snapshots, values
from runs.exceptions import (
    AncestorHeld,
    Away,
    CredentialRefused,
    EpochLost,
    LostRace,
    NeedsAuthorisation,
    Obstacle,
    Unavailable,
)
from runs.execution.record import Record
from runs.gate import Go, Held, Proposal, Settled
from runs.invocation import Job, Known
from runs.lease import lease
from runs.models import Step
from runs.states import StepStatus
from runs.tools.calls import Call
from runs.tools.declared import Tool, ToolContext

log = structlog.get_logger(__name__)

Started = list[tuple[Proposal, Job]]


def make(record: Record, proposals: Mapping[int, Proposal]) -> None:
    """Makes those that may start; the others wait at the gate. Raises LostRace, EpochLost, Mismatched."""
    started: Started = []
    try:
        for proposal in proposals.values():
            if not _advance(record, proposal, started):
                break
    except (LostRace, snapshots.Mismatched):
        _call(record, started)
        record.flush()
        raise
    _call(record, started)


def _advance(record: Record, proposal: Proposal, started: Started) -> bool:
    """Takes one call through the gate and adds it to `started` if it may start. False: a hold or a stop came."""
    passed = _pass(record, proposal)
    if isinstance(passed, Settled):
        record.settle(proposal, passed.known, effect=passed.effect, decision=passed.decision)
    elif isinstance(passed, Go):
        job = _start(record, proposal, passed)
        if isinstance(job, Job):
            started.append((proposal, job))
        return job is not None
    return True


def _pass(record: Record, proposal: Proposal) -> gate.Pass:
    entry = record.entries.get(proposal.index)
    if entry is None:
        if not _free_of_looks(proposal.call):
            record.flush()
        return gate.arrive(record.fence, proposal)
    if entry.open_holds:
        return Held()
    record.flush()
    step = Step.objects.get(pk=entry.id)
    _refuse_touched(step)
    if step.status == StepStatus.DISPATCHED:
        lease.busy(proposal.call.tool.properties.timeout)
        return _resolve(record, proposal, step)
    return gate.come_back(record.fence, proposal, step)


def _free_of_looks(call: Call[Any]) -> bool:
    """A call before which nothing is looked at, so that a receipt may ride in the commit of its intent."""
    looked_at = call.tool.properties
    return not (looked_at.facts or looked_at.credentials or looked_at.depends_on or call.tool.builtin)


def _refuse_touched(step: Step) -> None:
    """Raises Mismatched when the arguments of a call that waits are not those whose digest was kept."""
    kept, found = step.executed_digest or step.arguments_digest, values.digest(step.sent)
    if found != kept:
        what = f"the digest of the arguments of step {step.index}"
        raise snapshots.Mismatched(snapshots.Mismatch(what, kept[:16], found[:16]))


def _resolve(record: Record, proposal: Proposal, step: Step) -> gate.Pass:
    """An effect that was dispatched, and nobody wrote down what came of it."""
    found = effects.resolve(proposal.call, step, clock.now())
    if isinstance(found, effects.Adopt):
        return Settled(found.known, effect=effects.state_after(found.known))
    if isinstance(found, effects.Again):
        return Go(step.sent, step.pk, step.attempt + 1)
    effects.doubt(record.fence, step.pk, found)
    return Held()


# -- Starting ------------------------------------------------------------------------


def _start(record: Record, proposal: Proposal, passed: Go) -> Job | Held | None:
    """Commits the intent of an effect. A pure tool needs none: it starts after the receipt before it,
    whose commit says whether a hold came. Held: this call waits. None: a hold or a stop came first."""
    tool = proposal.call.tool
    _fence_oneself()
    if passed.committed or tool.builtin:
        record.flush()
    elif proposal.metered or proposal.ancestors:
        record.flush()
        try:
            gate.start(record.fence, proposal, attempt=passed.attempt)
        except Obstacle as obstacle:
            held = gate.obstructed(record.fence, proposal, obstacle)
            return None if isinstance(obstacle, AncestorHeld) else held
        record.load(Step.objects.filter(run=record.fence.run, index=proposal.index))
    elif not tool.properties.effect:
        record.flush()
    elif not _intend(record, proposal, passed):
        return None
    if record.open_holds and not tool.properties.effect:
        return None
    _fence_oneself()
    lease.busy(tool.properties.timeout)
    points.reach("after-intent-before-call")
    key = effects.key(record.fence.run, proposal.index)
    context = ToolContext(record.fence.run, proposal.index, key, passed.attempt, passed.credentials)
    return Job(proposal.call, passed.arguments, context)


def _fence_oneself() -> None:
    """Raises EpochLost when somebody else may have the run: before an intent, and again before its call."""
    if not lease.alive():
        raise EpochLost("this worker's lease may have run out")


def _intend(record: Record, proposal: Proposal, passed: Go) -> bool:
    tool = proposal.call.tool
    if passed.step is not None:
        return record.boundary("row", gate.intent(record.fence, proposal.index, tool))
    first = {
        "index": proposal.index,
        "tool": tool.name,
        "tool_version": tool.version,
        "arguments": proposal.arguments,
        "digest": values.digest(proposal.arguments),
        "key": effects.key(record.fence.run, proposal.index),
        "acts_for": effects.acts_for(tool),
    }
    return record.boundary("new", first)


# -- Calling -------------------------------------------------------------------------


def _call(record: Record, started: Started) -> None:
    """Makes the calls side by side and records each as it is known."""
    if not started:
        return
    by_call = {id(job.call): proposal for proposal, job in started}

    def late(job: Job, known: Known) -> None:
        _bring_late(record, job, known)

    began = time.monotonic()
    for job, known in invocation.run_together([job for _, job in started], late):
        job, known = _retried(record, job, known)
        job.context.usage["seconds"] = f"{time.monotonic() - began:.6f}"
        _receive(record, by_call[id(job.call)], job, known)


def _bring_late(record: Record, job: Job, known: Known) -> None:
    """What a call brings after its time was up, in its own thread: evidence, if it says anything."""
    if known.kind == "unknown" or not job.call.tool.properties.effect:
        return
    try:
        record.bring(job, known)
    except Exception:
        log.exception("evidence_lost", run=str(record.fence.run), index=job.context.index)


def _retried(record: Record, job: Job, known: Known) -> tuple[Job, Known]:
    """Tries again what may be tried again: pure and idempotent calls, and effects certainly not sent.
    The last attempt and what is known of it."""
    tool = job.call.tool
    if isinstance(known.error, CredentialRefused):
        job, known = _with_renewed(record, job, known, known.error)
    for attempt in range(1, tool.properties.retries + 1):
        if not _may_retry(tool, known):
            break
        time.sleep(min(effects.backoff(tool, attempt), settings.SLICE))
        again = gate.intent(record.fence, job.context.index, tool)
        if tool.properties.effect and not record.boundary("row", again):
            break
        job = replace(job, context=replace(job.context, attempt=job.context.attempt + 1))
        _fence_oneself()
        lease.busy(tool.properties.timeout)
        known = invocation.run(job)
    return job, known


def _with_renewed(record: Record, job: Job, known: Known, error: CredentialRefused) -> tuple[Job, Known]:
    """Once more with a renewed credential; what was refused did nothing."""
    tool = job.call.tool
    try:
        given = credentials.renewed(tool.properties.credentials, error, job.context.credentials)
    except NeedsAuthorisation as needed:
        return job, replace(known, error=needed)
    if tool.properties.effect and not record.boundary(
        "row", gate.intent(record.fence, job.context.index, tool)
    ):
        return job, known
    context = replace(job.context, attempt=job.context.attempt + 1, credentials=given)
    job = replace(job, context=context)
    _fence_oneself()
    lease.busy(tool.properties.timeout)
    return job, invocation.run(job)


def _may_retry(tool: Tool[..., Any], known: Known) -> bool:
    declared = tool.properties.retry_on
    if known.kind == "unsent":
        return True
    if known.kind == "raised":
        return isinstance(known.error, declared)
    return known.kind == "unknown" and tool.properties.idempotent and isinstance(known.error, declared)


def _receive(record: Record, proposal: Proposal, job: Job, known: Known) -> None:
    """What is known of a call goes into the record; a receipt that cannot be found again is committed at once."""
    tool = proposal.call.tool
    points.reach("after-effect-before-record")
    if known.kind == "unknown":
        _doubt(record, proposal, known)
        return
    if known.kind == "obstructed":
        _turn_back(record, proposal, known)
        return
    dependencies.succeeded(tool.properties.depends_on)
    state = effects.state_after(known) if tool.properties.effect else ""
    record.settle(proposal, known, effect=state, sent=job, usage=job.context.usage)
    if tool.properties.effect and not tool.repeatable:
        record.flush()


def _turn_back(record: Record, proposal: Proposal, known: Known) -> None:
    """Nothing was done outside, and the call waits for what was in its way; the agent sees nothing of it."""
    record.flush()
    error, look_again_in = known.error, None
    if isinstance(error, Unavailable):
        dependencies.failed(error.dependency, str(error))
        obstacle: Obstacle = Away(error.dependency, f"{error.dependency} is away: {error}")
        look_again_in = settings.LOOK_AGAIN
    else:
        obstacle = credentials.refused(proposal.call.tool.properties.credentials, error)
    gate.turned_back(record.fence, proposal, obstacle, look_again_in=look_again_in)


def _doubt(record: Record, proposal: Proposal, known: Known) -> None:
    """What an effect's tool raised does not say whether it happened."""
    record.flush()
    step = Step.objects.get(run=record.fence.run, index=proposal.index)
    found = effects.resolve(proposal.call, step, clock.now())
    if isinstance(found, effects.Adopt):
        record.settle(proposal, found.known, effect=effects.state_after(found.known))
        return
    if isinstance(found, effects.Again):
        wait = effects.backoff(proposal.call.tool, step.attempt)
        found = effects.Doubt(f"no answer: {_short(known)}; it is repeated with the same key", wait)
    effects.doubt(record.fence, step.pk, found)


def _short(known: Known) -> str:
    kept = json.loads(known.text)
    return f"{kept['type']}: {', '.join(map(str, kept['args']))}"[:300]
