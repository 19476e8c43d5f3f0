"""Deciding: every answer of the table, what is written, and what is refused. Whatever the door, this is the one verb."""

import json
from datetime import timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection

from approvals import decisions, rights
from approvals.decisions import Choice
from approvals.exceptions import Closed, DigestMissing, NotEligible, NotVisible, Stale, Unfit
from approvals.models import Decision, Permit, Request
from runs import clock, endings, holds, lifecycle, sweeper
from runs.actors import Actor
from runs.models import JournalEntry, Run
from tests.approvals import desk

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("whole")]
OPERATOR = Actor("person", "9", "Olu", "admin", operator=True)


@pytest.fixture
def request_(people: SimpleNamespace) -> Request:
    return desk.opened(owner=people.cyd, on_behalf_of="maria@example.org")


# -- Works --------------------------------------------------------------------------------


def test_approve_makes_one_permit_and_the_run_goes_on(request_: Request, ana: User) -> None:
    decided = desk.decide(request_, ana)
    assert (decided.again, decided.waits_for) == (False, "")
    assert desk.counts(request_) == ("in_force", 1, 1)
    assert Run.objects.get(pk=request_.run_id).status == "queued"
    assert desk.result(request_)["result"] == "given 240.00"
    assert desk.counts(request_) == ("consumed", 1, 1)
    assert desk.told(request_) == ["opened", "decided", "in_force", "consumed"]


def test_approve_keeps_who_what_when_and_through_which_door(request_: Request, ana: User) -> None:
    digest = request_.revision.digest
    desk.decide(request_, ana, nonce="n1")
    made = Decision.objects.get()
    kept = (made.person_id, made.person_name, made.verb, made.digest, made.nonce, made.door)
    assert kept == (str(ana.pk), "Ana", "approve", digest, "n1", "page")
    row = JournalEntry.objects.of(request_.stream).get(verb="decided")
    assert (row.actor_kind, row.actor_id, row.actor_name, row.door) == ("person", str(ana.pk), "Ana", "page")
    basis = [{"id": "1", "question": "Does this fit what was asked for?", "answer": "yes"}]
    assert json.loads(row.detail) == {"verb": "approve", "revision": 1, "digest": digest, "basis": basis}
    assert made.basis == basis
    hold = fresh_hold(request_)
    assert (hold.resolution, hold.released_by_name, hold.released_through) == ("approved", "Ana", "page")


def fresh_hold(request: Request) -> Any:
    return desk.fresh(request).hold


def test_reject_reaches_the_agent_with_its_reason_and_who(request_: Request, ana: User) -> None:
    desk.decide(request_, ana, "reject", reason="wrong recipient: it is ch_2")
    assert desk.counts(request_) == ("rejected", 1, 0)
    said = desk.result(request_)
    assert (said["error"], said["args"]) == ("Rejected", ["wrong recipient: it is ch_2", "Ana"])
    assert said["decision"] == ["reject", "Ana", "wrong recipient: it is ch_2"]
    assert desk.world.calls == []


def test_respond_gives_the_agent_the_answer(people: SimpleNamespace) -> None:
    question = desk.opened("approvals-asker")
    desk.decide(
        question, people.ana, "respond", answer={"vendor": "high", "number": 7, "note": "the red one"}
    )
    assert desk.result(question) == {"vendor": "high", "number": 7, "note": "the red one"}
    assert desk.counts(question) == ("in_force", 1, 0)


def test_reject_a_question_reaches_the_agent(people: SimpleNamespace) -> None:
    question = desk.opened("approvals-asker")
    desk.decide(question, people.ana, "reject", reason="ask somebody else")
    assert desk.result(question) == {"error": "Rejected", "args": ["ask somebody else", "Ana"]}


def test_decide_gives_each_call_of_a_batch_its_own_outcome(people: SimpleNamespace) -> None:
    """F11: approved, rejected and approved with an edit; three results in order."""
    run = desk.submitted("approvals-batch")
    desk.execution.drive(run.pk)
    first, second, third = Request.objects.filter(run=run).order_by("step__index")
    desk.decide(first, people.ana)
    desk.decide(second, people.ben, "reject", reason="wrong payee")
    desk.decide(third, people.ana, edit=desk.edited(third, amount="3.00"))
    assert desk.result(first) == ["wired 10.00", "Rejected: wrong payee", "wired 3.00"]
    assert sorted(str(call["amount"]) for _, call in desk.world.calls) == ["10.00", "3.00"]


