"""Taking a decision back: in its time, by whom, and what counts afterwards."""

import uuid
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import Group, User

from approvals import decisions
from approvals import desk as beside
from approvals.exceptions import Closed, NotEligible, NotVisible, Unfit
from approvals.models import Decision, Notification, Request, Undo
from runs import clock, holds
from runs.models import Hold, Run
from tests.approvals import desk
from tests.pages import browser

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("whole")]


@pytest.fixture
def window(people: SimpleNamespace) -> SimpleNamespace:
    """The desk's decisions can be taken back for a minute, and nothing is asked before approving."""
    desk.change_rule("small", outcome="R1")
    desk.change_rule("desk", undo_window=60)
    return people


def back(decision: Decision | None, who: User, **more: Any) -> decisions.Undone:
    assert decision is not None
    return decisions.undo(decision.pk, person=who, **more)


def opened() -> Request:
    """Without facts, which would grow old within the window."""
    return desk.opened("approvals-wirer")


def large() -> Request:
    """Of tier R3, and still decided by the desk."""
    return desk.opened("approvals-wirer", amount="1200.00")


def expiry(request: Request) -> Any:
    return Hold.objects.get(pk=request.hold_id).expires_at


@pytest.mark.parametrize("verb", ["approve", "reject"])
def test_undo_in_time_opens_it_again_with_its_deadline(window: SimpleNamespace, verb: str) -> None:
    request = opened()
    made = desk.decide(request, window.ana, verb).decision
    assert expiry(request) is None
    undone = back(made, window.ana)
    kept = desk.fresh(request)
    assert (kept.state, kept.number, kept.takes_effect_at, kept.decided_at) == ("open", 1, None, None)
    assert (kept.decide_by, expiry(request)) == (request.decide_by, request.decide_by)
    assert (undone.again, undone.expired, undone.undo.person_name) == (False, False, "Ana")
    desk.later(61)
    assert decisions.take_effect(request.pk) is False
    assert desk.counts(request) == ("open", 1, 0)
    assert desk.told(request) == ["opened", "decided", "undone"]


def test_undo_twice_is_one(window: SimpleNamespace) -> None:
    request = opened()
    made = desk.decide(request, window.ana).decision
    back(made, window.ana)
    assert back(made, window.ana).again is True
    assert (Undo.objects.count(), desk.told(request).count("undone")) == (1, 1)


def test_undo_then_the_same_person_decides_again_either_way(window: SimpleNamespace) -> None:
    request = opened()
    back(desk.decide(request, window.ana).decision, window.ana)
    back(desk.decide(request, window.ana).decision, window.ana)
    third = desk.decide(request, window.ana, "reject").decision
    assert third is not None
    assert list(Decision.objects.order_by("made_at").values_list("verb", "nth")) == [
        ("approve", 0),
        ("approve", 1),
        ("reject", 2),
    ]
    desk.later(61)
    decisions.take_effect(request.pk)
    assert desk.counts(request) == ("rejected", 3, 0)
    assert desk.result(request)["error"] == "Rejected"
    assert desk.world.n("wire") == 0


def test_undone_form_sent_again_decides_nothing(window: SimpleNamespace) -> None:
    """C-07: it is the same form, whatever became of what it said."""
    request = opened()
    made = desk.decide(request, window.ana, nonce="n").decision
    back(made, window.ana)
    again = desk.decide(request, window.ana, nonce="n")
    assert (again.decision, again.again) == (made, True)
    assert desk.counts(request) == ("open", 1, 0)


def test_undo_leaves_what_others_approved(window: SimpleNamespace) -> None:
    desk.change_rule("desk", quorum=2)
    request = opened()
    first = desk.decide(request, window.ana).decision
    second = desk.decide(request, window.ben).decision
    back(second, window.ben)
    assert desk.decide(request, window.ben).waits_for == ""
    back(first, window.ana)
    assert desk.fresh(request).state == "open"
    assert desk.decide(request, desk.person("eli", "refunds")).waits_for == ""
    desk.later(61)
    decisions.take_effect(request.pk)
    assert desk.result(request)["decision"] == ["approve", "Eli", ""]
    assert desk.world.n("wire") == 1


