"""Taking a run against recovering it from a worker whose lease ran out.

Recovery never waits: a row that somebody else has it leaves to the next pass. So the orders are these: one has done
its part and has not committed when the other comes, which looked before.
"""
# ruff: noqa: B023 - what `clash` starts has ended before the loop goes on

from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

from runs import clock, lifecycle, sweeper
from runs.lifecycle import Fence
from runs.models import Run
from runs.states import RunStatus
from tests.factories import drive, result, submitted, verbs
from tests.races.pairs.hammer import clash, rounds
from tests.threads import elsewhere, in_turn

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("invariants")]
race = pytest.mark.race


def lapsed() -> tuple[Run, Fence]:
    """A run whose worker has not been heard of for longer than its lease."""
    run = submitted("adder", n=2)
    fence = lifecycle.take(run.pk, "w1")
    assert fence is not None
    Run.objects.filter(pk=run.pk).update(lease_until=clock.now() - timedelta(seconds=1))
    return run, fence


def take(run: Run, worker: str = "w2") -> Any:
    return lifecycle.take(run.pk, worker)


def found_by_sweeper() -> list[Any]:
    return list(sweeper._verbs["recover"].find(clock.now()))


def state(run: Run) -> tuple[str, int, str]:
    run.refresh_from_db()
    return run.status, run.epoch, run.taken_by


@race("recover", "take")
def test_recover_before_take() -> None:
    """Whoever comes while it is being recovered gets nothing and does not wait; the ring after the commit is what
    brings a worker."""
    run, first = lapsed()
    with transaction.atomic():
        assert lifecycle.recover(run.pk)
        assert elsewhere(lambda: take(run)) is None
    second = take(run)
    assert (second.epoch, state(run)) == (3, (RunStatus.RUNNING, 3, "w2"))
    assert verbs(run) == ["submitted", "taken", "recovered", "taken"]
    assert (lifecycle.renew(first), lifecycle.renew(second)) == (False, True)


@race("recover", "take")
def test_recover_before_take_that_waits_for_the_row() -> None:
    """Both takes of a run that was recovered wait for its row: one gets it, with one epoch."""
    run, _ = lapsed()
    assert lifecycle.recover(run.pk)
    first, second = in_turn(lambda: lifecycle.lock(run.pk), lambda: take(run, "w2"), lambda: take(run, "w3"))
    assert (first.epoch, second, state(run)) == (3, None, (RunStatus.RUNNING, 3, "w2"))


@race("take", "recover")
def test_take_before_recover_of_a_sweeper_that_looked_earlier() -> None:
    """F51, F52: it found a lease that had run out; another recovered the run meanwhile, and a worker has it. It is
    not taken from that one, neither before its commit nor after it."""
    run, first = lapsed()
    assert found_by_sweeper() == [run.pk]
    assert lifecycle.recover(run.pk)
    with transaction.atomic():
        second = take(run)
        assert elsewhere(lambda: lifecycle.recover(run.pk)) is False
    assert (lifecycle.recover(run.pk), state(run)) == (False, (RunStatus.RUNNING, 3, "w2"))
    assert (lifecycle.renew(first), lifecycle.renew(second)) == (False, True)
    assert verbs(run) == ["submitted", "taken", "recovered", "taken"]


@race("take", "recover")
def test_take_before_recover_of_a_run_that_waits() -> None:
    """A queued run is nobody's to recover, also while it is being taken."""
    run = submitted("adder", n=2)
    with transaction.atomic():
        fence = take(run)
        assert elsewhere(lambda: lifecycle.recover(run.pk)) is False
    assert (lifecycle.recover(run.pk), fence.epoch) == (False, 1)
    assert verbs(run) == ["submitted", "taken"]


@race("take", "recover", free=True)
def test_take_against_recover() -> None:
    for number in rounds():
        run, first = lapsed()
        taken, recovered = clash(number, lambda: take(run), lambda: lifecycle.recover(run.pk))
        if not recovered:  # the worker that came had the row at that moment
            assert taken is None
            assert lifecycle.recover(run.pk)
        if taken is None:
            taken = take(run)
        assert (taken.epoch, state(run)) == (3, (RunStatus.RUNNING, 3, "w2"))
        assert lifecycle.recover(run.pk) is False
        assert (lifecycle.renew(first), lifecycle.renew(taken)) == (False, True)
        assert verbs(run) == ["submitted", "taken", "recovered", "taken"]
        lifecycle.hand_back(taken, "enough")
        run.refresh_from_db()
        assert result(drive(run)) == 1
