"""Whole workers, RQ's loop and the horse, told to stop twice, killed and rung for too often: nothing is doubled."""

import os
import signal
import subprocess
import time
from collections.abc import Callable

import psutil
import pytest
from django.conf import settings
from rq import Retry
from rq.job import Job
from rq.registry import StartedJobRegistry

from runs import endings, queues, sweeper
from runs.models import JournalEntry, Run
from runs.states import Cause, RunStatus
from tests.crashes.processes import Workers, until
from tests.factories import CYD, approve, causes, driven, later, open_hold, step, submitted, sweep_run, verbs
from tests.outside import Outside
from tests.threads import together

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("invariants")]
Rules = Callable[..., None]

#: What a worker is, without the app that knows people.
WORK = """
import django
django.setup()
from tests import authority
authority.stand_in()
from runs.worker import Worker
Worker().work(logging_level="WARNING")
"""
#: A sweeper that stands still when it has found what is due, and before it does the first of it.
SWEEP = """
import django
django.setup()
from tests import authority
authority.stand_in()
from runs import points, sweeper
verb = sweeper._verbs["expire_holds"]
def act(item):
    points.reach("mid-sweep")
    return verb.act(item)
sweeper.register(verb.name, verb.find, act)
sweeper.sweep()
"""
#: Whoever stands still in a transaction, with the row of a run.
HOLD = """
import sys, uuid, django
django.setup()
from django.db import transaction
from runs import lifecycle, points
with transaction.atomic():
    lifecycle.lock(uuid.UUID(sys.argv[1]))
    points.reach("mid-transaction")
"""
LOOP = """
import django
django.setup()
from tests import authority
authority.stand_in()
from runs import sweeper
sweeper.loop()
"""
#: Approves, and dies when the approval is committed and nobody has been rung for.
APPROVE = """
import os, signal, sys, uuid, django
django.setup()
from django.db import transaction
from tests import authority
authority.stand_in()
from runs.models import Hold
from tests.factories import approve
with transaction.atomic():
    transaction.on_commit(lambda: os.kill(os.getpid(), signal.SIGKILL))
    approve(Hold.objects.open().get(run=uuid.UUID(sys.argv[1]), cause="approval"))
"""


@pytest.fixture
def work(workers: Workers) -> Callable[..., "subprocess.Popen[bytes]"]:
    workers.script = WORK
    return workers.start


def put(run: Run, retries: int) -> Job:
    """As `queues.ring`, with what RQ may do again by itself."""
    again = Retry(max=retries) if retries else None
    return queues._bell().enqueue("runs.jobs.drive", str(run.pk), job_timeout=-1, retry=again, failure_ttl=60)


def gets_to(run: Run, *ends: str) -> None:
    """As idle workers do it, with the sweeper of this process."""

    def there() -> bool:
        sweep_run(run)
        return run.status in ends

    until(there)


# -- In the call (F48) ---------------------------------------------------------------------------

#: Which tool, by what can be known of it: nothing, by looking, and that the same key is honoured.
IN_FLIGHT = {"neither": "pay_detached", "verify": "pay_cancelled", "idempotent": "note"}
LIMIT = 60.0


def in_flight(kind: str, outside: Outside) -> Run:
    """A run whose next call acts at once and does not answer."""
    name = IN_FLIGHT[kind]
    outside.will(name, "act_then_wait")
    return submitted("questioner") if kind == "idempotent" else submitted("payer", how=name)


def told_twice(worker: "subprocess.Popen[bytes]") -> None:
    """SIGTERM until it has ended: within a second RQ takes two for one."""

    def ended() -> bool:
        worker.terminate()
        return worker.poll() is not None

    until(ended)


def horse_killed(worker: "subprocess.Popen[bytes]") -> None:
    [horse] = psutil.Process(worker.pid).children()
    horse.kill()


def worker_killed(worker: "subprocess.Popen[bytes]") -> None:
    """The horse goes with it."""
    [horse] = psutil.Process(worker.pid).children()
    worker.kill()
    worker.wait()
    until(lambda: not horse.is_running())


def both_killed(worker: "subprocess.Popen[bytes]") -> None:
    [horse] = psutil.Process(worker.pid).children()
    os.kill(worker.pid, signal.SIGSTOP)  # so that it does not see the death of the other
    horse.kill()
    worker.kill()
    worker.wait()


ENDS = {
    "told to stop twice": (told_twice, 0),
    "told to stop twice, and RQ retries": (told_twice, 3),
    "the horse killed": (horse_killed, 0),
    "the horse killed, and RQ retries": (horse_killed, 3),
    "the worker killed": (worker_killed, 0),
    "the worker killed, and RQ retries": (worker_killed, 3),
    "both killed": (both_killed, 0),
}


