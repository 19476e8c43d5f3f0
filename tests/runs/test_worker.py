"""The worker and its warm horse: real processes on a real Valkey, ended in every way they can be."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from django.conf import settings as django_settings
from rq.command import send_stop_job_command
from rq.job import Job, JobStatus
from rq.worker import Worker as RqWorker

from runs import queues
from tests.runs.own_valkey import Valkey, running_valkey, until, valkey

__all__ = ["running_valkey", "valkey"]


class Seen:
    """The file in which jobs say what they saw."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.gate = file.with_suffix(".gate")

    def __call__(self, count: int) -> list[str]:
        """The lines, once there are `count`."""
        return list(until(lambda: lines if len(lines := self.lines()) >= count else None))

    def lines(self) -> list[str]:
        return self.file.read_text().splitlines() if self.file.exists() else []

    def give(self, name: str, *more: str) -> None:
        """As `queues` enqueues, without a database."""
        queues._push(f"tests.runs.jobs_for_tests.{name}", (str(self.file), *more))

    def job(self, name: str, *more: str) -> int:
        """Gives it, and answers with the pid it ran in as soon as it has started."""
        before = len(self.lines())
        self.give(name, *more)
        return int(self(before + 1)[before])


@pytest.fixture
def seen(tmp_path: Path) -> Seen:
    return Seen(tmp_path / "seen")


