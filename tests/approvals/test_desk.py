"""Beside deciding: putting off, being on it, passing on, comments, more time. Each works, refuses, and twice is once."""

import itertools
import json
from datetime import timedelta
from types import SimpleNamespace

import pytest
from django.contrib.auth.models import Group

from approvals import desk as verbs
from approvals.exceptions import Closed, NotEligible, NotVisible, Taken, Unfit
from approvals.models import Comment, Delegation, Notification, Request, Snooze
from runs import clock, endings, holds
from runs.actors import SYSTEM
from runs.models import Hold, JournalEntry
from tests.approvals import desk

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("whole")]


@pytest.fixture(autouse=True)
def small(people: SimpleNamespace) -> None:
    """Nothing is asked before approving: that is tried elsewhere."""
    desk.change_rule("small", outcome="R1")


def in_seconds(seconds: float) -> object:
    return clock.now() + timedelta(seconds=seconds)


def told(request: Request, verb: str) -> list[dict[str, object]]:
    rows = JournalEntry.objects.of(request.stream).filter(verb=verb)
    return [{"by": row.actor_name, "door": row.door, **json.loads(row.detail)} for row in rows]


def put_off(request: Request, who: object, seconds: float = 600) -> Snooze:
    return verbs.snooze(request.ref, person=who, until=in_seconds(seconds))  # type: ignore[arg-type]


def asleep(who: object) -> list[str]:
    rows = Snooze.objects.asleep(clock.now()).filter(person_id=str(who.pk))  # type: ignore[attr-defined]
    return list(rows.values_list("request__ref", flat=True))


# -- Putting off ----------------------------------------------------------------------------


def test_snooze_hides_it_from_one_person_until_its_time(people: SimpleNamespace) -> None:
    request = desk.opened()
    put_off(request, people.ana)
    assert (asleep(people.ana), asleep(people.ben)) == ([request.ref], [])
    assert [(t["by"], t["door"]) for t in told(request, "snoozed")] == [("Ana", "page")]
    desk.later(601)
    assert asleep(people.ana) == []


def test_snooze_again_moves_the_time_and_the_same_time_is_once(people: SimpleNamespace) -> None:
    request, until = desk.opened(), in_seconds(600)
    for _ in range(2):
        verbs.snooze(request.ref, person=people.ana, until=until)
    assert len(told(request, "snoozed")) == 1
    later = put_off(request, people.ana, 900)
    assert (Snooze.objects.get().until, len(told(request, "snoozed"))) == (later.until, 2)


def test_snooze_leaves_a_fifth_of_the_time_for_deciding(people: SimpleNamespace) -> None:
    """The rule decides within an hour."""
    request = desk.opened()
    put_off(request, people.ana, 2870)
    for seconds in (-1, 2890):
        with pytest.raises(Unfit):
            put_off(request, people.ana, seconds)
    assert desk.refusals(request) == [("Ana", "invalid")] * 2


def test_snooze_of_what_cannot_be_decided_is_refused(people: SimpleNamespace) -> None:
    request = desk.opened()
    with pytest.raises(NotVisible):
        put_off(request, people.dee)
    with pytest.raises(NotEligible):
        put_off(request, people.dot)
    assert desk.refusals(request) == [("Dot", "not_eligible")]
    desk.decide(request, people.ben)
    with pytest.raises(Closed):
        put_off(request, people.ana)


def test_wake_shows_it_again_once(people: SimpleNamespace) -> None:
    request = desk.opened()
    put_off(request, people.ana)
    assert verbs.wake(request.ref, person=people.ben) is False
    assert verbs.wake(request.ref, person=people.ana) is True
    assert verbs.wake(request.ref, person=people.ana) is False
    assert (asleep(people.ana), len(told(request, "woken"))) == ([], 1)


# -- On it ------------------------------------------------------------------------------------


def test_reserve_lasts_ten_minutes_and_keeps_nobody_from_deciding(people: SimpleNamespace) -> None:
    request = desk.opened()
    verbs.reserve(request.ref, person=people.ben)
    kept = desk.fresh(request)
    assert (kept.reserved_by_name, kept.reserved_until - clock.now() <= timedelta(minutes=10)) == (
        "Ben",
        True,
    )
    with pytest.raises(Taken, match="Ben is on it"):
        verbs.reserve(request.ref, person=people.ana)
    assert desk.decide(request, people.ana).decision is not None


def test_reserve_lapses_by_itself(people: SimpleNamespace) -> None:
    request = desk.opened()
    verbs.reserve(request.ref, person=people.ben)
    desk.later(601)
    verbs.reserve(request.ref, person=people.ana)
    assert desk.fresh(request).reserved_by_name == "Ana"


def test_let_go_ends_ones_own(people: SimpleNamespace) -> None:
    request = desk.opened()
    verbs.reserve(request.ref, person=people.ben)
    assert verbs.let_go(request.ref, person=people.ana) is False
    assert verbs.let_go(request.ref, person=people.ben) is True
    assert verbs.let_go(request.ref, person=people.ben) is False
    assert desk.fresh(request).reserved_until is None
    assert desk.told(request) == ["opened", "reserved", "let_go"]


