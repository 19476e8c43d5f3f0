"""Making what an agent wants: each call through the gate, intents committed, calls side by side, receipts.

A call whose intent is committed is in flight, also when a hold stops those behind it: it is made. What an
effect's tool raises does not say whether it happened; `effects` resolves it.
"""

import json
import time
from collections.abc import Mapping
from typing import Any

import structlog
from django.conf import settings
from django.db import close_old_connections

from runs import clock, credentials, dependencies, effects, gate, invocation, points, snapshots, values
from runs.exceptions import (
    AncestorHeld,
    BadEstimate,
    EpochLost,
    LostRace,
    Obstacle,
    ToolFailed,
    Unavailable,
)
from runs.execution import retries
from runs.execution.record import Record
from runs.gate import Go, Held, Proposal, Settled
from runs.invocation import Job, Known
from runs.lease import lease
from runs.models import Step
from runs.states import EffectState, StepStatus
from runs.tools.calls import Call
from runs.tools.declared import ToolContext

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
    record.seen = False
    if names := proposal.call.tool.properties.credentials:
        lease.busy(settings.CREDENTIAL_TIMEOUT * len(names))
    passed = _pass(record, proposal)
    if isinstance(passed, Settled):
        if proposal.call.tool.builtin:  # a wait that is over at once has its row already
            record.load(proposal.index)
        _settle(record, proposal, passed)
    elif isinstance(passed, Held):
        record.waiting.add(proposal.index)
    elif isinstance(passed, Go):
        job = _start(record, proposal, passed)
        if isinstance(job, Job):
            started.append((proposal, job))
        return job is not None
    return True


def _settle(record: Record, proposal: Proposal, passed: Settled) -> None:
    """A call that ends without being made; an approval of it that nobody will use is taken back in its commit."""
    index, why = proposal.index, passed.revoke
    also = (lambda: gate.take_back(record.fence, index, why)) if why else None
    record.settle(proposal, passed.known, effect=passed.effect, decision=passed.decision, also=also)
    if why:
        record.flush()


def _pass(record: Record, proposal: Proposal) -> gate.Pass:
    entry = record.entries.get(proposal.index)
    if entry is None:
        if not (record.rides and _free_of_looks(proposal.call)):
            record.flush()
        return _arrive(record, proposal)
    if entry.open_holds:
        return Held()
    record.flush()
    found = gate.back(entry.id)
    step = found.step
    _refuse_touched(step)
    if step.status == StepStatus.DISPATCHED:
        lease.busy(proposal.call.tool.properties.timeout)
        return _resolve(record, proposal, found)
    return gate.come_back(record.fence, proposal, found)


def _arrive(record: Record, proposal: Proposal) -> gate.Pass:
    try:
        return gate.arrive(record.fence, proposal, first=record)
    except EpochLost:
        record.left_behind()
        raise


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


def _resolve(record: Record, proposal: Proposal, back: gate.Back) -> gate.Pass:
    """An effect that was dispatched, and nobody wrote down what came of it."""
    found = effects.resolve(proposal.call, back.step, clock.now())
    if isinstance(found, effects.Adopt):
        return Settled(found.known, effect=effects.state_after(found.known))
    if isinstance(found, effects.Again):
        return gate.go_again(record.fence, proposal, back)
    effects.doubt(record.fence, back.step.pk, found)
    return Held()


# -- Starting ------------------------------------------------------------------------


def _start(record: Record, proposal: Proposal, passed: Go) -> Job | Held | None:
    """Commits the intent of an effect. A pure tool needs none: it starts after the receipt before it,
    whose commit says whether a hold came. Held: this call waits. None: a hold or a stop came first."""
    tool = proposal.call.tool
    lease.require()
    began = time.monotonic()  # the intent's clock was read before it waited for the run's row
    if passed.committed:
        record.flush()
    elif proposal.ancestors or (proposal.metered and not tool.builtin):
        record.flush()
        try:
            gate.start(record.fence, proposal, passed.arguments)
        except Obstacle as obstacle:
            held = gate.obstructed(record.fence, proposal, obstacle)
            return None if isinstance(obstacle, AncestorHeld) else held
        except BadEstimate as error:
            return _without_estimate(record, proposal, passed, str(error))
        record.load(proposal.index)
    elif not tool.properties.effect:
        record.flush()
    elif not _intend(record, proposal, passed):
        return None
    if record.open_holds and not _has_intent(proposal):
        return None
    lease.require()
    lease.busy(tool.properties.timeout)
    points.reach("after-intent-before-call")
    key = effects.key(record.fence.run, proposal.index)
    context = ToolContext(record.fence.run, proposal.index, key, passed.attempt, passed.credentials)
    needs = (*tool.properties.depends_on, *passed.waited_for)
    return Job(proposal.call, passed.arguments, context, unsure=passed.unsure, needs=needs, ready_at=began)


