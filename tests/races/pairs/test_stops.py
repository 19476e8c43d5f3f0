"""Pausing against the end of a run and against a look, Stop now against a receipt, Resume against Resume.

In both orders each side has read what it reads before its lock, and waits for the run's row; then the first gets
it, and the second after it.
"""
# ruff: noqa: B023 - what `clash` starts has ended before the loop goes on

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from runs import execution, holds, lifecycle, points, stops
from runs.actors import Actor
from runs.exceptions import RunEnded, WrongState
from runs.lifecycle import Fence
from runs.models import Hold, JournalEntry, Run
from runs.states import Cause, RunStatus
from tests.factories import (
    CYD,
    OPERATOR,
    approve,
    causes,
    drive,
    driven,
    open_hold,
    result,
    step,
    submitted,
    verbs,
)
from tests.outside import Outside
from tests.races.pairs.hammer import clash, rounds
from tests.threads import Answered, Work, in_turn, standing

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("invariants")]
race = pytest.mark.race
Rules = Callable[..., None]


def row(run: Run) -> Work:
    return lambda: lifecycle.lock(run.pk)


def driving(run: Run) -> Work:
    return lambda: execution.drive(run.pk)


def pausing(run: Run, actor: Actor = OPERATOR) -> Work:
    return lambda: holds.pause(run.pk, actor=actor, why="wait")


def resuming(run: Run, actor: Actor = OPERATOR) -> Work:
    return lambda: holds.unpause(run.pk, actor=actor)


def resumed(run: Run) -> Run:
    holds.unpause(run.pk, actor=OPERATOR)
    run.refresh_from_db()
    return drive(run)


# -- pause × finish ------------------------------------------------------------------------


@race("pause", "finish")
def test_pause_before_finish(outside: Outside) -> None:
    """Nothing new had to start: the run has ended, and the pause is closed with it, in the journal's order."""
    run = submitted("payer")
    with standing(driving(run), "before-finish") as go_on:
        hold, _ = in_turn(row(run), pausing(run), go_on)
    run.refresh_from_db()
    hold.refresh_from_db()
    assert (run.status, hold.resolution, run.open_holds) == (RunStatus.SUCCEEDED, "run_ended", 0)
    assert verbs(run)[-3:] == ["held", "holds_closed", "succeeded"]
    assert (result(run)[:7], outside.n("pay")) == ("receipt", 1)


@race("finish", "pause")
def test_finish_before_pause(outside: Outside) -> None:
    run = submitted("payer")
    with standing(driving(run), "before-finish") as go_on:
        _, lost = in_turn(row(run), go_on, pausing(run))
    run.refresh_from_db()
    assert isinstance(lost, RunEnded)
    assert (run.status, verbs(run)[-1], outside.n("pay")) == (RunStatus.SUCCEEDED, "succeeded", 1)
    assert not Hold.objects.filter(run=run).exists()


@race("pause", "finish", free=True)
def test_pause_against_finish(outside: Outside) -> None:
    for number in rounds():
        run = submitted("adder", n=0)
        _, paused = clash(number, driving(run), pausing(run))
        run.refresh_from_db()
        if run.status == RunStatus.SUCCEEDED:
            assert isinstance(paused, RunEnded) or verbs(run)[-2:] == ["holds_closed", "succeeded"]
        elif run.status == RunStatus.QUEUED:  # paused before it was taken
            assert (causes(run), drive(run).status) == (["person"], RunStatus.SUSPENDED)
            assert resumed(run).status == RunStatus.SUCCEEDED
        else:
            assert (run.status, causes(run)) == (RunStatus.SUSPENDED, ["person"])
            assert resumed(run).status == RunStatus.SUCCEEDED


# -- pause × look --------------------------------------------------------------------------


@pytest.fixture
def looking(rules: Rules, registries: None, outside: Outside) -> Callable[[], Run]:
    """A queued run whose next call is approved and looks at a fact before it may start; a note comes after it."""
    rules(pay_if="hold")

    def make() -> Run:
        run = driven("transfer", how="pay_if")
        approve(open_hold(run))
        run.refresh_from_db()
        return run

    return make