def test_decide_one_of_two_pending_moves_only_that_one(people: SimpleNamespace) -> None:
    """F09."""
    run = desk.submitted("approvals-both")
    desk.execution.drive(run.pk)
    first, second = Request.objects.filter(run=run).order_by("step__index")
    assert first.ref != second.ref
    desk.decide(first, people.ana)
    desk.drive(first)
    assert desk.world.calls == [("wire", {"to": "A", "amount": "1.00"})]
    assert desk.counts(second) == ("open", 0, 0)


# -- 404 ----------------------------------------------------------------------------------


def test_decide_unknown_is_not_visible(people: SimpleNamespace) -> None:
    with pytest.raises(NotVisible) as unknown:
        decisions.decide("0000000000", person=people.ana, choice=Choice("approve", "x"))
    assert unknown.value.status == 404


@pytest.mark.parametrize("who", ["dee", "cyd", "root"])
def test_decide_foreign_is_not_visible(request_: Request, people: SimpleNamespace, who: str) -> None:
    """Another team's reviewer, whoever started it, and a superuser without a group: none of them may see it."""
    with pytest.raises(NotVisible):
        desk.decide(request_, getattr(people, who))
    assert (desk.counts(request_), desk.refusals(request_)) == (("open", 0, 0), [])


def test_decide_after_the_role_was_lost_is_not_visible(request_: Request, ana: User) -> None:
    """F63: the page is open, and the person object still remembers its groups."""
    digest = request_.revision.digest
    assert rights.group_names(ana) == {"refunds"}
    ana.groups.clear()
    with pytest.raises(NotVisible):
        desk.decide(request_, ana, digest=digest)
    assert desk.counts(request_) == ("open", 0, 0)


def test_decide_by_a_disabled_person_is_not_visible(request_: Request, ana: User) -> None:
    User.objects.filter(pk=ana.pk).update(is_active=False)
    with pytest.raises(NotVisible):
        desk.decide(request_, ana)
    assert desk.counts(request_) == ("open", 0, 0)


# -- 403 ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("on_behalf_of", "why"),
    [
        ("ana@example.org", "The run acts for you, so somebody else decides."),
        ("ANA@Example.org", "The run acts for you, so somebody else decides."),
        (" ana@example.org ", "The run acts for you, so somebody else decides."),
        ("ana", "The run acts for you, so somebody else decides."),
    ],
)
def test_decide_by_whom_the_run_acts_for_is_refused(
    people: SimpleNamespace, on_behalf_of: str, why: str
) -> None:
    request = desk.opened(on_behalf_of=on_behalf_of)
    with pytest.raises(NotEligible, match=why):
        desk.decide(request, people.ana)
    assert (desk.counts(request), desk.refusals(request)) == (("open", 0, 0), [("Ana", "not_eligible")])


def test_decide_by_the_owner_of_the_key_is_refused(people: SimpleNamespace) -> None:
    request = desk.opened(owner=people.ana)
    for verb in ("approve", "reject"):
        with pytest.raises(NotEligible, match="You started this run"):
            desk.decide(request, people.ana, verb)
    assert (desk.counts(request), len(desk.refusals(request))) == (("open", 0, 0), 2)


def test_decide_by_the_agents_owner_is_refused(people: SimpleNamespace) -> None:
    owen = desk.person("owen", "refunds")
    request = desk.opened()
    with pytest.raises(NotEligible, match="You own this agent"):
        desk.decide(request, owen)
    assert desk.counts(request) == ("open", 0, 0)


@pytest.mark.parametrize("who", ["olu", "dot"])
def test_decide_by_who_sees_all_but_reviews_nothing_is_refused(
    request_: Request, people: SimpleNamespace, who: str
) -> None:
    with pytest.raises(NotEligible, match="you don't review it"):
        desk.decide(request_, getattr(people, who))
    assert desk.counts(request_) == ("open", 0, 0)
    assert desk.refusals(request_) == [(who.capitalize(), "not_eligible")]


# -- 428 and 422 ------------------------------------------------------------------------------


def test_decide_without_a_digest_is_refused(request_: Request, ana: User) -> None:
    with pytest.raises(DigestMissing) as refused:
        desk.decide(request_, ana, digest="")
    assert refused.value.status == 428
    assert (desk.counts(request_), desk.refusals(request_)) == (("open", 0, 0), [("Ana", "digest_missing")])


