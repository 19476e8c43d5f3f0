"""Holds: placed, released, expired, and the pause; several at once, in every order."""

import itertools
from collections.abc import Callable

import pytest
from django.db import IntegrityError, transaction

from runs import clock, endings, holds, lifecycle
from runs.exceptions import HoldClosed, NotFound, RunEnded, WrongState
from runs.holds import Terms
from runs.models import Hold, JournalEntry, Run
from runs.states import Cause, RunStatus
from tests.factories import (
    ANA,
    BEN,
    CYD,
    NO_RUN,
    OPERATOR,
    approve,
    causes,
    drive,
    driven,
    go_on,
    later,
    open_hold,
    reject,
    step,
    submitted,
    verbs,
)
from tests.outside import Outside

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("invariants")]
Rules = Callable[..., None]


@pytest.fixture
def held(rules: Rules) -> Run:
    """Suspended before a payment that needs an approval within an hour."""
    rules(pay="hold", expires_in=3600)
    return driven("transfer")


def place(run: Run, cause: Cause, index: int | None = None, terms: Terms = holds.NO_END) -> Hold:
    with transaction.atomic():
        locked = lifecycle.lock(run.pk)
        return holds.place(
            locked,
            cause=cause,
            actor=ANA,
            step=None if index is None else step(run, index),
            why="because",
            terms=terms,
        )


# -- place -------------------------------------------------------------------------------


def test_place_says_who_why_and_until_when(held: Run) -> None:
    hold = open_hold(held)
    assert (hold.cause, hold.scope, hold.opened_by_kind, hold.opened_by_id) == (
        "approval",
        "call",
        "agent",
        "transfer@1",
    )
    assert hold.expires_at is not None
    assert 3599 < (hold.expires_at - hold.opened_at).total_seconds() < 3601
    assert verbs(held).count("held") == 1


def test_place_counts_on_the_run_or_on_the_step(held: Run) -> None:
    place(held, Cause.DIVERGED)
    held.refresh_from_db()
    assert (held.open_holds, step(held, 1).open_holds) == (1, 1)


def test_place_twice_with_one_cause_is_refused(held: Run) -> None:
    with pytest.raises(IntegrityError, match="hold_one_open_a_call_and_cause"), transaction.atomic():
        place(held, Cause.APPROVAL, index=1)


def test_place_on_a_run_that_has_ended() -> None:
    run = driven("adder", n=0)
    with pytest.raises(RunEnded):
        place(run, Cause.PERSON)


# -- release -----------------------------------------------------------------------------


def test_release_resumes(held: Run) -> None:
    hold = approve(open_hold(held))
    held.refresh_from_db()
    assert (held.status, held.wakes, step(held, 1).open_holds) == (RunStatus.QUEUED, 1, 0)
    assert (hold.released_by_id, hold.released_through, hold.resolution) == ("ana", "page", "approved")


def test_release_twice(held: Run) -> None:
    hold = open_hold(held)
    approve(hold)
    with pytest.raises(HoldClosed, match="was released before: approved"):
        reject(hold)
    hold.refresh_from_db()
    held.refresh_from_db()
    assert (hold.resolution, held.wakes, verbs(held).count("released")) == ("approved", 1, 1)


def test_release_of_an_unknown_hold() -> None:
    with pytest.raises(NotFound):
        holds.release(NO_RUN, actor=ANA, resolution="approved")


def test_release_after_the_run_ended(held: Run) -> None:
    """F57: the request of a dead run wakes nothing."""
    hold = open_hold(held)
    endings.cancel(held.pk, actor=CYD)
    with pytest.raises(HoldClosed, match="run_ended"):
        approve(hold)
    held.refresh_from_db()
    assert held.status == RunStatus.CANCELLED


def test_release_of_one_of_two_on_a_call_starts_nothing(held: Run) -> None:
    """7: releasing one hold starts no call that another binds."""
    place(held, Cause.DEPENDENCY, index=1)
    approve(open_hold(held, Cause.APPROVAL))
    held.refresh_from_db()
    assert (held.status, causes(held)) == (RunStatus.SUSPENDED, ["dependency"])
    holds.look_again(open_hold(held).pk)
    held.refresh_from_db()
    assert held.status == RunStatus.QUEUED


