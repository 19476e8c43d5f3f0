"""The rows a call leaves at the gate: its step, the hold it waits under, and the commit in which it starts."""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction

from runs import (
    allowance,
    children,
    clock,
    dependencies,
    effects,
    facts,
    holds,
    journal,
    lifecycle,
    points,
    prepared,
    statements,
    values,
)
from runs.actors import Actor
from runs.clock import Now
from runs.exceptions import (
    AncestorHeld,
    Away,
    BadEstimate,
    LostRace,
    NeedsAuthorisation,
    Obstacle,
    Short,
)
from runs.facts import Reading
from runs.gate.contract import NOTHING, Asked, First, Held, Permit, Proposal, authority
from runs.holds import Terms
from runs.invocation import Job
from runs.lifecycle import Fence
from runs.models import Hold, Run, Step
from runs.models.fact import Moment
from runs.prepared import Batch, Given, Query
from runs.states import Cause, EffectState, StepStatus

_STEP = Query(lambda: Step.objects.filter(run=Given("run"), index=Given("index")).order_by())


#: So that what hangs on a new step can be written with it.
_NUMBER = "SELECT nextval(pg_get_serial_sequence('runs_step', 'id'))"


def agent(proposal: Proposal) -> Actor:
    return Actor("agent", f"{proposal.agent}@{proposal.agent_version}", proposal.agent, "worker")


def row(run: Run, proposal: Proposal, *, status: StepStatus = StepStatus.HELD) -> Step:
    """The call's step; one that has none yet gets it. `run` is locked."""
    step = _STEP.first(run=run.pk, index=proposal.index)
    if step is None:
        step = _new(run, proposal, status)
        prepared.insert(step)
    return _as_it_is(step, proposal)


def _new(run: Run, proposal: Proposal, status: StepStatus, pk: int | None = None) -> Step:
    tool = proposal.call.tool
    return Step(
        pk=pk,
        run=run,
        index=proposal.index,
        tool=tool.name,
        tool_version=tool.version,
        arguments=proposal.arguments,
        arguments_digest=values.digest(proposal.arguments),
        status=str(status),
    )


def _as_it_is(step: Step, proposal: Proposal) -> Step:
    tool = proposal.call.tool
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
        points.committing("wait")


# -- Holds -------------------------------------------------------------------------


def ask_people(
    fence: Fence,
    proposal: Proposal,
    cause: Cause,
    asked: Asked,
    *,
    why: str,
    first: First = NOTHING,
) -> None:
    """The step's row (if it has none yet), what was seen, and the hold, in one transaction.

    Raises AncestorHeld, EpochLost.
    """
    with transaction.atomic():
        children.share(proposal.ancestors)  # people are not asked for a run that may do nothing
        with Batch() as batch:
            written = first.write(batch)
            locked = lifecycle.locking_fenced(batch, fence)
            at = clock.asked(batch)
            known = batch.ask(_STEP, run=fence.run, index=proposal.index)
            number = batch.row(_NUMBER, ())
            foreseen = authority().foresee(batch, asked.verdict.terms)
        written()
        run, step = locked(), known.first()
        if step is not None:
            _hold(run, proposal, cause, _as_it_is(step, proposal), asked, why=why, at=at())
        else:
            asked = replace(asked, foreseen=foreseen())
            step = _new(run, proposal, StepStatus.HELD, number.one()[0])
            with Batch():  # nothing has to be asked any more
                prepared.insert(step)
                _hold(run, proposal, cause, step, asked, why=why, at=at())
    first.committed()


def _hold(
    run: Run, proposal: Proposal, cause: Cause, step: Step, asked: Asked, *, why: str, at: datetime
) -> None:
    if asked.readings:
        facts.keep(step, asked.readings, Moment.PROPOSAL)
    holds.place(
        run,
        cause=cause,
        actor=agent(proposal),
        step=step,
        why=why,
        terms=Terms(expires_in=asked.verdict.expires_in),
        context=asked,
        at=at,
    )


def unreadable(fence: Fence, proposal: Proposal, step: Step, readings: list[Reading]) -> Held:
    """Facts that cannot be read at the call: it waits for their source."""
    source = readings[0].source
    said = "; ".join(f"{r.title}: {r.problem.rstrip('.')}" for r in readings)
    with transaction.atomic():
        run = lifecycle.lock_fenced(fence)
        facts.keep(step, readings, Moment.CALL)
        away = Away(source, f"The source “{source}” could not be read. {said}.")
        away.look_again_in = None if dependencies.is_away(source) else settings.LOOK_AGAIN
        _place(run, proposal, step, away)
    return Held()