def taken(run: Run) -> tuple[Fence, Work]:
    """The run under a lease, so that the first row its worker asks for is that of its call's start."""
    fence = lifecycle.take(run.pk, "w1")
    assert fence is not None

    def work() -> None:
        execution.lease.hold(fence, execution.time.monotonic())
        try:
            execution._until_still(fence)
        finally:
            execution.lease.let_go()

    return fence, work


def looks(run: Run) -> int:
    """How often a fact was seen at the call."""
    return step(run, 1).readings.filter(moment="call").count()


@race("pause", "look")
def test_pause_before_what_was_looked_at_is_committed(looking: Callable[[], Run], outside: Outside) -> None:
    """The worker has looked when the pause comes: nothing starts, and the permit is kept for after it."""
    run = looking()
    _, work = taken(run)
    in_turn(row(run), pausing(run), work)
    run.refresh_from_db()
    assert (run.status, causes(run)) == (RunStatus.SUSPENDED, ["person"])
    assert (outside.tried("pay_if"), looks(run), step(run, 1).status) == ([], 0, "held")
    assert verbs(run)[-2:] == ["held", "suspended"]
    assert resumed(run).status == RunStatus.SUCCEEDED
    assert (outside.n("pay_if"), outside.n("note"), looks(run)) == (1, 2, 1)


@race("look", "pause")
def test_what_was_looked_at_is_committed_before_pause(looking: Callable[[], Run], outside: Outside) -> None:
    """The call is under way when Pause answers: it is finished, and what comes after it does not start."""
    run = looking()
    _, work = taken(run)
    pause = Answered(pausing(run))
    with points.on("after-intent-before-call", pause.wait):
        in_turn(row(run), work, pause)
    run.refresh_from_db()
    assert (run.status, causes(run)) == (RunStatus.SUSPENDED, ["person"])
    assert (outside.n("pay_if"), outside.n("note"), looks(run)) == (1, 1, 1)
    paused = JournalEntry.objects.of(run.stream).filter(verb="held").last()
    dispatched = JournalEntry.objects.of(run.stream).get(verb="dispatched")
    assert paused is not None
    assert paused.seq > dispatched.seq
    assert resumed(run).status == RunStatus.SUCCEEDED
    assert (outside.n("pay_if"), outside.n("note")) == (1, 2)


@race("pause", "look", free=True)
def test_pause_against_look(looking: Callable[[], Run], outside: Outside) -> None:
    for number in rounds():
        run = looking()
        clash(number, driving(run), pausing(run))
        run.refresh_from_db()
        if run.status == RunStatus.QUEUED:
            drive(run)
        paid, notes = outside.n("pay_if") - number, outside.n("note") - 2 * number
        if run.status == RunStatus.SUCCEEDED:  # paused when the last call was under way
            assert (paid, notes) == (1, 2)
        else:
            assert (run.status, causes(run), notes) == (RunStatus.SUSPENDED, ["person"], 1)
            assert paid == int(step(run, 1).effect == "confirmed")
            assert resumed(run).status == RunStatus.SUCCEEDED
        assert (outside.n("pay_if"), outside.n("note")) == (number + 1, 2 * number + 2)


@race("pause", "look", free=True)
def test_pause_and_resume_against_look(looking: Callable[[], Run], outside: Outside) -> None:
    """A pause that is over before the worker comes to its commit loses nothing either."""
    for number in rounds():
        run = looking()

        def toggle() -> None:
            holds.pause(run.pk, actor=OPERATOR)
            holds.unpause(run.pk, actor=OPERATOR)

        clash(number, driving(run), toggle)
        run.refresh_from_db()
        if run.status == RunStatus.QUEUED:
            drive(run)
        assert (run.status, causes(run)) == (RunStatus.SUCCEEDED, [])
        assert (outside.n("pay_if"), outside.n("note")) == (number + 1, 2 * number + 2)
        assert not Hold.objects.open().filter(run=run, cause=Cause.PERSON).exists()


