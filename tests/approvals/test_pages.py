"""What pages are made from: states as a reader should see them, warnings, lanes, and what came of a decision."""

from datetime import timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import User

from approvals.exceptions import Closed, NotEligible, Stale
from approvals.models import Decision, Request, Revision
from approvals.presentation import lanes, oddities, outcomes, pages
from runs import clock, endings, holds
from runs.actors import SYSTEM, Actor
from runs.models import Run
from tests.approvals import desk

pytestmark = pytest.mark.django_db


@pytest.fixture
def request_(people: SimpleNamespace) -> Request:
    return desk.opened()


# -- States ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "seconds", "seen"),
    [
        ("open", 1, "open"),
        ("open", 0, "expired"),
        ("open", -1, "expired"),
        ("needs_info", -1, "expired"),
        ("open", None, "open"),
        ("decided", -1, "decided"),
        ("in_force", -1, "in_force"),
        ("rejected", -1, "rejected"),
        ("cancelled", -1, "cancelled"),
    ],
)
def test_state_is_expired_as_soon_as_the_time_is_up(state: str, seconds: float | None, seen: str) -> None:
    """F38."""
    now = clock.now()
    request = Request(state=state, decide_by=None if seconds is None else now + timedelta(seconds=seconds))
    assert pages.state(request, now) == seen


# -- Warnings ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("to", "said"),
    [
        ("ACME Ltd.", []),
        ("Zoë Müller", []),
        ("ACME\u200b", ["to: 1 hidden character"]),
        ("AC\u202eME\u2066", ["to: 2 hidden characters"]),
        ("a" + " " * 40 + "b", ["to: padding"]),
    ],
)
def test_flags_say_what_is_odd_about_a_text(people: SimpleNamespace, to: str, said: list[str]) -> None:
    request = desk.opened("approvals-wirer", to=to)
    assert oddities.flags(request.revision) == said
    assert lanes.inbox_row(request, request.revision, clock.now()).flags == (("hidden text",) if said else ())


def test_flags_look_into_keys_and_depths(people: SimpleNamespace) -> None:
    values = {
        "account": 1, "amount": "1.00", "ratio": 0.5, "code": "c", "letter": "l", "tree": {"a": [{"b": "x\u200b"}], "k\u202e": 1},
        "many": [], "sure": True, "level": "low",
    }  # fmt: skip
    said = oddities.flags(desk.opened("approvals-filler", values=values).revision)
    assert said == ["a name in tree: 1 hidden character", "tree.a[0].b: 1 hidden character"]


def test_flags_that_are_too_many_are_counted(people: SimpleNamespace) -> None:
    """Never cut without a count."""
    values = {
        "account": 1, "amount": "1.00", "ratio": 0.5, "code": "c", "letter": "l", "tree": {}, "many": ["x\u200b"] * 30,
        "sure": True, "level": "low",
    }  # fmt: skip
    said = oddities.flags(desk.opened("approvals-filler", values=values).revision)
    assert (len(said), said[19:]) == (21, ["many[19]: 1 hidden character", "and 10 more"])


def test_kinds_say_what_json_cannot(request_: Request) -> None:
    assert pages.kinds(request_.revision) == {"amount": "decimal"}
    assert pages.kinds(Revision(tool="gone", tool_version="x", arguments="{}")) == {}


# -- Facts and rows --------------------------------------------------------------------------


def test_facts_tell_then_and_now(request_: Request) -> None:
    desk.look(request_, given=Decimal("5.00"), size=ValueError("away"))
    standing = desk.fresh(request_)
    told = [
        (f.label, f.then, f.now, f.state, f.source, f.kind) for f in pages.facts(standing, standing.revision)
    ]
    assert told == [
        ("State of the charge", "paid", "paid", "same", "payments", "blocking"),
        ("Given back so far", "0.00", "5.00", "changed", "payments", "material"),
        ("Size of the list", 3, None, "unreadable", "payments", "info"),
    ]


def test_facts_compare_with_the_first_proposal_after_many_looks(request_: Request) -> None:
    for given in ("5.00", "6.00", "0.00"):
        desk.look(request_, given=Decimal(given))
    standing = desk.fresh(request_)
    assert [(f.then, f.now, f.state) for f in pages.facts(standing, standing.revision)][1] == (
        "0.00",
        "0.00",
        "same",
    )


