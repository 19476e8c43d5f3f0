"""Undoing what a run did outside: an ordinary run of a built-in agent, on request, in reverse order.

Each undo is an ordinary call of the tool that the undone one names in `compensate=`: policy is asked about it, and
it may be held. Which run undoes an effect is on its step, so that no two do; a sweeper's verb hears what came of
it and says so in the ledger.
"""

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Q
from pydantic import BaseModel

from runs import claims, effects, holds, journal, lifecycle, queues, recorded, values
from runs.actors import SYSTEM, Actor
from runs.agents import RunContext, agent
from runs.exceptions import AgentMistake, BadArguments, Compensated, WrongState
from runs.invocation import Known
from runs.models import Hold, Run, Step
from runs.states import ENDED, Cause, ClaimState, EffectState, StepStatus
from runs.tools import declared
from runs.tools.calls import Call

NAME, VERSION = "abeyance.compensate", "1"
LATELY = timedelta(minutes=1)


class Undo(BaseModel):
    """One call that undoes the effect of step `index`. `arguments` are those of `tool`."""

    index: int
    tool: str
    arguments: dict[str, Any]


@agent(name=NAME, version=VERSION)
async def undo(run: RunContext, of: uuid.UUID, calls: list[Undo]) -> int:
    """Undoes effects of another run, the last one first. The first that cannot be undone ends it."""
    for each in calls:
        tool = declared.get(each.tool)
        if tool is None:
            raise AgentMistake(f"no tool here is called {each.tool}")
        await Call(tool, values.canonical(each.arguments))
    return len(calls)


# -- What can be undone --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Part:
    """One effect of a run and the call that undoes it, or why there is none."""

    step: Step
    call: Undo | None
    why_not: str = ""


def plan(run: Run) -> list[Part]:
    """Every effect that happened, the last one first."""
    happened = Step.objects.filter(run=run, effect__in=[EffectState.CONFIRMED, EffectState.COMPENSATED])
    return [part(step) for step in happened.select_related("compensated_by").order_by("-index")]


def part(step: Step) -> Part:
    """How one effect would be undone."""
    made = declared.get(step.tool)
    tool = made.properties.compensate if made else None
    if why_not := _why_not(step):
        return Part(step, None, why_not)
    if tool is None:
        return Part(step, None, f"Nothing is declared that undoes {step.tool}.")
    try:
        arguments = json.loads(claims.undoing(step, tool))
    except BadArguments as error:
        return Part(step, None, f"It cannot be undone by {tool.name}: {error}.")
    return Part(step, Undo(index=step.index, tool=tool.name, arguments=arguments))


def _why_not(step: Step) -> str:
    if step.effect == EffectState.COMPENSATED:
        return "It is undone already."
    if step.compensated_by is not None:
        return f"Run {step.compensated_by.short_id} is undoing it."
    if step.claim in (ClaimState.GIVEN_BACK, ClaimState.GIVING):
        return "It was given back."
    return ""


# -- Starting ------------------------------------------------------------------------------


def compensate(
    run_id: uuid.UUID, *, actor: Actor, why: str, owner_id: str = "", indexes: Sequence[int] | None = None
) -> Run:
    """Starts the run that undoes what an ended run did, or only the steps at `indexes`. Its submitter is who asks.

    Raises NotFound; WrongState: the run has not ended, or goes on elsewhere, there is nothing to undo, or a step
    named cannot be undone.
    """
    with transaction.atomic():
        run = lifecycle.lock(run_id)
        if not run.ended:
            raise WrongState(f"run {run_id} is {run.status}; what it did is undone after it has ended")
        if lifecycle.went_elsewhere(run):
            raise WrongState(f"run {run_id} goes on in another installation; what it did is undone there")
        parts = plan(run) if indexes is None else [_named(run, index) for index in _backwards(indexes)]
        able = [each for each in parts if each.call is not None]
        if not able:
            raise WrongState(f"run {run_id} did nothing that can be undone")
        return start(run, able, actor=actor, owner_id=owner_id, why=why)


def _backwards(indexes: Sequence[int]) -> list[int]:
    return sorted(set(indexes), reverse=True)


def _named(run: Run, index: int) -> Part:
    """The effect of a step somebody named. Raises WrongState: it did not happen, or cannot be undone."""
    step = Step.objects.filter(run=run, index=index).select_related("compensated_by").first()
    if step is None or step.effect not in (EffectState.CONFIRMED, EffectState.COMPENSATED):
        raise WrongState(f"step {index} of run {run.pk} has no effect that happened")
    found = part(step)
    if found.call is None:
        raise WrongState(f"step {index}: {found.why_not}")
    return found