# -- stop-now × receipt --------------------------------------------------------------------


def stopping(run: Run) -> Work:
    return lambda: stops.stop_now(run.pk, actor=OPERATOR)


@race("receipt", "stop-now")
@pytest.mark.parametrize("how", ["pay", "pay_detached"])
def test_receipt_before_stop(how: str, outside: Outside) -> None:
    """Nothing is in flight any more, whatever the tool says of being interrupted: a pause, and no doubt."""
    run = submitted("transfer", how=how)
    stop = Answered(stopping(run))
    with standing_after_payment(run, how, outside) as go_on, points.on("after-boundary", stop.wait):
        _, hold = in_turn(row(run), go_on, stop)
    run.refresh_from_db()
    paid = step(run, 1)
    assert (run.status, causes(run), hold.detail) == (RunStatus.SUSPENDED, ["person"], {"stop_now": True})
    assert (paid.effect, paid.evidence) == ("confirmed", [])
    assert "interrupted" not in verbs(run)
    assert (outside.n(how), outside.n("note")) == (1, 1)
    assert resumed(run).status == RunStatus.SUCCEEDED
    assert (outside.n(how), outside.n("note")) == (1, 2)


@race("receipt", "stop-now")
def test_receipt_that_rides_with_the_next_intent_before_stop(outside: Outside) -> None:
    """One commit: the payment is settled and the note is in flight, which is finished. It was the last call."""
    run = submitted("transfer", how="pay_cancelled")
    stop = Answered(stopping(run))
    with (
        standing_after_payment(run, "pay_cancelled", outside) as go_on,
        points.on("after-boundary", stop.wait),
    ):
        _, hold = in_turn(row(run), go_on, stop)
    run.refresh_from_db()
    hold.refresh_from_db()
    assert (run.status, hold.resolution, step(run, 1).evidence) == (RunStatus.SUCCEEDED, "run_ended", [])
    assert "interrupted" not in verbs(run)
    assert (outside.n("pay_cancelled"), outside.n("note")) == (1, 2)


@race("stop-now", "receipt")
def test_stop_before_receipt_of_a_call_that_is_finished(outside: Outside) -> None:
    """F58: its worker keeps the run until the receipt."""
    run = submitted("transfer")
    with standing_after_payment(run, "pay", outside) as go_on:
        hold, _ = in_turn(row(run), stopping(run), go_on)
    run.refresh_from_db()
    paid = step(run, 1)
    assert (run.status, causes(run), run.epoch) == (RunStatus.SUSPENDED, ["person"], 1)
    assert (paid.effect, paid.evidence, hold.detail) == ("confirmed", [], {"stop_now": True})
    assert (outside.n("pay"), outside.n("note")) == (1, 1)
    assert resumed(run).status == RunStatus.SUCCEEDED
    assert (outside.n("pay"), outside.n("note")) == (1, 2)


@race("stop-now", "receipt")
@pytest.mark.parametrize("how", ["pay_detached", "pay_cancelled"])
def test_stop_before_receipt_of_a_call_that_may_be_left(how: str, outside: Outside) -> None:
    """The epoch has risen: the receipt moves nothing, is kept as evidence, and is adopted after the resume."""
    run = submitted("transfer", how=how)
    with standing_after_payment(run, how, outside) as go_on:
        in_turn(row(run), stopping(run), go_on)
    run.refresh_from_db()
    left = step(run, 1)
    assert (run.status, run.epoch, left.status, left.settled) == (RunStatus.QUEUED, 2, "dispatched", None)
    assert [(each["kind"], each["attempt"]) for each in left.evidence] == [("returned", 1)]
    assert verbs(run)[-4:] == ["held", "stopped_now", "interrupted", "evidence"]
    assert (drive(run).status, causes(run)) == (RunStatus.SUSPENDED, ["person"])
    assert resumed(run).status == RunStatus.SUCCEEDED
    assert (step(run, 1).effect, outside.n(how), len(outside.tried(how))) == ("confirmed", 1, 1)


