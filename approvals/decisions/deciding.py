"""`decide`: the one function, whatever the door. Every refused attempt is journalled too."""

import dataclasses
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F, Subquery

from approvals import looks, notifications, requests, reviewers, rights
from approvals.decisions import care, checks, editing, effect
from approvals.decisions.case import DIGEST, NONCE, OTHERS, Case, Choice, Decided
from approvals.exceptions import ApprovalsError, DigestMissing, NotVisible, Unchecked
from approvals.models import Decision, Request, Revision
from approvals.policies import Judgement
from approvals.states import RequestState, Verb
from runs import holds, journal, prepared, values
from runs.actors import SYSTEM
from runs.clock import Now
from runs.exceptions import BadValue
from runs.models import FactReading, Run, Step
from runs.prepared import Batch, Given, Query, Rows

_RUN_OF = Request.objects.filter(ref=Given("ref")).order_by().values("run")
_RUN = Query(lambda: Run.objects.select_for_update().filter(pk=Subquery(_RUN_OF)).order_by())
_REQUEST = Query(
    lambda: (
        Request.objects.select_for_update(of=("self",))
        .select_related("hold", "group")
        .filter(ref=Given("ref"))
        .order_by()
    )
)
_GIVEN = Query(lambda: Decision.objects.filter(request__ref=Given("ref")).with_undone().order_by("made_at"))
_WAITING = Rows(
    lambda: Step.objects.filter(run=Subquery(_RUN_OF)).pending().order_by().values_list("pk", "open_holds")
)
_STANDING = Query(
    lambda: (
        Revision.objects.filter(request__ref=Given("ref"), number=F("request__number"))
        .annotate(at=Now())
        .order_by()
    )
)


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
    except (NotVisible, Unchecked):
        raise  # who may not see it leaves no trace in it; the check page is a step on the way, no refusal
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
    checks.require_open(case)
    checks.require_eligible(case)
    checks.require_fits(case)
    readings = looks.last(case.request) if choice.verb == Verb.APPROVE and case.revision.facts else []
    looks.require_fresh(readings, case.at)
    checks.require_digest(case)
    if choice.verb == Verb.APPROVE:
        checks.require_facts(case, readings)
        _accept_unreadable(case, readings)
    if choice.edit is not None and choice.edit != case.revision.arguments:
        return _edit(case, choice.edit)
    return _record_with_care(case)


def _load(ref: str, person: User, choice: Choice) -> Case:
    """Locks the run, then the request, then reads the rest."""
    with Batch() as batch:
        locked = batch.ask(_RUN, ref=ref), batch.ask(_REQUEST, ref=ref)
        people, given, revision, waiting = (
            batch.ask(reviewers.FRESH, person=person.pk),
            batch.ask(_GIVEN, ref=ref),
            batch.ask(_STANDING, ref=ref),
            batch.ask(_WAITING, ref=ref),
        )
    run, request, fresh = locked[0].first(), locked[1].first(), people.first()
    if run is None or request is None or fresh is None:
        raise NotVisible("It doesn't exist, or isn't assigned to you.")
    request.run = run
    if not reviewers.eligibility(fresh, request).sees:
        raise NotVisible("It doesn't exist, or isn't assigned to you.")
    if not choice.digest:
        raise DigestMissing("The decision does not say what it is about (view_digest is missing).")
    standing: Any = revision.one()
    standing.request = request
    return Case(request, run, request.hold, fresh, choice, standing, standing.at, given.all(), waiting.all())


def _made_before(case: Case) -> Decided | None:
    digest, nonce = case.choice.digest, case.choice.nonce
    same = [
        made
        for made in case.all_mine
        if (made.digest == digest and not made.taken_back) or (nonce and made.nonce == nonce)
    ]
    made = same[-1] if same else None
    if made is None and _proposed_before(case):
        return Decided(case.request, None, again=True, waits_for=OTHERS)
    if made is None or made.verb != case.choice.verb or not _same(made, case.choice):
        return None
    return Decided(case.request, made, again=True)


def _proposed_before(case: Case) -> bool:
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


def _accept_unreadable(case: Case, readings: list[FactReading]) -> None:
    """What this person knowingly goes ahead without enters the digest as *unreadable*: the next revision."""
    accepted = [r for r in readings if r.kind == "material" and r.name in case.choice.seen]
    unread = {r.name: r.problem for r in accepted if r.value is None}
    facts = [
        {**fact, "value": None, "problem": unread[fact["name"]]} if fact["name"] in unread else fact
        for fact in case.revision.facts
    ]
    if [fact["value"] for fact in facts] == [fact["value"] for fact in case.revision.facts]:
        return
    standing = case.revision
    case.revision = requests.revise(
        case.request,
        arguments=standing.arguments,
        facts=facts,
        judgement=Judgement.from_json(standing.judgement),
        reason="unreadable",
        author=(standing.author_id, standing.author_name),
        note=standing.note,
        actor=case.actor,
        announce=False,
    )


def _edit(case: Case, arguments: str) -> Decided:
    """The next revision, with this person as its author, and their approval of it if it may count."""
    text, judgement = editing.check_edit(case.request, case.revision, arguments)
    if text == case.revision.arguments:
        return _record_with_care(case)
    case.revision = requests.revise(
        case.request,
        arguments=text,
        facts=case.revision.facts,
        judgement=judgement,
        reason="edit",
        changes=editing.argument_changes(case.revision.arguments, text),
        author=(str(case.person.pk), case.actor.name),
        note=case.choice.reason,
        actor=case.actor,
        announce=False,
    )
    allowed = reviewers.eligibility(case.person, case.request)
    if not allowed.decides or reviewers.is_author(case.person, case.revision):
        notifications.announce(case.request, "changed")
        return Decided(case.request, None, waits_for=OTHERS)
    decided = _record_with_care(case)
    if decided.waits_for:
        notifications.announce(case.request, "changed")
    return decided


def _record_with_care(case: Case) -> Decided:
    if case.choice.verb == Verb.APPROVE:
        care.require(case)
    return _record(case)


def _record(case: Case) -> Decided:
    choice = case.choice
    decision = Decision(
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
        basis=case.basis,
        step_up=case.step_up,
        nth=case.nth,
    )
    told: dict[str, Any] = {"verb": choice.verb, "revision": case.revision.number, "digest": decision.digest}
    told |= {"basis": case.basis} if case.basis else {}
    told |= {"step_up": case.step_up} if case.step_up else {}
    window = case.revision.judgement.get("undo_window", 0)
    at_once = not window and (case.request.quorum == 1 or choice.verb != Verb.APPROVE)
    with prepared.Batch():
        prepared.insert(decision)
        journal.write(case.request, case.actor, "decided", **told)
        if at_once:
            effect.apply(case.request, case.run, decision, at=case.at, waiting=case.waiting)
    if at_once:
        return Decided(case.request, decision)
    if choice.verb == Verb.APPROVE and (missing := _missing(case)):
        return Decided(
            case.request, decision, waits_for=f"{missing} more approval{'s' * (missing > 1)} needed."
        )
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
    effect.apply(case.request, case.run, decision, at=case.at, waiting=case.waiting)
    return Decided(case.request, decision)


def _missing(case: Case) -> int:
    """How many distinct people's approvals of the standing revision are still needed; one of somebody who
    may not decide any more does not count. This person's own was just checked."""
    if case.request.quorum == 1:
        return 0
    return max(0, case.request.quorum - sum(effect.standing(case.request, case.revision, Verb.APPROVE)))
