"""Approving against another approval, expiry, cancel, an edit, and against the parking of its run.

Decisions are the real ones. In both orders each side has read what it reads before its lock, and waits for the
run's row; then the first gets it, and the second after it.
"""
# ruff: noqa: B023 - what `clash` starts has ended before the loop goes on

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import User

from approvals import decisions
from approvals.decisions import Choice, Decided
from approvals.exceptions import Closed, Stale
from approvals.models import Notification, Permit, Request
from runs import clock, endings, execution, holds, lifecycle, signals
from runs.actors import Actor
from runs.exceptions import RunEnded
from runs.models import Hold, Run
from tests.approvals import desk
from tests.approvals.fixtures import people, whole, world
from tests.factories import verbs
from tests.races.pairs.hammer import ROUNDS, clash, rounds
from tests.threads import Work, elsewhere, in_turn, standing

__all__ = ["people", "whole", "world"]

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("whole")]
race = pytest.mark.race
OPERATOR = Actor("person", "9", "Olu", "admin", operator=True)


@pytest.fixture(autouse=True)
def alone() -> None:
    """Here people are what it is about: `approvals` stays connected."""


def row(run_id: Any) -> Work:
    return lambda: lifecycle.lock(run_id)


def deciding(request: Request, who: User, verb: str = "approve", **more: Any) -> Work:
    """The button of a page that shows what stands now."""
    standing = desk.fresh(request).revision
    care = desk.care(standing, who) if verb == "approve" else {}
    choice = Choice(verb, standing.digest, **{**care, **more})
    return lambda: decisions.decide(request.ref, person=who, choice=choice)


def editing(request: Request, who: User, amount: str) -> Work:
    return deciding(request, who, edit=desk.edited(request, amount=amount))


def expiring(request: Request) -> Work:
    return lambda: holds.expire(request.hold_id)


def cancelling(request: Request) -> Work:
    return lambda: endings.cancel(request.run_id, actor=OPERATOR, why="the customer called")


def decided(found: Any) -> tuple[str, bool, str]:
    """Of an answer that is a decision: whose it is, whether it was made before, and what is still needed."""
    assert isinstance(found, Decided), found
    assert found.decision is not None
    return found.decision.person_name, found.again, found.waits_for


def closed(found: Any) -> tuple[str, str, str]:
    """Of an answer that is a refusal: its code, whose word stands, and which."""
    assert isinstance(found, Closed), found
    return found.code, found.by, found.verb


def of_run(request: Request) -> list[str]:
    return verbs(Run.objects.get(pk=request.run_id))


# -- approve × approve ---------------------------------------------------------------------

ANA_AND_BEN = pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param("ana", "ben", marks=race("approve", "approve")),
        pytest.param("ben", "ana", marks=race("approve", "approve")),
    ],
)


@ANA_AND_BEN
def test_approve_before_approve(first: str, second: str, people: SimpleNamespace) -> None:
    """F08: the second learns whose decision stands; one permit, one call."""
    request = desk.opened()
    one, other = getattr(people, first), getattr(people, second)
    done, lost = in_turn(row(request.run_id), deciding(request, one), deciding(request, other))
    assert decided(done) == (first.capitalize(), False, "")
    assert closed(lost) == ("decided", first.capitalize(), "approve")
    assert lost.at == done.decision.made_at
    assert desk.told(request) == ["opened", "decided", "in_force", "refused"]
    assert desk.refusals(request) == [(second.capitalize(), "decided")]
    assert desk.counts(request) == ("in_force", 1, 1)
    assert [of_run(request).count(verb) for verb in ("released", "resumed")] == [1, 1]
    assert (desk.result(request)["result"], desk.world.n("give_back")) == ("given 240.00", 1)