@pytest.mark.parametrize(
    "verb", ["", "APPROVED", "Approve", "true", "1", "[]", "{}", "null", "edit", "respond", "\x00"]
)
def test_decide_with_another_verb_is_refused(request_: Request, ana: User, verb: str) -> None:
    """F20: what is not exactly a verb of this request is no decision."""
    with pytest.raises(Unfit) as refused:
        desk.decide(request_, ana, verb)
    assert list(refused.value.errors) == ["decision"]
    assert (desk.counts(request_), desk.refusals(request_)) == (("open", 0, 0), [("Ana", "invalid")])


def test_approve_a_question_is_refused(people: SimpleNamespace) -> None:
    question = desk.opened("approvals-asker")
    with pytest.raises(Unfit):
        desk.decide(question, people.ana, "approve")
    assert desk.counts(question) == ("open", 0, 0)


@pytest.mark.parametrize("reason", ["", "   ", "\n", "x" * 4001, "a\x00b", "\ud83c"])
def test_reject_with_a_reason_that_cannot_be_kept_is_refused(
    request_: Request, ana: User, reason: str
) -> None:
    with pytest.raises(Unfit) as refused:
        desk.decide(request_, ana, "reject", reason=reason)
    assert list(refused.value.errors) == ["reason"]
    assert desk.counts(request_) == ("open", 0, 0)


@pytest.mark.parametrize("reason", ["x" * 4000, "😀 שלום", "<b>no</b>"])
def test_reject_with_any_other_reason_reaches_the_agent_as_it_is(
    request_: Request, ana: User, reason: str
) -> None:
    desk.decide(request_, ana, "reject", reason=reason)
    assert desk.result(request_)["args"] == [reason, "Ana"]


@pytest.mark.parametrize(
    ("answer", "places"),
    [
        (None, [""]),
        ([], [""]),
        ({}, ["number", "vendor"]),
        ({"vendor": "neither", "number": 3}, ["vendor"]),
        ({"vendor": "low", "number": 0}, ["number"]),
        ({"vendor": "low", "number": "3"}, ["number"]),
        ({"vendor": "low", "number": 10**30}, ["number"]),
        ({"vendor": "low", "number": float("nan")}, ["number"]),
        ({"vendor": "low", "number": 3, "note": "a\x00b"}, ["note"]),
    ],
)
def test_respond_with_what_does_not_fit_is_refused(
    people: SimpleNamespace, answer: Any, places: list[str]
) -> None:
    question = desk.opened("approvals-asker")
    with pytest.raises(Unfit) as refused:
        desk.decide(question, people.ana, "respond", answer=answer)
    assert sorted(refused.value.errors) == places
    assert desk.counts(question) == ("open", 0, 0)


@pytest.mark.parametrize("verb", ["reject", "respond"])
def test_edit_with_another_verb_than_approve_is_refused(people: SimpleNamespace, verb: str) -> None:
    request = desk.opened("approvals-asker") if verb == "respond" else desk.opened()
    given = {"answer": {"vendor": "low", "number": 1}} if verb == "respond" else {}
    with pytest.raises(Unfit) as refused:
        desk.decide(request, people.ana, verb, edit=desk.edited(request), **given)
    assert list(refused.value.errors) == ["edited"]
    assert (desk.counts(request), desk.numbers(request)) == (("open", 0, 0), [(1, "")])


@pytest.mark.parametrize(
    ("field", "expected"),
    [("verb", (Unfit, Closed)), ("digest", (Stale, Closed)), ("reason", (Unfit, Closed))],
)
def test_decide_with_nul_is_an_answer_and_no_fault(
    request_: Request, people: SimpleNamespace, field: str, expected: tuple[type[Exception], type[Exception]]
) -> None:
    """Neither the database nor the journal takes NUL, also on a request that is closed."""
    choice = Choice(**{"verb": "approve", "digest": request_.revision.digest, field: "a\x00b"})
    with pytest.raises(expected[0]):
        decisions.decide(request_.ref, person=people.ana, choice=choice)
    desk.decide(request_, people.ben)
    with pytest.raises(expected[1]):
        decisions.decide(request_.ref, person=people.ana, choice=choice)


@pytest.mark.parametrize("nonce", ["a\x00b", "x" * 5000])
def test_nonce_that_is_none_of_ours_names_no_form(request_: Request, ana: User, nonce: str) -> None:
    desk.decide(request_, ana, nonce=nonce)
    assert Decision.objects.get().nonce == ""


# -- 409 ----------------------------------------------------------------------------------