def test_release_on_a_running_run_is_heard_when_it_parks(held: Run) -> None:
    approve(open_hold(held))
    fence = lifecycle.take(held.pk, "w1")
    assert fence is not None
    place(held, Cause.PERSON)
    holds.unpause(held.pk, actor=OPERATOR)
    held.refresh_from_db()
    assert (held.status, held.wakes) == (RunStatus.RUNNING, 2)
    lifecycle.hand_back(fence, "test")


# -- expire ------------------------------------------------------------------------------


def test_expire_when_due_ends_the_call_and_the_run_goes_on(held: Run, outside: Outside) -> None:
    hold = open_hold(held)
    later(3600.5)
    assert (holds.expire(hold.pk), holds.expire(hold.pk)) == (True, False)
    held.refresh_from_db()
    assert drive(held).status == RunStatus.SUCCEEDED
    assert (held.result or "").startswith('{"decision":"","executed":"250.00","paid":"Expired: ')
    assert outside.n("pay") == 0


def test_expire_tells_no_persons_name(held: Run) -> None:
    """F23: silence is not a person's no."""
    hold = open_hold(held)
    later(3601)
    holds.expire(hold.pk)
    hold.refresh_from_db()
    assert (hold.resolution, hold.released_by_kind, hold.released_by_id) == ("expired", "system", "")
    assert JournalEntry.objects.of(held.stream).filter(verb="released").get().actor_kind == "system"
    held.refresh_from_db()
    go_on(held)


def test_expire_before_it_is_due(held: Run) -> None:
    later(3598)
    assert not holds.expire(open_hold(held).pk)
    held.refresh_from_db()
    assert held.status == RunStatus.SUSPENDED


def test_expire_of_a_hold_without_an_end() -> None:
    run = submitted("adder", n=1)
    hold = holds.pause(run.pk, actor=CYD)
    later(10**8)
    assert not holds.expire(hold.pk)


def test_expire_after_a_release(held: Run) -> None:
    hold = open_hold(held)
    approve(hold)
    later(3601)
    assert not holds.expire(hold.pk)


def test_release_after_expiry(held: Run) -> None:
    hold = open_hold(held)
    later(3601)
    holds.expire(hold.pk)
    with pytest.raises(HoldClosed, match="expired"):
        approve(hold)


def test_expire_of_a_paused_run_keeps_it_paused(held: Run, outside: Outside) -> None:
    holds.pause(held.pk, actor=OPERATOR)
    later(3601)
    assert holds.expire(open_hold(held, Cause.APPROVAL).pk)
    held.refresh_from_db()
    assert (held.status, causes(held)) == (RunStatus.SUSPENDED, ["person"])
    holds.unpause(held.pk, actor=OPERATOR)
    held.refresh_from_db()
    assert drive(held).status == RunStatus.SUCCEEDED
    assert outside.n("pay") == 0


# -- look again --------------------------------------------------------------------------


def test_look_again_twice(held: Run) -> None:
    hold = place(held, Cause.DEPENDENCY, index=1, terms=Terms(look_again_in=30))
    assert (holds.look_again(hold.pk), holds.look_again(hold.pk)) == (True, False)


# -- pause and unpause ---------------------------------------------------------------------


def test_pause_twice_is_one_pause() -> None:
    run = submitted("adder", n=1)
    first = holds.pause(run.pk, actor=CYD, why="look at this")
    again = holds.pause(run.pk, actor=CYD, why="and at that")
    assert (first.pk, again.why, again.opened_at) == (again.pk, "look at this", first.opened_at)
    run.refresh_from_db()
    assert (run.open_holds, verbs(run)) == (1, ["submitted", "held"])


def test_pause_of_a_run_that_has_ended() -> None:
    with pytest.raises(RunEnded):
        holds.pause(driven("adder", n=0).pk, actor=CYD)


def test_pause_of_an_unknown_run() -> None:
    with pytest.raises(NotFound):
        holds.pause(NO_RUN, actor=CYD)


def test_unpause_goes_on(outside: Outside) -> None:
    run = submitted("transfer")
    holds.pause(run.pk, actor=CYD)
    assert drive(run).status == RunStatus.SUSPENDED
    assert holds.unpause(run.pk, actor=CYD).status == RunStatus.QUEUED
    run.refresh_from_db()
    assert drive(run).status == RunStatus.SUCCEEDED


