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

from runs import clock, holds, invocation, journal, lifecycle, points, recorded, timers
from runs.actors import Actor
from runs.exceptions import LostRace
from runs.holds import Terms
from runs.invocation import Known
from runs.lifecycle import Fence
from runs.models import Hold, Run, Step
from runs.states import Cause, ClaimState, EffectState, StepStatus
from runs.tools import declared
from runs.tools.calls import Call
from runs.tools.declared import Tool

LONGEST_BACKOFF = 300.0
#: What a call waits for that needs no other try once it is known what came of it.
ANSWERED = (Cause.IN_DOUBT, Cause.APPROVAL, Cause.ALLOWANCE, Cause.CREDENTIAL, Cause.DEPENDENCY)


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
    if step.compensated_by_id is not None:
        return Doubt("a run is undoing it", None)
    tool = call.tool
    if tool.properties.idempotent:
        return Again()
    assert step.may_act_until is not None
    left = (step.may_act_until - at).total_seconds()
    if tool.properties.verify is None:
        why = "Nobody can tell whether it happened, and the tool has no way to find out."
        return Doubt(why, left if left > 0 else None)
    return _verified(call, step.key, left)


def _verified(call: Call[Any], effect_key: str, left: float) -> Again | Adopt | Doubt:
    found = verified(call.tool, effect_key)
    if isinstance(found, Doubt):
        return Doubt(found.why, left if left > 0 else None)
    if found is not None:
        return Adopt(found)
    if left > 0:
        return Doubt("it had not happened yet, but the call may still act", left)
    return Again()


def verified(tool: Tool[..., Any], effect_key: str) -> Known | Doubt | None:
    """Asks the outside whether something happened under this key. None: it did not; Doubt: it cannot tell."""
    verify = tool.properties.verify
    assert verify is not None
    points.reach("before-verify")
    try:
        with timers.limit(tool.properties.timeout):
            found = verify(effect_key)
            points.reach("after-verify")
            return None if found is None else Known("returned", invocation.kept(tool.returns, found))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # an author's code: whatever it raises is "cannot tell"
        why = f"Looking whether it happened failed: {type(error).__name__}: {recorded.message(error)}"
        return Doubt(why[:500], None)


def from_evidence(step: Step) -> Known | None:
    """What came of the call, as an attempt brought it late or a person said it; undone goes before done."""
    found = [Known(item["kind"], item["text"]) for item in step.evidence if _says(item, step)]
    return next((known for known in found if known.kind == "compensated"), found[0] if found else None)


def _says(item: dict[str, Any], step: Step) -> bool:
    """Whether an item of evidence says what came of the call: that it happened, whichever attempt it was; that
    it did not, only of the last one."""
    its_own = item["key"] == step.key and item.get("digest") == sent_digest(step)
    return its_own and (item["happened"] or item["attempt"] == step.attempt)


def sent_digest(step: Step) -> str:
    """The digest of the arguments that were sent."""
    return step.executed_digest or step.arguments_digest


def backoff(tool: Tool[..., Any], attempt: int) -> float:
    """Seconds before attempt number `attempt` + 1: doubled each time, five minutes at most."""
    return float(min(LONGEST_BACKOFF, tool.properties.backoff * 2.0 ** max(0, attempt - 1)))


def doubt(fence: Fence, step_id: int, found: Doubt) -> Hold:
    """Places the `in_doubt` hold of a dispatched effect. Raises EpochLost; LostRace: its outcome came meanwhile."""
    with transaction.atomic():
        run = lifecycle.lock_fenced(fence)
        step = Step.objects.get(pk=step_id)
        if step.status != StepStatus.DISPATCHED or from_evidence(step):
            raise LostRace(f"what came of step {step.index} was said meanwhile")
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
        kept = keep(step, known, attempt=attempt, digest=digest)
        journal.write(run, actor, "evidence", index=index, attempt=attempt, kind=known.kind)
        if _says(kept, step):
            _settle_by_evidence(run, step, known, actor)
    return True


def keep(step: Step, known: Known, *, attempt: int, digest: str, **said: Any) -> dict[str, Any]:
    """Adds to what is known of an effect; `said`: by whom and why, where a person said it. The run is locked."""
    happened = state_after(known) != EffectState.REFUSED
    told = {"kind": known.kind, "text": known.text, "happened": happened, "digest": digest, **said}
    return note(step, attempt=attempt, **told)


def note(step: Step, *, attempt: int, **told: Any) -> dict[str, Any]:
    """Adds to the account of an effect, which without a digest settles nothing. The run is locked."""
    item = {"key": step.key, "attempt": attempt, "at": clock.now().isoformat(), **told}
    Step.objects.filter(pk=step.pk).update(evidence=[*step.evidence, item])
    step.evidence.append(item)
    return item


def _settle_by_evidence(run: Run, step: Step, known: Known, actor: Actor) -> None:
    """Releases what the evidence answers: the doubt, or the approval of a second try where a person had said
    that it did not happen. While the effect is being undone it is only kept."""
    if step.compensated_by_id is not None:
        return
    if run.ended:
        if not lifecycle.went_elsewhere(run):  # it is in doubt there, and settled there
            settle_ledger(step, known)
        return
    answered = Hold.objects.open().filter(step=step, cause__in=ANSWERED)
    for standing in answered:
        holds.release_locked(run, standing, actor=actor, resolution="evidence")


def settle_ledger(step: Step, known: Known) -> None:
    """Says in the ledger, and nowhere else, what came of an effect whose run has ended."""
    tool, state = declared.get(step.tool), state_after(known)
    claim = claim_after(tool, state) if tool else ""
    unknown = Step.objects.pending().filter(pk=step.pk).exclude(effect=EffectState.COMPENSATED)
    unknown.update(effect=state, claim=claim)


def state_after(known: Known) -> str:
    """The ledger's word for a settled effect. A result that could not be kept did happen."""
    if known.kind == "compensated":
        return EffectState.COMPENSATED
    return EffectState.REFUSED if known.kind in ("refused", "unsent") else EffectState.CONFIRMED


def claim_after(tool: Tool[..., Any], effect: str) -> str:
    """What a settled effect leaves the run with: something reserved, where its tool can give it back."""
    return ClaimState.HELD if tool.properties.release and effect == EffectState.CONFIRMED else ""


def refused(error: Exception, tool: Tool[..., Any]) -> Known:
    """A call that ends without having been made."""
    return Known("refused", recorded.write(error, tool.recorded_errors), error)