def test_decide_after_somebody_else_says_who_what_and_when(
    request_: Request, people: SimpleNamespace
) -> None:
    """F08."""
    desk.decide(request_, people.ana)
    made = Decision.objects.get()
    for verb in ("reject", "approve"):
        with pytest.raises(Closed) as late:
            desk.decide(request_, people.ben, verb)
        said = late.value
        assert (said.status, said.code, said.by, said.at, said.verb) == (
            409,
            "decided",
            "Ana",
            made.made_at,
            "approve",
        )
    assert desk.counts(request_) == ("in_force", 1, 1)
    assert desk.refusals(request_) == [("Ben", "decided"), ("Ben", "decided")]


def test_decide_after_the_run_has_finished_says_the_same_and_starts_nothing(
    request_: Request, people: SimpleNamespace, django_capture_on_commit_callbacks: Any
) -> None:
    """F08: ben is told of ana's decision and its time, ana's form sent again has its first answer; nobody is rung
    for, and the journal has one decision beside the refused attempt."""
    choice = Choice("approve", request_.revision.digest, basis=desk.YES, nonce="n")
    first = decisions.decide(request_.ref, person=people.ana, choice=choice)
    assert desk.result(request_)["result"] == "given 240.00"
    with django_capture_on_commit_callbacks() as rung:
        with pytest.raises(Closed) as late:
            desk.decide(request_, people.ben, "reject")
        again = decisions.decide(request_.ref, person=people.ana, choice=choice)
    said, made = late.value, Decision.objects.get()
    assert (said.status, said.code, said.by, said.verb, said.at) == (
        409,
        "decided",
        "Ana",
        "approve",
        made.made_at,
    )
    assert (first.again, again.again, again.decision, first.decision) == (False, True, made, made)
    assert (rung, desk.counts(request_), desk.world.n("give_back")) == ([], ("consumed", 1, 1), 1)
    told = desk.told(request_)
    assert (told.count("decided"), told[-1], desk.refusals(request_)) == (1, "refused", [("Ben", "decided")])


def test_decide_one_microsecond_late_is_refused(request_: Request, ana: User) -> None:
    """C-09: by the database's clock, and the sweeper has not been there."""
    Request.objects.filter(pk=request_.pk).update(decide_by=clock.now())
    with pytest.raises(Closed) as late:
        desk.decide(request_, ana)
    assert (late.value.code, late.value.at) == ("expired", desk.fresh(request_).decide_by)
    assert (desk.counts(request_), desk.refusals(request_)) == (("open", 0, 0), [("Ana", "expired")])


def test_decide_a_moment_before_the_end_counts(request_: Request, ana: User) -> None:
    desk.later(3590)
    desk.look(request_)
    desk.decide(request_, ana)
    assert desk.counts(request_) == ("in_force", 1, 1)


def test_decide_after_the_clock_passed_the_end_is_refused(request_: Request, ana: User) -> None:
    desk.later(3601)
    for verb in ("approve", "reject"):
        with pytest.raises(Closed) as late:
            desk.decide(request_, ana, verb)
        assert late.value.code == "expired"
    assert desk.counts(request_) == ("open", 0, 0)


def test_decide_after_the_sweeper_expired_it_is_refused(request_: Request, ana: User) -> None:
    """F23: nobody is told to have said no, and the agent reads that it expired."""
    digest = request_.revision.digest
    desk.later(3601)
    assert holds.expire(request_.hold_id) is True
    assert holds.expire(request_.hold_id) is False
    with pytest.raises(Closed) as late:
        desk.decide(request_, ana, digest=digest)
    assert (late.value.code, late.value.at, late.value.by) == ("expired", request_.decide_by, "")
    assert desk.counts(request_) == ("expired", 0, 0)
    closing = JournalEntry.objects.of(request_.stream).get(verb="expired")
    assert (closing.actor_kind, closing.actor_name) == ("system", "Abeyance")
    said = desk.result(request_)
    assert (said["error"], said["decision"], desk.world.calls) == ("Expired", None, [])


def test_decide_after_the_run_was_cancelled_says_so(request_: Request, ana: User) -> None:
    """F57."""
    endings.cancel(request_.run_id, actor=OPERATOR, why="the customer called")
    with pytest.raises(Closed) as late:
        desk.decide(request_, ana)
    said, closed_at = late.value, desk.fresh(request_).closed_at
    assert (said.code, str(said), said.by, said.at) == ("cancelled", "the customer called", "Olu", closed_at)
    assert desk.counts(request_) == ("cancelled", 0, 0)
    assert desk.refusals(request_) == [("Ana", "cancelled")]


