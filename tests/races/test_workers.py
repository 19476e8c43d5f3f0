"""Several workers, submitters and sweepers at the same moment, and a worker that comes back from the dead."""
# ruff: noqa: B023 - what `together` starts has ended before the loop goes on

import threading
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.conf import settings
from django.db import connections

from runs import clock, endings, execution, lifecycle, points, sweeper
from runs.exceptions import KeyReused
from runs.lifecycle import Submission
from runs.models import Run
from runs.states import RunStatus
from tests.factories import CYD, causes, drive, driven, later, result, step, submitted, verbs
from tests.outside import Outside
from tests.threads import behind, together

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("invariants")]
Rules = Callable[..., None]


def test_submit_with_one_key_at_once() -> None:
    for number in range(10):
        asked = Submission("adder", {"n": 1}, {}, idempotency_key=f"k{number}")
        found = together(*[lambda: lifecycle.submit(asked, actor=CYD)] * 4)
        assert len({run.pk for run, _ in found}) == 1
        assert sorted(made for _, made in found) == [False, False, False, True]
    assert Run.objects.count() == 10


def test_submit_with_one_key_and_two_bodies_at_once() -> None:
    bodies = [Submission("adder", {"n": n}, {}, idempotency_key="k") for n in (1, 2)]
    found = together(*[lambda body=body: lifecycle.submit(body, actor=CYD) for body in bodies])
    assert [type(f) for f in found].count(KeyReused) == 1


def test_take_at_once() -> None:
    for _ in range(30):
        run = submitted("adder", n=1)
        found = together(*[lambda: lifecycle.take(run.pk, "w")] * 3)
        assert sum(f is not None for f in found) == 1
        endings.cancel(run.pk, actor=CYD)
        endings.stop(next(f for f in found if f))


def test_drive_at_once(outside: Outside) -> None:
    """A doorbell that rang four times: one takes it, each step is made once."""
    for number in range(5):
        run = submitted("transfer")
        together(*[lambda: execution.drive(run.pk)] * 4)
        run.refresh_from_db()
        assert (run.status, run.epoch, outside.n("pay")) == (RunStatus.SUCCEEDED, 1, number + 1)


def test_recover_by_three_sweepers() -> None:
    run = submitted("adder", n=1)
    assert lifecycle.take(run.pk, "w1")
    later(settings.LEASE + 1)
    found = together(*[sweeper.sweep] * 3)
    assert sum(done.get("recover", 0) for done in found) == 1
    run.refresh_from_db()
    assert (run.status, run.epoch, verbs(run).count("recovered")) == (RunStatus.QUEUED, 2, 1)


def test_renew_before_recover() -> None:
    run = submitted("adder", n=1)
    fence = lifecycle.take(run.pk, "w1")
    assert fence is not None
    later(settings.LEASE + 1)
    lock = lambda: lifecycle.lock(run.pk)  # noqa: E731
    renewed, _ = behind(lock, lambda: lifecycle.renew(fence), lambda: lifecycle.renew(fence))
    assert (renewed, lifecycle.recover(run.pk)) == (True, False)


def test_recover_before_renew() -> None:
    """The heartbeat of the worker that was recovered waits for the row, and prolongs nothing."""
    run = submitted("adder", n=1)
    fence = lifecycle.take(run.pk, "w1")
    assert fence is not None
    later(settings.LEASE + 1)
    lock = lambda: lifecycle.lock(run.pk)  # noqa: E731
    assert behind(lock, lambda: lifecycle.recover(run.pk), lambda: lifecycle.renew(fence)) == (True, False)


def test_recover_of_a_locked_run_leaves_it_to_the_next_pass() -> None:
    run = submitted("adder", n=1)
    fence = lifecycle.take(run.pk, "w1")
    assert fence is not None
    later(settings.LEASE + 1)
    from django.db import transaction

    with transaction.atomic():
        lifecycle.lock(run.pk)
        assert together(lambda: lifecycle.recover(run.pk)) == [False]
    assert lifecycle.recover(run.pk)


