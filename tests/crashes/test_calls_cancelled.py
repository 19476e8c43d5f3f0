"""Stop now with real processes: a call that says `cancel` ends its process, and RQ's worker goes on with a new
horse; one that says anything else is never cut off."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings

from runs import endings, holds, invocation, lifecycle, stops
from runs.models import Run
from runs.states import RunStatus
from tests.crashes.processes import Workers, until
from tests.factories import CYD, causes, drive, go_on, later, result, step, submitted, verbs
from tests.outside import Outside

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("invariants")]
LONG = 3600.0

WORK = """
import django
django.setup()
from tests import authority
authority.stand_in()
from runs.worker import Worker
Worker().work()
"""


@pytest.fixture
def worker(workers: Workers, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """RQ's worker with its horse, on the test's queue."""
    started = subprocess.Popen([sys.executable, "-c", WORK], cwd=settings.BASE_DIR, env=workers.env)
    yield started
    started.send_signal(signal.SIGTERM)
    try:
        started.wait(timeout=20)
    except subprocess.TimeoutExpired:
        started.kill()
        started.wait()


def waiting(outside: Outside) -> None:
    until((outside.folder / "waiting").exists)


@pytest.mark.parametrize("press", ["stop", "cancel"])
def test_cancelled_call_ends_its_process(press: str, workers: Workers, outside: Outside) -> None:
    outside.will("pay_cancelled", "act_then_wait")
    run = submitted("payer", how="pay_cancelled")
    process = workers.start(run)
    waiting(outside)
    if press == "stop":
        stops.stop_now(run.pk, actor=CYD)
    else:
        assert endings.cancel(run.pk, actor=CYD).status == RunStatus.CANCELLED
    assert process.wait(timeout=20) == invocation.CANCELLED
    run.refresh_from_db()
    if press == "cancel":
        assert (step(run, 0).effect, verbs(run)[-1]) == ("in_doubt", "cancelled")
        return
    assert drive(run).status == RunStatus.SUSPENDED
    holds.unpause(run.pk, actor=CYD)
    later(LONG)
    assert (go_on(run).status, outside.n("pay_cancelled")) == (RunStatus.SUCCEEDED, 1)  # the bank said so


def test_pure_call_that_may_be_cut_off_ends_its_process(workers: Workers, outside: Outside) -> None:
    """It has no row: only its own worker knows of it, and lets go of the run itself."""
    run = submitted("slow-reader")
    process = workers.start(run)
    waiting(outside)
    stops.stop_now(run.pk, actor=CYD)
    assert process.wait(timeout=20) == invocation.CANCELLED
    run.refresh_from_db()
    assert (run.status, verbs(run)[-1]) == (RunStatus.QUEUED, "interrupted")
    assert (drive(run).status, causes(run)) == (RunStatus.SUSPENDED, ["person"])
    (outside.folder / "go").touch()
    holds.unpause(run.pk, actor=CYD)
    assert (go_on(run).status, result(run)) == (RunStatus.SUCCEEDED, 3)


def test_pause_cuts_nothing_off(workers: Workers, outside: Outside) -> None:
    outside.will("pay_cancelled", "act_then_wait")
    run = submitted("transfer", how="pay_cancelled")
    process = workers.start(run)
    waiting(outside)
    holds.pause(run.pk, actor=CYD)
    _some_beats()
    assert process.poll() is None
    (outside.folder / "go").touch()
    assert process.wait(timeout=20) == 0
    go_on(run)
    assert (run.status, causes(run), step(run, 1).effect) == (RunStatus.SUSPENDED, ["person"], "confirmed")


@pytest.mark.parametrize("how", ["pay_detached"])
def test_call_that_is_detached_is_not_cut_off(how: str, workers: Workers, outside: Outside) -> None:
    outside.will(how, "act_then_wait")
    run = submitted("payer", how=how)
    process = workers.start(run)
    waiting(outside)
    stops.stop_now(run.pk, actor=CYD)
    _some_beats()
    assert process.poll() is None
    (outside.folder / "go").touch()
    assert process.wait(timeout=20) == 0
    assert [e["kind"] for e in step(run, 0).evidence] == ["returned"]


def _some_beats() -> None:
    """Longer than the lease thread needs to see a stop."""
    time.sleep(4 * settings.HEARTBEAT)


def test_worker_goes_on_with_a_new_horse(
    worker: subprocess.Popen[bytes], outside: Outside, workers: Workers
) -> None:
    """The same worker, whose only horse was ended, takes the run that stands still, and the next one."""
    outside.will("pay_cancelled", "act_then_wait")
    run = submitted("payer", how="pay_cancelled")
    waiting(outside)
    stops.stop_now(run.pk, actor=CYD)
    until(lambda: Run.objects.filter(pk=run.pk, status=RunStatus.SUSPENDED).exists())
    other = submitted("adder", n=3)
    until(lambda: Run.objects.filter(pk=other.pk, status=RunStatus.SUCCEEDED).exists())
    assert worker.poll() is None
    takes = [verb for verb in verbs(run) if verb == "taken"]
    assert len(takes) == 2
    assert lifecycle.recover(run.pk) is False