def test_decide_after_the_run_ended_by_itself_names_nobody(request_: Request, ana: User) -> None:
    """F57: it stood still for too long; nobody cancelled it."""
    desk.later(100)
    assert endings.expire(request_.run_id, 50.0)
    with pytest.raises(Closed) as late:
        desk.decide(request_, ana)
    assert (late.value.code, late.value.by) == ("cancelled", "")


def test_decide_while_the_run_is_being_cancelled_says_so(people: SimpleNamespace) -> None:
    """The worker still has the run, and will end it at its next boundary."""
    run = desk.submitted("approvals-both")
    desk.execution.drive(run.pk)
    first, second = Request.objects.filter(run=run).order_by("step__index")
    desk.decide(first, people.ana)
    assert lifecycle.take(run.pk, "w") is not None
    endings.cancel(run.pk, actor=OPERATOR, why="enough")
    with pytest.raises(Closed) as late:
        desk.decide(second, people.ana)
    assert (late.value.code, late.value.by) == ("cancelled", "Olu")
    assert desk.counts(second) == ("open", 0, 0)
    Run.objects.filter(pk=run.pk).update(lease_until=clock.now() - timedelta(seconds=1))
    lifecycle.recover(run.pk)
    endings.stop_lapsed(run.pk)
    assert desk.counts(second) == ("cancelled", 0, 0)


def test_approve_with_the_digest_of_another_request_is_stale(people: SimpleNamespace) -> None:
    """C-05."""
    one, other = desk.opened(), desk.opened()
    with pytest.raises(Stale) as stale:
        desk.decide(one, people.ana, digest=other.revision.digest)
    assert (stale.value.status, stale.value.code, stale.value.checking) == (409, "stale", False)
    assert (desk.counts(one), desk.counts(other)) == (("open", 0, 0), ("open", 0, 0))
    assert desk.refusals(one) == [("Ana", "stale")]


def test_reject_with_an_old_digest_is_stale_too(request_: Request, ana: User) -> None:
    old = request_.revision.digest
    desk.look(request_, given=Decimal("5.00"))
    with pytest.raises(Stale):
        desk.decide(request_, ana, "reject", digest=old)
    assert desk.counts(request_) == ("open", 0, 0)


# -- The same again ---------------------------------------------------------------------------


def test_approve_again_gives_the_first_answer(request_: Request, ana: User) -> None:
    digest = request_.revision.digest
    first = desk.decide(request_, ana, digest=digest)
    again = desk.decide(request_, ana, digest=digest)
    assert (again.again, again.decision) == (True, first.decision)
    desk.drive(request_)
    late = desk.decide(request_, ana, digest=digest)
    assert (late.again, late.decision) == (True, first.decision)
    assert (desk.counts(request_), desk.world.n("give_back")) == (("consumed", 1, 1), 1)
    assert desk.refusals(request_) == []


def test_decide_again_with_another_verb_is_refused(request_: Request, ana: User) -> None:
    digest = request_.revision.digest
    desk.decide(request_, ana, digest=digest, nonce="n")
    with pytest.raises(Closed) as late:
        desk.decide(request_, ana, "reject", digest=digest, nonce="n")
    assert (late.value.code, late.value.by) == ("decided", "Ana")


def test_reject_again_with_another_reason_is_refused(request_: Request, ana: User) -> None:
    digest = request_.revision.digest
    desk.decide(request_, ana, "reject", digest=digest, reason="wrong amount")
    assert desk.decide(request_, ana, "reject", digest=digest, reason="wrong amount").again is True
    with pytest.raises(Closed):
        desk.decide(request_, ana, "reject", digest=digest, reason="duplicate")


def test_respond_again_gives_the_first_answer_and_another_is_refused(people: SimpleNamespace) -> None:
    question = desk.opened("approvals-asker")
    said = {"vendor": "low", "number": 1, "note": ""}
    desk.decide(question, people.ana, "respond", answer=said)
    assert desk.decide(question, people.ana, "respond", answer=dict(reversed(said.items()))).again is True
    with pytest.raises(Closed):
        desk.decide(question, people.ana, "respond", answer={**said, "number": 2})


