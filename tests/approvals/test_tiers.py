"""What an approval needs by its tier: a basis from R2 on, and at R3 everything opened, checked and signed for."""

import json
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import User

from approvals import decisions, drafts
from approvals.decisions import Choice
from approvals.exceptions import Stale, StepUpRequired, Unchecked, Unfit
from approvals.models import Decision, Draft, Request, StepUp
from approvals.presentation import questions, quorum, sections
from runs.agents import RunContext, agent
from runs.tools import ToolContext, tool
from tests.approvals import desk

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("whole")]


@tool(
    effect=True,
    idempotent=True,
    consequence="Everybody gets it at once.",
    questions=["Are the {people} meant?", "Is {subject} right?"],
)
def write_to(context: ToolContext, people: list[str], subject: str) -> str:
    """Write to {people}."""
    return f"written to {len(people)}"


@agent(name="tiers-writer", owner=desk.OWNER)
async def writing(run: RunContext, count: int) -> str:
    return await write_to([f"p{n}@example.org" for n in range(count)], "News")


@pytest.fixture
def small(people: SimpleNamespace) -> Request:
    """R1."""
    desk.change_rule("small", outcome="R1")
    return desk.opened("approvals-wirer")


@pytest.fixture
def medium(people: SimpleNamespace) -> Request:
    return desk.opened("approvals-wirer")


@pytest.fixture
def large(people: SimpleNamespace) -> Request:
    """R3, with facts."""
    return desk.opened(amount="2000.00")


def approve(request: Request, who: User, basis: dict[str, str] | None = None, **more: Any) -> Any:
    """With nothing that is not given."""
    more.setdefault("digest", desk.fresh(request).revision.digest)
    choice = Choice("approve", basis=basis or {}, **more)
    return decisions.decide(request.ref, person=who, choice=choice)


# -- R1 and R2: a basis ----------------------------------------------------------------------


def test_small_one_needs_no_basis(small: Request, ana: User) -> None:
    assert desk.fresh(small).tier == "R1"
    assert questions.of(small.revision) == []
    approve(small, ana)
    assert (Decision.objects.get().basis, desk.fresh(small).state) == ([], "in_force")


def test_medium_one_without_answers_is_refused_with_each_question(medium: Request, ana: User) -> None:
    with pytest.raises(Unfit) as refused:
        approve(medium, ana)
    assert refused.value.errors == {"basis-1": f"Answer ‘{questions.DEFAULT}’"}
    assert desk.counts(medium) == ("open", 0, 0)
    assert desk.refusals(medium) == [("Ana", "invalid")]


def test_answers_are_kept_with_the_decision_and_in_the_journal(medium: Request, ana: User) -> None:
    approve(medium, ana, {"1": "yes", "9": "whatever"})
    kept = [{"id": "1", "question": questions.DEFAULT, "answer": "yes"}]
    assert Decision.objects.get().basis == kept
    assert desk.fresh(medium).state == "in_force"


def test_no_is_not_an_answer_to_approve_with(medium: Request, ana: User) -> None:
    with pytest.raises(Unfit, match="You answered No"):
        approve(medium, ana, {"1": "no"})
    assert desk.counts(medium) == ("open", 0, 0)


@pytest.mark.parametrize("answer", ["", "maybe", "YES", "true"])
def test_what_is_no_answer_is_none(medium: Request, ana: User, answer: str) -> None:
    with pytest.raises(Unfit, match="Answer ‘"):
        approve(medium, ana, {"1": answer})


def test_cannot_tell_is_kept_at_medium_and_refused_at_high(
    medium: Request, large: Request, ana: User
) -> None:
    approve(medium, ana, {"1": "unsure"})
    assert Decision.objects.get().basis[0]["answer"] == "unsure"
    desk.open_all(large.revision, ana)
    with pytest.raises(Unfit, match="You can’t tell"):
        approve(large, ana, {"1": "unsure"})


def test_rejecting_needs_no_basis_at_any_tier(large: Request, medium: Request, ana: User) -> None:
    for request in (large, medium):
        desk.decide(request, ana, "reject")
        assert desk.fresh(request).state == "rejected"


def test_same_approval_again_needs_nothing(medium: Request, ana: User) -> None:
    first = approve(medium, ana, desk.YES)
    again = approve(medium, ana)
    assert (again.again, again.decision.pk) == (True, first.decision.pk)


def test_questions_of_an_edit_are_asked_about_the_edited_call(people: SimpleNamespace) -> None:
    """Nothing is left of an edit that was not answered for."""
    request = desk.opened("tiers-writer", count=3)
    edit = desk.edited(request, subject="Old news")
    with pytest.raises(Unfit) as refused:
        approve(request, people.ana, edit=edit)
    assert refused.value.errors == {
        "basis-1": "Answer ‘Are the 3 people meant?’",
        "basis-2": "Answer ‘Is Old news right?’",
    }
    assert desk.numbers(request) == [(1, "")]
    approve(request, people.ana, {"1": "yes", "2": "yes"}, edit=edit)
    assert [each["question"] for each in Decision.objects.get().basis][1] == "Is Old news right?"


