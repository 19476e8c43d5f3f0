"""Taking a decision back against its taking effect: exactly one of the two, in both orders and free (C-41)."""

import time
from collections import Counter
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import User

from approvals import decisions
from approvals.decisions import Undone
from approvals.exceptions import Closed
from approvals.models import Decision, Request, Undo
from runs import lifecycle, points
from runs.models import Hold, Step
from tests.approvals import desk
from tests.approvals.fixtures import people, whole, world
from tests.races.pairs.hammer import ROUNDS, clash, rounds
from tests.threads import Work, elsewhere, in_turn

__all__ = ["people", "whole", "world"]

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("whole")]
race = pytest.mark.race


@pytest.fixture(autouse=True)
def alone() -> None:
    """Here people are what it is about: `approvals` stays connected."""


@pytest.fixture(autouse=True)
def window(people: SimpleNamespace) -> None:
    desk.change_rule("small", outcome="R1")
    desk.change_rule("desk", undo_window=60)


def row(request: Request) -> Work:
    return lambda: lifecycle.lock(request.run_id)


def approved(who: User) -> tuple[Request, Decision]:
    """Without facts, which would be too old by then."""
    request = desk.opened("approvals-wirer")
    made = desk.decide(request, who).decision
    assert made is not None
    return desk.fresh(request), made


def undoing(made: Decision, who: User) -> Work:
    return lambda: decisions.undo(made.pk, person=who)


def taking_effect(request: Request) -> Work:
    return lambda: decisions.take_effect(request.pk)


@race("undo", "effect")
def test_undo_before_effect(people: SimpleNamespace) -> None:
    """Taken back in time, and the window ends before that is committed: the sweeper finds nothing to do."""
    request, made = approved(people.ana)
    with points.on("committing-undone", lambda: elsewhere(lambda: desk.later(61))):
        undone, took = in_turn(row(request), undoing(made, people.ana), taking_effect(request))
    assert isinstance(undone, Undone)
    assert (undone.again, took) == (False, False)
    assert desk.counts(request) == ("open", 1, 0)
    assert desk.told(request) == ["opened", "decided", "undone"]
    assert Hold.objects.get(pk=request.hold_id).expires_at == request.decide_by
    desk.drive(request)
    assert desk.world.calls == []


@race("effect", "undo")
def test_effect_before_undo(people: SimpleNamespace) -> None:
    """In force first: it is too late, said with the time, and the call is made once."""
    request, made = approved(people.ana)
    desk.later(61)
    took, late = in_turn(row(request), taking_effect(request), undoing(made, people.ana))
    assert isinstance(late, Closed)
    assert (took, late.code, late.at) == (True, "too_late", desk.fresh(request).decided_at)
    assert (desk.counts(request), Undo.objects.count()) == (("in_force", 1, 1), 0)
    assert desk.told(request) == ["opened", "decided", "in_force", "refused"]
    assert (desk.result(request)["result"], desk.world.n("wire")) == ("wired 240.00", 1)
    with pytest.raises(Closed) as used:
        undoing(made, people.ana)()
    assert used.value.at == Step.objects.get(pk=request.step_id).dispatched_at


@race("undo", "effect", free=True)
def test_undo_against_effect(people: SimpleNamespace) -> None:
    """Nearer and nearer to the end of the window: one of the two, and the call is made just where it was too late."""
    seen: Counter[str] = Counter()
    for number in rounds():
        desk.later(0)
        request, made = approved(people.ana)
        ends_in(request, 0.008 * (ROUNDS - number))
        found, took = clash(number, undoing(made, people.ana), until_settled(request))
        if isinstance(found, Undone):
            assert (took, desk.counts(request)) == (False, ("open", 1, 0))
            seen["undone"] += 1
        else:
            assert (found.code, took, desk.counts(request)) == ("too_late", True, ("in_force", 1, 1))
            assert desk.result(request)["result"] == "wired 240.00"
            seen["in force"] += 1
        assert desk.world.n("wire") == seen["in force"]


def ends_in(request: Request, seconds: float) -> None:
    assert request.takes_effect_at is not None
    desk.later((request.takes_effect_at - datetime.now(UTC)).total_seconds() - seconds)


def until_settled(request: Request) -> Work:
    """As sweepers do, pass after pass: True when it took effect."""

    def sweep() -> Any:
        while desk.fresh(request).state == "decided":
            if decisions.take_effect(request.pk):
                return True
            time.sleep(0.001)
        return False

    return sweep


def test_undo_before_undo(people: SimpleNamespace) -> None:
    """The button pressed twice at once: one row, and both hear that it is taken back."""
    request, made = approved(people.ana)
    first, second = in_turn(row(request), undoing(made, people.ana), undoing(made, people.ana))
    assert [first.again, second.again] == [False, True]
    assert (desk.counts(request), Undo.objects.count()) == (("open", 1, 0), 1)
