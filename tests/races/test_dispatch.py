"""A worker at a boundary against a pause, a cancel, a release: both orders, by a lock or a point."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from runs import endings, execution, holds, lifecycle, points
from runs.models import Run
from runs.states import Cause, RunStatus
from tests.agents_for_tests import SHORT
from tests.factories import (
    CYD,
    OPERATOR,
    answer,
    approve,
    causes,
    drive,
    driven,
    open_hold,
    result,
    step,
    submitted,
)
from tests.outside import Outside
from tests.threads import behind, elsewhere, standing

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("invariants")]
Rules = Callable[..., None]


@pytest.fixture
def approved(rules: Rules) -> Run:
    """Queued, with an approval in force: the next thing is the call."""
    rules(pay="hold")
    run = driven("payer")
    approve(open_hold(run))
    run.refresh_from_db()
    return run


def once(action: Callable[[], Any]) -> Callable[[], None]:
    done: list[int] = []

    def act() -> None:
        if not done:
            done.append(1)
            elsewhere(action)

    return act


# -- Pause and cancel against the intent ------------------------------------------------------


@pytest.mark.parametrize("kind", ["unasked", "approved"])
def test_pause_before_the_intent(kind: str, approved: Run, rules: Rules, outside: Outside) -> None:
    """The pause is not committed when the boundary comes, which waits, sees it, and dispatches nothing."""
    run = approved if kind == "approved" else submitted("payer", how="pay_keyed")
    fence = lifecycle.take(run.pk, "w1")
    assert fence is not None

    def work() -> None:
        execution._until_still(fence)

    execution.lease.hold(fence, execution.time.monotonic())
    behind(lambda: lifecycle.lock(run.pk), lambda: holds.pause(run.pk, actor=OPERATOR), work)
    execution.lease.let_go()
    run.refresh_from_db()
    assert (run.status, causes(run), outside.tried()) == (RunStatus.SUSPENDED, ["person"], [])
    holds.unpause(run.pk, actor=OPERATOR)
    run.refresh_from_db()
    assert drive(run).status == RunStatus.SUCCEEDED
    assert len(outside.tried()) == 1


def test_pause_after_the_intent(approved: Run, outside: Outside) -> None:
    """The intent is in: the call is finished and recorded, and the run stops before it goes on."""
    with points.on("after-intent-before-call", once(lambda: holds.pause(approved.pk, actor=OPERATOR))):
        drive(approved)
    assert outside.n("pay") == 1
    assert approved.steps.get().effect == "confirmed"
    assert approved.status == RunStatus.SUCCEEDED  # it was the last call: nothing new had to start


def test_cancel_before_the_intent(approved: Run, outside: Outside) -> None:
    fence = lifecycle.take(approved.pk, "w1")
    assert fence is not None
    execution.lease.hold(fence, execution.time.monotonic())
    behind(
        lambda: lifecycle.lock(approved.pk),
        lambda: endings.cancel(approved.pk, actor=CYD),
        lambda: execution._until_still(fence),
    )
    execution.lease.let_go()
    approved.refresh_from_db()
    assert (approved.status, outside.tried()) == (RunStatus.CANCELLED, [])


def test_cancel_after_the_intent(approved: Run, outside: Outside) -> None:
    with points.on("after-intent-before-call", once(lambda: endings.cancel(approved.pk, actor=CYD))):
        drive(approved)
    assert (approved.status, outside.n("pay"), approved.steps.get().effect) == (
        RunStatus.CANCELLED,
        1,
        "confirmed",
    )


@pytest.mark.parametrize("attempt", [1, 2])
def test_intent_that_waited_for_the_row_counts_from_then(
    attempt: int, outside: Outside, settings: Any
) -> None:
    """Until when a call may act is counted from when it could begin, not from when its intent began to wait."""
    settings.LEASE, settings.ACT_MARGIN = 60.0, 1.0
    outside.will("pay_retried", *["not_sent"] * (attempt - 1), "ok")
    run = submitted("payer", how="pay_retried")
    point = "before-loop" if attempt == 1 else "before-retry"
    with standing(lambda: driving_from(run), point) as go_on:
        behind(lambda: lifecycle.lock(run.pk), lambda: time.sleep(settings.ACT_MARGIN * 1.3), go_on)
    made = step(run, 0)
    called = outside.tried("pay_retried")[-1]
    assert (made.attempt, made.effect, called["attempt"]) == (attempt, "confirmed", attempt)
    assert made.may_act_until is not None
    assert made.may_act_until.timestamp() >= called["at"] + SHORT


def driving_from(run: Run) -> None:
    """A worker that has taken the run and stands before it does anything."""
    fence = lifecycle.take(run.pk, "w1")
    assert fence is not None
    execution.lease.hold(fence, time.monotonic())
    try:
        points.reach("before-loop")
        execution._until_still(fence)
    finally:
        execution.lease.let_go()


@pytest.mark.parametrize(
    "point", ["after-boundary", "after-intent-before-call", "after-effect-before-record", "before-finish"]
)
def test_pause_at_every_point_of_a_long_run(point: str, outside: Outside) -> None:
    """Wherever it comes, at most the call in flight goes on, and after the resume each has run once."""
    run = submitted("transfer")
    seen: list[int] = []

    def pause() -> None:
        seen.append(outside.n())
        elsewhere(lambda: holds.pause(run.pk, actor=CYD))

    with points.on(point, lambda: pause() if not seen else None):
        drive(run)
    assert outside.n() - seen[0] <= 1
    if run.status == RunStatus.SUSPENDED:
        holds.unpause(run.pk, actor=CYD)
        run.refresh_from_db()
        drive(run)
    assert (run.status, outside.n("note"), outside.n("pay")) == (RunStatus.SUCCEEDED, 2, 1)


# -- A release against parking ----------------------------------------------------------------


def test_release_before_the_park(rules: Rules, outside: Outside) -> None:
    """F45: the answer comes after the request is there and before the run waits: nobody clicks twice."""
    rules(pay="hold")
    run = submitted("payer")
    with points.on("before-park", once(lambda: approve(open_hold(run)))):
        drive(run)
    assert (run.status, outside.n("pay"), run.snapshots.count()) == (RunStatus.SUCCEEDED, 1, 0)


def test_release_after_the_park(rules: Rules, outside: Outside) -> None:
    rules(pay="hold")
    run = submitted("payer")
    with points.on("after-park", once(lambda: approve(open_hold(run)))):
        drive(run)
    assert (run.status, outside.n("pay")) == (RunStatus.QUEUED, 0)
    assert drive(run).status == RunStatus.SUCCEEDED


def test_release_while_the_park_waits_for_the_row(rules: Rules, outside: Outside) -> None:
    """The release has the run's row when the worker comes to park: it parks not, and loads again."""
    rules(pay="hold")
    run = submitted("payer")
    stands, goes = threading.Event(), threading.Event()

    def meet() -> None:
        stands.set()
        goes.wait(timeout=10)

    worker = threading.Thread(target=lambda: elsewhere(lambda: execution.drive(run.pk)))
    with points.on("before-park", meet):
        worker.start()
        assert stands.wait(timeout=10)
        behind(lambda: lifecycle.lock(run.pk), lambda: approve(open_hold(run)), goes.set)
        worker.join(timeout=10)
    run.refresh_from_db()
    assert (run.status, outside.n("pay"), run.snapshots.count()) == (RunStatus.SUCCEEDED, 1, 0)


