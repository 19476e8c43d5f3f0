"""How a call passes: at its first arrival, and each time it comes back.

*Look* (network, no transaction): dependencies, credentials, facts. *Decide and commit* (one transaction under the
run's row): epoch, holds, policy again, the permit, the intent. Nothing on the way from an error or an absence
leads to *allow*.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from runs import allowance, credentials, dependencies, effects, facts
from runs.exceptions import (
    BadEstimate,
    Denied,
    Expired,
    Obstacle,
    PermitRefused,
    Rejected,
    Stale,
    ToolFailed,
)
from runs.facts import Change, Reading
from runs.gate import placing, waits
from runs.gate.contract import (
    NOTHING,
    Asked,
    First,
    Go,
    Held,
    Pass,
    Permit,
    Proposal,
    Settled,
    Verdict,
    authority,
)
from runs.invocation import Known
from runs.lifecycle import Fence
from runs.models import Hold, Step
from runs.models.fact import Moment
from runs.prepared import Batch, Given, Query
from runs.states import Cause, EffectState, StepStatus
from runs.tools.calls import Call

_STEP = Query(lambda: Step.objects.filter(pk=Given("step")).order_by())
_HOLDS = Query(lambda: Hold.objects.filter(step=Given("step")).order_by("released_at", "opened_at", "pk"))


def arrive(fence: Fence, proposal: Proposal, *, first: First) -> Pass:
    """A call at the gate for the first time. `first` writes what the agent made it of, in the transaction in which
    people are asked. Raises EpochLost, LostRace."""
    try:
        return _arrive(fence, proposal, first)
    except Obstacle as obstacle:
        return placing.obstructed(fence, proposal, obstacle)


@dataclass(frozen=True, slots=True)
class Back:
    """A call that was here before, as it is now; what held it, the last to be released last; and the approval in
    force for it."""

    step: Step
    holds: Sequence[Hold]
    permit: Permit | None


def back(step: int) -> Back:
    with Batch() as batch:
        row, holds = batch.ask(_STEP, step=step), batch.ask(_HOLDS, step=step)
        permit = authority().permitting(batch, step)
    return Back(row.one(), holds.all(), permit())


def come_back(fence: Fence, proposal: Proposal, found: Back) -> Pass:
    """A call that was here before and has no open hold now: what was said of it in between decides."""
    try:
        return _having_waited(found, _come_back(fence, proposal, found))
    except Obstacle as obstacle:
        return placing.obstructed(fence, proposal, obstacle)


def go_again(fence: Fence, proposal: Proposal, found: Back) -> Pass:
    """A dispatched call of which nobody knows whether it acted, and that may be made again with its key. Where
    what it needs is not there it stays in doubt until it is."""
    try:
        given = _needs(proposal.call)
    except Obstacle as obstacle:
        return placing.obstructed(fence, proposal, obstacle)
    step = found.step
    again = Go(step.sent, step.pk, step.attempt + 1, credentials=given, unsure=True)
    return _having_waited(found, again)


def _having_waited(found: Back, passed: Pass) -> Pass:
    """With the services that it was held for, which its tool may not name: that it got through says that they are
    back. The ledger goes on saying of a call that ends here that an attempt was refused."""
    if isinstance(passed, Settled) and not passed.effect and found.step.effect == EffectState.REFUSED:
        return replace(passed, effect=EffectState.REFUSED)
    if not isinstance(passed, Go):
        return passed
    waited = {hold.subject for hold in found.holds if hold.cause == Cause.DEPENDENCY}
    return replace(passed, waited_for=tuple(sorted(waited)))


def _arrive(fence: Fence, proposal: Proposal, first: First) -> Pass:
    if (waiting := waits.begin(fence, proposal)) is not None:
        return waiting
    if proposal.call.tool.builtin:
        return Go(proposal.arguments)
    verdict, given = _judged(proposal)
    if verdict.verdict == "deny":
        return _denied(proposal, verdict)
    if verdict.verdict == "hold":
        return _ask_approval(fence, proposal, verdict, why=verdict.why, first=first)
    return Go(proposal.arguments, credentials=given)


def _come_back(fence: Fence, proposal: Proposal, found: Back) -> Pass:
    step, holds = found.step, found.holds
    if known := effects.from_evidence(step):  # it is known after all what came of an earlier attempt
        return _known_by_now(found, known)
    last = holds[-1] if holds else None
    if last is None or step.status == StepStatus.PROPOSED:
        passed = _arrive(fence, proposal, NOTHING)
        if isinstance(passed, Go):
            return replace(passed, step=step.pk, attempt=step.attempt + 1)
        return passed
    if no := _refusal(holds):
        return _expired(proposal, no) if no.resolution == "expired" else _rejected(proposal, no)
    return waits.over(proposal, step, last) or _approved(fence, proposal, found)


def _known_by_now(found: Back, known: Known) -> Settled:
    """An approval of another attempt is not used any more."""
    revoke = "it is known now what came of the call" if found.permit else ""
    return Settled(known, effect=effects.state_after(known), revoke=revoke)


def _refusal(holds: Sequence[Hold]) -> Hold | None:
    """The hold that a person or its time ended with a no. It stands, whatever else was released after it."""
    return next((hold for hold in reversed(holds) if hold.resolution in ("expired", "rejected")), None)


def _judged(proposal: Proposal) -> tuple[Verdict, dict[str, str]]:
    """What policy says, and what the call needs where it is allowed: policy is asked again after what takes time.
    Raises Away, NeedsAuthorisation."""
    verdict = authority().judge(proposal)
    looked_at = proposal.call.tool.properties
    if verdict.verdict != "allow" or not (looked_at.depends_on or looked_at.credentials):
        return verdict, {}
    given = _needs(proposal.call)
    return authority().judge(proposal), given


def _needs(call: Call[Any]) -> dict[str, str]:
    """What a call needs at the moment it may start. Raises Away, NeedsAuthorisation."""
    properties = call.tool.properties
    on_trial = dependencies.check(properties.depends_on)
    given = credentials.obtain(properties.credentials)
    dependencies.try_out(on_trial)
    return given


def look(call: Call[Any], arguments: str) -> list[Reading]:
    """What the facts a call depends on are now."""
    if not call.tool.properties.facts:
        return []
    return facts.look(call.tool, call.tool.signature.read(arguments))


def _ask_approval(
    fence: Fence,
    proposal: Proposal,
    verdict: Verdict,
    *,
    why: str,
    reason: str = "",
    first: First = NOTHING,
) -> Held:
    asked = Asked(proposal, verdict, look(proposal.call, proposal.arguments), reason=reason)
    placing.ask_people(fence, proposal, Cause.APPROVAL, asked, why=why, first=first)
    return Held()


# -- Refused -----------------------------------------------------------------------------


def _denied(proposal: Proposal, verdict: Verdict) -> Settled:
    return Settled(effects.refused(Denied(verdict.rule, verdict.why), proposal.call.tool))


def _expired(proposal: Proposal, hold: Hold) -> Settled:
    assert hold.expires_at is not None
    error = Expired(hold.expires_at.isoformat().replace("+00:00", "Z"))
    return Settled(effects.refused(error, proposal.call.tool))


def _rejected(proposal: Proposal, hold: Hold) -> Settled:
    said = json.loads(hold.answer or "{}")
    error = Rejected(said.get("reason", ""), said.get("by", ""))
    decision = {"verb": "reject", "by": error.by, "note": error.reason}
    return Settled(effects.refused(error, proposal.call.tool), decision=decision)


# -- Approved ------------------------------------------------------------------------------


def _approved(fence: Fence, proposal: Proposal, found: Back) -> Pass:
    step, permit = found.step, found.permit
    if step.permit and not proposal.call.tool.properties.effect:
        # The permit was used, and the worker died before the result was kept.
        return Go(step.sent, step.pk, step.attempt + 1, credentials=_needs(proposal.call))
    if permit is None:
        return _without_permit(fence, proposal, step, found.holds)
    if step.tool_version != proposal.call.tool.version:
        verdict, why = authority().judge(proposal), "the tool changed since the approval"
        return _ask_approval(fence, proposal, verdict, why=why, reason="tool")
    given = _needs(proposal.call)
    readings = look(proposal.call, permit.arguments)
    if unreadable := _unreadable(readings, permit.facts):
        return placing.unreadable(fence, proposal, step, unreadable)
    passed = _decide(fence, proposal, step, permit, readings)
    return replace(passed, credentials=given) if isinstance(passed, Go) else passed


def _without_permit(fence: Fence, proposal: Proposal, step: Step, holds: Sequence[Hold]) -> Pass:
    """Held for something else than an approval, or the approval was voided behind another hold."""
    verdict, given = _judged(proposal)
    if verdict.verdict == "deny":
        return _denied(proposal, verdict)
    if verdict.verdict == "allow" and all(hold.cause != Cause.APPROVAL for hold in holds):
        return Go(proposal.arguments, step.pk, step.attempt + 1, credentials=given)
    why, reason = "no approval is in force for this call", "lapsed"
    if step.attempt and step.effect == EffectState.REFUSED:
        why = "The call was made under an approval, and did not happen; it is asked for again."
        reason = "unmade"
    return _ask_approval(fence, proposal, verdict, why=why, reason=reason)


def _unreadable(readings: Sequence[Reading], decided: dict[str, str | None]) -> list[Reading]:
    """Facts that cannot be read now, unless a person accepted them as unreadable."""
    return [
        r for r in readings if r.value is None and r.kind != "info" and decided.get(r.name, "") is not None
    ]


def _decide(fence: Fence, proposal: Proposal, step: Step, permit: Permit, readings: list[Reading]) -> Pass:
    """Policy again, after whatever takes time, about what will be sent: a person may have edited it."""
    verdict = authority().judge(replace(proposal, arguments=permit.arguments))
    if verdict.verdict == "deny":
        return replace(_denied(proposal, verdict), revoke=verdict.why or "policy denies the call")
    changed = [c for c in facts.changes(proposal.call.tool, permit.facts, readings) if c.kind != "info"]
    if changed:
        return _drifted(fence, proposal, step, verdict, readings, changed)
    return _consume(fence, proposal, step, permit, verdict, readings)


def _drifted(
    fence: Fence,
    proposal: Proposal,
    step: Step,
    verdict: Verdict,
    readings: list[Reading],
    changed: list[Change],
) -> Pass:
    """The world differs from the one decided on: people are asked again, or the agent plans again."""
    why = "The facts changed before the call"
    if proposal.call.tool.properties.on_drift == "replan":
        stale = effects.refused(Stale([c.title for c in changed]), proposal.call.tool)
        return Settled(stale, revoke=f"{why}; the agent plans again")
    asked = Asked(proposal, verdict, readings, changed, reason="drift")
    placing.ask_people(fence, proposal, Cause.APPROVAL, asked, why=f"{why}.")
    return Held()


def _consume(
    fence: Fence, proposal: Proposal, step: Step, permit: Permit, verdict: Verdict, readings: list[Reading]
) -> Pass:
    """Decide and commit: the permit is used up, what it draws reserved and the intent written, or none of it."""
    tool = proposal.call.tool
    attempt = step.attempt + 1
    try:
        want = placing.will_use(proposal, permit.arguments)
        with placing.committing_approved(fence, proposal) as run:
            placing.intend_approved(fence, proposal, run, permit)
            if readings:
                facts.keep(step, readings, Moment.CALL)
            authority().consume(proposal, step, permit, verdict)
            if run is not None:
                allowance.reserve(run, tool, want, index=step.index)
    except BadEstimate as error:
        return Settled(effects.refused(ToolFailed("BadEstimate", str(error)), tool), revoke=str(error))
    except PermitRefused as refused:
        asked = Asked(proposal, verdict, readings, reason=refused.reason)
        placing.ask_people(fence, proposal, Cause.APPROVAL, asked, why=refused.why)
        return Held()
    return Go(permit.arguments, step.pk, attempt, committed=tool.properties.effect or proposal.metered)