def obstructed(fence: Fence, proposal: Proposal, obstacle: Obstacle) -> Held:
    """The call waits for what stands in its way; one that may have acted stays in doubt. Raises EpochLost;
    LostRace: the run above goes on by now."""
    points.reach("before-obstacle-hold")
    with transaction.atomic():
        if isinstance(obstacle, AncestorHeld) and children.held_above(proposal.ancestors) is None:
            raise LostRace("the run above is free again")
        run = lifecycle.lock_fenced(fence)
        step = row(run, proposal)
        if step.status == StepStatus.DISPATCHED and step.effect == EffectState.DISPATCHED:
            step.effect = EffectState.IN_DOUBT
            Step.objects.filter(pk=step.pk).update(effect=step.effect)
            told = {"index": step.index, "attempt": step.attempt, "why": obstacle.why}
            journal.write(run, fence.actor, "in_doubt", **told)
        _place(run, proposal, step, obstacle)
    return Held()


def turned_back(fence: Fence, proposal: Proposal, obstacle: Obstacle) -> Held:
    """A call that met the obstacle outside, where certainly nothing was done: its permit and what it reserved
    are given back, and it waits. Raises EpochLost."""
    with transaction.atomic():
        run = lifecycle.lock_fenced(fence)
        step = row(run, proposal)
        if step.effect:
            Step.objects.filter(pk=step.pk).update(effect=EffectState.REFUSED)
        if step.permit:
            authority().give_back(run, step)
            Step.objects.filter(pk=step.pk).update(permit="")
        journal.write(run, fence.actor, "not_sent", index=step.index, attempt=step.attempt, why=obstacle.why)
        _place(run, proposal, step, obstacle)
        allowance.give_back(run, step.index)
    return Held()


def take_back(fence: Fence, index: int, why: str) -> None:
    """An approval that nobody will use does not stand any more, in the commit of the call's outcome."""
    authority().revoke(Step.objects.get(run=fence.run, index=index), why)


def note_not_sent(fence: Fence, proposal: Proposal, attempt: int, why: str) -> None:
    """Of an attempt that certainly did nothing and is followed by another at once. Raises EpochLost."""
    with transaction.atomic():
        run = lifecycle.lock_fenced(fence)
        journal.write(run, fence.actor, "not_sent", index=proposal.index, attempt=attempt, why=why[:2000])


def put_back(fence: Fence, proposal: Proposal, why: str) -> None:
    """A call that was certainly not made, and may not be tried again while something stops the run: as it was
    before its start, with its permit. Raises EpochLost."""
    with transaction.atomic():
        run = lifecycle.lock_fenced(fence)
        step = row(run, proposal, status=StepStatus.PROPOSED)
        waited = StepStatus.HELD if step.holds.exists() else StepStatus.PROPOSED
        effect = EffectState.REFUSED if step.effect else ""
        Step.objects.filter(pk=step.pk).update(status=waited, effect=effect)
        if step.effect and step.permit:
            authority().give_back(run, step)
        journal.write(run, fence.actor, "not_sent", index=step.index, attempt=step.attempt, why=why)
        if proposal.call.tool.properties.effect:
            allowance.give_back(run, step.index)
        else:  # a pure call that failed was made
            allowance.charge(run, step.index)


def _look_again_in(obstacle: Obstacle, tries: int) -> float | None:
    """Seconds: longer each time that a call looks by itself and finds the obstacle still there."""
    first = obstacle.look_again_in
    return None if first is None else min(effects.LONGEST_BACKOFF, first * 2.0 ** min(tries, 20))


def _waited_before(step: Step, cause: Cause, obstacle: Obstacle) -> Hold | None:
    """The hold that a call had a moment ago for the same: one wait, with one end, however often it looks. What
    its owner authorised in between is waited for anew."""
    last = step.holds.order_by("opened_at", "pk").last()
    same = last is not None and (last.cause, last.subject) == (cause, obstacle.subject)
    if last is None or not same or last.resolution != "look_again":
        return None
    return last if cause == Cause.DEPENDENCY or "tries" in last.detail else None


CAUSES: dict[type[Obstacle], Cause] = {
    Away: Cause.DEPENDENCY,
    NeedsAuthorisation: Cause.CREDENTIAL,
    Short: Cause.ALLOWANCE,
    AncestorHeld: Cause.ANCESTOR,
}


def _place(run: Run, proposal: Proposal, step: Step, obstacle: Obstacle) -> None:
    cause = CAUSES[type(obstacle)]
    above = cause == Cause.ANCESTOR
    if above and Hold.objects.open().filter(run=run, cause=cause).exists():
        return
    before = None if above else _waited_before(step, cause, obstacle)
    tries = before.detail.get("tries", 0) if before else 0
    hold = holds.place(
        run,
        cause=cause,
        actor=agent(proposal),
        step=None if above else step,
        why=obstacle.why[:2000],
        detail=obstacle.detail if obstacle.look_again_in is None else {**obstacle.detail, "tries": tries + 1},
        subject=_subject(run, obstacle),
        terms=Terms(look_again_in=_look_again_in(obstacle, tries)),
    )
    if before is not None:
        ends = {"expires_at": before.expires_at, "overdue_at": before.overdue_at}
        Hold.objects.filter(pk=hold.pk).update(**ends)
    if above and step.status == StepStatus.HELD and not step.holds.exists():
        Step.objects.filter(pk=step.pk).update(status=StepStatus.PROPOSED)