def test_proposing_an_edit_of_high_risk_asks_nothing(large: Request, people: SimpleNamespace) -> None:
    """It approves nothing: somebody else has to."""
    decided = approve(large, people.ana, edit=desk.edited(large, amount="1500.00"))
    assert (decided.decision, desk.fresh(large).number) == (None, 2)


# -- R3: opened, checked, signed for ------------------------------------------------------------


def test_large_one_says_all_that_is_missing_at_once(large: Request, ana: User) -> None:
    with pytest.raises(Unfit) as refused:
        approve(large, ana)
    assert refused.value.errors == {
        "section-run": "Open ‘What will run’",
        "section-facts": "Open ‘Facts, then and now’",
        "basis-1": f"Answer ‘{questions.DEFAULT}’",
    }


def test_long_list_is_a_section_of_its_own(people: SimpleNamespace) -> None:
    short, long = desk.opened("tiers-writer", count=20), desk.opened("tiers-writer", count=1200)
    assert [each.name for each in sections.material(short.revision)] == ["run"]
    told = [(each.name, each.title) for each in sections.material(long.revision)]
    assert told == [("run", "What will run"), ("list-people", "people (1,200)")]
    [shown] = sections.lists(long.revision)
    assert (shown["count"], shown["domains"], len(shown["sample"])) == (1200, [("example.org", 1200)], 10)


def test_what_somebody_else_opened_is_not_opened(large: Request, people: SimpleNamespace) -> None:
    desk.open_all(large.revision, people.ben)
    with pytest.raises(Unfit, match="Open ‘What will run’"):
        approve(large, people.ana, desk.YES)


def test_what_was_opened_of_another_revision_is_not_opened(large: Request, people: SimpleNamespace) -> None:
    desk.open_all(large.revision, people.ana)
    approve(large, people.ben, edit=desk.edited(large, amount="1500.00"))
    with pytest.raises(Unfit, match="Open ‘What will run’"):
        approve(large, people.ana, desk.YES)


@pytest.mark.parametrize("sent", [{}, {"check": "yes"}])
def test_check_page_comes_before_the_decision(large: Request, ana: User, sent: dict[str, str]) -> None:
    """Also for who says they have seen it without having been sent it. It is a step, not a refusal."""
    for section in sections.material(large.revision):
        drafts.keep(ana, large.revision, open_section=section.name)
    with pytest.raises(Unchecked):
        approve(large, ana, {**desk.YES, **sent, "retype": "2000"})
    assert desk.refusals(large) == []


@pytest.mark.parametrize(
    "typed", ["", "200", "1999.99", "two thousand", "2000.001", "NaN", "sNaN", "1e9999999"]
)
def test_other_number_than_the_computed_one_is_refused(large: Request, ana: User, typed: str) -> None:
    desk.open_all(large.revision, ana)
    desk.step_up(large.revision, ana)
    with pytest.raises(Unfit, match="Type the amount"):
        approve(large, ana, {**desk.YES, "check": "yes", "retype": typed}, session="a session")
    assert desk.counts(large) == ("open", 0, 0)
    assert StepUp.objects.get().used_at is None


@pytest.mark.parametrize("typed", ["2000", "2000.00", "2,000.00", " 2 000 "])
def test_number_as_people_write_it(large: Request, ana: User, typed: str) -> None:
    assert desk.decide(large, ana, basis={**desk.YES, "check": "yes", "retype": typed}).decision is not None


def test_typed_is_the_count_of_the_longest_list_else_the_one_amount(
    people: SimpleNamespace, medium: Request
) -> None:
    listed = questions.retype(desk.opened("tiers-writer", count=1200).revision)
    assert listed == questions.Retype("the number of people", Decimal(1200))
    assert questions.retype(medium.revision) == questions.Retype("the amount", Decimal("240.00"))
    assert questions.retype(desk.opened("approvals-blind").revision) is None


def test_all_of_it_is_an_approval(large: Request, ana: User) -> None:
    """C-27, and what it leaves: the answers, how they signed, and no draft."""
    desk.decide(large, ana)
    made = Decision.objects.get()
    assert (made.step_up, [each["answer"] for each in made.basis]) == ("totp", ["yes", "2000.00"])
    assert (Draft.objects.count(), StepUp.objects.filter(used_at=None).count()) == (0, 0)
    assert desk.result(large)["result"] == "given 2000.00"
    assert json.loads(large.step.run.requests.get().decisions.get().revision.arguments)["amount"] == "2000.00"


