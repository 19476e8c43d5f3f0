"""The gate every call passes, whether it gets there first or for the fifth time.

*Look* (network, no transaction): facts. *Decide and commit* (one transaction under the run's row): epoch, holds,
policy again, the permit, the intent. Who may act is not known here: `approvals` registers an authority that
gives verdicts and permits. Without one, or when it fails, an effect is held: nothing on the way from an error or
an absence leads to *allow*.
"""

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from django.conf import settings
from django.db import transaction

from runs import effects, facts, holds, journal, lifecycle, statements, values
from runs.actors import Actor
from runs.exceptions import BadValue, Denied, Expired, LostRace, PermitRefused, Rejected
from runs.facts import Change, Reading
from runs.holds import Terms
from runs.invocation import Known
from runs.lifecycle import Fence
from runs.models import Hold, Run, Step
from runs.models.fact import Moment
from runs.states import Cause, StepStatus
from runs.tools.builtin import ASK
from runs.tools.calls import Call


@dataclass(frozen=True, slots=True)
class Proposal:
    """A call as policy sees it. `arguments` is canonical JSON."""

    run: uuid.UUID
    agent: str
    agent_version: str
    agent_owner: str
    labels: dict[str, str]
    submitter: str
    on_behalf_of: str
    index: int
    call: Call[Any]
    arguments: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What policy says. `terms` is the authority's own account of it and goes to whom it concerns."""

    verdict: Literal["allow", "hold", "deny"]
    rule: str
    why: str
    expires_in: float | None = None
    terms: Any = None


@dataclass(frozen=True, slots=True)
class Permit:
    """An approval in force: what to send, and the facts it was decided on (name → canonical JSON or None).

    `granted` is the authority's own account of it, and comes back to `consume`.
    """

    ref: str
    arguments: str
    edited: bool
    digest: str
    facts: dict[str, str | None]
    decision: dict[str, str]
    granted: Any = None


@dataclass(frozen=True, slots=True)
class Asked:
    """Goes with an approval or a question hold to whoever makes a request of it."""

    proposal: Proposal
    verdict: Verdict
    readings: Sequence[Reading] = ()
    changes: Sequence[Change] = ()
    reason: str = ""
    form: dict[str, Any] = field(default_factory=dict)


class Authority(Protocol):
    """What `approvals` registers."""

    def judge(self, proposal: Proposal) -> Verdict:
        """Policy on a call, or on a question; never raises: what goes wrong is a *hold* that says so."""

    def permit(self, step: Step) -> Permit | None:
        """The approval in force for this call, if there is one."""

    def consume(self, run: Run, step: Step, permit: Permit, verdict: Verdict) -> None:
        """Uses the permit up, under the run's lock. Raises PermitRefused (lapsed, void, policy stricter)."""

    def revoke(self, step: Step, why: str) -> None:
        """Policy denies a call that was approved, under the run's lock: nothing of it stands any more."""


class _Nobody:
    """No authority is registered: effects are held, pure tools run."""

    def judge(self, proposal: Proposal) -> Verdict:
        verdict: Literal["allow", "hold"] = "hold" if proposal.call.tool.properties.effect else "allow"
        return Verdict(verdict, "default", "no policy is registered")

    def permit(self, step: Step) -> Permit | None:
        return None

    def consume(self, run: Run, step: Step, permit: Permit, verdict: Verdict) -> None:
        raise PermitRefused("void", "no policy is registered")

    def revoke(self, step: Step, why: str) -> None:
        return None


_authority: Authority = _Nobody()


def register(authority: Authority) -> None:
    """Called once, by the app that knows people, when it is ready."""
    global _authority
    _authority = authority


# -- What the loop is told ----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Go:
    """The call may start: a pure tool at once, an effect with an intent.

    `step` is the row's id where there is one (its intent is an update), `arguments` what to send, `attempt`
    the number of this dispatch. With a permit the intent is already committed (`committed`).
    """

    arguments: str
    step: int | None = None
    attempt: int = 1
    committed: bool = False


