"""The verbs beside deciding, two at once and against an end: the second finds what the first has written."""

from types import SimpleNamespace
from typing import Any

import pytest

from approvals import decisions
from approvals import desk as verbs
from approvals.decisions import Choice, Decided
from approvals.exceptions import Closed, Taken
from approvals.models import Delegation, Inquiry, Request
from runs import holds, lifecycle, points
from runs.actors import Actor
from tests.approvals import desk
from tests.approvals.fixtures import people, whole, world
from tests.threads import Work, elsewhere, in_turn

__all__ = ["people", "whole", "world"]

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("whole")]
CYD = Actor("person", "0", "Cyd", "page")


@pytest.fixture(autouse=True)
def alone() -> None:
    """Here people are what it is about: `approvals` stays connected."""


@pytest.fixture
def request_(people: SimpleNamespace) -> Request:
    desk.change_rule("small", outcome="R1")
    return desk.opened("approvals-wirer")


def row(request: Request) -> Work:
    return lambda: lifecycle.lock(request.run_id)


def deciding(request: Request, who: Any) -> Work:
    choice = Choice("approve", desk.fresh(request).revision.digest)
    return lambda: decisions.decide(request.ref, person=who, choice=choice)


def test_two_questions_at_once_are_one(request_: Request, people: SimpleNamespace) -> None:
    first, second = in_turn(
        row(request_),
        lambda: verbs.ask(request_.ref, person=people.ana, text="Which?"),
        lambda: verbs.ask(request_.ref, person=people.ben, text="Who?"),
    )
    assert (first.text, type(second), Inquiry.objects.count()) == ("Which?", Taken, 1)
    assert desk.refusals(request_) == [("Ben", "taken")]


def test_passed_on_to_two_at_once_lies_with_one(request_: Request, people: SimpleNamespace) -> None:
    eli = desk.person("eli", "refunds")
    first, second = in_turn(
        row(request_),
        lambda: verbs.delegate(request_.ref, person=people.ana, to=people.ben, reason="Yours"),
        lambda: verbs.delegate(request_.ref, person=people.ana, to=eli, reason="Yours"),
    )
    assert (first.to_name, type(second), Delegation.objects.count()) == ("Ben", Taken, 1)


def test_two_on_it_at_once_are_one(request_: Request, people: SimpleNamespace) -> None:
    first, second = in_turn(
        row(request_),
        lambda: verbs.reserve(request_.ref, person=people.ben),
        lambda: verbs.reserve(request_.ref, person=people.ana),
    )
    assert (first.reserved_by_name, str(second)) == ("Ben", "Ben is on it.")


def test_more_time_pressed_by_two_at_once_is_one(request_: Request, people: SimpleNamespace) -> None:
    in_turn(
        row(request_),
        lambda: verbs.more_time(request_.ref, person=people.ana, seen=0),
        lambda: verbs.more_time(request_.ref, person=people.ben, seen=0),
    )
    assert desk.fresh(request_).extensions == 1


def test_more_time_before_expiry_keeps_it_open(request_: Request, people: SimpleNamespace) -> None:
    """The old time passes before the press is committed; the sweeper, which waits for the row, sees the new one."""
    with points.on("committing-more_time", lambda: elsewhere(lambda: desk.later(3601))):
        extended, expired = in_turn(
            row(request_),
            lambda: verbs.more_time(request_.ref, person=people.ana, seen=0),
            lambda: holds.expire(request_.hold_id),
        )
    assert (extended.extensions, expired, desk.fresh(request_).state) == (1, False, "open")


def test_expiry_before_more_time_stays_expired(request_: Request, people: SimpleNamespace) -> None:
    desk.later(3601)
    expired, late = in_turn(
        row(request_),
        lambda: holds.expire(request_.hold_id),
        lambda: verbs.more_time(request_.ref, person=people.ana, seen=0),
    )
    assert (expired, type(late), desk.fresh(request_).extensions) == (True, Closed, 0)
    assert late.code == "expired"


def test_answer_before_and_after_the_decision(request_: Request, people: SimpleNamespace) -> None:
    other = desk.opened("approvals-wirer")
    asked = [verbs.ask(each.ref, person=people.ana, text="Which?") for each in (request_, other)]

    def answer(inquiry: Inquiry) -> Work:
        return lambda: verbs.answer(inquiry.request.run_id, inquiry.pk, text="This", actor=CYD)

    said, done = in_turn(row(request_), answer(asked[0]), deciding(request_, people.ben))
    assert (said.answer, isinstance(done, Decided)) == ("This", True)
    done, late = in_turn(row(other), deciding(other, people.ben), answer(asked[1]))
    assert (isinstance(done, Decided), type(late)) == (True, Closed)
    assert desk.fresh(other).state == "in_force"