def signed(large: Request, who: User, **other: Any) -> Any:
    """Everything but for the step-up, which is as told."""
    revision = large.revision
    desk.open_all(revision, who)
    desk.step_up(revision, who, **other)
    return approve(large, who, {**desk.YES, "check": "yes", "retype": "2000"}, session="a session")


@pytest.mark.parametrize(
    "other",
    [
        {"person_id": "0"},
        {"session": "another session"},
        {"digest": "0" * 64},
        {"verb": "reject"},
    ],
    ids=lambda other: next(iter(other)),
)
def test_step_up_for_anything_else_is_none(large: Request, ana: User, other: dict[str, str]) -> None:
    """C-28."""
    with pytest.raises(StepUpRequired):
        signed(large, ana, **other)
    assert desk.counts(large) == ("open", 0, 0)
    assert desk.refusals(large) == [("Ana", "step_up_required")]


def test_step_up_for_another_request_is_none(large: Request, ana: User) -> None:
    """C-28."""
    with pytest.raises(StepUpRequired):
        signed(large, ana, request=desk.opened(amount="2000.00"))


def test_step_up_is_used_once(large: Request, people: SimpleNamespace) -> None:
    """C-28: also by who made it, for the same thing, when it is open again."""
    desk.decide(large, people.ana)
    used = StepUp.objects.get()
    other = desk.opened(amount="2000.00")
    assert used.used_at is not None
    with pytest.raises(StepUpRequired):
        signed(other, people.ana, used_at=used.used_at)


@pytest.mark.parametrize(("minutes", "stands"), [(9, True), (11, False)])
def test_step_up_lasts_ten_minutes(large: Request, ana: User, minutes: int, stands: bool) -> None:
    """C-27: by the database's clock."""
    desk.open_all(large.revision, ana)
    desk.step_up(large.revision, ana)
    desk.later(60 * minutes)
    desk.look(large)
    typed = {**desk.YES, "check": "yes", "retype": "2000"}
    if stands:
        assert approve(large, ana, typed, session="a session").decision is not None
        return
    with pytest.raises(StepUpRequired):
        approve(large, ana, typed, session="a session")


def test_no_session_matches_no_step_up(large: Request, ana: User) -> None:
    desk.open_all(large.revision, ana)
    desk.step_up(large.revision, ana, session="")
    with pytest.raises(StepUpRequired):
        approve(large, ana, {**desk.YES, "check": "yes", "retype": "2000"})


def test_refused_decision_does_not_use_up_the_step_up(large: Request, ana: User) -> None:
    old = large.revision.digest
    desk.open_all(large.revision, ana)
    desk.step_up(large.revision, ana)
    desk.look(large, given=Decimal("5.00"))
    with pytest.raises(Stale):
        approve(large, ana, {**desk.YES, "check": "yes"}, session="a session", digest=old)
    assert desk.fresh(large).revision.digest != old
    assert StepUp.objects.get().used_at is None


# -- Quorum ------------------------------------------------------------------------------------


@pytest.mark.parametrize("blind", [False, True])
def test_quorum_tells_who_approved_unless_it_is_blind(people: SimpleNamespace, blind: bool) -> None:
    desk.change_rule("desk", quorum=2, blind=blind)
    request = desk.opened("approvals-wirer")
    desk.decide(request, people.ben)

    def told(who: User) -> Any:
        found = quorum.of(desk.fresh(request), request.revision, str(who.pk))
        assert found is not None
        return found.count, found.missing, found.hidden, [each["who"] for each in found.given]

    assert told(people.ana) == (1, 1, blind, [] if blind else ["Ben"])
    assert told(people.ben) == (1, 1, False, ["Ben"])
    seen = quorum.told(Decision.objects.all(), str(people.ana.pk))
    assert seen.count() == (0 if blind else 1)
    desk.decide(request, people.ana)
    assert told(people.ana) == (2, 0, False, ["Ben", "Ana"])
    assert quorum.told(Decision.objects.all(), str(people.dot.pk)).count() == 2


def test_one_approval_has_no_quorum_to_tell(medium: Request) -> None:
    assert quorum.of(medium, medium.revision, "1") is None


def test_draft_keeps_what_was_opened_and_what_is_typed_now(large: Request, ana: User) -> None:
    drafts.keep(ana, large.revision, open_section="run", note="first")
    drafts.keep(ana, large.revision, open_section="run", note="second", basis={"1": "yes"})
    kept = Draft.objects.get()
    assert (kept.opened, kept.note, kept.basis) == (["run"], "second", {"1": "yes"})
    drafts.forget(ana, large)
    assert drafts.of(ana, large.revision).pk is None