def test_answer_before_the_park(outside: Outside) -> None:
    run = submitted("questioner")
    numbers = iter([5, 7])
    with points.on("before-park", lambda: elsewhere(lambda: answer(open_hold(run), number=next(numbers)))):
        drive(run)
    assert (result(run), run.snapshots.count(), outside.n("note")) == ([5, 7], 0, 1)


def test_pause_and_unpause_before_the_park_lose_no_wake(rules: Rules) -> None:
    rules(pay="hold")
    run = submitted("payer")

    def toggle() -> None:
        holds.pause(run.pk, actor=CYD)
        holds.unpause(run.pk, actor=CYD)

    with points.on("before-park", once(toggle)):
        drive(run)
    assert (run.status, causes(run)) == (RunStatus.SUSPENDED, ["approval"])


def test_cancel_before_the_park(rules: Rules) -> None:
    rules(pay="hold")
    run = submitted("payer")
    with points.on("before-park", once(lambda: endings.cancel(run.pk, actor=CYD))):
        drive(run)
    assert (run.status, causes(run)) == (RunStatus.CANCELLED, [])


def test_second_release_while_the_first_runs(rules: Rules, outside: Outside) -> None:
    """F09 in flight: B is approved while A is being called; the same worker or the next one takes it up."""
    rules(pay="hold")
    run = driven("batch")
    approve(open_hold(run, Cause.APPROVAL, 0))
    run.refresh_from_db()
    with points.on("after-call-before-record", once(lambda: approve(open_hold(run, Cause.APPROVAL, 1)))):
        drive(run)
    assert (run.status, [c["arguments"]["to"] for c in outside.acted("pay")]) == (
        RunStatus.SUSPENDED,
        ["A", "B"],
    )
    assert causes(run) == ["approval"]


# -- The end against a hold -----------------------------------------------------------------------


def test_pause_before_the_end_and_behind_it() -> None:
    run = submitted("adder", n=0)
    fence = lifecycle.take(run.pk, "w1")
    assert fence is not None
    execution.lease.hold(fence, execution.time.monotonic())
    behind(
        lambda: lifecycle.lock(run.pk),
        lambda: holds.pause(run.pk, actor=CYD),
        lambda: endings.finish(fence, RunStatus.SUCCEEDED, result="0"),
    )
    execution.lease.let_go()
    run.refresh_from_db()
    assert (run.status, causes(run)) == (RunStatus.SUCCEEDED, [])
