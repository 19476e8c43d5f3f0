"""Effects: once, or a question, never twice.

The intent is committed before the call, the receipt after it. Any end other than a receipt, a declared refusal
or `NotSent` is unknown, and is resolved by what the tool declares: evidence first, then the same key again,
then `verify`, then a person. Evidence is never fenced: a late result is kept and settles its own doubt.
"""

import hashlib
import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import transaction

from runs import clock, holds, journal, lifecycle, recorded, timers
from runs.actors import Actor
from runs.holds import Terms
from runs.invocation import Known
from runs.lifecycle import Fence
from runs.models import Hold, Run, Step
from runs.states import SETTLED, Cause, EffectState
from runs.tools.calls import Call
from runs.tools.declared import Tool

LONGEST_BACKOFF = 300.0


def key(run: uuid.UUID, index: int) -> str:
    """The idempotency key of a call: the same at every attempt, unique to run and index."""
    return hashlib.sha256(f"abeyance:{run}:{index}".encode()).hexdigest()[:40]


def acts_for(tool: Tool[..., Any]) -> float:
    """Seconds from dispatch until the call can certainly not act any more: its time limit and a margin."""
    return tool.properties.timeout + settings.ACT_MARGIN


@dataclass(frozen=True, slots=True)
class Again:
    """Call again with the same key."""


@dataclass(frozen=True, slots=True)
class Adopt:
    """The outcome is known after all."""

    known: Known


@dataclass(frozen=True, slots=True)
class Doubt:
    """Nobody can tell yet. `look_again_in` seconds; None: a person has to settle it."""

    why: str
    look_again_in: float | None


def resolve(call: Call[Any], step: Step, at: datetime) -> Again | Adopt | Doubt:
    """What to do about a dispatched effect whose outcome is unknown. May ask the outside (`verify`)."""
    if known := from_evidence(step):
        return Adopt(known)
    tool = call.tool
    if tool.properties.idempotent:
        return Again()
    assert step.may_act_until is not None
    left = (step.may_act_until - at).total_seconds()
    if tool.properties.verify is None:
        why = "nobody can tell whether it happened, and the tool has no way to find out"
        return Doubt(why, left if left > 0 else None)
    return _verified(call, step.key, left)


def _verified(call: Call[Any], effect_key: str, left: float) -> Again | Adopt | Doubt:
    verify = call.tool.properties.verify
    assert verify is not None
    try:
        with timers.limit(call.tool.properties.timeout):
            found = verify(effect_key)
            text = None if found is None else call.returns.write(found)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # an author's code: whatever it raises is "cannot tell"
        why = f"looking whether it happened failed: {type(error).__name__}: {recorded.message(error)}"[:500]
        return Doubt(why, left if left > 0 else None)
    if text is not None:
        return Adopt(Known("returned", text))
    if left > 0:
        return Doubt("it had not happened yet, but the call may still act", left)
    return Again()


def from_evidence(step: Step) -> Known | None:
    """A late result that an earlier attempt brought, if any."""
    for item in step.evidence:
        if item["key"] == step.key and item["digest"] == (step.executed_digest or step.arguments_digest):
            return Known(item["kind"], item["text"])
    return None


def backoff(tool: Tool[..., Any], attempt: int) -> float:
    """Seconds before attempt number `attempt` + 1: doubled each time, five minutes at most."""
    return float(min(LONGEST_BACKOFF, tool.properties.backoff * 2.0 ** max(0, attempt - 1)))


def doubt(fence: Fence, step_id: int, found: Doubt) -> Hold:
    """Places the `in_doubt` hold of a dispatched effect. Raises EpochLost."""
    with transaction.atomic():
        run = lifecycle.lock_fenced(fence)
        step = Step.objects.get(pk=step_id)
        if step.effect == EffectState.DISPATCHED:
            Step.objects.filter(pk=step_id).update(effect=EffectState.IN_DOUBT)
            journal.write(run, fence.actor, "in_doubt", index=step.index, attempt=step.attempt, why=found.why)
        return holds.place(
            run,
            cause=Cause.IN_DOUBT,
            actor=fence.actor,
            step=step,
            why=found.why,
            detail={"attempt": step.attempt, "key": step.key},
            terms=Terms(look_again_in=found.look_again_in),
        )


def evidence(
    run_id: uuid.UUID, index: int, *, effect_key: str, attempt: int, digest: str, known: Known, actor: Actor
) -> bool:
    """Keeps what an attempt brought after its worker had lost the run, and settles its own doubt with it.

    Moves nothing else. False: the key is not this effect's.
    """
    with transaction.atomic():
        run = lifecycle.lock(run_id)
        step = Step.objects.select_for_update().get(run=run, index=index)
        if step.key != effect_key:
            return False
        item = {"key": effect_key, "attempt": attempt, "digest": digest, "at": clock.now().isoformat()}
        item |= {"kind": known.kind, "text": known.text}
        Step.objects.filter(pk=step.pk).update(evidence=[*step.evidence, item])
        journal.write(run, actor, "evidence", index=index, attempt=attempt, kind=known.kind)
        if digest == (step.executed_digest or step.arguments_digest):
            _settle_by_evidence(run, step, known, actor)
    return True


def _settle_by_evidence(run: Run, step: Step, known: Known, actor: Actor) -> None:
    """Releases the doubt the evidence answers. A run that ended keeps its doubt until somebody looks; its
    ledger entry then says what happened."""
    standing = Hold.objects.open().filter(step=step, cause=Cause.IN_DOUBT).first()
    if standing is not None:
        holds.release_locked(run, standing, actor=actor, resolution="evidence")
    elif run.ended and step.status not in SETTLED and known.kind in ("returned", "refused"):
        Step.objects.filter(pk=step.pk).update(effect=state_after(known))


def state_after(known: Known) -> str:
    """The ledger's word for a settled effect. A result that could not be kept did happen."""
    return EffectState.REFUSED if known.kind in ("refused", "unsent") else EffectState.CONFIRMED


def refused(error: Exception, tool: Tool[..., Any]) -> Known:
    """A call that ends without having been made."""
    return Known("refused", recorded.write(error, tool.recorded_errors), error)