def standing_after_payment(run: Run, how: str, outside: Outside) -> AbstractContextManager[Work]:
    """A worker that has the bank's answer to the payment, and has not kept it yet; a note was made before."""
    before = outside.n(how)
    return standing(driving(run), "after-effect-before-record", lambda: outside.n(how) > before)


@race("stop-now", "receipt", free=True)
@pytest.mark.parametrize("how", ["pay", "pay_detached"])
def test_stop_against_receipt(how: str, outside: Outside) -> None:
    for number in rounds():
        run = submitted("transfer", how=how)
        with standing_after_payment(run, how, outside) as go_on:
            clash(number, go_on, stopping(run))
        run.refresh_from_db()
        paid = step(run, 1)
        if run.status == RunStatus.QUEUED:
            assert (how, paid.effect, len(paid.evidence)) == ("pay_detached", "dispatched", 1)
            drive(run)
        if run.status == RunStatus.SUSPENDED:
            assert causes(run) == ["person"]
            assert resumed(run).status == RunStatus.SUCCEEDED
        assert (run.status, step(run, 1).effect) == (RunStatus.SUCCEEDED, "confirmed")
        assert (outside.n(how), outside.n("note")) == (number + 1, 2 * number + 2)


# -- resume × resume -----------------------------------------------------------------------

BOTH = pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(CYD, OPERATOR, marks=race("resume", "resume")),
        pytest.param(OPERATOR, CYD, marks=race("resume", "resume")),
    ],
    ids=["owner first", "operator first"],
)


def paused(actor: Actor) -> Run:
    run = submitted("payer")
    holds.pause(run.pk, actor=actor)
    return drive(run)


@BOTH
def test_resume_before_resume(first: Actor, second: Actor, outside: Outside) -> None:
    """F59: resumed once, by who was first; the second is told that nothing is paused."""
    run = paused(CYD)
    done, lost = in_turn(row(run), resuming(run, first), resuming(run, second))
    assert (done.status, type(lost)) == (RunStatus.QUEUED, WrongState)
    assert "is not paused; it is queued" in str(lost)
    assert verbs(run)[-2:] == ["released", "resumed"]
    [entry] = JournalEntry.objects.of(run.stream).filter(verb="resumed")
    assert entry.actor_name == first.name
    assert (drive(run).status, outside.n("pay")) == (RunStatus.SUCCEEDED, 1)


@pytest.mark.parametrize(
    "first",
    [
        pytest.param("pause", marks=race("resume", "resume")),
        pytest.param("approval", marks=race("resume", "resume")),
    ],
)
def test_release_of_one_hold_before_that_of_the_other(first: str, rules: Rules, outside: Outside) -> None:
    """F59: neither saw the other's, and who is second resumes the run, once."""
    rules(pay="hold")
    run = driven("payer")
    hold = open_hold(run)
    holds.pause(run.pk, actor=OPERATOR)
    work = [lambda: holds.unpause(run.pk, actor=OPERATOR), lambda: approve(hold)]
    in_turn(row(run), *(work if first == "pause" else reversed(work)))
    run.refresh_from_db()
    assert (run.status, verbs(run)[-3:]) == (RunStatus.QUEUED, ["released", "released", "resumed"])
    [entry] = JournalEntry.objects.of(run.stream).filter(verb="resumed")
    assert entry.actor_name == ("ana" if first == "pause" else OPERATOR.name)
    assert (drive(run).status, outside.n("pay")) == (RunStatus.SUCCEEDED, 1)


@race("resume", "resume", free=True)
def test_resume_against_resume(outside: Outside) -> None:
    for number in rounds():
        run = paused(CYD)
        found = clash(number, resuming(run, CYD), resuming(run, OPERATOR))
        assert sorted(type(each).__name__ for each in found) == ["Run", "WrongState"]
        assert [verbs(run).count(verb) for verb in ("released", "resumed")] == [1, 1]
        run.refresh_from_db()
        assert (drive(run).status, outside.n("pay")) == (RunStatus.SUCCEEDED, number + 1)