def test_reserve_is_none_where_reviewers_do_not_see_each_other(people: SimpleNamespace) -> None:
    desk.change_rule("desk", blind=True, quorum=2)
    request = desk.opened()
    with pytest.raises(Unfit):
        verbs.reserve(request.ref, person=people.ben)


# -- Passing on -------------------------------------------------------------------------------


def pass_on(request: Request, who: object, to: object, reason: str = "I know them") -> Delegation:
    return verbs.delegate(request.ref, person=who, to=to, reason=reason)  # type: ignore[arg-type]


def lies_with(request: Request) -> str:
    found = verbs.passed([desk.fresh(request)]).get(request.pk)
    return found.to_name if found else ""


def test_delegate_asks_another_and_mails_them_alone(people: SimpleNamespace) -> None:
    request = desk.opened()
    pass_on(request, people.ana, people.ben)
    assert lies_with(request) == "Ben"
    assert verbs.passed([desk.fresh(request)])[request.pk].by == {str(people.ana.pk)}
    assert list(Notification.objects.filter(kind="passed_on.1").values_list("address")) == [
        ("ben@example.org",)
    ]
    assert [(t["by"], t["name"], t["hop"]) for t in told(request, "delegated")] == [("Ana", "Ben", 1)]
    assert pass_on(request, people.ana, people.ben).hop == 1
    assert Delegation.objects.count() == 1


def test_delegate_takes_nothing_from_who_passed_it_on(people: SimpleNamespace) -> None:
    request = desk.opened()
    pass_on(request, people.ana, people.ben)
    assert desk.decide(request, people.ana).decision is not None


def test_delegate_only_to_who_may_decide_and_never_back(people: SimpleNamespace) -> None:
    """C-22, F60: to nobody with less, and to nobody twice."""
    cyd = desk.person("cid", "refunds")
    request = desk.opened(owner=cyd)
    for nobody in (people.ana, people.dee, people.dot, people.root, cyd):
        with pytest.raises(Unfit):
            pass_on(request, people.ana, nobody)
    with pytest.raises(NotEligible):
        pass_on(request, cyd, people.ana)
    with pytest.raises(Unfit):
        pass_on(request, people.ana, people.ben, reason=" ")
    pass_on(request, people.ana, people.ben)
    with pytest.raises(Unfit):
        pass_on(request, people.ben, people.ana)
    assert Delegation.objects.count() == 1


def test_delegate_by_who_it_does_not_lie_with_is_refused(people: SimpleNamespace) -> None:
    eli = desk.person("eli", "refunds")
    request = desk.opened()
    pass_on(request, people.ana, people.ben)
    with pytest.raises(Taken, match="It lies with Ben now"):
        pass_on(request, people.ana, eli)


def test_delegate_three_times_at_most(people: SimpleNamespace) -> None:
    chain = [people.ana, people.ben, *(desk.person(name, "refunds") for name in ("eli", "eve", "gil"))]
    request = desk.opened()
    for who, to in itertools.pairwise(chain[:4]):
        pass_on(request, who, to)
    with pytest.raises(Taken, match="3 times"):
        pass_on(request, chain[3], chain[4])
    assert lies_with(request) == "Eve"


def test_delegate_after_deciding_or_to_who_has_decided_is_refused(people: SimpleNamespace) -> None:
    desk.change_rule("desk", quorum=2)
    eli, request = desk.person("eli", "refunds"), desk.opened()
    desk.decide(request, people.ana)
    with pytest.raises(Taken):
        pass_on(request, people.ana, people.ben)
    with pytest.raises(Unfit):
        pass_on(request, people.ben, people.ana)
    kept, said = desk.fresh(request), {str(people.ana.pk)}
    assert verbs.may_take(kept, kept.revision, people.ben, said=said, hops=[]) == [eli]


def test_delegate_is_everybodys_again_when_they_decided_or_may_not(people: SimpleNamespace) -> None:
    desk.change_rule("desk", quorum=2)
    eli, request = desk.person("eli", "refunds"), desk.opened()
    pass_on(request, people.ana, people.ben)
    desk.decide(request, people.ben)
    assert lies_with(request) == ""
    pass_on(request, people.ana, eli)
    assert lies_with(request) == "Eli"
    eli.groups.remove(Group.objects.get(name="refunds"))
    assert lies_with(request) == ""


def test_passed_costs_three_queries_however_many(
    people: SimpleNamespace, django_assert_num_queries: object
) -> None:
    found = [desk.opened() for _ in range(3)]
    for request in found[:2]:
        pass_on(request, people.ana, people.ben)
    rows = list(Request.objects.select_related("group", "run").order_by("opened_at"))
    verbs.passed(rows)
    with django_assert_num_queries(3):  # type: ignore[operator]
        assert [row.pk in verbs.passed(rows[:1]) for row in rows[:1]] == [True]
    with django_assert_num_queries(3):  # type: ignore[operator]
        assert len(verbs.passed(rows)) == 2


