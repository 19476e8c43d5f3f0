"""The rows a call leaves at the gate: its step, the hold it waits under, and the commit in which it starts."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from django.conf import settings
from django.db import transaction

from runs import allowance, children, effects, facts, holds, journal, lifecycle, statements, values
from runs.actors import Actor
from runs.exceptions import AncestorHeld, Away, LostRace, NeedsAuthorisation, Obstacle, Short
from runs.facts import Reading
from runs.gate.contract import Asked, Held, Permit, Proposal, authority
from runs.holds import Terms
from runs.lifecycle import Fence
from runs.models import Hold, Run, Step
from runs.models.fact import Moment
from runs.states import Cause, EffectState, StepStatus


def agent(proposal: Proposal) -> Actor:
    return Actor("agent", f"{proposal.agent}@{proposal.agent_version}", proposal.agent, "worker")


def row(run: Run, proposal: Proposal, *, status: StepStatus = StepStatus.HELD) -> Step:
    """The call's step; one that has none yet gets it. `run` is locked."""
    tool = proposal.call.tool
    step, _ = Step.objects.get_or_create(
        run=run,
        index=proposal.index,
        defaults={
            "tool": tool.name,
            "tool_version": tool.version,
            "arguments": proposal.arguments,
            "arguments_digest": values.digest(proposal.arguments),
            "status": status,
        },
    )
    if step.tool_version != tool.version:  # a deploy changed the tool while the call waited
        Step.objects.filter(pk=step.pk).update(tool_version=tool.version)
        step.tool_version = tool.version
    return step


def wait(fence: Fence, proposal: Proposal) -> None:
    """Gives a call that may not start now its row, so that what it waits for is seen. Raises EpochLost."""
    with transaction.atomic():
        step = row(lifecycle.lock_fenced(fence), proposal)
        if step.status == StepStatus.HELD and not step.holds.exists():
            Step.objects.filter(pk=step.pk).update(status=StepStatus.PROPOSED)


# -- Holds -------------------------------------------------------------------------


def ask_people(fence: Fence, proposal: Proposal, cause: Cause, asked: Asked, *, why: str) -> Hold:
    """The step's row (if it has none yet), what was seen, and the hold, in one transaction."""
    with transaction.atomic():
        run = lifecycle.lock_fenced(fence)
        step = row(run, proposal)
        if asked.readings:
            facts.keep(step, asked.readings, Moment.PROPOSAL)
        return holds.place(
            run,
            cause=cause,
            actor=agent(proposal),
            step=step,
            why=why,
            terms=Terms(expires_in=asked.verdict.expires_in),
            context=asked,
        )


def unreadable(fence: Fence, proposal: Proposal, step: Step, readings: list[Reading]) -> Held:
    """Facts that cannot be read at the call: it waits for their source."""
    source = readings[0].source
    said = "; ".join(f"{r.title}: {r.problem.rstrip('.')}" for r in readings)
    with transaction.atomic():
        run = lifecycle.lock_fenced(fence)
        facts.keep(step, readings, Moment.CALL)
        why = f"The source “{source}” could not be read. {said}."
        _place(run, proposal, step, Away(source, why), look_again_in=settings.LOOK_AGAIN)
    return Held()


def obstructed(fence: Fence, proposal: Proposal, obstacle: Obstacle) -> Held:
    """The call waits for what stands in its way. Raises EpochLost."""
    with transaction.atomic():
        run = lifecycle.lock_fenced(fence)
        step = row(run, proposal)
        _place(run, proposal, step, obstacle)
    return Held()


def turned_back(fence: Fence, proposal: Proposal, obstacle: Obstacle, *, look_again_in: float | None) -> Held:
    """A call that met the obstacle outside, where certainly nothing was done: its permit and what it reserved
    are given back, and it waits. Raises EpochLost."""
    with transaction.atomic():
        run = lifecycle.lock_fenced(fence)
        step = row(run, proposal)
        if step.effect:
            Step.objects.filter(pk=step.pk).update(effect=EffectState.REFUSED)
            if step.permit:
                authority().give_back(run, step)
        journal.write(run, fence.actor, "not_sent", index=step.index, attempt=step.attempt, why=obstacle.why)
        _place(run, proposal, step, obstacle, look_again_in=look_again_in)
        allowance.settle(run, step.index, {}, unsent=True)
    return Held()


CAUSES: dict[type[Obstacle], Cause] = {
    Away: Cause.DEPENDENCY,
    NeedsAuthorisation: Cause.CREDENTIAL,
    Short: Cause.ALLOWANCE,
    AncestorHeld: Cause.ANCESTOR,
}


def _place(
    run: Run, proposal: Proposal, step: Step, obstacle: Obstacle, *, look_again_in: float | None = None
) -> None:
    cause = CAUSES[type(obstacle)]
    above = cause == Cause.ANCESTOR
    if above and Hold.objects.open().filter(run=run, cause=cause).exists():
        return
    holds.place(
        run,
        cause=cause,
        actor=agent(proposal),
        step=None if above else step,
        why=obstacle.why[:2000],
        detail=obstacle.detail,
        subject=obstacle.subject,
        terms=Terms(look_again_in=look_again_in),
    )
    if above and step.status == StepStatus.HELD and not step.holds.exists():
        Step.objects.filter(pk=step.pk).update(status=StepStatus.PROPOSED)


# -- Starting ------------------------------------------------------------------------


@contextmanager
def committing(fence: Fence, ancestors: Sequence[Any]) -> Iterator[Run]:
    """The transaction in which a call may start: no run above is held, this worker has the run, and nothing
    binds it. Raises AncestorHeld, EpochLost, LostRace."""
    with transaction.atomic():
        children.share(ancestors)
        run = lifecycle.lock_fenced(fence)
        if run.open_holds or run.stop_requested:
            raise LostRace("a hold or a stop came first")
        yield run


def start(fence: Fence, proposal: Proposal, *, attempt: int) -> Step:
    """Commits the start of an allowed call that draws on an allowance or has runs above it: its row, what it
    reserves, and the intent of an effect. Raises AncestorHeld, Short, EpochLost, LostRace."""
    with committing(fence, proposal.ancestors) as run:
        step = row(run, proposal, status=StepStatus.PROPOSED)
        intend(fence, proposal, None)
        allowance.reserve(run, proposal.call.tool, proposal.arguments, index=step.index, attempt=attempt)
    return step


def intend(fence: Fence, proposal: Proposal, permit: Permit | None) -> None:
    """The intent of a call that has its row, in the transaction of its start. Raises LostRace."""
    tool = proposal.call.tool
    if tool.properties.effect:
        told = {**fence.parameters(), **intent(fence, proposal.index, tool, permit=permit)}
        written = statements.row(statements.BOUNDARY["", "row"], told)
        if written is None or written[4] != 1:
            raise LostRace("the call could not be dispatched: a hold came first")
    elif permit is not None:
        Step.objects.filter(run=fence.run, index=proposal.index).update(
            permit=permit.ref,
            decision=permit.decision,
            executed=permit.arguments if permit.edited else None,
            executed_digest=permit.digest if permit.edited else "",
        )


def intent(fence: Fence, index: int, tool: Any, *, permit: Permit | None = None) -> dict[str, Any]:
    """The parameters of an intent for a step that has its row."""
    return {
        "index": index,
        "key": effects.key(fence.run, index),
        "acts_for": effects.acts_for(tool),
        "executed": permit.arguments if permit and permit.edited else None,
        "executed_digest": permit.digest if permit and permit.edited else None,
        "permit": permit.ref if permit else None,
        "decision_now": json.dumps(permit.decision) if permit else None,
    }
