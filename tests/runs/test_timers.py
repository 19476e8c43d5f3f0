"""Limits on code of others: the timer, the lease's own clock, and the named points."""

import signal
import threading
import time

import pytest
from django.conf import settings
from django.db import transaction

from runs import points, timers
from runs.lease import Lease

pytestmark = pytest.mark.integration  # it waits: too slow for the layer of each commit


def test_limit_interrupts() -> None:
    started = time.monotonic()
    with pytest.raises(timers.OutOfTime), timers.limit(0.1):
        time.sleep(5)
    assert time.monotonic() - started < 2


def test_limit_is_no_exception_that_broad_handlers_swallow() -> None:
    def broad() -> None:
        try:
            time.sleep(5)
        except Exception as error:
            raise AssertionError("swallowed") from error

    with pytest.raises(timers.OutOfTime), timers.limit(0.1):
        broad()


def test_limit_interrupts_again_what_swallows_it() -> None:
    def stubborn() -> None:
        try:
            time.sleep(5)
        except BaseException:
            time.sleep(5)

    with pytest.raises(timers.OutOfTime), timers.limit(0.1):
        stubborn()


def test_limit_leaves_no_alarm_behind() -> None:
    before = signal.getsignal(signal.SIGALRM)
    with timers.limit(0.1):
        pass
    with pytest.raises(timers.OutOfTime), timers.limit(0.05):
        time.sleep(5)
    assert signal.getsignal(signal.SIGALRM) == before


def test_limit_around_another_goes_on() -> None:
    def work() -> None:
        with timers.limit(5):
            pass
        time.sleep(5)

    with pytest.raises(timers.OutOfTime), timers.limit(0.2):
        work()


def test_limit_off_the_main_thread_is_none() -> None:
    done: list[bool] = []

    def work() -> None:
        with timers.limit(0.01):
            time.sleep(0.05)
        done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [True]


# -- The lease's own clock -----------------------------------------------------------------------


def test_lease_is_alive_for_its_length() -> None:
    lease = Lease()
    assert not lease.alive()
    lease._until = time.monotonic() + settings.LEASE
    assert lease.alive()
    lease._until = time.monotonic() - 0.01
    assert not lease.alive()


def test_lease_is_kept_for_the_longest_of_what_runs() -> None:
    """Of two calls side by side the short one does not shorten the other's."""
    lease = Lease()
    lease.busy(60)
    lease.busy(1)
    assert lease._busy_until > time.monotonic() + 59


# -- Points --------------------------------------------------------------------------------------


def test_points_act_only_while_they_are_on() -> None:
    seen: list[str] = []
    points.reach("here")
    with points.on("here", lambda: seen.append("x")):
        points.reach("here")
        points.reach("there")
    points.reach("here")
    assert seen == ["x"]


def test_points_watched_are_all_but_those_with_an_action_of_their_own() -> None:
    seen: list[str] = []
    with points.watch(seen.append), points.on("here", lambda: seen.append("its own")):
        points.reach("here")
        points.reach("there")
    points.reach("there")
    assert seen == ["its own", "there"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("commits", "seen"),
    [(True, ["committing-x", "written", "committed-x"]), (False, ["committing-x", "written"])],
)
def test_points_around_a_commit(commits: bool, seen: list[str]) -> None:
    passed: list[str] = []
    with points.watch(passed.append), transaction.atomic():
        points.committing("x")
        passed.append("written")
        transaction.set_rollback(not commits)
    assert passed == seen