@pytest.mark.parametrize("end", sorted(ENDS))
@pytest.mark.parametrize("kind", sorted(IN_FLIGHT))
def test_worker_ended_in_a_call(kind: str, end: str, work: Callable[..., object], outside: Outside) -> None:
    """F48: SIGTERM twice, and `kill -9` of whichever, is a death between the effect and its record; a retry of
    RQ's repeats nothing."""
    ends, retries = ENDS[end]
    run = in_flight(kind, outside)
    queues._bell().empty()
    first = work(run)
    job = put(run, retries)
    until(lambda: (outside.folder / "waiting").exists())
    ends(first)  # type: ignore[arg-type]
    gone = ends is not horse_killed
    retried(job, retries, gone)
    if gone:
        work(run)
    until(lambda: queues.length() == 0)
    name = IN_FLIGHT[kind]
    assert len(outside.tried(name)) == 1
    later(settings.LEASE + LIMIT)
    gets_to(run, RunStatus.SUCCEEDED, RunStatus.SUSPENDED)
    said = {
        "neither": (RunStatus.SUSPENDED, ["in_doubt"], 1),
        "verify": (RunStatus.SUCCEEDED, [], 1),
        "idempotent": (RunStatus.SUSPENDED, ["question"], 2),
    }
    assert (run.status, causes(run), len(outside.tried(name))) == said[kind]
    assert (len(outside.keys(name)), step(run, 0).effect) == (
        1,
        "in_doubt" if kind == "neither" else "confirmed",
    )


def retried(job: Job, retries: int, abandoned: bool) -> None:
    """RQ gives a job back: at once where its horse died, in its rounds where the worker is gone with it."""
    if not retries:
        return
    if abandoned:
        StartedJobRegistry(queue=queues._bell()).cleanup(timestamp=time.time() + 3600)
    until(lambda: Job.fetch(job.id, connection=job.connection).retries_left == retries - 1)


@pytest.mark.parametrize("kind", sorted(IN_FLIGHT))
def test_worker_told_once_in_a_call(kind: str, work: Callable[..., object], outside: Outside) -> None:
    """It finishes the call, writes down what came of it, and hands the run back at the next boundary."""
    name = IN_FLIGHT[kind]
    outside.will(name, "act_then_wait")
    run = submitted("transfer", how=name) if kind != "idempotent" else submitted("questioner")
    first = work(run)
    until(lambda: (outside.folder / "waiting").exists())
    first.terminate()  # type: ignore[attr-defined]
    time.sleep(1.5)  # nothing outside the horse shows that it has heard
    (outside.folder / "go").touch()
    assert first.wait(timeout=30) == 0  # type: ignore[attr-defined]
    index = 0 if kind == "idempotent" else 1
    run.refresh_from_db()
    assert (run.status, verbs(run)[-1], step(run, index).effect) == (
        RunStatus.QUEUED,
        "handed_back",
        "confirmed",
    )
    assert (len(outside.tried(name)), step(run, index).attempt, causes(run)) == (1, 1, [])


def test_whole_worker_frozen_past_its_lease(work: Callable[..., object], outside: Outside) -> None:
    """F52: RQ's worker and its horse stand still in a call; another pair takes over and finishes. Woken, the old
    pair writes nothing but what its call brought, and takes the next run as if nothing had been."""
    run = in_flight("idempotent", outside)
    first = work(run)
    until(lambda: (outside.folder / "waiting").exists())
    pair = psutil.Process(first.pid)  # type: ignore[attr-defined]
    frozen = [pair, *pair.children()]
    for process in frozen:
        process.suspend()
    try:
        until(lambda: "recover" in sweep_run(run))
        second = work(run)
        until(lambda: status(run) == RunStatus.SUSPENDED, seconds=60)
        before = verbs(run)
        (outside.folder / "go").touch()
    finally:
        for process in reversed(frozen):
            process.resume()
    until(lambda: len(step(run, 0).evidence) == 1)
    told_twice(second)  # type: ignore[arg-type]
    later_one = submitted("adder", n=1)
    until(lambda: status(later_one) == RunStatus.SUCCEEDED, seconds=60)
    assert [e["kind"] for e in step(run, 0).evidence] == ["returned"]
    assert ([verb for verb in verbs(run) if verb != "evidence"], status(run)) == (before, RunStatus.SUSPENDED)
    assert (causes(run), len(outside.tried("note")), len(outside.keys("note"))) == (["question"], 2, 1)


# -- Rung too often, and again at once (F51) -----------------------------------------------------------