def _subject(run: Run, obstacle: Obstacle) -> str:
    """What is waited for; a unit of which the run has no allowance gets one, of nothing, to be topped up."""
    if isinstance(obstacle, Short) and not obstacle.subject:
        return str(allowance.lacking(run, obstacle.detail["unit"]).pk)
    return obstacle.subject


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
        points.committing("start")


@contextmanager
def committing_approved(fence: Fence, proposal: Proposal) -> Iterator[Run | None]:
    """The same for a call with a permit. An effect that draws on nothing and has no run above goes in one round trip:
    its intent asks all of this of the run's row, and locks it; then there is no row to look at."""
    if not proposal.call.tool.properties.effect or proposal.ancestors or proposal.metered:
        with committing(fence, proposal.ancestors) as run:
            yield run
        return
    with transaction.atomic():
        with Batch():
            yield None
        points.committing("start")


def put_off(fence: Fence, jobs: Iterable[Job]) -> None:
    """Effects that begin some time after their intent, because it waited for the run's row or calls beside them took
    theirs at the gate, may act for longer than it says. Raises EpochLost."""
    for job in jobs:
        tool = job.call.tool
        if tool.properties.effect and job.waited() > settings.ACT_MARGIN / 2:
            with transaction.atomic():
                lifecycle.lock_fenced(fence)
                until = Now() + timedelta(seconds=effects.acts_for(tool))
                Step.objects.filter(run=fence.run, index=job.context.index).update(may_act_until=until)


@contextmanager
def below(ancestors: Sequence[Any]) -> Iterator[None]:
    """Around the commit of one more attempt: no run above is held. Raises AncestorHeld."""
    if not ancestors:
        yield
        return
    with transaction.atomic():
        children.share(ancestors)
        yield


def free(fence: Fence, proposal: Proposal) -> bool:
    """Whether a pure call may be tried once more: nothing holds its run or one above. Raises EpochLost."""
    try:
        with committing(fence, proposal.ancestors):
            return True
    except (AncestorHeld, LostRace):
        return False


def start(fence: Fence, proposal: Proposal, arguments: str) -> Step:
    """Commits the start of an allowed call that draws on an allowance or has runs above it: its row, what it
    reserves, and the intent of an effect. Raises AncestorHeld, Short, BadEstimate, EpochLost, LostRace."""
    want = will_use(proposal, arguments)
    with committing(fence, proposal.ancestors) as run:
        step = row(run, proposal, status=StepStatus.PROPOSED)
        intend(fence, proposal)
        allowance.reserve(run, proposal.call.tool, want, index=step.index)
    return step


def will_use(proposal: Proposal, arguments: str) -> allowance.Want:
    """What the call will use, asked before the transaction of its start. Raises BadEstimate."""
    tool = proposal.call.tool
    if not proposal.metered or tool.builtin:
        return {}
    return allowance.wanted(proposal.run, tool, arguments, index=proposal.index)


def draw_again(fence: Fence, proposal: Proposal, job: Job) -> bool:
    """Charges an attempt of a pure call that is to be made again, and reserves for the next. False: that may not
    start. Raises EpochLost."""
    try:
        want = will_use(proposal, job.arguments)
        with committing(fence, proposal.ancestors) as run:
            allowance.charge(run, proposal.index, job.context.usage)
            allowance.reserve(run, proposal.call.tool, want, index=proposal.index)
    except (AncestorHeld, Short, BadEstimate, LostRace):
        return False
    job.context.usage.clear()
    return True


def intend(fence: Fence, proposal: Proposal) -> None:
    """The intent of an allowed call that has its row, in the transaction of its start. Raises LostRace."""
    tool = proposal.call.tool
    if tool.properties.effect:
        _dispatch(fence, statements.BOUNDARY["", "row"], intent(fence, proposal.index, tool))


def intend_approved(fence: Fence, proposal: Proposal, run: Run | None, permit: Permit) -> None:
    """The same of a call with a permit, and its entry in the journal. Raises LostRace."""
    tool = proposal.call.tool
    told = {"index": proposal.index, "permit": permit.ref, "digest": permit.digest}
    if tool.properties.effect:
        entry = journal.parameters(fence.actor, "dispatched", told)
        _dispatch(fence, statements.DISPATCH, {**intent(fence, proposal.index, tool, permit=permit), **entry})
        return
    assert run is not None
    Step.objects.filter(run=fence.run, index=proposal.index).update(
        permit=permit.ref,
        decision=permit.decision,
        executed=permit.arguments if permit.edited else None,
        executed_digest=permit.digest if permit.edited else "",
    )
    journal.write(run, fence.actor, "dispatched", **told)


def _dispatch(fence: Fence, statement: str, told: dict[str, Any]) -> None:
    def written(row: prepared.Row | None) -> None:
        if row is None or row[4] != 1:
            raise LostRace("the call could not be dispatched: a hold came first")
        if "verb" in told:
            points.committing("dispatched")

    prepared.write(statement, {**fence.parameters(), **told}, then=written)


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