@ANA_AND_BEN
def test_approve_before_approve_of_two_that_are_needed(
    first: str, second: str, people: SimpleNamespace
) -> None:
    """The second, which read a request without any decision, completes the quorum, once."""
    desk.change_rule("desk", quorum=2)
    request = desk.opened()
    one, other = getattr(people, first), getattr(people, second)
    found = in_turn(row(request.run_id), deciding(request, one), deciding(request, other))
    assert [decided(each) for each in found] == [
        (first.capitalize(), False, "1 more approval needed."),
        (second.capitalize(), False, ""),
    ]
    assert desk.told(request) == ["opened", "decided", "decided", "in_force"]
    assert desk.counts(request) == ("in_force", 2, 1)
    assert (desk.result(request)["result"], desk.world.n("give_back")) == ("given 240.00", 1)


@race("approve", "approve", free=True)
def test_approve_against_approve(people: SimpleNamespace) -> None:
    for number in rounds():
        request = desk.opened()
        found = clash(number, deciding(request, people.ana), deciding(request, people.ben))
        [stands] = [each for each in found if isinstance(each, Decided)]
        [lost] = [each for each in found if each is not stands]
        assert stands.decision is not None
        assert closed(lost) == ("decided", stands.decision.person_name, "approve")
        assert desk.counts(request) == ("in_force", 1, 1)
        assert desk.result(request)["result"] == "given 240.00"
        assert desk.world.n("give_back") == number + 1


# -- approve × expire (F36) ----------------------------------------------------------------


@contextmanager
def time_runs_out_at_release(seconds: float) -> Iterator[None]:
    """The clock passes the end after the approval was found in time, and before it is committed."""

    def shift(sender: Any, **said: Any) -> None:
        elsewhere(lambda: desk.later(seconds))

    signals.hold_released.connect(shift, weak=False, dispatch_uid="time runs out")
    try:
        yield
    finally:
        signals.hold_released.disconnect(dispatch_uid="time runs out")


@race("approve", "expire")
def test_approve_before_expire(people: SimpleNamespace) -> None:
    """F36: in time by the database's clock, committed after the end: it counts, and nobody is told of an end."""
    desk.change_rule("desk", decide_within=600)
    request = desk.opened()
    with time_runs_out_at_release(601):
        done, expired = in_turn(row(request.run_id), deciding(request, people.ana), expiring(request))
    assert (decided(done), expired) == (("Ana", False, ""), False)
    assert clock.now() > request.decide_by
    assert desk.told(request) == ["opened", "decided", "in_force"]
    assert Hold.objects.get(pk=request.hold_id).resolution == "approved"
    assert (desk.counts(request), set(kinds(request))) == (("in_force", 1, 1), {"opened"})
    assert (desk.result(request)["result"], desk.world.n("give_back")) == ("given 240.00", 1)


def kinds(request: Request) -> list[str]:
    """What people are written about."""
    return list(Notification.objects.filter(request=request).values_list("kind", flat=True))


@race("expire", "approve")
def test_expire_before_approve(people: SimpleNamespace) -> None:
    """F36, F23: refused with the time it ended at, nothing is done, and no reviewer is said to have said no."""
    request = desk.opened()
    desk.later(3601)
    expired, lost = in_turn(row(request.run_id), expiring(request), deciding(request, people.ana))
    assert (expired, closed(lost), lost.at) == (True, ("expired", "", ""), request.decide_by)
    assert desk.told(request) == ["opened", "expired", "refused"]
    assert desk.refusals(request) == [("Ana", "expired")]
    assert desk.counts(request) == ("expired", 0, 0)
    assert (desk.result(request)["error"], desk.world.calls) == ("Expired", [])


@race("approve", "expire", free=True)
def test_approve_against_expire(people: SimpleNamespace) -> None:
    """F36, nearer and nearer to the end: either, and never both or none."""
    desk.change_rule("desk", decide_within=600)
    seen: Counter[str] = Counter()
    for number in rounds():
        desk.later(0)
        request = desk.opened("approvals-wirer")  # without facts, which would be too old by then
        runs_out_in(request, 0.008 * (ROUNDS - number))
        found, expired = clash(number, deciding(request, people.ana), until_expired(request))
        resolution = Hold.objects.get(pk=request.hold_id).resolution
        if resolution == "approved":
            assert (decided(found), expired) == (("Ana", False, ""), False)
            assert desk.told(request) == ["opened", "decided", "in_force"]
            assert desk.result(request)["result"] == "wired 240.00"
        else:
            assert (resolution, expired, closed(found)) == ("expired", True, ("expired", "", ""))
            assert desk.refusals(request) == [("Ana", "expired")]
            assert desk.result(request)["error"] == "Expired"
        seen[resolution] += 1
        assert desk.world.n("wire") == seen["approved"]


