"""How a call passes: at its first arrival, and each time it comes back.

*Look* (network, no transaction): dependencies, credentials, facts. *Decide and commit* (one transaction under the
run's row): epoch, holds, policy again, the permit, the intent. Nothing on the way from an error or an absence
leads to *allow*.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from runs import allowance, credentials, dependencies, effects, facts, journal
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
from runs.gate.contract import Asked, Go, Held, Pass, Permit, Proposal, Settled, Verdict, authority
from runs.invocation import Known
from runs.lifecycle import Fence
from runs.models import Hold, Step
from runs.models.fact import Moment
from runs.states import Cause, EffectState, StepStatus
from runs.tools.calls import Call


def arrive(fence: Fence, proposal: Proposal) -> Pass:
    """A call at the gate for the first time. Raises EpochLost, LostRace."""
    try:
        return _arrive(fence, proposal)
    except Obstacle as obstacle:
        return placing.obstructed(fence, proposal, obstacle)


def come_back(fence: Fence, proposal: Proposal, step: Step) -> Pass:
    """A call that was here before and has no open hold now: what was said of it in between decides."""
    try:
        return _having_waited(step, _come_back(fence, proposal, step))
    except Obstacle as obstacle:
        return placing.obstructed(fence, proposal, obstacle)


def go_again(fence: Fence, proposal: Proposal, step: Step) -> Pass:
    """A dispatched call of which nobody knows whether it acted, and that may be made again with its key. Where
    what it needs is not there it stays in doubt until it is."""
    try:
        given = _needs(proposal.call)
    except Obstacle as obstacle:
        return placing.obstructed(fence, proposal, obstacle)
    return _having_waited(step, Go(step.sent, step.pk, step.attempt + 1, credentials=given, unsure=True))


def _having_waited(step: Step, passed: Pass) -> Pass:
    """With the services that it was held for, which its tool may not name: that it got through says that they are
    back. The ledger goes on saying of a call that ends here that an attempt was refused."""
    if isinstance(passed, Settled) and not passed.effect and step.effect == EffectState.REFUSED:
        return replace(passed, effect=EffectState.REFUSED)
    if not isinstance(passed, Go):
        return passed
    waited = step.holds.filter(cause=Cause.DEPENDENCY).values_list("subject", flat=True)
    return replace(passed, waited_for=tuple(sorted(set(waited))))


def _arrive(fence: Fence, proposal: Proposal) -> Pass:
    if (waiting := waits.begin(fence, proposal)) is not None:
        return waiting
    if proposal.call.tool.builtin:
        return Go(proposal.arguments)
    verdict, given = _judged(proposal)
    if verdict.verdict == "deny":
        return _denied(proposal, verdict)
    if verdict.verdict == "hold":
        return _ask_approval(fence, proposal, verdict, why=verdict.why)
    return Go(proposal.arguments, credentials=given)


def _come_back(fence: Fence, proposal: Proposal, step: Step) -> Pass:
    if known := effects.from_evidence(step):  # it is known after all what came of an earlier attempt
        return _known_by_now(step, known)
    last = step.holds.order_by("released_at").last()
    if last is None or step.status == StepStatus.PROPOSED:
        passed = _arrive(fence, proposal)
        if isinstance(passed, Go):
            return replace(passed, step=step.pk, attempt=step.attempt + 1)
        return passed
    if no := _refusal(step):
        return _expired(proposal, no) if no.resolution == "expired" else _rejected(proposal, no)
    return waits.over(proposal, step, last) or _approved(fence, proposal, step)


def _known_by_now(step: Step, known: Known) -> Settled:
    """An approval of another attempt is not used any more."""
    revoke = "it is known now what came of the call" if authority().permit(step) else ""
    return Settled(known, effect=effects.state_after(known), revoke=revoke)


def _refusal(step: Step) -> Hold | None:
    """The hold that a person or its time ended with a no. It stands, whatever else was released after it."""
    ended = step.holds.filter(resolution__in=("expired", "rejected"))
    return ended.order_by("released_at").last()


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


def _ask_approval(fence: Fence, proposal: Proposal, verdict: Verdict, *, why: str, reason: str = "") -> Held:
    asked = Asked(proposal, verdict, look(proposal.call, proposal.arguments), reason=reason)
    placing.ask_people(fence, proposal, Cause.APPROVAL, asked, why=why)
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


def _approved(fence: Fence, proposal: Proposal, step: Step) -> Pass:
    if step.permit and not proposal.call.tool.properties.effect:
        # The permit was used, and the worker died before the result was kept.
        return Go(step.sent, step.pk, step.attempt + 1, credentials=_needs(proposal.call))
    permit = authority().permit(step)
    if permit is None:
        return _without_permit(fence, proposal, step)
    if step.tool_version != proposal.call.tool.version:
        verdict, why = authority().judge(proposal), "the tool changed since the approval"
        return _ask_approval(fence, proposal, verdict, why=why, reason="tool")
    given = _needs(proposal.call)
    readings = look(proposal.call, permit.arguments)
    if unreadable := _unreadable(readings, permit.facts):
        return placing.unreadable(fence, proposal, step, unreadable)
    passed = _decide(fence, proposal, step, permit, readings)
    return replace(passed, credentials=given) if isinstance(passed, Go) else passed


def _without_permit(fence: Fence, proposal: Proposal, step: Step) -> Pass:
    """Held for something else than an approval, or the approval was voided behind another hold."""
    verdict, given = _judged(proposal)
    if verdict.verdict == "deny":
        return _denied(proposal, verdict)
    if verdict.verdict == "allow" and not step.holds.filter(cause=Cause.APPROVAL).exists():
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
        with placing.committing(fence, proposal.ancestors) as run:
            authority().consume(run, step, permit, verdict)
            if readings:
                facts.keep(step, readings, Moment.CALL)
            placing.intend(fence, proposal, permit)
            told = {"index": step.index, "permit": permit.ref, "digest": permit.digest}
            journal.write(run, fence.actor, "dispatched", **told)
            allowance.reserve(run, tool, want, index=step.index)
    except BadEstimate as error:
        return Settled(effects.refused(ToolFailed("BadEstimate", str(error)), tool), revoke=str(error))
    except PermitRefused as refused:
        asked = Asked(proposal, verdict, readings, reason=refused.reason)
        placing.ask_people(fence, proposal, Cause.APPROVAL, asked, why=refused.why)
        return Held()
    return Go(permit.arguments, step.pk, attempt, committed=tool.properties.effect or proposal.metered)