def test_approve_an_edit_again_from_the_same_page_gives_the_first_answer(
    request_: Request, ana: User
) -> None:
    """The edit made a new revision, so that only the page's nonce tells that it is the same form."""
    posted = {"digest": request_.revision.digest, "edit": desk.edited(request_, amount="25.00"), "nonce": "n"}
    first = desk.decide(request_, ana, **posted)
    again = desk.decide(request_, ana, **posted)
    assert (again.again, again.decision) == (True, first.decision)
    assert desk.numbers(request_) == [(1, ""), (2, "edit")]


def test_approve_an_edit_that_waits_for_others_again_gives_the_first_answer(people: SimpleNamespace) -> None:
    request = desk.opened(amount="2000.00")
    posted = {"digest": request.revision.digest, "edit": desk.edited(request, amount="1500.00"), "nonce": "n"}
    first = desk.decide(request, people.ana, **posted)
    again = desk.decide(request, people.ana, **posted)
    assert (first.again, again.again, again.decision, again.waits_for) == (False, True, None, first.waits_for)
    assert desk.numbers(request) == [(1, ""), (2, "edit")]


def test_nonce_of_somebody_else_is_no_answer_of_mine(request_: Request, people: SimpleNamespace) -> None:
    """F84."""
    desk.decide(request_, people.ana, nonce="n")
    with pytest.raises(Closed):
        desk.decide(request_, people.ben, nonce="n")


# -- Quorum -----------------------------------------------------------------------------------


@pytest.fixture
def of_two(people: SimpleNamespace) -> Request:
    desk.change_rule("desk", quorum=2)
    return desk.opened()


def test_approve_the_first_of_two_waits_for_one_more(of_two: Request, people: SimpleNamespace) -> None:
    decided = desk.decide(of_two, people.ana)
    assert decided.waits_for == "1 more approval needed."
    assert desk.counts(of_two) == ("open", 1, 0)
    desk.decide(of_two, people.ben)
    assert desk.counts(of_two) == ("in_force", 2, 1)
    assert desk.result(of_two)["result"] == "given 240.00"


def test_approve_twice_by_one_person_counts_once(of_two: Request, people: SimpleNamespace) -> None:
    desk.decide(of_two, people.ana, nonce="a")
    assert desk.decide(of_two, people.ana, nonce="b").again is True
    with pytest.raises(Closed):
        desk.decide(of_two, people.ana, "reject")
    assert desk.counts(of_two) == ("open", 1, 0)


def test_reject_by_one_of_two_ends_it(of_two: Request, people: SimpleNamespace) -> None:
    desk.decide(of_two, people.ana)
    desk.decide(of_two, people.ben, "reject")
    assert desk.counts(of_two) == ("rejected", 2, 0)


def test_approve_after_the_first_lost_the_role_does_not_complete_the_quorum(
    of_two: Request, people: SimpleNamespace
) -> None:
    """C-14: who may decide is computed at the quorum too."""
    desk.decide(of_two, people.ana)
    people.ana.groups.clear()
    decided = desk.decide(of_two, people.ben)
    assert decided.waits_for == "1 more approval needed."
    assert desk.counts(of_two) == ("open", 2, 0)
    desk.decide(of_two, desk.person("cleo", "refunds"))
    assert desk.counts(of_two) == ("in_force", 3, 1)


def test_approve_after_the_first_was_deleted_does_not_complete_the_quorum(
    of_two: Request, people: SimpleNamespace
) -> None:
    desk.decide(of_two, people.ana)
    people.ana.delete()
    desk.decide(of_two, people.ben)
    assert desk.counts(of_two) == ("open", 2, 0)


def test_edit_by_one_of_two_counts_once_and_tells_the_other(of_two: Request, people: SimpleNamespace) -> None:
    decided = desk.decide(of_two, people.ana, edit=desk.edited(of_two, amount="25.00"))
    assert decided.waits_for == "1 more approval needed."
    assert desk.counts(of_two) == ("open", 1, 0)
    mails = of_two.notifications.filter(kind="changed", number=2)
    assert sorted(mails.values_list("address", flat=True)) == ["ana@example.org", "ben@example.org"]
    desk.decide(of_two, people.ben)
    assert desk.result(of_two)["result"] == "given 25.00"


# -- Undo window -----------------------------------------------------------------------------


@pytest.fixture
def slow(people: SimpleNamespace) -> Request:
    desk.change_rule("desk", undo_window=60)
    return desk.opened()