def runs_out_in(request: Request, seconds: float) -> None:
    assert request.decide_by is not None
    desk.later((request.decide_by - datetime.now(UTC) - timedelta(seconds=seconds)).total_seconds())


def until_expired(request: Request) -> Callable[[], bool]:
    """As sweepers do, pass after pass: True when it was this one that ended it."""

    def sweep() -> bool:
        while Hold.objects.open().filter(pk=request.hold_id).exists():
            if holds.expire(request.hold_id):
                return True
            time.sleep(0.001)
        return False

    return sweep


# -- approve × cancel (F57) ----------------------------------------------------------------


@race("approve", "cancel")
def test_approve_before_cancel(people: SimpleNamespace) -> None:
    request = desk.opened()
    done, cancelled = in_turn(row(request.run_id), deciding(request, people.ana), cancelling(request))
    assert (decided(done), cancelled.status) == (("Ana", False, ""), "cancelled")
    assert desk.told(request) == ["opened", "decided", "in_force", "permit_voided", "cancelled"]
    assert (desk.counts(request), Permit.objects.get().void_why) == (("cancelled", 1, 1), "cancelled")
    assert of_run(request)[-3:] == ["released", "resumed", "cancelled"]
    execution.drive(request.run_id)
    assert desk.world.calls == []


@race("cancel", "approve")
def test_cancel_before_approve(people: SimpleNamespace) -> None:
    """F57: refused with who cancelled it and why."""
    request = desk.opened()
    cancelled, lost = in_turn(row(request.run_id), cancelling(request), deciding(request, people.ana))
    assert (cancelled.status, closed(lost), str(lost)) == (
        "cancelled",
        ("cancelled", "Olu", ""),
        "the customer called",
    )
    assert desk.told(request) == ["opened", "cancelled", "refused"]
    assert desk.refusals(request) == [("Ana", "cancelled")]
    assert (desk.counts(request), of_run(request)[-2:]) == (
        ("cancelled", 0, 0),
        ["holds_closed", "cancelled"],
    )
    execution.drive(request.run_id)
    assert desk.world.calls == []


@contextmanager
def another_call_in_flight() -> Iterator[tuple[Request, Work]]:
    """Two calls of a run wait; one was approved and is being made. The request of the other, and what lets the
    worker go on."""
    run = desk.submitted("approvals-both")
    execution.drive(run.pk)
    made, waits = Request.objects.filter(run=run).order_by("step__index")
    desk.decide(made, User.objects.get(username="ben"))
    with standing(lambda: execution.drive(run.pk), "after-effect-before-record") as go_on:
        yield waits, go_on


@race("approve", "cancel")
def test_approve_before_cancel_while_another_call_is_in_flight(people: SimpleNamespace) -> None:
    """The run ends with the receipt of the call that was under way; the approved one is not made any more."""
    with another_call_in_flight() as (request, go_on):
        done, stopping = in_turn(row(request.run_id), deciding(request, people.ana), cancelling(request))
        assert (decided(done), stopping.status) == (("Ana", False, ""), "running")
        go_on()
    assert desk.counts(request) == ("cancelled", 1, 1)
    assert (of_run(request)[-1], desk.world.calls) == ("cancelled", [("wire", {"to": "A", "amount": "1.00"})])


@race("cancel", "approve")
def test_cancel_before_approve_while_another_call_is_in_flight(people: SimpleNamespace) -> None:
    """F57, F58: the run has not ended yet, and still nobody can approve what it will not do."""
    with another_call_in_flight() as (request, go_on):
        stopping, lost = in_turn(row(request.run_id), cancelling(request), deciding(request, people.ana))
        assert (stopping.status, closed(lost)) == ("running", ("cancelled", "Olu", ""))
        go_on()
    assert desk.counts(request) == ("cancelled", 0, 0)
    assert (of_run(request)[-1], desk.world.calls) == ("cancelled", [("wire", {"to": "A", "amount": "1.00"})])