# -- Comments ----------------------------------------------------------------------------------


def test_comment_is_kept_with_its_revision_and_twice_is_once(people: SimpleNamespace) -> None:
    request = desk.opened()
    for _ in range(2):
        verbs.comment(request.ref, person=people.ana, text=" Looks like last week's \r\n case ")
    said = Comment.objects.get()
    assert (said.person_name, said.text, said.number) == ("Ana", "Looks like last week's \n case", 1)
    assert desk.told(request) == ["opened", "commented"]


def test_comment_is_refused_where_nobody_reads_it(people: SimpleNamespace) -> None:
    cyd = desk.person("cid", "refunds")
    request = desk.opened(owner=cyd)
    for text in ("", "x" * 4001, "a\x00b"):
        with pytest.raises(Unfit):
            verbs.comment(request.ref, person=people.ana, text=text)
    with pytest.raises(NotEligible):
        verbs.comment(request.ref, person=cyd, text="Do it")
    desk.decide(request, people.ben)
    verbs.comment(request.ref, person=people.ana, text="I would have, too")  # it is not used yet
    desk.drive(request)
    with pytest.raises(Closed):
        verbs.comment(request.ref, person=people.ana, text="Late")
    assert Comment.objects.count() == 1


# -- More time ------------------------------------------------------------------------------------


def test_more_time_moves_deadline_and_hold_and_keeps_what_was_decided(people: SimpleNamespace) -> None:
    """C-40: a longer deadline voids nothing."""
    desk.change_rule("desk", quorum=2)
    request = desk.opened("approvals-wirer")
    desk.decide(request, people.ana)
    before, digest = request.decide_by, request.revision.digest
    verbs.more_time(request.ref, person=people.ben, seen=0)
    kept = desk.fresh(request)
    assert kept.decide_by == before + timedelta(hours=1)
    assert Hold.objects.get(pk=kept.hold_id).expires_at == kept.decide_by
    assert (kept.extensions, kept.number, kept.revision.digest) == (1, 1, digest)
    assert [(t["by"], t["times"]) for t in told(request, "more_time")] == [("Ben", 1)]
    desk.later(3700)
    assert holds.expire(request.hold_id) is False
    assert desk.decide(request, people.ben).waits_for == ""


def test_more_time_pressed_twice_is_one_extension_and_ten_are_the_most(people: SimpleNamespace) -> None:
    request = desk.opened()
    for _ in range(2):
        verbs.more_time(request.ref, person=people.ana, seen=0)
    assert desk.fresh(request).extensions == 1
    for seen in range(1, 10):
        verbs.more_time(request.ref, person=people.ana, seen=seen)
    with pytest.raises(Taken):
        verbs.more_time(request.ref, person=people.ana, seen=10)
    assert desk.fresh(request).decide_by == request.decide_by + timedelta(hours=10)


def test_more_time_is_refused_when_fixed_expired_or_cancelled(people: SimpleNamespace) -> None:
    request = desk.opened()
    with pytest.raises(NotEligible):
        verbs.more_time(request.ref, person=people.dot, seen=0)
    desk.later(3601)
    with pytest.raises(Closed) as late:
        verbs.more_time(request.ref, person=people.ana, seen=0)
    assert late.value.code == "expired"
    endings.cancel(request.run_id, actor=SYSTEM, why="over")
    with pytest.raises(Closed):
        verbs.more_time(request.ref, person=people.ana, seen=0)
    desk.change_rule("desk", fixed_because="The market closes then.")
    other = desk.opened()
    with pytest.raises(Unfit, match="The market closes then"):
        verbs.more_time(other.ref, person=people.ana, seen=0)
    assert desk.fresh(other).decide_by == other.decide_by


# -- Where reviewers do not see each other ----------------------------------------------------------------------


@pytest.mark.parametrize("blind", [True, False])
def test_refusal_names_another_reviewer_only_where_they_see_each_other(
    people: SimpleNamespace, blind: bool
) -> None:
    desk.change_rule("desk", quorum=2, blind=blind)
    request, eli = desk.opened("approvals-wirer"), desk.person("eli", "refunds")
    verbs.ask(request.ref, person=people.ben, text="Why?")
    verbs.delegate(request.ref, person=people.ben, to=eli, reason="yours")
    with pytest.raises(Taken) as asked:
        verbs.ask(request.ref, person=people.ana, text="Why not?")
    with pytest.raises(Taken) as passed:
        verbs.delegate(request.ref, person=people.ana, to=people.ben, reason="his")
    told = f"{asked.value} {passed.value}"
    assert ("Ben" in told, "Eli" in told) == (not blind, not blind)
    with pytest.raises(Taken, match="Eli"):  # who passed it on knows to whom
        verbs.delegate(request.ref, person=people.ben, to=people.ana, reason="hers")