def test_approve_with_a_window_takes_effect_after_it(slow: Request, ana: User) -> None:
    desk.decide(slow, ana)
    assert desk.counts(slow) == ("decided", 1, 0)
    assert decisions.take_effect(slow.pk) is False
    assert Run.objects.get(pk=slow.run_id).status == "suspended"
    desk.later(61)
    assert decisions.take_effect(slow.pk) is True
    assert decisions.take_effect(slow.pk) is False
    assert desk.counts(slow) == ("in_force", 1, 1)
    assert desk.result(slow)["result"] == "given 240.00"


def test_decide_during_the_window_is_refused(slow: Request, people: SimpleNamespace) -> None:
    desk.decide(slow, people.ana)
    with pytest.raises(Closed) as late:
        desk.decide(slow, people.ben, "reject")
    assert (late.value.code, late.value.by) == ("decided", "Ana")


def test_decision_stops_the_clock_of_the_question(slow: Request, ana: User) -> None:
    """DESIGN §6: decided in time, it does not expire in its window."""
    desk.later(3590)
    desk.look(slow)
    desk.decide(slow, ana)
    desk.later(3640)
    assert holds.expire(slow.hold_id) is False
    desk.later(3651)
    assert decisions.take_effect(slow.pk) is True
    assert desk.counts(slow) == ("in_force", 1, 1)


@pytest.mark.parametrize("verb", ["approve", "reject"])
def test_role_lost_in_the_window_voids_the_decision(
    slow: Request, people: SimpleNamespace, verb: str
) -> None:
    desk.decide(slow, people.ana, verb)
    people.ana.groups.clear()
    desk.later(61)
    assert decisions.take_effect(slow.pk) is True
    assert desk.counts(slow) == ("open", 1, 0)
    assert desk.numbers(slow) == [(1, ""), (2, "role_lost")]
    assert desk.fresh(slow).takes_effect_at is None
    desk.look(slow)
    desk.decide(slow, people.ben)
    desk.later(122)
    assert decisions.take_effect(slow.pk) is True
    assert desk.counts(slow) == ("in_force", 2, 1)


def test_role_lost_in_the_window_gives_the_question_its_end_back(
    slow: Request, people: SimpleNamespace
) -> None:
    desk.decide(slow, people.ana)
    people.ana.groups.clear()
    desk.later(61)
    decisions.take_effect(slow.pk)
    desk.later(3601)
    assert holds.expire(slow.hold_id) is True
    assert desk.counts(slow) == ("expired", 1, 0)


def test_disabled_in_the_window_voids_the_decision(slow: Request, people: SimpleNamespace) -> None:
    """C-31."""
    desk.decide(slow, people.ana)
    User.objects.filter(pk=people.ana.pk).update(is_active=False)
    desk.later(61)
    decisions.take_effect(slow.pk)
    assert desk.counts(slow) == ("open", 1, 0)


def test_deleted_in_the_window_voids_the_decision(slow: Request, people: SimpleNamespace) -> None:
    desk.decide(slow, people.ana)
    people.ana.delete()
    desk.later(61)
    decisions.take_effect(slow.pk)
    assert desk.counts(slow) == ("open", 1, 0)


def test_cancel_in_the_window_ends_it(slow: Request, ana: User) -> None:
    desk.decide(slow, ana)
    endings.cancel(slow.run_id, actor=OPERATOR, why="no")
    desk.later(61)
    assert decisions.take_effect(slow.pk) is False
    assert desk.counts(slow) == ("cancelled", 1, 0)


# -- What happens to people and groups --------------------------------------------------------


def test_role_lost_after_it_is_in_force_changes_nothing(request_: Request, ana: User) -> None:
    """F63 (e): eligibility is computed up to taking effect, not at the call."""
    desk.decide(request_, ana)
    ana.groups.clear()
    assert desk.result(request_)["result"] == "given 240.00"


def test_deleted_reviewer_stays_in_the_history(request_: Request, ana: User) -> None:
    """F66."""
    desk.decide(request_, ana)
    ana.delete()
    assert desk.counts(request_) == ("in_force", 1, 1)
    assert Decision.objects.get().person_name == "Ana"
    assert desk.result(request_)["decision"] == ["approve", "Ana", ""]


def test_deleted_owner_leaves_the_request_open(request_: Request, people: SimpleNamespace) -> None:
    people.cyd.delete()
    desk.decide(request_, people.ana)
    assert desk.result(request_)["result"] == "given 240.00"