StartWorker = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start_worker(valkey: Valkey) -> Iterator[StartWorker]:
    """Starts workers, and leaves none behind."""
    started: list[subprocess.Popen[str]] = []

    def start(*options: str, ready: bool = True, **environment: str) -> subprocess.Popen[str]:
        worker = subprocess.Popen(
            [sys.executable, "manage.py", "work", *options],
            cwd=django_settings.BASE_DIR,
            env=os.environ | {"REDIS_URL": valkey.url, "AGENTS": ""} | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        started.append(worker)
        if ready:
            assert first_line(worker).startswith("Worker ")
        return worker

    yield start
    for worker in started:
        worker.kill()
        sys.stdout.write(worker.communicate()[0])  # shown if the test fails


@pytest.fixture
def worker(start_worker: StartWorker) -> subprocess.Popen[str]:
    return start_worker()


def first_line(worker: subprocess.Popen[str]) -> str:
    assert worker.stdout
    return worker.stdout.readline()


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def running_job(valkey: Valkey) -> Job:
    """The job that a worker has written its name on."""

    def look() -> Job | None:
        for key in valkey.client.keys("rq:job:*"):
            if valkey.client.hget(key, "worker_name"):
                return Job.fetch(key.decode().removeprefix("rq:job:"), connection=valkey.client)
        return None

    job: Job = until(look)
    return job


# -- working --------------------------------------------------------------------------


def test_work_burst_runs_what_waits_and_exits(start_worker: StartWorker, seen: Seen, valkey: Valkey) -> None:
    seen.give("pid")
    seen.give("pid")
    worker = start_worker("--burst")

    assert worker.wait(10) == 0
    assert len(seen.lines()) == 2
    assert queues.length() == 0
    assert valkey.client.keys("rq:job:*") == []


def test_work_runs_every_job_in_the_same_horse(worker: subprocess.Popen[str], seen: Seen) -> None:
    horses = [seen.job("pid") for _ in range(5)]

    assert len(set(horses)) == 1
    assert horses[0] != worker.pid


def test_work_is_listed_under_host_and_pid(worker: subprocess.Popen[str], seen: Seen, valkey: Valkey) -> None:
    seen.job("pid")

    [listed] = RqWorker.all(connection=valkey.client)
    assert listed.name.startswith(f"{socket.gethostname()}-{worker.pid}-")


def test_work_starts_itself_again_where_hashes_are_random(start_worker: StartWorker, seen: Seen) -> None:
    start_worker(PYTHONHASHSEED="random")
    seen.give("hash_seed")

    assert seen(1) == ["0 0"]


def test_work_leaves_the_alarm_to_jobs(worker: subprocess.Popen[str], seen: Seen) -> None:
    seen.give("alarm")
    seen.give("alarm")

    assert seen(4) == ["True", "interrupted"] * 2


# -- jobs that end badly -----------------------------------------------------------------


def test_work_goes_on_after_a_job_that_raises(
    worker: subprocess.Popen[str], seen: Seen, valkey: Valkey
) -> None:
    first = seen.job("fail")
    second = seen.job("pid")

    assert first != second
    [key] = valkey.client.zrange("rq:failed:default", 0, -1)
    failed = Job.fetch(key.decode(), connection=valkey.client).latest_result()
    assert failed
    assert str(failed.exc_string).splitlines()[-1] == "LookupError: as it was meant to"


@pytest.mark.parametrize("name", ["sleep", "spin"])
def test_stop_command_ends_the_job_and_the_next_has_a_new_horse(
    name: str, worker: subprocess.Popen[str], seen: Seen, valkey: Valkey
) -> None:
    horse = seen.job(name)
    job = running_job(valkey)
    send_stop_job_command(valkey.client, job.id)

    until(lambda: job.get_status() == JobStatus.STOPPED)
    assert gone(horse)
    assert seen.job("pid") not in (horse, worker.pid)


@pytest.mark.parametrize("end", ["killed", "leave"])
def test_work_goes_on_after_a_horse_that_ends_in_a_job(
    end: str, worker: subprocess.Popen[str], seen: Seen, valkey: Valkey
) -> None:
    horse = seen.job("sleep" if end == "killed" else end)
    if end == "killed":
        os.kill(horse, signal.SIGKILL)

    assert seen.job("pid") != horse
    until(lambda: valkey.client.zcard("rq:failed:default") == 1)


def test_work_replaces_a_horse_that_died_idle(
    worker: subprocess.Popen[str], seen: Seen, valkey: Valkey
) -> None:
    horse = seen.job("pid")
    until(lambda: valkey.client.keys("rq:job:*") == [])
    os.kill(horse, signal.SIGKILL)
    until(lambda: gone(horse))

    assert seen.job("pid") != horse
    assert valkey.client.zcard("rq:failed:default") == 0


# -- workers that end ----------------------------------------------------------------------


def test_kill_of_an_idle_worker_takes_the_horse_along(worker: subprocess.Popen[str], seen: Seen) -> None:
    horse = seen.job("pid")
    worker.kill()

    until(lambda: gone(horse))


def test_kill_of_a_busy_worker_takes_the_horse_along(worker: subprocess.Popen[str], seen: Seen) -> None:
    horse = seen.job("spin")
    worker.kill()

    until(lambda: gone(horse))


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_signal_to_an_idle_worker_ends_it(
    stop: signal.Signals, worker: subprocess.Popen[str], seen: Seen, valkey: Valkey
) -> None:
    horse = seen.job("pid")
    worker.send_signal(stop)

    assert worker.wait(10) == 0
    assert gone(horse)
    assert RqWorker.all(connection=valkey.client) == []


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_signal_to_a_busy_worker_tells_the_job_and_lets_it_finish(
    stop: signal.Signals, worker: subprocess.Popen[str], seen: Seen
) -> None:
    horse = seen.job("wait_for_file", str(seen.gate))
    seen.give("pid")
    worker.send_signal(stop)
    until(lambda: len(psutil.Process(worker.pid).children()) == 1)
    seen.gate.touch()

    assert worker.wait(10) == 0
    assert seen.lines() == [str(horse), "True"]
    assert queues.length() == 1


def test_second_signal_ends_the_job_too(worker: subprocess.Popen[str], seen: Seen) -> None:
    horse = seen.job("sleep")

    def stopped() -> bool:
        worker.terminate()  # RQ takes signals within a second for one
        return worker.poll() is not None

    until(stopped)
    assert gone(horse)


# -- Valkey emptied, restarted, away ---------------------------------------------------------


def test_work_goes_on_when_valkey_is_emptied_between_jobs(
    worker: subprocess.Popen[str], seen: Seen, valkey: Valkey
) -> None:
    horse = seen.job("pid")
    valkey.client.flushall()

    assert [seen.job("pid"), seen.job("pid")] == [horse, horse]
    until(lambda: len(RqWorker.all(connection=valkey.client)) == 1)


def test_work_goes_on_when_valkey_is_emptied_during_a_job(
    worker: subprocess.Popen[str], seen: Seen, valkey: Valkey
) -> None:
    horse = seen.job("wait_for_file", str(seen.gate))
    running_job(valkey)
    valkey.client.flushall()
    seen.gate.touch()
    assert seen(2)[1] == "False"

    assert seen.job("pid") == horse
    until(lambda: valkey.client.keys("rq:job:*") == [])


def test_work_goes_on_when_valkey_is_restarted_during_a_job(
    worker: subprocess.Popen[str], seen: Seen, valkey: Valkey
) -> None:
    horse = seen.job("wait_for_file", str(seen.gate))
    valkey.kill()
    seen.gate.touch()
    assert seen(2)[1] == "False"
    valkey.start()

    assert seen.job("pid") == horse
    assert worker.poll() is None


def test_stop_command_is_heard_after_valkey_was_restarted(
    worker: subprocess.Popen[str], seen: Seen, valkey: Valkey
) -> None:
    seen.job("pid")
    valkey.kill()
    valkey.start()
    horse = seen.job("sleep")
    job = running_job(valkey)
    until(lambda: valkey.client.pubsub_numsub(f"rq:pubsub:{job.worker_name}")[0][1] == 1)
    send_stop_job_command(valkey.client, job.id)

    until(lambda: gone(horse))


def test_signal_ends_an_idle_worker_while_valkey_is_away(
    worker: subprocess.Popen[str], seen: Seen, valkey: Valkey
) -> None:
    seen.job("pid")
    valkey.kill()
    worker.terminate()

    assert worker.wait(10) == 0


def test_signal_to_a_busy_worker_lets_the_job_finish_while_valkey_is_away(
    worker: subprocess.Popen[str], seen: Seen, valkey: Valkey
) -> None:
    horse = seen.job("wait_for_file", str(seen.gate))
    valkey.kill()
    worker.terminate()
    seen.gate.touch()

    assert worker.wait(10) == 0
    assert seen.lines()[0] == str(horse)
    assert len(seen.lines()) == 2


def test_work_waits_for_a_valkey_that_is_not_there_yet(
    start_worker: StartWorker, seen: Seen, valkey: Valkey
) -> None:
    valkey.kill()
    worker = start_worker(ready=False)
    assert "Valkey is away" in first_line(worker)
    valkey.start()

    assert seen.job("pid") != worker.pid
