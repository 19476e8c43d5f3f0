"""The end of a child against the cancel of its parent, and an event against the wait for it.

Two rows are met by a child's end and its parent's cancel, one after the other and never both at once: the child's,
and then the parent's. Both are shown.
"""
# ruff: noqa: B023 - what `clash` starts has ended before the loop goes on

import pytest

from runs import children, endings, events, execution, jobs, lifecycle, points
from runs.models import Event, Hold, JournalEntry, Run
from runs.states import RunStatus
from tests.factories import (
    CYD,
    all_go_on,
    causes,
    driven,
    only_child,
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


def row(run: Run) -> Work:
    return lambda: lifecycle.lock(run.pk)


def driving(run: Run) -> Work:
    return lambda: execution.drive(run.pk)


def cancelling(run: Run) -> Work:
    return lambda: endings.cancel(run.pk, actor=CYD, why="not needed")


def again(run: Run) -> Run:
    run.refresh_from_db()
    return run


# -- child's end × parent's cancel, at the child's row ----------------------------------------


@race("child's end", "parent's cancel")
def test_end_of_a_child_before_the_cancel_comes_down_to_it(outside: Outside) -> None:
    run = driven("boss")
    child = only_child(run)
    with standing(driving(child), "before-finish") as go_on:
        endings.cancel(run.pk, actor=CYD)
        _, cancelled = in_turn(row(child), go_on, lambda: children.cancel_orphan(child.pk))
    assert (cancelled, again(run).status, again(child).status) == (
        False,
        RunStatus.CANCELLED,
        RunStatus.SUCCEEDED,
    )
    assert (verbs(child)[-1], "stop_requested" in verbs(child)) == ("succeeded", False)
    assert (verbs(run)[-1], outside.n("pay"), step(child, 0).effect) == ("cancelled", 1, "confirmed")


@race("parent's cancel", "child's end")
def test_cancel_comes_down_to_a_child_before_its_end(outside: Outside) -> None:
    """It made its last call and was about to end: the stop stands first, and the ledger says that it paid."""
    run = driven("boss")
    child = only_child(run)
    with standing(driving(child), "before-finish") as go_on:
        endings.cancel(run.pk, actor=CYD)
        cancelled, _ = in_turn(row(child), lambda: children.cancel_orphan(child.pk), go_on)
    assert (cancelled, again(run).status, again(child).status) == (
        True,
        RunStatus.CANCELLED,
        RunStatus.CANCELLED,
    )
    assert verbs(child)[-2:] == ["stop_requested", "cancelled"]
    assert (child.result, outside.n("pay"), step(child, 0).effect) == (None, 1, "confirmed")


# -- child's end × parent's cancel, at the parent's row ---------------------------------------


@race("child's end", "parent's cancel")
def test_end_of_a_child_is_told_before_its_parent_is_cancelled(outside: Outside) -> None:
    run = driven("boss")
    child = only_child(run)
    hold = open_hold(run)
    with standing(driving(child), "before-tell-parent") as go_on:
        _, cancelled = in_turn(row(run), go_on, cancelling(run))
    hold.refresh_from_db()
    assert (cancelled.status, again(child).status) == (RunStatus.CANCELLED, RunStatus.SUCCEEDED)
    assert (hold.resolution, verbs(run)[-3:]) == ("child_ended", ["released", "resumed", "cancelled"])
    execution.drive(run.pk)
    assert (outside.n("pay"), outside.n("note")) == (1, 1)


@race("parent's cancel", "child's end")
def test_parent_is_cancelled_before_the_end_of_its_child_is_told(outside: Outside) -> None:
    """Nobody resumes what has ended; the child, which ended first, stays as it is."""
    run = driven("boss")
    child = only_child(run)
    hold = open_hold(run)
    with standing(driving(child), "before-tell-parent") as go_on:
        cancelled, _ = in_turn(row(run), cancelling(run), go_on)
    hold.refresh_from_db()
    assert (cancelled.status, again(child).status) == (RunStatus.CANCELLED, RunStatus.SUCCEEDED)
    assert (hold.resolution, verbs(run)[-2:]) == ("run_ended", ["holds_closed", "cancelled"])
    assert (children.cancel_below(run.pk), children.tell_parent(hold.pk)) == (0, False)
    assert (verbs(child)[-1], outside.n("pay"), outside.n("note")) == ("succeeded", 1, 1)


@race("child's end", "parent's cancel", free=True)
def test_end_of_a_child_against_the_cancel_of_its_parent(outside: Outside) -> None:
    for number in rounds():
        run = driven("boss")
        child = only_child(run)
        before = outside.n("pay")

        def cancel_all() -> Run:
            found = endings.cancel(run.pk, actor=CYD)
            jobs.cancel_below(str(run.pk))
            return found

        _, cancelled = clash(number, driving(child), cancel_all)
        all_go_on()
        paid = outside.n("pay") - before
        assert (cancelled.status, again(run).status) == (RunStatus.CANCELLED, RunStatus.CANCELLED)
        assert (again(child).status, paid) in [
            (RunStatus.SUCCEEDED, 1),
            (RunStatus.CANCELLED, 1),
            (RunStatus.CANCELLED, 0),
        ]
        made = child.steps.filter(effect="confirmed").count()
        assert (made, verbs(run)[-1], outside.n("note")) == (paid, "cancelled", number + 1)


# -- event × wait --------------------------------------------------------------------------


def telling(run: Run, number: int = 5) -> Work:
    return lambda: events.tell(run.pk, name="arrived", event_id="e1", payload=number, actor=CYD)[1]


def waiting(run: Run) -> Work:
    """A worker that has the run already: the first row it asks for is that of its wait."""
    fence = lifecycle.take(run.pk, "w1")
    assert fence is not None

    def work() -> None:
        execution.lease.hold(fence, execution.time.monotonic())
        try:
            execution._until_still(fence)
        finally:
            execution.lease.let_go()

    return work


@race("event", "wait")
def test_event_before_wait() -> None:
    """It came early and counts: the call takes it, and there never was anything to wait for."""
    run = submitted("expectant")
    new, _ = in_turn(row(run), telling(run), waiting(run))
    assert (new, again(run).status, result(run)) == (True, RunStatus.SUCCEEDED, [5])
    assert (Hold.objects.filter(run=run).count(), Event.objects.get().step_id) == (0, step(run, 0).pk)
    assert verbs(run) == ["submitted", "taken", "event", "succeeded"]


@race("wait", "event")
def test_wait_before_event() -> None:
    """The call waits when it comes, and is about to be parked: it is woken, and parks not."""
    run = submitted("expectant")
    tell = Answered(telling(run))
    with points.on("before-park", tell.wait):
        _, new = in_turn(row(run), waiting(run), tell)
    assert (new, again(run).status, result(run)) == (True, RunStatus.SUCCEEDED, [5])
    assert [hold.resolution for hold in run.holds.all()] == ["event"]
    assert (Event.objects.get().step_id, run.snapshots.count()) == (step(run, 0).pk, 0)
    assert verbs(run) == ["submitted", "taken", "held", "event", "released", "succeeded"]


@race("event", "wait", free=True)
def test_event_against_wait() -> None:
    for number in rounds():
        run = submitted("expectant")
        _, new = clash(number, driving(run), telling(run, number))
        if again(run).status == RunStatus.QUEUED:  # it had been parked, or was told before it was taken
            execution.drive(run.pk)
        assert (new, again(run).status, result(run)) == (True, RunStatus.SUCCEEDED, [number])
        assert (causes(run), Event.objects.get(run=run).step_id) == ([], step(run, 0).pk)
        assert JournalEntry.objects.of(run.stream).filter(verb="event").count() == 1
        assert verbs(run).count("resumed") == run.snapshots.count() <= 1