@race("approve", "cancel", free=True)
def test_approve_against_cancel(people: SimpleNamespace) -> None:
    for number in rounds():
        request = desk.opened()
        found, cancelled = clash(number, deciding(request, people.ana), cancelling(request))
        assert cancelled.status == "cancelled"
        if isinstance(found, Decided):
            assert desk.counts(request) == ("cancelled", 1, 1)
        else:
            assert closed(found) == ("cancelled", "Olu", "")
            assert desk.counts(request) == ("cancelled", 0, 0)
        execution.drive(request.run_id)
        assert desk.world.calls == []


@race("approve", "cancel", free=True)
def test_approve_against_cancel_while_a_worker_drives(people: SimpleNamespace) -> None:
    """The call is made, or it is not; its run has ended either way."""
    for number in rounds():
        request = desk.opened()

        def approve_and_drive() -> Any:
            done = decisions.decide(request.ref, person=people.ana, choice=choice)
            execution.drive(request.run_id)
            return done

        choice = Choice("approve", desk.fresh(request).revision.digest, basis=desk.YES)
        before = desk.world.n("give_back")
        found, cancelled = clash(number, approve_and_drive, cancelling(request))
        made, run = desk.world.n("give_back") - before, Run.objects.get(pk=request.run_id)
        if isinstance(cancelled, RunEnded):
            assert (run.status, made, isinstance(found, Decided)) == ("succeeded", 1, True)
        else:
            assert run.status == "cancelled"
            assert made == (desk.step_of(request).effect == "confirmed")
            assert desk.fresh(request).state == ("consumed" if made else "cancelled")


# -- approve × edit ------------------------------------------------------------------------


@race("approve", "edit")
def test_approve_before_edit(people: SimpleNamespace) -> None:
    """What was approved is what runs; the edit came too late and leaves no revision."""
    request = desk.opened()
    done, lost = in_turn(
        row(request.run_id), deciding(request, people.ana), editing(request, people.ben, "25.00")
    )
    assert (decided(done), closed(lost)) == (("Ana", False, ""), ("decided", "Ana", "approve"))
    assert desk.told(request) == ["opened", "decided", "in_force", "refused"]
    assert (desk.numbers(request), desk.counts(request)) == ([(1, "")], ("in_force", 1, 1))
    assert (desk.result(request)["executed"], desk.world.n("give_back")) == ("240.00", 1)


@race("edit", "approve")
def test_edit_before_approve(people: SimpleNamespace) -> None:
    """F17: the edit is in force; the other learns that it was decided, and by whom."""
    request = desk.opened()
    done, lost = in_turn(
        row(request.run_id), editing(request, people.ben, "25.00"), deciding(request, people.ana)
    )
    assert (decided(done), closed(lost)) == (("Ben", False, ""), ("decided", "Ben", "approve"))
    assert desk.told(request) == ["opened", "revised", "decided", "in_force", "refused"]
    assert (desk.numbers(request), desk.counts(request)) == ([(1, ""), (2, "edit")], ("in_force", 1, 1))
    said = desk.result(request)
    assert (said["proposed"], said["executed"], said["decision"][:2]) == ("240.00", "25.00", ["edit", "Ben"])
    assert desk.world.calls == [("give_back", {"charge": "ch_1", "amount": "25.00"})]


@race("edit", "approve")
def test_edit_that_needs_somebody_else_before_approve(people: SimpleNamespace) -> None:
    """F75: approved was what nobody sees any more. It is stale, it says what changed, and nothing is done."""
    request = desk.opened(amount="2000.00")
    done, lost = in_turn(
        row(request.run_id), editing(request, people.ben, "1500.00"), deciding(request, people.ana)
    )
    assert isinstance(done, Decided)
    assert (done.decision, done.waits_for) == (None, "Your edit needs somebody else's approval.")
    assert isinstance(lost, Stale)
    assert [(each["name"], each["then"], each["now"]) for each in lost.changes] == [
        ("amount", '"2000.00"', '"1500.00"')
    ]
    told = [verb for verb in desk.told(request) if verb != "section_opened"]
    assert told == ["opened", "revised", "refused"]
    assert (desk.counts(request), desk.drive(request).status) == (("open", 0, 0), "suspended")
    assert desk.world.calls == []
    desk.decide(request, people.ana)
    assert desk.result(request)["executed"] == "1500.00"