def test_sweep_side_by_side_does_each_thing_once(rules: Rules) -> None:
    """F51: three sweepers, all kinds of due work."""
    rules(pay="hold", expires_in=5)
    held = [driven("payer") for _ in range(3)]
    later(30)
    found = together(*[sweeper.sweep] * 3)
    assert sum(done.get("expire_holds", 0) for done in found) == 3
    for run in held:
        run.refresh_from_db()
        assert (run.status, verbs(run).count("resumed")) == (RunStatus.QUEUED, 1)


@pytest.mark.parametrize("how", ["pay", "pay_keyed", "pay_checked"])
def test_frozen_worker_wakes_after_another_took_over(how: str, outside: Outside) -> None:
    """F52: W1 hangs in the call, W2 goes as far as it may; W1's result is evidence only."""
    run = submitted("payer", how=how)
    outside.will(how, "act_then_wait")
    first = Frozen(run)
    first.until_it_waits(outside)
    Run.objects.filter(pk=run.pk).update(lease_until=clock.now() - timedelta(seconds=1))
    assert lifecycle.recover(run.pk)
    run.refresh_from_db()
    drive(run)
    standing = run.status
    first.wakes(outside)
    run.refresh_from_db()
    row = step(run, 0)
    assert [(e["attempt"], e["kind"]) for e in row.evidence] == [(1, "returned")]
    if how == "pay":
        assert standing == RunStatus.SUSPENDED
        assert run.status == RunStatus.QUEUED  # its late result settled its own doubt
        drive(run)
    assert (run.status, step(run, 0).effect) == (RunStatus.SUCCEEDED, "confirmed")
    assert len(outside.tried(how)) == (2 if how == "pay_keyed" else 1)
    assert len(outside.keys(how)) == 1
    assert result(run)[:7] == "receipt"


class Frozen:
    """A worker in a thread of its own (so without a time limit) that stands in a call."""

    def __init__(self, run: Run) -> None:
        self.thread = threading.Thread(target=self._work, args=(run,))
        self.thread.start()

    def _work(self, run: Run) -> None:
        fence = lifecycle.take(run.pk, "frozen")
        assert fence is not None
        try:
            execution._until_still(fence)
        except execution.EpochLost:
            pass
        finally:
            connections.close_all()

    def until_it_waits(self, outside: Outside) -> None:
        deadline = clock.now() + timedelta(seconds=10)
        while not (outside.folder / "waiting").exists():
            assert clock.now() < deadline

    def wakes(self, outside: Outside) -> None:
        (outside.folder / "go").touch()
        self.thread.join(timeout=10)
        assert not self.thread.is_alive()


def test_frozen_worker_before_its_fence_makes_no_call(outside: Outside) -> None:
    """W1 stands between intent and call until its lease is long over: no call and no write."""
    run = submitted("payer")

    def freeze() -> None:
        execution.lease._until = 0.0  # its own clock: time has passed
        Run.objects.filter(pk=run.pk).update(lease_until=clock.now() - timedelta(seconds=1))
        assert lifecycle.recover(run.pk)

    with points.on("after-boundary", freeze):
        drive(run)
    assert (run.status, run.epoch, outside.tried()) == (RunStatus.QUEUED, 2, [])


def test_late_result_of_one_in_a_group_settles_its_doubt(outside: Outside) -> None:
    """Its thread goes on after its time is up: the call is in doubt, until the thread brings the receipt."""
    outside.will("pay", "act_then_wait")
    run = driven("batch")
    assert (run.status, causes(run), run.position) == (RunStatus.SUSPENDED, ["in_doubt"], 2)
    (outside.folder / "go").touch()
    deadline = clock.now() + timedelta(seconds=10)
    while run.status == RunStatus.SUSPENDED:
        assert clock.now() < deadline
        run.refresh_from_db()
    assert [found[:7] for found in result(drive(run))] == ["receipt"] * 3
    assert len(outside.tried("pay")) == 3