def test_deleted_group_leaves_the_request_to_the_fallback(request_: Request, people: SimpleNamespace) -> None:
    desk.change_rule("desk", reviewers=None)
    desk.change_rule("ask", reviewers=None)
    Group.objects.get(name="refunds").delete()
    with pytest.raises(NotVisible):
        desk.decide(request_, people.ana)
    desk.decide(request_, desk.person("fay", "reviewers"))
    assert desk.counts(request_) == ("in_force", 1, 1)


def test_name_longer_than_its_column_decides(request_: Request) -> None:
    long = desk.person("long", "refunds")
    User.objects.filter(pk=long.pk).update(first_name="A" * 150, last_name="B" * 150)
    desk.decide(request_, User.objects.get(pk=long.pk))
    assert desk.counts(request_) == ("in_force", 1, 1)


# -- Two reasons to wait ------------------------------------------------------------------------


def test_approve_while_paused_runs_nothing_until_resumed(request_: Request, ana: User) -> None:
    """F59."""
    holds.pause(request_.run_id, actor=OPERATOR, why="wait")
    desk.decide(request_, ana)
    assert desk.drive(request_).status == "suspended"
    assert (desk.counts(request_), desk.world.calls) == (("in_force", 1, 1), [])
    holds.unpause(request_.run_id, actor=OPERATOR)
    assert desk.result(request_)["result"] == "given 240.00"


def test_approve_behind_a_pause_lapses_and_asks_again(request_: Request, people: SimpleNamespace) -> None:
    holds.pause(request_.run_id, actor=OPERATOR, why="wait")
    desk.decide(request_, people.ana)
    desk.later(901)
    holds.unpause(request_.run_id, actor=OPERATOR)
    desk.drive(request_)
    assert (desk.counts(request_), desk.world.calls) == (("open", 1, 1), [])
    assert desk.numbers(request_) == [(1, ""), (2, "lapsed")]
    voided = Permit.objects.get()
    assert (voided.void_why, voided.consumed_at) == ("lapsed", None)
    desk.decide(request_, people.ben)
    assert desk.result(request_)["decision"] == ["approve", "Ben", ""]


def lapsed() -> list[bool]:
    """What the sweeper does about permits whose time is up."""
    verb = sweeper._verbs["lapse"]
    return [verb.act(pk) for pk in verb.find(clock.now())]


def test_lapse_asks_again_while_another_hold_stands(request_: Request, people: SimpleNamespace) -> None:
    """People decide again while the run is still paused, so that nothing waits for them once it is not."""
    holds.pause(request_.run_id, actor=OPERATOR, why="wait")
    desk.decide(request_, people.ana)
    permit = Permit.objects.get()
    assert decisions.lapse(permit.pk) is False
    desk.later(901)
    assert lapsed() == [True]
    assert decisions.lapse(permit.pk) is False
    assert desk.numbers(request_) == [(1, ""), (2, "lapsed")]
    assert (desk.counts(request_), desk.world.calls) == (("open", 1, 1), [])
    desk.look(request_)
    desk.decide(request_, people.ben)
    assert Run.objects.get().status == "suspended"
    holds.unpause(request_.run_id, actor=OPERATOR)
    assert desk.result(request_)["decision"] == ["approve", "Ben", ""]
    assert len(desk.world.calls) == 1


def test_lapse_leaves_what_was_used_and_what_ended(request_: Request, people: SimpleNamespace) -> None:
    desk.decide(request_, people.ana)
    assert desk.result(request_)["result"] == "given 240.00"
    desk.later(901)
    assert lapsed() == []
    assert decisions.lapse(Permit.objects.get().pk) is False


def test_lapse_after_cancel_changes_nothing(request_: Request, people: SimpleNamespace) -> None:
    holds.pause(request_.run_id, actor=OPERATOR, why="wait")
    desk.decide(request_, people.ana)
    endings.cancel(request_.run_id, actor=OPERATOR)
    desk.later(901)
    assert decisions.lapse(Permit.objects.get().pk) is False
    assert desk.numbers(request_) == [(1, "")]


def test_decisions_are_never_changed_or_deleted(request_: Request, ana: User) -> None:
    """C-74."""
    from django.db import transaction
    from django.db.utils import DatabaseError

    desk.decide(request_, ana)
    for sql in (
        "UPDATE approvals_decision SET verb = 'reject'",
        "DELETE FROM approvals_decision",
        "UPDATE approvals_revision SET digest = ''",
        "DELETE FROM approvals_revision",
    ):
        with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(sql)
    assert Decision.objects.get().verb == "approve"