def test_unpause_twice() -> None:
    run = submitted("adder", n=1)
    holds.pause(run.pk, actor=CYD)
    holds.unpause(run.pk, actor=CYD)
    with pytest.raises(WrongState, match="is not paused; it is queued"):
        holds.unpause(run.pk, actor=CYD)


def test_unpause_of_what_is_held_for_something_else(held: Run) -> None:
    with pytest.raises(WrongState, match="is not paused; it is suspended"):
        holds.unpause(held.pk, actor=OPERATOR)
    assert causes(held) == ["approval"]


def test_unpause_of_a_run_that_has_ended() -> None:
    with pytest.raises(RunEnded):
        holds.unpause(driven("adder", n=0).pk, actor=CYD)


def test_unpause_of_an_operators_pause_by_a_submitter() -> None:
    run = submitted("adder", n=1)
    holds.pause(run.pk, actor=OPERATOR)
    with pytest.raises(WrongState, match="only an operator can resume it"):
        holds.unpause(run.pk, actor=CYD)
    holds.unpause(run.pk, actor=OPERATOR)


def test_unpause_of_a_submitters_pause_by_an_operator() -> None:
    run = submitted("adder", n=1)
    holds.pause(run.pk, actor=CYD)
    assert holds.unpause(run.pk, actor=OPERATOR).open_holds == 0


def test_pause_by_an_operator_takes_a_submitters_over() -> None:
    run = submitted("adder", n=1)
    first = holds.pause(run.pk, actor=CYD, why="first")
    second = holds.pause(run.pk, actor=OPERATOR, why="second")
    assert (first.pk, second.why) == (second.pk, "first")
    with pytest.raises(WrongState):
        holds.unpause(run.pk, actor=CYD)
    assert verbs(run) == ["submitted", "held", "pause_taken_over"]


def test_pause_by_a_submitter_does_not_take_an_operators_over() -> None:
    run = submitted("adder", n=1)
    holds.pause(run.pk, actor=OPERATOR)
    holds.pause(run.pk, actor=CYD)
    with pytest.raises(WrongState):
        holds.unpause(run.pk, actor=CYD)


# -- Several reasons at once -----------------------------------------------------------------


@pytest.mark.parametrize("order", list(itertools.permutations(["approval", "person", "dependency"])))
def test_three_reasons_in_every_order(order: tuple[str, ...], held: Run, outside: Outside) -> None:
    """F59: approved, paused and waiting for a source; whichever ends last starts the call, once."""
    holds.pause(held.pk, actor=OPERATOR)
    place(held, Cause.DEPENDENCY, index=1)
    end: dict[str, Callable[[], object]] = {
        "approval": lambda: approve(open_hold(held, Cause.APPROVAL)),
        "person": lambda: holds.unpause(held.pk, actor=OPERATOR),
        "dependency": lambda: holds.look_again(open_hold(held, Cause.DEPENDENCY).pk),
    }
    for cause in order:
        held.refresh_from_db()
        assert held.status == RunStatus.SUSPENDED
        assert drive(held).status == RunStatus.SUSPENDED
        assert outside.n("pay") == 0
        end[cause]()
    held.refresh_from_db()
    assert held.status == RunStatus.QUEUED
    assert drive(held).status == RunStatus.SUCCEEDED
    assert outside.n("pay") == 1
    assert verbs(held).count("resumed") == 1


def test_pause_over_an_approval_and_both_back(held: Run, outside: Outside) -> None:
    holds.pause(held.pk, actor=CYD)
    approve(open_hold(held, Cause.APPROVAL))
    held.refresh_from_db()
    assert (held.status, causes(held)) == (RunStatus.SUSPENDED, ["person"])
    holds.unpause(held.pk, actor=CYD)
    held.refresh_from_db()
    drive(held)
    assert outside.n("pay") == 1


def test_rejected_by_one_while_another_approves(held: Run, outside: Outside) -> None:
    hold = open_hold(held)
    reject(hold, "no")
    with pytest.raises(HoldClosed, match="rejected"):
        approve(hold)
    held.refresh_from_db()
    drive(held)
    assert (outside.n("pay"), BEN.name) == (0, "ben")


def test_holds_of_a_wait_cost_rows_only(held: Run) -> None:
    """14: no lease, no token, no job."""
    held.refresh_from_db()
    assert (held.token, held.lease_until) == (None, None)
    assert clock.now() > held.changed_at