def start(run: Run, parts: Sequence[Part], *, actor: Actor, owner_id: str, why: str) -> Run:
    """The run that undoes these. `run`, whose effects they are, is locked, and every part has its call."""
    calls = [each.call.model_dump() for each in parts if each.call is not None]
    text = undo.signature.write_json({"of": str(run.pk), "calls": calls})
    made = Run.objects.create(
        agent=undo.name,
        agent_version=undo.version,
        code_digest=undo.code_digest,
        input=text,
        labels=run.labels,
        on_behalf_of=run.on_behalf_of,
        submitter_kind=actor.kind,
        submitter_id=actor.id,
        submitter_name=actor.name,
        owner_id=owner_id,
    )
    journal.write(
        made, actor, "submitted", agent=str(undo), on_behalf_of=made.on_behalf_of, undoes=str(run.pk)
    )
    indexes = [each.step.index for each in parts]
    mine = Step.objects.filter(pk__in=[each.step.pk for each in parts], compensated_by__isnull=True)
    if mine.exclude(claim=ClaimState.GIVING).update(compensated_by=made) != len(parts):
        raise WrongState(f"something run {run.pk} reserved is being given back at this moment")
    journal.write(run, actor, "compensation_started", run=str(made.pk), indexes=indexes, why=why)
    queues.ring(made.pk)
    return made


# -- What came of it: a verb of the sweeper ------------------------------------------------------


def undone_now(now: datetime) -> list[int]:
    """Steps whose undoing is over, or moved lately: one that waits for a person is not locked at every pass."""
    waiting = Step.objects.filter(
        compensated_by__isnull=False, effect__in=[EffectState.CONFIRMED, EffectState.IN_DOUBT]
    )
    over = Q(compensated_by__status__in=sorted(ENDED))
    moved = Q(compensated_by__changed_at__gt=now - LATELY)
    return list(waiting.filter(over | moved).values_list("pk", flat=True))


def hear(step_id: int) -> bool:
    """Says in the ledger that an effect is undone, or that its undoing came to nothing, and frees it for another.

    False: it is not known yet, or was said before.
    """
    run_id = Step.objects.values_list("run_id", flat=True).get(pk=step_id)
    with transaction.atomic():
        run = lifecycle.lock(run_id)
        step = Step.objects.select_for_update(of=("self",)).select_related("compensated_by").get(pk=step_id)
        undoing = step.compensated_by
        if undoing is None or step.effect not in (EffectState.CONFIRMED, EffectState.IN_DOUBT):
            return False
        done = _is_done(undoing, step)
        if done is None:
            return False
        _undone(run, step, undoing) if done else _not_undone(run, step, undoing)
    return True


def _is_done(undoing: Run, step: Step) -> bool | None:
    """Whether the call that undoes `step` got through; None: nobody knows yet."""
    calls = json.loads(undoing.input)["calls"]
    place = next(place for place, each in enumerate(calls) if each["index"] == step.index)
    call = Step.objects.filter(run=undoing, index=place).first()
    if call is not None:
        if call.effect == EffectState.CONFIRMED or (not call.effect and call.status == StepStatus.DONE):
            return True
        if call.effect in (EffectState.DISPATCHED, EffectState.IN_DOUBT):
            return None
    return False if undoing.ended else None


def _undone(run: Run, step: Step, undoing: Run) -> None:
    if step.effect == EffectState.IN_DOUBT:
        error = recorded.write(Compensated(_reason(step)), ())
        known = Known("compensated", error)
        effects.keep(step, known, attempt=step.attempt, digest=effects.sent_digest(step), run=str(undoing.pk))
        _release_doubt(run, step, "compensated")
    reserved = Step.objects.filter(pk=step.pk).exclude(claim="")
    reserved.update(claim=ClaimState.GIVEN_BACK, claim_due_at=None)
    Step.objects.filter(pk=step.pk).update(effect=EffectState.COMPENSATED)
    journal.write(run, SYSTEM, "compensated", index=step.index, run=str(undoing.pk))


def _reason(step: Step) -> str:
    """What the person wrote who had it undone."""
    asked = [item for item in step.evidence if item["kind"] == "compensate"]
    return str(asked[-1]["why"]) if asked else ""


def _not_undone(run: Run, step: Step, undoing: Run) -> None:
    Step.objects.filter(pk=step.pk).update(compensated_by=None)
    journal.write(
        run, SYSTEM, "not_compensated", index=step.index, run=str(undoing.pk), status=undoing.status
    )
    known = effects.from_evidence(step)
    if known is None or step.effect != EffectState.IN_DOUBT:
        return
    if run.ended:  # it came while the effect was being undone
        effects.settle_ledger(step, known)
    _release_doubt(run, step, "evidence")


def _release_doubt(run: Run, step: Step, resolution: str) -> None:
    standing = Hold.objects.open().filter(step=step, cause=Cause.IN_DOUBT).first()
    if standing is not None:
        holds.release_locked(run, standing, actor=SYSTEM, resolution=resolution)
