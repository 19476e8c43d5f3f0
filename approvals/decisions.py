"""Deciding: one function whatever the door, and what a decision does when it takes effect.

`decide` writes, under the locks of the run and the request, in the order of `DESIGN.md`; `take_effect`
releases the hold: at once where the undo window is 0, else from the sweeper, with eligibility checked again.
Every refused attempt is journalled too.
"""

import dataclasses
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from approvals import answers, authority, looks, notifications, policies, requests, reviewers, rights
from approvals.exceptions import (
    ApprovalsError,
    Closed,
    DigestMissing,
    NotEligible,
    NotVisible,
    Stale,
    Unfit,
)
from approvals.models import Decision, Permit, Request, Revision
from approvals.policies import Judgement
from approvals.presentation import shown
from approvals.states import PENDING, RequestKind, RequestState, Verb
from runs import agents, holds, journal, lifecycle, values
from runs.actors import SYSTEM, Actor
from runs.clock import Now, now
from runs.exceptions import BadArguments, BadValue
from runs.gate import Proposal
from runs.models import FactReading, Hold, Run
from runs.tools.calls import Call

MAX_REASON = 4000
DIGEST = re.compile(r"[0-9a-f]{64}")
OTHERS = "Your edit needs somebody else's approval."
NONCE = re.compile(r"[\w-]{1,64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Choice:
    """What a person says. `digest` is the view digest they saw. `edit` is canonical JSON of the arguments
    to run instead; `answer` parsed JSON for a question; `seen` the changed facts they ticked."""

    verb: str
    digest: str
    reason: str = ""
    answer: Any = None
    edit: str | None = None
    seen: frozenset[str] = frozenset()
    nonce: str = ""
    door: str = "page"


@dataclass(frozen=True, slots=True)
class Decided:
    """`decision` is the one that stands for this person. `again`: it was made before, nothing new was written.
    `waits_for` says what else is needed; empty: it is in force (or in its undo window)."""

    request: Request
    decision: Decision | None
    again: bool = False
    waits_for: str = ""


@dataclass
class _Case:
    """What a decision is made from, under the locks."""

    request: Request
    run: Run
    hold: Hold
    person: User
    choice: Choice
    revision: Revision
    at: datetime
    given: list[Decision]
    actor: Actor = field(init=False)

    def __post_init__(self) -> None:
        self.actor = rights.actor(self.person, self.choice.door)

    @property
    def mine(self) -> list[Decision]:
        """What this person said of the request before, oldest first."""
        return [made for made in self.given if made.person_id == str(self.person.pk)]


def decide(ref: str, *, person: User, choice: Choice) -> Decided:
    """Records what `person` says of the request `ref`.

    Raises NotVisible, DigestMissing, Closed, NotEligible, Stale, Unfit (each names its answer). The same
    person, verb and digest again gets the first answer and writes nothing. Every refusal but of who may not
    see the request is journalled.
    """
    choice = _tidied(choice)
    try:
        with transaction.atomic():
            return _decide(ref, person, choice)
    except NotVisible:
        raise  # who may not see it leaves no trace in it
    except ApprovalsError as refused:
        _journal_refusal(ref, person, choice, refused)
        raise


def _tidied(choice: Choice) -> Choice:
    """A digest that is none of ours is the digest of nothing, and such a nonce names no form."""
    digest = choice.digest if not choice.digest or DIGEST.fullmatch(choice.digest) else "malformed"
    return dataclasses.replace(
        choice, digest=digest, nonce=choice.nonce if NONCE.fullmatch(choice.nonce) else ""
    )


def _journal_refusal(ref: str, person: User, choice: Choice, refused: ApprovalsError) -> None:
    with transaction.atomic():
        request = Request.objects.filter(ref=ref).first()
        if request is not None:
            actor = rights.actor(person, choice.door)
            verb = choice.verb if choice.verb in Verb.values else ""
            journal.write(request, actor, "refused", verb=verb, code=refused.code, digest=choice.digest)


def _decide(ref: str, person: User, choice: Choice) -> Decided:
    case = _load(ref, person, choice)
    if before := _made_before(case):
        return before
    _check_open(case)
    _check_eligible(case)
    _check_fits(case)
    readings = looks.last(case.request) if choice.verb == Verb.APPROVE and case.revision.facts else []
    looks.require_fresh(readings, case.at)
    _check_digest(case)
    if choice.verb == Verb.APPROVE:
        _check_facts(case, readings)
    if choice.edit is not None and choice.edit != case.revision.arguments:
        return _edit(case, choice.edit)
    return _record(case)


def _load(ref: str, person: User, choice: Choice) -> _Case:
    """Locks the run, then the request, then reads the rest."""
    found = Request.objects.filter(ref=ref).values_list("run_id", flat=True).first()
    if found is None:
        raise NotVisible("It doesn't exist, or isn't assigned to you.")
    run = lifecycle.lock(found)
    locked = Request.objects.select_for_update(of=("self",))
    request = locked.select_related("step", "group", "hold").get(ref=ref)
    request.run = run
    fresh = User.objects.get(pk=person.pk)
    if not reviewers.eligibility(fresh, request).sees:
        raise NotVisible("It doesn't exist, or isn't assigned to you.")
    if not choice.digest:
        raise DigestMissing("The decision does not say what it is about (view_digest is missing).")
    given = list(request.decisions.order_by("made_at"))
    return _Case(request, run, request.hold, fresh, choice, request.revision, now(), given)


def _made_before(case: _Case) -> Decided | None:
    digest, nonce = case.choice.digest, case.choice.nonce
    same = [made for made in case.mine if made.digest == digest or (nonce and made.nonce == nonce)]
    made = same[-1] if same else None
    if made is None and _proposed_before(case):
        return Decided(case.request, None, again=True, waits_for=OTHERS)
    if made is None or made.verb != case.choice.verb or not _same(made, case.choice):
        return None
    return Decided(case.request, made, again=True)


def _proposed_before(case: _Case) -> bool:
    """Whether what stands is this very edit, which waits for somebody else's approval."""
    choice, standing = case.choice, case.revision
    if choice.verb != Verb.APPROVE or choice.edit is None or standing.author_id != str(case.person.pk):
        return False
    edited = case.request.revisions.filter(number=standing.number - 1, digest=choice.digest)
    try:
        same = values.canonical(values.parse(choice.edit)) == standing.arguments
    except BadValue:
        return False
    return standing.reason == "edit" and same and edited.exists()


def _same(made: Decision, choice: Choice) -> bool:
    if choice.verb == Verb.RESPOND:
        return made.answer == values.canonical(choice.answer)
    return choice.verb != Verb.REJECT or made.reason == choice.reason


def _check_open(case: _Case) -> None:
    request = case.request
    if request.state in PENDING:
        if case.run.stop_requested:
            raise Closed(
                "cancelled", case.run.stop_requested["why"] or "The run is being cancelled.", at=case.at
            )
        if request.decide_by is not None and request.decide_by <= case.at:
            raise Closed("expired", "It expired before a decision.", at=request.decide_by)
        for mine in case.mine:
            if mine.revision_id == case.revision.pk:
                said = "You decided it before."
                raise Closed("decided", said, by=mine.person_name, at=mine.made_at, verb=mine.verb)
        return
    raise closed(request)


def closed(request: Request) -> Closed:
    """The answer for a request that is not open: its standing state, who and when."""
    if request.state in (
        RequestState.DECIDED,
        RequestState.IN_FORCE,
        RequestState.CONSUMED,
        RequestState.REJECTED,
    ):
        last = request.decisions.order_by("made_at").last()
        if last is not None:
            said = f"{last.person_name} decided it first."
            return Closed("decided", said, by=last.person_name, at=last.made_at, verb=last.verb)
    at = request.decide_by if request.state == RequestState.EXPIRED else request.closed_at
    return Closed(request.state, request.closed_why or f"It is {request.state}.", at=at)


def _check_eligible(case: _Case) -> None:
    allowed = reviewers.eligibility(case.person, case.request)
    if not allowed.decides:
        raise NotEligible(allowed.why_not)
    if case.choice.verb == Verb.APPROVE and reviewers.is_author(case.person, case.revision):
        raise NotEligible("You edited this action, so somebody else approves it.")


def _check_fits(case: _Case) -> None:
    """The verb belongs to the kind of request, and what comes with it is complete."""
    verbs = {
        RequestKind.APPROVAL: {Verb.APPROVE, Verb.REJECT},
        RequestKind.QUESTION: {Verb.RESPOND, Verb.REJECT},
    }
    allowed = sorted(map(str, verbs[RequestKind(case.request.kind)]))
    if case.choice.verb not in allowed:
        raise Unfit({"decision": f"{case.choice.verb!r} is none of {', '.join(allowed)}"})
    if case.choice.edit is not None and case.choice.verb != Verb.APPROVE:
        raise Unfit({"edited": "Only an approval can carry an edit."})
    _check_reason(case.choice)
    if case.choice.verb == Verb.RESPOND:
        _check_answer(case)


def _check_reason(choice: Choice) -> None:
    if choice.verb == Verb.REJECT and not choice.reason.strip():
        raise Unfit({"reason": "Say why: the agent reads it."})
    if len(choice.reason) > MAX_REASON:
        raise Unfit({"reason": f"{len(choice.reason):,} characters; at most {MAX_REASON:,}."})
    try:
        values.check(choice.reason)
    except BadValue as error:
        raise Unfit({"reason": error.message}) from None


def _check_answer(case: _Case) -> None:
    schema = json.loads(case.revision.arguments)["form"]
    if errors := answers.misfits(schema, case.choice.answer):
        raise Unfit(errors)


def _check_digest(case: _Case) -> None:
    if case.choice.digest != case.revision.digest:
        raise Stale("It changed while you were reading.", changes=_since(case))


def _since(case: _Case) -> list[dict[str, Any]]:
    """What changed after the revision whose digest the person saw."""
    seen = case.request.revisions.filter(digest=case.choice.digest).first()
    later = case.request.revisions.filter(number__gt=seen.number if seen else case.request.number - 1)
    return [change for revision in later for change in revision.changes]


def _check_facts(case: _Case, readings: list[FactReading]) -> None:
    """Blocking facts that moved since the proposal forbid approving; material ones must be ticked."""
    moved = looks.moved(case.request, case.revision, readings)
    if blocks := [m for m in moved if m["kind"] == "blocking" or m["now"] is None]:
        raise Stale(
            "Approving isn't possible now: " + "; ".join(looks.sentence(m) for m in blocks), changes=blocks
        )
    unseen = [m for m in moved if m["kind"] == "material" and m["name"] not in case.choice.seen]
    if unseen:
        raise Unfit({f"ack-{m['name']}": f"Tick that you have seen: {looks.sentence(m)}" for m in unseen})


# -- Editing -------------------------------------------------------------------------


def check_edit(request: Request, revision: Revision, arguments: str) -> tuple[str, Judgement]:
    """The canonical text of edited arguments, and what policy says of the edited call (with what stood).

    Raises Unfit: unknown tool, arguments that do not fit, or policy denies it.
    """
    tool = shown.known(revision.tool, revision.tool_version)
    if tool is None:
        raise Unfit(
            {"": f"The tool {revision.tool} changed since this was proposed, so it cannot be edited."}
        )
    try:
        text = tool.signature.write_json(values.parse(arguments, limit=values.MAX_ARGUMENTS))
    except BadArguments as error:
        raise Unfit({path.lstrip("/").split("/")[0]: said for path, said in error.errors}) from None
    except BadValue as error:
        raise Unfit({"": str(error)}) from None
    judged = authority.Authority().judge(proposal(request, Call(tool, text))).terms
    if judged.verdict == "deny":
        raise Unfit({"": f"Policy does not allow the edited call: {judged.why}"})
    return text, _at_least(Judgement.from_json(revision.judgement), judged)


def _at_least(stood: Judgement, judged: Judgement) -> Judgement:
    """An edit never lowers anything; where policy names other reviewers for the edited call, they decide."""
    if judged.verdict != "hold":
        return stood
    merged = policies.stricter(stood, judged)
    if not authority.other_reviewers(stood, judged):
        return merged
    return dataclasses.replace(merged, reviewers=judged.reviewers, rule=judged.rule, why=judged.why)


def proposal(request: Request, call: Call[Any]) -> Proposal:
    """A call of the request's run as policy sees it."""
    run = request.run
    made = agents.find(run.agent, run.agent_version)
    return Proposal(
        run=run.pk,
        agent=run.agent,
        agent_version=run.agent_version,
        agent_owner=made.owner if made else "",
        labels=run.labels,
        submitter=run.submitter_name,
        on_behalf_of=run.on_behalf_of,
        index=request.step.index,
        call=call,
        arguments=call.arguments,
    )


def _edit(case: _Case, arguments: str) -> Decided:
    """The next revision, with this person as its author, and their approval of it if it may count."""
    text, judgement = check_edit(case.request, case.revision, arguments)
    if text == case.revision.arguments:
        return _record(case)
    case.revision = requests.revise(
        case.request,
        arguments=text,
        facts=case.revision.facts,
        judgement=judgement,
        reason="edit",
        changes=argument_changes(case.revision.arguments, text),
        author=(str(case.person.pk), case.actor.name),
        note=case.choice.reason,
        actor=case.actor,
        announce=False,
    )
    allowed = reviewers.eligibility(case.person, case.request)
    if not allowed.decides or reviewers.is_author(case.person, case.revision):
        notifications.announce(case.request, "changed")
        return Decided(case.request, None, waits_for=OTHERS)
    decided = _record(case)
    if decided.waits_for:
        notifications.announce(case.request, "changed")
    return decided


def argument_changes(before: str, after: str) -> list[dict[str, Any]]:
    """The top-level arguments that differ, as canonical JSON then and now: 1, 1.0 and true are three values."""
    then, later = _texts(before), _texts(after)
    return [
        {"name": name, "title": name, "kind": "argument", "then": then.get(name), "now": later.get(name)}
        for name in sorted(then.keys() | later.keys())
        if then.get(name) != later.get(name)
    ]


def _texts(arguments: str) -> dict[str, str]:
    return {name: values.canonical(value) for name, value in json.loads(arguments).items()}


# -- Writing -------------------------------------------------------------------------


def _record(case: _Case) -> Decided:
    choice = case.choice
    decision = Decision.objects.create(
        request=case.request,
        revision=case.revision,
        person_id=str(case.person.pk),
        person_name=case.actor.name,
        verb=choice.verb,
        reason=choice.reason,
        answer=values.canonical(choice.answer) if choice.verb == Verb.RESPOND else None,
        digest=case.revision.digest,
        nonce=choice.nonce[:64],
        door=choice.door,
    )
    told = {"verb": choice.verb, "revision": case.revision.number, "digest": decision.digest}
    journal.write(case.request, case.actor, "decided", **told)
    if choice.verb == Verb.APPROVE and (missing := _missing(case)):
        return Decided(
            case.request, decision, waits_for=f"{missing} more approval{'s' * (missing > 1)} needed."
        )
    window = case.revision.judgement.get("undo_window", 0)
    if window:
        until = case.at + timedelta(seconds=window)
        Request.objects.filter(pk=case.request.pk).update(
            state=RequestState.DECIDED, decided_at=Now(), takes_effect_at=until
        )
        holds.set_expiry(
            case.run, case.hold, None, actor=SYSTEM
        )  # decided in time: it does not expire any more
        case.request.refresh_from_db()
        return Decided(case.request, decision)
    _take_effect(case.request, case.run, decision)
    return Decided(case.request, decision)


def _missing(case: _Case) -> int:
    """How many distinct people's approvals of the standing revision are still needed; one of somebody who
    may not decide any more does not count. This person's own was just checked."""
    if case.request.quorum == 1:
        return 0
    return max(0, case.request.quorum - sum(_standing(case.request, case.revision, Verb.APPROVE)))


def _standing(request: Request, revision: Revision, verb: str) -> list[bool]:
    """For each decision of a revision: whether who made it may still decide."""
    ids = request.decisions.filter(revision=revision, verb=verb).values_list("person_id", flat=True)
    people = User.objects.in_bulk([int(each) for each in ids])
    return [int(i) in people and reviewers.eligibility(people[int(i)], request).decides for i in ids]


def take_effect(request_id: Any) -> bool:
    """From the sweeper: a decision whose undo window has ended. False: undone, closed, or not due."""
    with transaction.atomic():
        run_id = Request.objects.filter(pk=request_id).values_list("run_id", flat=True).get()
        run = lifecycle.lock(run_id)
        request = Request.objects.select_for_update(of=("self",)).select_related("group").get(pk=request_id)
        if (
            request.state != RequestState.DECIDED
            or not request.takes_effect_at
            or request.takes_effect_at > now()
        ):
            return False
        request.run = run
        decision = request.decisions.filter(revision__number=request.number).order_by("made_at").last()
        if decision is None or not _enough(request, decision):
            _reopen(request)
            holds.set_expiry(run, request.hold, request.decide_by, actor=SYSTEM)
            return True
        _take_effect(request, run, decision)
    return True


def _enough(request: Request, decision: Decision) -> bool:
    """Whether those who decided may still decide, and are as many as it takes."""
    still = sum(_standing(request, decision.revision, decision.verb))
    return still >= (request.quorum if decision.verb == Verb.APPROVE else 1)


def _reopen(request: Request) -> None:
    standing = request.revision
    judgement = Judgement.from_json(standing.judgement)
    author = (standing.author_id, standing.author_name)
    requests.revise(
        request,
        arguments=standing.arguments,
        facts=standing.facts,
        judgement=judgement,
        reason="role_lost",
        author=author,
        note=standing.note,
    )


def _take_effect(request: Request, run: Run, decision: Decision) -> None:
    """In force from now: the permit where there is one, and the hold released."""
    effect: dict[str, Callable[[Request, Decision], tuple[RequestState, str, str | None]]] = {
        Verb.APPROVE: _approve,
        Verb.REJECT: _reject,
        Verb.RESPOND: _respond,
    }
    state, resolution, answer = effect[decision.verb](request, decision)
    ended = {"closed_at": Now()} if state == RequestState.REJECTED else {}
    Request.objects.filter(pk=request.pk).update(state=state, decided_at=Now(), takes_effect_at=None, **ended)
    actor = Actor("person", decision.person_id, decision.person_name, decision.door)
    journal.write(request, SYSTEM, "in_force", verb=decision.verb, revision=decision.revision.number)
    holds.release_locked(run, request.hold, actor=actor, resolution=resolution, answer=answer)
    request.state = state


def _approve(request: Request, decision: Decision) -> tuple[RequestState, str, str | None]:
    until = Now() + authority.consume_by(decision.revision.judgement)
    Permit.objects.create(request=request, revision=decision.revision, consume_by=until)
    return RequestState.IN_FORCE, "approved", None


def _reject(request: Request, decision: Decision) -> tuple[RequestState, str, str | None]:
    said = values.canonical({"reason": decision.reason, "by": decision.person_name})
    return RequestState.REJECTED, "rejected", said


def _respond(request: Request, decision: Decision) -> tuple[RequestState, str, str | None]:
    said = values.canonical({"answer": json.loads(decision.answer or "null"), "by": decision.person_name})
    return RequestState.IN_FORCE, "answered", said