@race("approve", "edit")
def test_approve_before_edit_that_needs_somebody_else(people: SimpleNamespace) -> None:
    request = desk.opened(amount="2000.00")
    done, lost = in_turn(
        row(request.run_id), deciding(request, people.ana), editing(request, people.ben, "1500.00")
    )
    assert (decided(done), closed(lost)) == (("Ana", False, ""), ("decided", "Ana", "approve"))
    assert (desk.numbers(request), desk.result(request)["executed"]) == ([(1, "")], "2000.00")


@race("approve", "edit", free=True)
def test_approve_against_edit(people: SimpleNamespace) -> None:
    for number in rounds():
        request = desk.opened()
        approved, edited = clash(number, deciding(request, people.ana), editing(request, people.ben, "25.00"))
        [stands] = [each for each in (approved, edited) if isinstance(each, Decided)]
        lost = edited if stands is approved else approved
        who, amount = ("Ana", "240.00") if stands is approved else ("Ben", "25.00")
        assert (decided(stands), closed(lost)) == ((who, False, ""), ("decided", who, "approve"))
        assert desk.counts(request) == ("in_force", 1, 1)
        assert desk.result(request)["executed"] == amount
        assert desk.world.calls[number:] == [("give_back", {"charge": "ch_1", "amount": amount})]


# -- release × park (F45) ------------------------------------------------------------------


def driving(run: Run) -> Work:
    return lambda: execution.drive(run.pk)


@race("release", "park")
def test_release_before_park(people: SimpleNamespace) -> None:
    """F45: the worker was about to park; it loads again and goes on, without a snapshot and a second click."""
    run = desk.submitted()
    with standing(driving(run), "before-park") as go_on:
        request = Request.objects.get(run=run)
        done, _ = in_turn(row(run.pk), deciding(request, people.ana), go_on)
    run.refresh_from_db()
    assert (decided(done), run.status, run.snapshots.count()) == (("Ana", False, ""), "succeeded", 0)
    assert [of_run(request).count(verb) for verb in ("suspended", "resumed", "taken")] == [0, 0, 1]
    assert desk.world.n("give_back") == 1


@race("park", "release")
def test_park_before_release(people: SimpleNamespace) -> None:
    run = desk.submitted()
    with standing(driving(run), "before-park") as go_on:
        request = Request.objects.get(run=run)
        _, done = in_turn(row(run.pk), go_on, deciding(request, people.ana))
    run.refresh_from_db()
    assert (decided(done), run.status, run.snapshots.count()) == (("Ana", False, ""), "queued", 1)
    assert of_run(request)[-3:] == ["suspended", "released", "resumed"]
    assert desk.world.calls == []
    assert (desk.result(request)["result"], desk.world.n("give_back")) == ("given 240.00", 1)


@race("release", "park", free=True)
def test_release_against_park(people: SimpleNamespace) -> None:
    """F45: somebody decides as soon as there is a request, while the worker is on its way to parking."""
    for number in rounds():
        run = desk.submitted()
        done, _ = clash(number, lambda: decide_at_once(run, people.ana), driving(run))
        assert decided(done) == ("Ana", False, "")
        run.refresh_from_db()
        if run.status != "succeeded":
            assert (run.status, verbs(run)[-3:]) == ("queued", ["suspended", "released", "resumed"])
            execution.drive(run.pk)
            run.refresh_from_db()
        assert (run.status, desk.world.n("give_back")) == ("succeeded", number + 1)


def decide_at_once(run: Run, who: User) -> Decided:
    until = time.monotonic() + 10
    while (request := Request.objects.filter(run=run).first()) is None:
        assert time.monotonic() < until
    found: Decided = deciding(request, who)()
    return found