def test_undone_approval_does_not_count_for_the_quorum(window: SimpleNamespace) -> None:
    desk.change_rule("desk", quorum=2)
    request = opened()
    desk.decide(request, window.ana)
    back(desk.decide(request, window.ben).decision, window.ben)
    eli = desk.person("eli", "refunds")
    back(desk.decide(request, eli).decision, eli)
    assert desk.fresh(request).state == "open"


@pytest.mark.parametrize("verb", ["approve", "reject"])
def test_undo_too_late_says_since_when(window: SimpleNamespace, verb: str) -> None:
    request = opened()
    made = desk.decide(request, window.ana, verb).decision
    until = desk.fresh(request).takes_effect_at
    desk.later(61)
    with pytest.raises(Closed) as late:
        back(made, window.ana)
    assert (late.value.code, late.value.at) == ("too_late", until)
    decisions.take_effect(request.pk)
    with pytest.raises(Closed) as later:
        back(made, window.ana)
    assert (later.value.code, later.value.at) == ("too_late", desk.fresh(request).decided_at)
    desk.drive(request)
    with pytest.raises(Closed) as used:
        back(made, window.ana)
    assert used.value.code == "too_late"
    step = desk.step_of(request)
    assert used.value.at == (step.dispatched_at or desk.fresh(request).decided_at)
    assert (Undo.objects.count(), len(desk.refusals(request))) == (0, 3)


def test_undo_without_a_window_is_too_late_at_once(people: SimpleNamespace) -> None:
    made = desk.decide(opened(), people.ana, "reject").decision
    with pytest.raises(Closed) as late:
        back(made, people.ana)
    assert late.value.code == "too_late"


def test_undo_by_another_at_r3_needs_a_reason_and_tells_who_decided(window: SimpleNamespace) -> None:
    request = large()
    made = desk.decide(request, window.ana, "reject").decision
    assert desk.fresh(request).tier == "R3"
    with pytest.raises(Unfit):
        back(made, window.ben)
    undone = back(made, window.ben, reason="They called: wrong account")
    assert (undone.undo.person_name, undone.undo.reason) == ("Ben", "They called: wrong account")
    assert list(Notification.objects.filter(kind="stopped.0").values_list("address")) == [
        ("ana@example.org",)
    ]
    assert desk.decide(request, window.ana, "reject").decision.nth == 1  # type: ignore[union-attr]


def test_undo_by_strangers_is_refused(window: SimpleNamespace) -> None:
    low, high = opened(), large()
    small, big = (desk.decide(each, window.ana, "reject").decision for each in (low, high))
    with pytest.raises(NotEligible):
        back(small, window.ben, reason="no")  # below R3 only who decided
    for who in (window.dot, window.olu):
        with pytest.raises(NotEligible):
            back(big, who, reason="no")
    for who in (window.dee, window.cyd, window.root):
        with pytest.raises(NotVisible):
            back(big, who, reason="no")
    with pytest.raises(NotVisible):
        decisions.undo(uuid.uuid4(), person=window.ana)
    assert desk.refusals(high) == [("Dot", "not_eligible"), ("Olu", "not_eligible")]
    assert Undo.objects.count() == 0


def test_undo_by_who_decided_and_may_not_decide_any_more_is_still_theirs(window: SimpleNamespace) -> None:
    """They see it as an auditor: to take back is no decision."""
    request = opened()
    made = desk.decide(request, window.ana).decision
    window.ana.groups.set([Group.objects.get(name="auditors")])
    assert back(made, window.ana).undo.person_name == "Ana"


def test_undo_after_the_deadline_expires_it(window: SimpleNamespace) -> None:
    desk.change_rule("desk", undo_window=7200)
    request = opened()
    made = desk.decide(request, window.ana).decision
    desk.later(3700)  # it is decided within an hour
    undone = back(made, window.ana)
    assert (undone.expired, undone.request.state) == (True, "expired")
    assert desk.told(request) == ["opened", "decided", "undone", "expired"]
    with pytest.raises(Closed):
        desk.decide(request, window.ana)
    assert desk.result(request)["error"] == "Expired"
    assert back(made, window.ana).expired is True