@dataclass(frozen=True, slots=True)
class Settled:
    """The call has its outcome without having been made."""

    known: Known
    effect: str = ""
    decision: dict[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """The call waits."""


Pass = Go | Settled | Held


def arrive(fence: Fence, proposal: Proposal) -> Pass:
    """A call at the gate for the first time."""
    if proposal.call.tool is ASK:
        return _ask(fence, proposal)
    if proposal.call.tool.builtin:
        return Go(proposal.arguments)
    verdict = _authority.judge(proposal)
    if verdict.verdict == "deny":
        return Settled(effects.refused(Denied(verdict.rule, verdict.why), proposal.call.tool))
    if verdict.verdict == "hold":
        return _hold(fence, proposal, verdict)
    return Go(proposal.arguments)


def _ask(fence: Fence, proposal: Proposal) -> Pass:
    verdict = _authority.judge(proposal)
    if verdict.verdict == "deny":
        return Settled(effects.refused(Denied(verdict.rule, verdict.why), proposal.call.tool))
    form = json.loads(proposal.arguments)["form"]
    asked = Asked(proposal, verdict, form=form)
    _place(fence, proposal, Cause.QUESTION, asked, why="The agent asks a question.")
    return Held()


def _hold(fence: Fence, proposal: Proposal, verdict: Verdict) -> Held:
    readings = _look(proposal.call, proposal.arguments)
    _place(fence, proposal, Cause.APPROVAL, Asked(proposal, verdict, readings), why=verdict.why)
    return Held()


def _look(call: Call[Any], arguments: str) -> list[Reading]:
    if not call.tool.properties.facts:
        return []
    return facts.look(call.tool, call.tool.signature.read(arguments))


def _place(fence: Fence, proposal: Proposal, cause: Cause, asked: Asked, *, why: str) -> Hold:
    """The step's row (if it has none yet), what was seen, and the hold, in one transaction."""
    with transaction.atomic():
        run = lifecycle.lock_fenced(fence)
        step = _row(run, proposal)
        if asked.readings:
            facts.keep(step, asked.readings, Moment.PROPOSAL)
        return holds.place(
            run,
            cause=cause,
            actor=_agent(proposal),
            step=step,
            why=why,
            terms=Terms(expires_in=asked.verdict.expires_in),
            context=asked,
        )


def _agent(proposal: Proposal) -> Actor:
    return Actor("agent", f"{proposal.agent}@{proposal.agent_version}", proposal.agent, "worker")


def _row(run: Run, proposal: Proposal) -> Step:
    tool = proposal.call.tool
    step, _ = Step.objects.get_or_create(
        run=run,
        index=proposal.index,
        defaults={
            "tool": tool.name,
            "tool_version": tool.version,
            "arguments": proposal.arguments,
            "arguments_digest": values.digest(proposal.arguments),
            "status": StepStatus.HELD,
        },
    )
    if step.tool_version != tool.version:  # a deploy changed the tool while the call waited
        Step.objects.filter(pk=step.pk).update(tool_version=tool.version)
        step.tool_version = tool.version
    return step


def wait(fence: Fence, proposal: Proposal) -> None:
    """Gives a call that may not start now its row, so that what it waits for is seen. Raises EpochLost."""
    with transaction.atomic():
        step = _row(lifecycle.lock_fenced(fence), proposal)
        if step.status == StepStatus.HELD and not step.holds.exists():
            Step.objects.filter(pk=step.pk).update(status=StepStatus.PROPOSED)


def come_back(fence: Fence, proposal: Proposal, step: Step) -> Pass:
    """A call that was here before and has no open hold now: what was said of it in between decides."""
    last = step.holds.order_by("released_at").last()
    if last is None or step.status == StepStatus.PROPOSED:
        passed = arrive(fence, proposal)
        return Go(passed.arguments, step.pk, step.attempt + 1) if isinstance(passed, Go) else passed
    if last.resolution == "expired":
        return _expired(proposal, last)
    if last.resolution == "rejected":
        return _rejected(proposal, last)
    if last.cause == Cause.QUESTION:
        return _answered(proposal, last)
    return _approved(fence, proposal, step)


def _expired(proposal: Proposal, hold: Hold) -> Settled:
    assert hold.expires_at is not None
    error = Expired(hold.expires_at.isoformat().replace("+00:00", "Z"))
    return Settled(effects.refused(error, proposal.call.tool))


def _rejected(proposal: Proposal, hold: Hold) -> Settled:
    said = json.loads(hold.answer or "{}")
    error = Rejected(said.get("reason", ""), said.get("by", ""))
    decision = {"verb": "reject", "by": error.by, "note": error.reason}
    return Settled(effects.refused(error, proposal.call.tool), decision=decision)


def _answered(proposal: Proposal, hold: Hold) -> Settled:
    said = json.loads(hold.answer or "{}")
    try:
        text = proposal.call.returns.write(proposal.call.returns.read(json.dumps(said["answer"])))
    except BadValue as error:
        return Settled(effects.refused(error, proposal.call.tool))
    return Settled(Known("returned", text), decision={"verb": "respond", "by": said["by"], "note": ""})


def _approved(fence: Fence, proposal: Proposal, step: Step) -> Pass:
    if step.permit and not proposal.call.tool.properties.effect:
        return Go(step.sent, step.pk)  # the permit was used, and the worker died before the result was kept
    permit = _authority.permit(step)
    if permit is None:
        return _without_permit(fence, proposal, step)
    if step.tool_version != proposal.call.tool.version:
        verdict = _authority.judge(proposal)
        asked = Asked(proposal, verdict, _look(proposal.call, proposal.arguments), reason="tool")
        _place(fence, proposal, Cause.APPROVAL, asked, why="the tool changed since the approval")
        return Held()
    readings = _look(proposal.call, permit.arguments)
    if unreadable := _unreadable(readings, permit.facts):
        return _depends(fence, proposal, step, unreadable)
    return _decide(fence, proposal, step, permit, readings)


def _decide(fence: Fence, proposal: Proposal, step: Step, permit: Permit, readings: list[Reading]) -> Pass:
    """Policy again, after whatever takes time, about what will be sent: a person may have edited it."""
    verdict = _authority.judge(replace(proposal, arguments=permit.arguments))
    if verdict.verdict == "deny":
        with transaction.atomic():
            lifecycle.lock_fenced(fence)
            _authority.revoke(step, verdict.why)
        return Settled(effects.refused(Denied(verdict.rule, verdict.why), proposal.call.tool))
    changed = [c for c in facts.changes(proposal.call.tool, permit.facts, readings) if c.kind != "info"]
    if changed:
        asked = Asked(proposal, verdict, readings, changed, reason="drift")
        _place(fence, proposal, Cause.APPROVAL, asked, why="the facts changed before the call")
        return Held()
    return _consume(fence, proposal, step, permit, verdict, readings)


def _without_permit(fence: Fence, proposal: Proposal, step: Step) -> Pass:
    """Held for something else than an approval, or the approval was voided behind another hold."""
    verdict = _authority.judge(proposal)
    if verdict.verdict == "deny":
        return Settled(effects.refused(Denied(verdict.rule, verdict.why), proposal.call.tool))
    if verdict.verdict == "allow" and not step.holds.filter(cause=Cause.APPROVAL).exists():
        return Go(proposal.arguments, step.pk, step.attempt + 1)
    asked = Asked(proposal, verdict, _look(proposal.call, proposal.arguments), reason="lapsed")
    _place(fence, proposal, Cause.APPROVAL, asked, why="no approval is in force for this call")
    return Held()


def _unreadable(readings: Sequence[Reading], decided: dict[str, str | None]) -> list[Reading]:
    """Facts that cannot be read now, unless a person accepted them as unreadable."""
    return [
        r for r in readings if r.value is None and r.kind != "info" and decided.get(r.name, "") is not None
    ]


def _depends(fence: Fence, proposal: Proposal, step: Step, unreadable: list[Reading]) -> Held:
    source = unreadable[0].source
    said = "; ".join(f"{r.title}: {r.problem.rstrip('.')}" for r in unreadable)
    why = f"The source “{source}” could not be read. {said}."
    with transaction.atomic():
        run = lifecycle.lock_fenced(fence)
        facts.keep(step, unreadable, Moment.CALL)
        holds.place(
            run,
            cause=Cause.DEPENDENCY,
            actor=_agent(proposal),
            step=step,
            why=why[:2000],
            detail={"source": source},
            terms=Terms(look_again_in=settings.LOOK_AGAIN),
        )
    return Held()


def _consume(
    fence: Fence, proposal: Proposal, step: Step, permit: Permit, verdict: Verdict, readings: list[Reading]
) -> Pass:
    """Decide and commit: the permit is used up and the intent written, or neither."""
    tool = proposal.call.tool
    try:
        with transaction.atomic():
            run = lifecycle.lock_fenced(fence)
            if run.open_holds or run.stop_requested:
                raise LostRace("a hold or a stop came first")
            _authority.consume(run, step, permit, verdict)
            if readings:
                facts.keep(step, readings, Moment.CALL)
            _intend(fence, proposal, permit)
            journal.write(
                run, fence.actor, "dispatched", index=step.index, permit=permit.ref, digest=permit.digest
            )
    except PermitRefused as refused:
        asked = Asked(proposal, verdict, readings, reason=refused.reason)
        _place(fence, proposal, Cause.APPROVAL, asked, why=refused.why)
        return Held()
    return Go(permit.arguments, step.pk, step.attempt + 1, committed=tool.properties.effect)


def _intend(fence: Fence, proposal: Proposal, permit: Permit) -> None:
    tool = proposal.call.tool
    if not tool.properties.effect:
        Step.objects.filter(run=fence.run, index=proposal.index).update(
            permit=permit.ref,
            decision=permit.decision,
            executed=permit.arguments if permit.edited else None,
            executed_digest=permit.digest if permit.edited else "",
        )
        return
    row = statements.row(
        statements.BOUNDARY["", "row"],
        {**fence.parameters(), **intent(fence, proposal.index, tool, permit=permit)},
    )
    if row is None or row[4] != 1:
        raise LostRace("the call could not be dispatched: a hold came first")


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
