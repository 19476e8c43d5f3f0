"""What a run takes along of people when it moves to another installation, and what is asked anew there.

Who asked for it travels by address, so that the same persons review it there as little as here. Of open requests the
facts and what policy asked for travel; there they are opened again under the rules of the place, the stricter of
both. Decisions and approvals do not travel: they were made by people of another place. So what may have been sent
under one is not sent again by itself: people here settle it.
"""

import dataclasses
from typing import Any

from django.contrib.auth.models import Group, User

from approvals import authority, looks, policies, requests
from approvals.models import ApiKey, Request
from approvals.policies import Judgement, Reviewers
from approvals.states import PENDING, STANDING
from runs import agents, effects, holds, journal, tools
from runs.actors import Actor
from runs.exceptions import BadBundle, WrongState
from runs.gate import Proposal
from runs.models import Hold, Run, Step
from runs.moves.contract import Who
from runs.states import Cause, EffectState, StepStatus
from runs.tools.calls import Call

WAIT_FOR_PEOPLE = (Cause.APPROVAL, Cause.QUESTION)
SENT_ELSEWHERE = "It may have been sent from another installation, and the rules here ask people about it."


class People:
    """The part of a bundle that is about people."""

    # -- Leaving ---------------------------------------------------------------------------

    def leave(self, run: Run) -> dict[str, Any]:
        """Raises WrongState where persons asked for it whom the bundle cannot name."""
        if _repeats_anothers(run):
            raise WrongState(f"run {run.pk} cannot be moved: it repeats a run that somebody else started")
        asked = Request.objects.filter(run=run, state__in=PENDING | STANDING).select_related("hold")
        return {
            "owner": _address(run.owner_id),
            "issuer": _issuer(run),
            "requests": {str(each.hold_id): _told(each) for each in asked if each.hold.is_open},
        }

    # -- Arriving --------------------------------------------------------------------------

    def who(self, told: dict[str, Any], run: Run) -> Who:
        """A key is known here by the address of who issued it, a person by their account, if they have one."""
        owner = _account(told["owner"])
        known = {"key": str(told["issuer"])[:100], "person": owner}
        return Who(owner, known.get(run.submitter_kind, run.submitter_id))

    def arrive(self, run: Run, told: dict[str, Any], *, actor: Actor) -> None:
        waiting = Hold.objects.open().filter(run=run, cause__in=WAIT_FOR_PEOPLE).select_related("step")
        for hold in waiting:
            assert hold.step is not None
            _ask_again(run, hold, hold.step, told["requests"].get(str(hold.pk)))
        for step in Step.objects.filter(run=run, status=StepStatus.DISPATCHED):
            if effects.from_evidence(step) is None and not _allowed(run, step):
                _leave_to_people(run, step, actor)


# -- Who asked ---------------------------------------------------------------------------


def _address(user_id: str) -> str:
    found = User.objects.filter(pk=int(user_id)).first() if user_id.isdecimal() else None
    return found.email if found else ""


def _account(address: Any) -> str:
    """The account here with that address; empty: nobody has it, or several do."""
    found = list(User.objects.filter(email__iexact=str(address))[:2]) if address else []
    return str(found[0].pk) if len(found) == 1 else ""


def _issuer(run: Run) -> str:
    if run.submitter_kind != "key":
        return ""
    key = ApiKey.objects.filter(prefix=run.submitter_id).first()
    return (
        run.submitter_id
        if key is None and "@" in run.submitter_id
        else _address(key.issuer_id if key else "")
    )


def _repeats_anothers(run: Run) -> bool:
    before = run.again_of
    while before is not None:
        if before.owner_id != run.owner_id:
            return True
        before = before.again_of
    return False


# -- Open requests -----------------------------------------------------------------------


def _told(request: Request) -> dict[str, Any]:
    revision = request.revision
    return {"facts": revision.facts, "judgement": revision.judgement}


def _ask_again(run: Run, hold: Hold, step: Step, told: dict[str, Any] | None) -> None:
    """A request for what the agent proposed; an edit was somebody's elsewhere."""
    judgement = _judge(run, step, told)
    facts = told["facts"] if told else []
    request = requests.open_first(
        run, hold, step, step.arguments, facts=facts, judgement=judgement, looked=False, moved=True
    )
    holds.mark(hold, inquiry=None)  # what reviewers asked elsewhere nobody here waits for
    if facts:
        looks.want(request)


def _judge(run: Run, step: Step, told: dict[str, Any] | None) -> Judgement:
    """What the rules here ask for, and at least what those there did. Groups have ids of their own here."""
    tool = tools.get(step.tool)
    if tool is None:
        raise BadBundle(f"there is no tool {step.tool} here")
    here: Judgement = authority.Authority().judge(_proposal(run, step, Call(tool, step.arguments))).terms
    if told is None:
        return here
    there = Judgement.from_json(told["judgement"])
    there = dataclasses.replace(there, reviewers=_group(there.reviewers), policy_version=here.policy_version)
    both = policies.stricter(there, here)
    reviewers = here.reviewers if here.verdict == "hold" else there.reviewers
    return dataclasses.replace(both, reviewers=reviewers)


def _allowed(run: Run, step: Step) -> bool:
    """Whether the rules here let go what was sent there without asking anybody."""
    tool = tools.get(step.tool)
    if tool is None:
        raise BadBundle(f"there is no tool {step.tool} here")
    asked = dataclasses.replace(_proposal(run, step, Call(tool, step.sent)), arguments=step.sent)
    return authority.Authority().judge(asked).verdict == "allow"


def _leave_to_people(run: Run, step: Step, actor: Actor) -> None:
    """It is not sent again by itself: that it was approved is only told by the bundle."""
    standing = Hold.objects.open().filter(step=step, cause=Cause.IN_DOUBT).first()
    if standing is not None:
        Hold.objects.filter(pk=standing.pk).update(look_again_at=None, why=SENT_ELSEWHERE)
    journal.write(run, actor, "in_doubt", index=step.index, attempt=step.attempt, why=SENT_ELSEWHERE)
    if standing is None:
        Step.objects.filter(pk=step.pk).update(effect=EffectState.IN_DOUBT)
        step.effect = EffectState.IN_DOUBT
        detail = {"attempt": step.attempt, "key": step.key}
        holds.place(run, cause=Cause.IN_DOUBT, actor=actor, step=step, why=SENT_ELSEWHERE, detail=detail)


def _group(reviewers: Reviewers | None) -> Reviewers | None:
    found = Group.objects.filter(name=reviewers.name).first() if reviewers else None
    return Reviewers(found.pk, found.name) if found else None


def _proposal(run: Run, step: Step, call: Call[Any]) -> Proposal:
    made = agents.find(run.agent, run.agent_version)
    return Proposal(
        run=run.pk,
        agent=run.agent,
        agent_version=run.agent_version,
        agent_owner=made.owner if made else "",
        labels=run.labels,
        submitter=run.submitter_name,
        on_behalf_of=run.on_behalf_of,
        index=step.index,
        call=call,
        arguments=step.arguments,
    )
