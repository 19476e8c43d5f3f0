"""What `runs` is told when it asks: policy's verdict on a call, and the permit for one.

Registered with the gate. What goes wrong in `judge` is a hold that says so; a database that went away is no policy,
and is raised: whoever asks cannot write down a verdict either, and asks again. `consume` runs inside the gate's
transaction, under the run's lock, and uses a permit up or refuses it.
"""

import dataclasses
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import structlog
from django.db import InterfaceError, OperationalError
from django.db.models import Q

from approvals import policies, requests
from approvals.models import Decision, Permit, Request, Revision
from approvals.policies import CallFacts, Judgement, Reviewers
from approvals.states import RequestState, Verb
from runs import gate, journal, prepared, tools, values
from runs.actors import SYSTEM
from runs.clock import Now
from runs.exceptions import PermitRefused
from runs.gate import Proposal, Verdict
from runs.models import Run, Step
from runs.prepared import Batch, Given, Query, Update
from runs.tools.builtin import ASK

log = structlog.get_logger(__name__)

#: How long a question waits and an approval may be used where no rule says otherwise. Seconds.
DECIDE_WITHIN = 72 * 3600
CONSUME_WITHIN = 24 * 3600


_PERMIT = Query(
    lambda: (
        Permit.objects.in_force()
        .filter(request__step=Given("step"))
        .select_related("revision", "request")
        .order_by()
    )
)
_APPROVALS = Query(
    lambda: (
        Decision.objects.standing()
        .filter(
            revision__permit__in=Permit.objects.in_force(), request__step=Given("step"), verb=Verb.APPROVE
        )
        .order_by("made_at")
    )
)
_IN_TIME = Q(consume_by__isnull=True) | Q(consume_by__gt=Now())
_USE_UP = Update(lambda: Permit.objects.in_force().filter(_IN_TIME, pk=Given("permit")), consumed_at=Now())


class Authority:
    """The one authority of an installation."""

    def judge(self, proposal: Proposal) -> Verdict:
        try:
            judgement = policies.judge(policies.current(), call_facts(proposal))
        except (OperationalError, InterfaceError):
            raise
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

    def foresee(self, batch: Batch, terms: Judgement) -> Callable[[], requests.Foreseen]:
        return requests.foresee(batch, terms)

    def permitting(self, batch: Batch, step: int) -> Callable[[], gate.Permit | None]:
        permits, approvals = batch.ask(_PERMIT, step=step), batch.ask(_APPROVALS, step=step)

        def permit() -> gate.Permit | None:
            found = permits.first()
            return _told(found, approvals.all()) if found else None

        return permit

    def consume(self, proposal: Proposal, step: Step, permit: gate.Permit, verdict: Verdict) -> None:
        """What was read of the permit before the lock cannot change (revisions and decisions are kept as they
        are); whether it still stands is asked by the UPDATE."""
        granted: _Granted = permit.granted
        request, revision = granted.permit.request, granted.permit.revision
        _refuse_changed(granted, permit, proposal)
        _refuse_stricter(revision, verdict)
        changes = {"state": str(RequestState.CONSUMED), "closed_at": journal.AT}
        told = {"revision": revision.number, "digest": permit.digest}
        with Batch() as batch:
            used = batch.change(_USE_UP, permit=granted.permit.pk)
            journal.move(request, SYSTEM, "consumed", changes, **told)
            prepared.afterwards(lambda: _refuse_unused(granted.permit, used()))

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


def _told(permit: Permit, approvals: list[Decision]) -> gate.Permit:
    revision = permit.revision
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


def _refuse_unused(permit: Permit, used: int) -> None:
    """What was written with it is rolled back where the permit was not in force, or its time was up."""
    if used:
        return
    if Permit.objects.in_force().filter(pk=permit.pk).exists():
        raise PermitRefused("lapsed", "the approval was not used in time")
    raise PermitRefused("void", "the approval was voided")


def _refuse_changed(granted: _Granted, permit: gate.Permit, proposal: Proposal) -> None:
    """What was approved is what runs: the stored bytes must still be those every approver saw."""
    revision = granted.permit.revision
    digest = requests.view_digest(granted.permit.request, revision, asking=proposal)
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