def test_two_workers_and_a_resume_rung_for_three_times(
    workers: Workers, work: Callable[..., object], outside: Outside, rules: Rules
) -> None:
    """F51: one of them resumes it, once; and the second request of the same run, approved at once, resumes it
    again: no job of the run keeps the next one out."""
    rules(pay="hold")
    workers.env["TEST_RULES"] = os.environ["TEST_RULES"]
    run = driven("batch")
    for _ in range(2):
        work(run)
    for number in range(3):
        approve(open_hold(run, Cause.APPROVAL, number))
        queues.ring(run.pk)
        queues.ring(run.pk)
        ends = (RunStatus.SUCCEEDED,) if number == 2 else (RunStatus.SUSPENDED,)
        until(lambda ends=ends: status(run) in ends and queues.length() == 0)
        assert [call["arguments"]["to"] for call in outside.tried("pay")] == ["A", "B", "C"][: number + 1]
        assert verbs(run).count("resumed") == number + 1


def status(run: Run) -> str:
    run.refresh_from_db()
    return run.status


def test_sweeper_frozen_in_its_pass_finds_everything_done(workers: Workers, rules: Rules) -> None:
    """F51: two others pass meanwhile; when it wakes it does nothing a second time."""
    rules(pay="hold", expires_in=5)
    held = [driven("payer") for _ in range(3)]
    later(30)
    workers.script = SWEEP
    frozen = workers.start(held[0], mid_sweep="wait")
    workers.reached("mid_sweep")
    os.kill(frozen.pid, signal.SIGSTOP)
    assert sum(done.get("expire_holds", 0) for done in together(sweeper.sweep, sweeper.sweep)) == 3
    before = JournalEntry.objects.count()
    workers.go("mid_sweep")
    os.kill(frozen.pid, signal.SIGCONT)
    assert frozen.wait(timeout=30) == 0
    assert [(status(run), verbs(run).count("resumed")) for run in held] == [(RunStatus.QUEUED, 1)] * 3
    assert JournalEntry.objects.count() == before


def test_frozen_in_a_transaction_holds_up_nobody_else(workers: Workers, rules: Rules) -> None:
    """F51: a sweeper passes over the run whose row somebody frozen has, does the rest, and does it when it may."""
    rules(pay="hold", expires_in=5)
    held = [driven("payer") for _ in range(3)]
    later(30)
    workers.script = HOLD
    frozen = workers.start(held[0], mid_transaction="wait")
    workers.reached("mid_transaction")
    os.kill(frozen.pid, signal.SIGSTOP)
    workers.script = LOOP
    sweeping = workers.start(held[0])
    until(lambda: [status(run) for run in held[1:]] == [RunStatus.QUEUED] * 2)
    assert status(held[0]) == RunStatus.SUSPENDED
    workers.go("mid_transaction")
    os.kill(frozen.pid, signal.SIGCONT)
    until(lambda: status(held[0]) == RunStatus.QUEUED)
    sweeping.terminate()
    assert (sweeping.wait(timeout=30), frozen.wait(timeout=30)) == (0, 0)
    assert [verbs(run).count("resumed") for run in held] == [1, 1, 1]


# -- Committed, and nobody rung for (F44) -----------------------------------------------------------------


def test_killed_after_the_commit_and_before_the_ring(
    workers: Workers, outside: Outside, rules: Rules
) -> None:
    """F44 (c): the approval stands, the sweeper finds the run, and it acts once."""
    rules(pay="hold")
    run = driven("payer")
    workers.script = APPROVE
    queues._bell().empty()
    assert workers.start(run).wait(timeout=30) == -signal.SIGKILL
    assert (status(run), causes(run), queues.length()) == (RunStatus.QUEUED, [], 0)
    later(settings.SWEEP_EVERY + 1)
    assert sweep_run(run) == ["ring"]
    assert queues.length() == 1
    workers.script = WORK
    workers.start(run)
    until(lambda: status(run) == RunStatus.SUCCEEDED)
    assert outside.n("pay") == 1


def test_id_that_no_row_has_is_dropped_by_a_worker(work: Callable[..., object]) -> None:
    """F44 (d): not a failed job, and the next one is taken."""
    run = submitted("adder", n=1)
    gone = put(Run(), 0)
    work(run)
    until(lambda: status(run) == RunStatus.SUCCEEDED)
    assert gone.connection.zcard("rq:failed:default") == 0


def test_cancelled_run_is_rung_for_and_nothing_starts(work: Callable[..., object], outside: Outside) -> None:
    run = submitted("payer")
    endings.cancel(run.pk, actor=CYD)
    last = submitted("adder", n=1)
    work(run)
    until(lambda: status(last) == RunStatus.SUCCEEDED)
    assert (status(run), outside.tried()) == (RunStatus.CANCELLED, [])