def _without_estimate(record: Record, proposal: Proposal, passed: Go, why: str) -> Held:
    """A call that does not start; one that may have acted before stays in doubt."""
    tool = proposal.call.tool
    if passed.unsure:
        assert passed.step is not None
        record.flush()
        effects.doubt(record.fence, passed.step, effects.Doubt(why, effects.LONGEST_BACKOFF))
        return Held()
    sent = tool.properties.effect and passed.attempt > 1
    refused = effects.refused(ToolFailed("BadEstimate", why), tool)
    record.settle(proposal, refused, effect=EffectState.REFUSED if sent else "")
    return Held()


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
    started = _unless_stopped(record, started)
    if not started:
        return
    gate.put_off(record.fence, [job for _, job in started])
    by_call = {id(job.call): proposal for proposal, job in started}

    def late(job: Job, known: Known) -> None:
        _bring_late(record, job, known)

    broken: Exception | None = None
    for job, known in invocation.run_together([job for _, job in started], late):
        if broken is None:
            broken = _keep(record, by_call[id(job.call)], job, known)
        else:  # the run is lost, and the others are still under way
            late(job, known)
    if broken is not None:
        raise broken


def _keep(record: Record, proposal: Proposal, job: Job, known: Known) -> Exception | None:
    """Records what came of one call. What went wrong where it cannot: what the call brought is evidence then."""
    try:
        try:
            job, known = retries.until_known(record, proposal, job, known)
        except LostRace as stop:
            gate.put_back(record.fence, proposal, str(stop))
        else:
            _receive(record, proposal, job, known)
    except EpochLost as lost:
        return lost
    except Exception as error:  # the database went away, and may be back
        close_old_connections()
        _bring_late(record, job, known)
        return error
    return None


def _unless_stopped(record: Record, started: Started) -> Started:
    """Calls whose start is no commit (pure ones) begin only if no hold and no stop came since the last one."""
    if all(_has_intent(proposal) for proposal, _ in started):
        return started
    if not record.seen:
        record.look()
    return [(p, job) for p, job in started if _has_intent(p)] if record.open_holds else started


def _has_intent(proposal: Proposal) -> bool:
    tool = proposal.call.tool
    return tool.properties.effect or bool(proposal.ancestors) or (proposal.metered and not tool.builtin)


def _bring_late(record: Record, job: Job, known: Known) -> None:
    """What a call brings after its time was up or its run was lost: evidence, if it says anything."""
    if invocation.is_unknown(job, known) or known.kind == "obstructed" or not job.call.tool.properties.effect:
        return
    try:
        record.bring(job, known)
    except Exception:
        log.exception("evidence_lost", run=str(record.fence.run), index=job.context.index)


def _receive(record: Record, proposal: Proposal, job: Job, known: Known) -> None:
    """What is known of a call goes into the record; a receipt that cannot be found again is committed at once."""
    tool = proposal.call.tool
    points.reach("after-effect-before-record")
    if invocation.is_unknown(job, known):
        _doubt(record, proposal, known)
        return
    if known.kind == "obstructed":
        _turn_back(record, proposal, job, known)
        return
    if known.kind in ("returned", "refused"):
        dependencies.succeeded(job.needs)
        credentials.succeeded(tool.properties.credentials)
    state = effects.state_after(known) if tool.properties.effect else ""
    record.settle(proposal, known, effect=state, sent=job, usage=job.context.usage)
    if tool.properties.effect and not tool.repeatable:
        record.flush()


def _turn_back(record: Record, proposal: Proposal, job: Job, known: Known) -> None:
    """This attempt did nothing outside, and the call waits for what was in its way; the agent sees nothing of it.
    Where an earlier attempt may have acted it stays in doubt meanwhile."""
    record.flush()
    if isinstance(known.error, Unavailable):
        obstacle: Obstacle = dependencies.failed(known.error.dependency, str(known.error))
    else:
        obstacle = credentials.refused(proposal.call.tool.properties.credentials, known.error)
    turn = gate.obstructed if job.unsure else gate.turned_back
    turn(record.fence, proposal, obstacle)


def _doubt(record: Record, proposal: Proposal, known: Known) -> None:
    """What an effect's tool raised does not say whether it happened."""
    record.flush()
    lease.busy(proposal.call.tool.properties.timeout)
    step = Step.objects.get(run=record.fence.run, index=proposal.index)
    found = effects.resolve(proposal.call, step, clock.now())
    if isinstance(found, effects.Adopt):
        record.settle(proposal, found.known, effect=effects.state_after(found.known))
        return
    if isinstance(found, effects.Again):
        wait = effects.backoff(proposal.call.tool, step.attempt)
        found = effects.Doubt(f"no answer: {_short(known)}; it is repeated with the same key", wait)
    try:
        effects.doubt(record.fence, step.pk, found)
    except LostRace:  # its outcome came while we looked
        _doubt(record, proposal, known)


def _short(known: Known) -> str:
    kept = json.loads(known.text)
    return f"{kept['type']}: {', '.join(map(str, kept['args']))}"[:300]