def test_rows_tell_added_removed_and_changed() -> None:
    changes = [
        {"name": "a", "title": "A", "then": None, "now": "1"},
        {"name": "b", "title": "", "then": '"x"', "now": None},
        {"name": "c", "title": "C", "then": "1", "now": "2"},
    ]
    assert [(row.name, row.was, row.now, row.change) for row in pages.rows(changes)] == [
        ("A", None, 1, "added"),
        ("b", "x", None, "removed"),
        ("C", 1, 2, "changed"),
    ]


def test_steps_are_those_that_lead_to_this_one_and_the_others_are_counted(
    people: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a page costs does not grow with the run, and nothing is cut without a count."""
    request = desk.opened("approvals-looker", before=4, after=3)
    found, hidden = pages.steps(request)
    assert ([step.index for step in found], hidden) == ([0, 1, 2, 3, 4, 5, 6, 7], 0)
    monkeypatch.setattr(pages, "STEPS", 3)
    monkeypatch.setattr(pages, "STEPS_AFTER", 1)
    found, hidden = pages.steps(request)
    told = [(step.index, step.headline, step.current) for step in found]
    assert told == [(3, "Look up 3", False), (4, "Wire 1.00 EUR to ACME", True), (5, "Look up 0", False)]
    assert hidden == 5


# -- Inbox -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tier", "left", "waited", "lane"),
    [
        ("R1", timedelta(minutes=15), timedelta(), "now"),
        ("R1", timedelta(minutes=15, seconds=1), timedelta(), "today"),
        ("R3", timedelta(minutes=1), timedelta(), "now"),
        ("R3", timedelta(days=1), timedelta(), "high"),
        ("R2", timedelta(hours=8), timedelta(), "today"),
        ("R2", timedelta(hours=8, seconds=1), timedelta(), "later"),
        ("R2", timedelta(days=2), timedelta(days=3), "today"),
        ("R1", None, timedelta(), "later"),
    ],
)
def test_lane_goes_by_risk_and_time_left(
    tier: str, left: timedelta | None, waited: timedelta, lane: str
) -> None:
    now = clock.now()
    request = Request(tier=tier, decide_by=None if left is None else now + left, opened_at=now - waited)
    assert lanes.lane(request, now)[0] == lane


def test_inbox_row_marks_what_changed_and_what_was_edited(people: SimpleNamespace) -> None:
    request = desk.opened(amount="2000.00")
    desk.look(request, given=Decimal("5.00"))
    assert lanes.inbox_row(request, desk.fresh(request).revision, clock.now()).flags == ("changed",)
    desk.decide(
        request, people.ana, edit=desk.edited(request, amount="1500.00"), seen=frozenset({"given_back"})
    )
    assert lanes.inbox_row(request, desk.fresh(request).revision, clock.now()).flags == ("edited",)


# -- Panels ---------------------------------------------------------------------------------------


def test_standing_is_none_while_it_is_open(request_: Request) -> None:
    assert pages.standing(request_, clock.now()) is None


def test_standing_of_each_end(people: SimpleNamespace) -> None:
    found: dict[str, Any] = {}
    for name in ("approve", "reject", "expire", "cancel", "stand too long"):
        request = desk.opened()
        if name == "expire":
            desk.later(3601)
            holds.expire(request.hold_id)
            desk.later(0)
        elif name == "cancel":
            endings.cancel(request.run_id, actor=Actor("person", "9", "Olu", "admin"), why="enough")
        elif name == "stand too long":
            desk.later(100)
            assert endings.expire(request.run_id, 50.0)
        else:
            desk.decide(request, people.ana, name)
        panel = pages.standing(desk.fresh(request), clock.now())
        assert panel is not None
        found[name] = (panel.kind, panel.who, panel.outcome, panel.reason, panel.why)
    assert found == {
        "approve": ("standing", "Ana", "approved", "", ""),
        "reject": ("standing", "Ana", "rejected", "wrong amount", ""),
        "expire": ("expired", "", "", "", ""),
        "cancel": ("cancelled", "Olu", "was cancelled", "", "enough"),
        "stand too long": ("cancelled", "", "expired", "", "suspended for 100 s"),
    }


def test_refusal_of_each_kind(request_: Request, ana: User) -> None:
    desk.decide(request_, ana, "reject")
    at = clock.now()
    told = {
        "first, same": pages.refusal(
            request_, "reject", Closed("decided", "", by="Ana", at=at, verb="reject")
        ),
        "first, other": pages.refusal(
            request_, "approve", Closed("decided", "", by="Ana", at=at, verb="reject")
        ),
        "expired": pages.refusal(request_, "approve", Closed("expired", "It expired.", at=at)),
        "cancelled": pages.refusal(request_, "approve", Closed("cancelled", "enough")),
        "stale": pages.refusal(request_, "approve", Stale("changed")),
        "checking": pages.refusal(request_, "approve", Stale("old", checking=True)),
        "not mine": pages.refusal(request_, "bogus", NotEligible("because")),
    }
    assert {name: (p.kind, p.verb, p.who, p.reason, p.why) for name, p in told.items()} == {
        "first, same": ("decided_same", "rejection", "Ana", "", ""),
        "first, other": ("decided_other", "approval", "Ana", "wrong amount", ""),
        "expired": ("expired", "approval", "", "", ""),
        "cancelled": ("cancelled", "approval", "", "", "enough"),
        "stale": ("stale", "approval", "", "", "changed"),
        "checking": ("checking", "approval", "", "", ""),
        "not mine": ("not_yours", "decision", "", "", "because"),
    }


# -- What came of it ----------------------------------------------------------------------------------


def happened(request: Request, decision: Decision | None = None) -> tuple[list[str], bool]:
    made = decision or request.decisions.get()
    events, over = outcomes.outcome(desk.fresh(request), made)
    return [event["what"] for event in events], over


def test_outcome_of_an_approval(request_: Request, ana: User) -> None:
    desk.decide(request_, ana)
    assert happened(request_) == (["In force: the run has been told."], False)
    desk.drive(request_)
    assert happened(request_) == (
        ["In force: the run has been told.", "The call was made.", "It succeeded.", "The run succeeded."],
        True,
    )


def test_outcome_of_a_rejection(request_: Request, ana: User) -> None:
    desk.decide(request_, ana, "reject")
    desk.drive(request_)
    assert happened(request_) == (
        ["In force: the run has been told.", "The agent read the rejection.", "The run succeeded."],
        True,
    )


def test_outcome_of_an_answer(people: SimpleNamespace) -> None:
    question = desk.opened("approvals-asker")
    desk.decide(question, people.ana, "respond", answer={"vendor": "low", "number": 1})
    desk.drive(question)
    assert happened(question)[0][1:] == ["The agent has the answer.", "The run succeeded."]


def test_outcome_of_an_undecided_window_says_nothing_yet(people: SimpleNamespace) -> None:
    desk.change_rule("desk", undo_window=60)
    request = desk.opened()
    desk.decide(request, people.ana)
    assert happened(request) == ([], False)


def test_outcome_of_a_decision_that_no_longer_counts(request_: Request, people: SimpleNamespace) -> None:
    """S5: whatever was decided afterwards, it is not what came of this one."""
    first = desk.decide(request_, people.ana).decision
    desk.world.facts["given"] = Decimal("1.00")
    desk.drive(request_)
    assert happened(request_, first) == (["It no longer counts: what it was about changed."], True)
    second = desk.decide(request_, people.ben, "reject").decision
    desk.drive(request_)
    assert happened(request_, first) == (["It no longer counts: what it was about changed."], True)
    assert happened(request_, second)[0][1] == "The agent read the rejection."


def test_outcome_of_the_first_of_two_approvals(people: SimpleNamespace) -> None:
    desk.change_rule("desk", quorum=2)
    request = desk.opened()
    desk.decide(request, people.ana)
    assert happened(request) == (["It counts, and waits for somebody else's approval."], True)


def test_outcome_of_a_run_that_was_cancelled(request_: Request, ana: User) -> None:
    desk.decide(request_, ana)
    endings.cancel(request_.run_id, actor=SYSTEM)
    assert happened(request_) == (["In force: the run has been told.", "The run was cancelled."], True)
    assert Run.objects.get().status == "cancelled"


def test_next_item_is_the_riskiest_that_i_may_decide(request_: Request, people: SimpleNamespace) -> None:
    low, high = desk.opened(), desk.opened(amount="2000.00")
    desk.opened(amount="3000.00", owner=people.ana)
    over = desk.opened(amount="4000.00")
    Request.objects.filter(pk=over.pk).update(decide_by=clock.now())
    found = outcomes.next_item(people.ana, request_, clock.now())
    assert found is not None
    assert (found["url"], found["tier"]) == (high.get_absolute_url(), "R3")
    for each in (low, high):
        desk.decide(each, people.ana)
    assert outcomes.next_item(people.ana, request_, clock.now()) is None
