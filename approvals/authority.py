"""What `runs` is told when it asks: policy's verdict on a call, and the permit for one.

Registered with the gate. `judge` never raises: what goes wrong is a hold that says so. `consume` runs inside
the gate's transaction, under the run's lock, and uses a permit up or refuses it.
"""

import dataclasses
import json
from datetime import timedelta
from typing import Any

import structlog
from django.db.models import Q

from approvals import policies, requests
from approvals.models import Decision, Permit, Request, Revision
from approvals.policies import CallFacts, Judgement, Reviewers
from approvals.states import RequestState, Verb
from runs import gate, journal, tools, values
from runs.actors import SYSTEM
from runs.clock import Now
from runs.exceptions import PermitRefused
from runs.gate import Proposal, Verdict
from runs.models import Run, Step
from runs.tools.builtin import ASK

log = structlog.get_logger(__name__)

#: How long a question waits and an approval may be used where no rule says otherwise. Seconds.
DECIDE_WITHIN = 72 * 3600
CONSUME_WITHIN = 24 * 3600


class Authority:
    """The one authority of an installation."""

    def judge(self, proposal: Proposal) -> Verdict:
        try:
            judgement = policies.judge(policies.current(), call_facts(proposal))
        except Exception as error:
            log.exception("policy_failed", run=str(proposal.run), tool=proposal.call.tool.name)
            judgement = _failed_closed(error)
        if proposal.call.tool is ASK and judgement.verdict == "allow":
            judgement = dataclasses.replace(
                judgement, verdict="hold", tier="R1", why="A question waits for a person."
            )
        return Verdict(
            judgement.verdict,
            judgement.rule,
            judgement.why,
            expires_in=judgement.decide_within,
            terms=judgement,
        )

    def permit(self, step: Step) -> gate.Permit | None:
        related = ("revision", "request__step")
        found = Permit.objects.in_force().filter(request__step=step).select_related(*related).first()
        return _told(found) if found else None

    def consume(self, run: Run, step: Step, permit: gate.Permit, verdict: Verdict) -> None:
        """What was read of the permit before the lock cannot change (revisions and decisions are kept as they
        are); whether it still stands is asked by the UPDATE."""
        granted: _Granted = permit.granted
        request, revision = granted.permit.request, granted.permit.revision
        request.run = run
        _refuse_changed(granted, permit)
        _refuse_stricter(revision, verdict)
        _use_up(granted.permit)
        Request.objects.filter(pk=request.pk).update(state=RequestState.CONSUMED, closed_at=Now())
        journal.write(request, SYSTEM, "consumed", revision=revision.number, digest=permit.digest)

    def give_back(self, run: Run, step: Step) -> None:
        """The permit stands again as it did, with the time it had."""
        used = Permit.objects.filter(request__step=step, consumed_at__isnull=False).select_related("request")
        given = used.filter(pk=step.permit).first() if step.permit else None
        if given is None:
            return
        Permit.objects.filter(pk=given.pk).update(consumed_at=None)
        Request.objects.filter(pk=given.request_id).update(state=RequestState.IN_FORCE, closed_at=None)
        journal.write(given.request, SYSTEM, "given_back", why="the call was certainly not sent")

    def revoke(self, step: Step, why: str) -> None:
        request = Request.objects.select_for_update(of=("self",)).get(step=step)
        requests.close(request, RequestState.SUPERSEDED, why=why)


def call_facts(proposal: Proposal) -> CallFacts:
    """A proposal as rules see it."""
    tool = proposal.call.tool
    return CallFacts(
        agent_name=proposal.agent,
        agent_version=proposal.agent_version,
        tool_name=tool.name,
        tool_effect=tool.properties.effect,
        tool_has_consequence=bool(tool.properties.consequence) or tool is ASK,
        tool_known=tools.get(tool.name) is tool,
        args=json.loads(proposal.arguments),
        labels=proposal.labels,
        submitter=proposal.submitter,
        on_behalf_of=proposal.on_behalf_of,
    )


def _failed_closed(error: Exception) -> Judgement:
    why = f"Policy could not be asked: {type(error).__name__}."
    return Judgement("hold", "R3", "default", why, 0, None, 1, DECIDE_WITHIN, CONSUME_WITHIN, 0)


@dataclasses.dataclass(frozen=True, slots=True)
class _Granted:
    """A permit with the approvals it came of."""

    permit: Permit
    approvals: list[Decision]


def _told(permit: Permit) -> gate.Permit:
    revision = permit.revision
    approvals = list(revision.decisions.filter(verb=Verb.APPROVE).order_by("made_at"))
    return gate.Permit(
        ref=str(permit.pk),
        arguments=revision.arguments,
        edited=revision.edited,
        digest=revision.arguments_digest,
        facts=revision.fact_values(),
        decision=_decision(revision, approvals),
        granted=_Granted(permit, approvals),
    )


def _decision(revision: Revision, approvals: list[Decision]) -> dict[str, str]:
    """What the agent and the record are told: who approved, and whether they edited."""
    made = approvals[-1] if approvals else None
    verb = "edit" if revision.edited else "approve"
    by = revision.author_name if revision.edited else (made.person_name if made else "")
    return {"verb": verb, "by": by, "note": revision.note or (made.reason if made else "")}


def _use_up(permit: Permit) -> None:
    """Consumes the permit, if it is still in force and its time is not up."""
    standing = Permit.objects.in_force().filter(pk=permit.pk)
    in_time = Q(consume_by__isnull=True) | Q(consume_by__gt=Now())
    if standing.filter(in_time).update(consumed_at=Now()):
        return
    if standing.exists():
        raise PermitRefused("lapsed", "the approval was not used in time")
    raise PermitRefused("void", "the approval was voided")


def _refuse_changed(granted: _Granted, permit: gate.Permit) -> None:
    """What was approved is what runs: the stored bytes must still be those every approver saw."""
    revision = granted.permit.revision
    digest = requests.view_digest(granted.permit.request, revision)
    told = {values.digest(revision.arguments), values.digest(permit.arguments)}
    seen = {made.digest for made in granted.approvals}
    if told != {permit.digest} or seen != {digest}:
        raise PermitRefused("changed", "the arguments changed since the approval")


def _refuse_stricter(revision: Revision, verdict: Verdict) -> None:
    """A policy that got stricter after the approval asks again; one that got looser changes nothing."""
    approved, now = Judgement.from_json(revision.judgement), verdict.terms
    if now.verdict == "hold" and asks_more(approved, now):
        raise PermitRefused("policy", "policy asks for more than was approved")


def asks_more(approved: Judgement, now: Judgement) -> bool:
    """Whether `now` needs a higher tier or more people. Shorter clocks alone void nothing, and who edits a
    policy cannot hand what was approved to other reviewers."""
    higher = policies.TIERS.index(now.tier) > policies.TIERS.index(approved.tier)
    return higher or now.quorum > approved.quorum


def other_reviewers(approved: Judgement, now: Judgement) -> bool:
    return _group_id(approved.reviewers) != _group_id(now.reviewers)


def _group_id(reviewers: Reviewers | None) -> int | None:
    return reviewers.id if reviewers else None


def consume_by(judgement: dict[str, Any]) -> timedelta:
    return timedelta(seconds=judgement.get("consume_within") or CONSUME_WITHIN)