def test_undo_of_what_waits_for_others_or_changed_meanwhile_is_refused(window: SimpleNamespace) -> None:
    desk.change_rule("desk", quorum=2)
    request = desk.opened()
    made = desk.decide(request, window.ana).decision
    with pytest.raises(Closed) as waits:
        back(made, window.ana)
    assert waits.value.code == "waits"
    desk.look(request, given=desk.world.facts["given"] + 1)
    desk.decide(request, window.ana, seen=frozenset({"given_back"}))
    desk.decide(request, window.ben, seen=frozenset({"given_back"}))
    with pytest.raises(Closed) as void:
        back(made, window.ana)
    assert void.value.code == "void"


def test_undo_goes_back_to_the_question_that_was_asked(window: SimpleNamespace) -> None:
    request = opened()
    beside.ask(request.ref, person=window.ben, text="Which invoice?")
    back(desk.decide(request, window.ana).decision, window.ana)
    assert desk.fresh(request).state == "needs_info"


def test_expiry_after_an_undo_is_of_the_old_deadline(window: SimpleNamespace) -> None:
    request = opened()
    back(desk.decide(request, window.ana).decision, window.ana)
    desk.later(3601)
    assert holds.expire(request.hold_id) is True
    assert desk.fresh(request).state == "expired"
    assert Run.objects.get(pk=request.run_id).status == "queued"
    assert clock.now() - request.decide_by < timedelta(minutes=5)


# -- F66, C-31: people who leave ------------------------------------------------------------


@pytest.mark.parametrize("how", ["disabled", "deleted", "out of the group"])
def test_decision_of_who_left_within_the_window_does_not_take_effect(
    window: SimpleNamespace, how: str
) -> None:
    request = opened()
    made = desk.decide(request, window.ana).decision
    if how == "disabled":
        User.objects.filter(pk=window.ana.pk).update(is_active=False)
    elif how == "deleted":
        window.ana.delete()
    else:
        window.ana.groups.clear()
    desk.later(61)
    assert decisions.take_effect(request.pk) is True
    assert (desk.fresh(request).state, desk.numbers(request)) == ("open", [(1, ""), (2, "role_lost")])
    assert made is not None
    assert Decision.objects.get(pk=made.pk).person_name == "Ana"
    desk.decide(request, window.ben)
    desk.later(130)
    assert decisions.take_effect(request.pk) is True
    assert desk.result(request)["decision"] == ["approve", "Ben", ""]


@pytest.mark.parametrize("tier", ["R2", "R3"])
def test_who_approved_cannot_undo_what_another_rejected(window: SimpleNamespace, tier: str) -> None:
    """Her approval carries nothing any more: taking it back would take his rejection back, too."""
    desk.change_rule("small", outcome=tier)
    desk.change_rule("desk", quorum=2)
    request = opened()
    hers = desk.decide(request, window.ana).decision
    his = desk.decide(request, window.ben, "reject").decision
    until = desk.fresh(request).takes_effect_at
    assert hers is not None
    with pytest.raises(Closed) as refused:
        back(hers, window.ana)
    assert (refused.value.code, refused.value.by, refused.value.verb) == ("decided", "Ben", "reject")
    assert (desk.fresh(request).state, desk.fresh(request).takes_effect_at) == ("decided", until)
    page = browser(window.ana).get(f"/decisions/{hers.pk}")
    assert page.context["receipt"]["undo_until"] is None
    offered = browser(window.ana).get(request.get_absolute_url()).context["talk"]["stop"]
    assert (None if offered is None else offered["decision"]) == (his.pk if tier == "R3" and his else None)
    desk.later(61)
    decisions.take_effect(request.pk)
    assert desk.fresh(request).state == "rejected"


def test_who_rejected_takes_it_back_and_the_approval_counts_on(window: SimpleNamespace) -> None:
    desk.change_rule("desk", quorum=2)
    request = opened()
    desk.decide(request, window.ana)
    back(desk.decide(request, window.ben, "reject").decision, window.ben)
    assert desk.decide(request, window.ben).waits_for == ""
    desk.later(61)
    decisions.take_effect(request.pk)
    assert desk.counts(request) == ("in_force", 3, 1)
