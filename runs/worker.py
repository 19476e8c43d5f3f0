"""RQ's forking worker with one warm horse.

RQ forks a child for each job, which costs more than a step. Here one child, the horse, lives on and is handed
jobs over a line; RQ's heartbeats, stop commands and handling of killed horses stay as they are. The parent
alone speaks to Valkey and keeps RQ's books, the horse alone speaks to PostgreSQL: no socket is shared, and a
Valkey that goes away, is emptied or restarted disturbs no step; the parent waits until it is back.
A horse that dies is replaced, and it never outlives its parent (on Linux), not even a killed one.
SIGALRM belongs to the loop: RQ's death penalty is off. How a worker stops: `shutdown`.
"""

import contextlib
import ctypes
import gc
import json
import logging
import os
import signal
import socket
import sys
import traceback
from collections.abc import Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, NoReturn
from uuid import uuid4

import redis
import rq
from django.db import connections
from django.utils.module_loading import autodiscover_modules
from redis.backoff import AbstractBackoff
from redis.client import Pipeline
from redis.retry import Retry
from rq import worker_registration
from rq.exceptions import DequeueTimeout, InvalidJobOperation, NoSuchJobError, StopRequested
from rq.executions import Execution
from rq.job import Job, JobStatus
from rq.timeouts import BaseDeathPenalty, HorseMonitorTimeoutException
from rq.worker import WorkerStatus

from runs import agents, queues, redaction, shutdown

TTL = 35  # seconds; RQ waits for a job 15 less, and lets the worker's key live 60 longer
BEAT = 10  # seconds between heartbeats while a job runs
ANSWER_WITHIN = 30.0  # seconds; more than the wait for a job
RETRY_EVERY = 0.5  # seconds, while Valkey is away
PR_SET_PDEATHSIG = 1
DONE = ""  # what a horse answers; anything else is a traceback

logger = logging.getLogger(__name__)
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None
_NOWHERE = redis.Redis()  # a job must have a connection; the horse's never connects


class Patience(AbstractBackoff):
    """Waits for Valkey as long as it takes, unless this process is to stop. (Copied with each connection.)"""

    def compute(self, failures: int) -> float:
        if shutdown.requested():
            raise redis.ConnectionError("Valkey is away, and this worker is to stop")
        if failures % 20 == 1:
            logger.warning("Valkey is away; this worker waits for it")
        return RETRY_EVERY


class NoDeathPenalty(BaseDeathPenalty):
    """RQ's own would set, and afterwards reset, SIGALRM."""

    def setup_death_penalty(self) -> None:
        pass

    def cancel_death_penalty(self) -> None:
        pass


class Horse:
    """The child that does the work: its pid, and the parent's end of the line to it."""

    def __init__(self) -> None:
        self.ended: tuple[int, int, Any] | None = None
        connections.close_all()  # a socket that two processes hold is a socket that two processes read
        parent = os.getpid()
        self.line, far_end = Pipe()
        with _signals_held():
            self.pid = os.fork()
            if self.pid == 0:
                self.line.close()
                _be_a_horse(parent, far_end)
            with contextlib.suppress(OSError):  # both do it: whoever signals the group first finds it
                os.setpgid(self.pid, self.pid)
        far_end.close()

    def is_dead(self) -> bool:
        if self.ended is None:
            self._note(*os.wait4(self.pid, os.WNOHANG))
        return self.ended is not None

    def bury(self) -> tuple[int, int, Any]:
        """Ends it if it has not ended, with what it started. Pid, wait status (never 0), usage."""
        self.line.close()
        if not self.is_dead():
            os.killpg(self.pid, signal.SIGKILL)
            self._note(*os.wait4(self.pid, 0))
        assert self.ended
        return self.ended

    def _note(self, pid: int, status: int, usage: Any) -> None:
        if pid:  # to leave without an answer is to fail, whatever the exit status says
            self.ended = pid, status or os.EX_SOFTWARE << 8, usage


class Worker(rq.Worker):
    """One worker on the queue `default`. `work()` returns when told to stop, or when RQ's loop gave up."""

    death_penalty_class = NoDeathPenalty

    def __init__(self) -> None:
        queue = queues.connect(answer_within=ANSWER_WITHIN, retry=Retry(Patience(), -1))
        super().__init__(
            [queue],
            # A name is refused while its key lives, and a container's pid comes again: hence the rest.
            name=f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:6]}",
            connection=queue.connection,
            worker_ttl=TTL,
            job_monitoring_interval=BEAT,
            log_job_description=False,
        )
        self._horse: Horse | None = None
        self._answer: str | None = None
        self._waiting = False

    @property
    def told_to_stop(self) -> bool:
        return bool(self._stop_requested)

    # -- starting and stopping ------------------------------------------------

    def bootstrap(self, *args: Any, **kwargs: Any) -> None:
        """All code is imported here, so that a new horse is ready as soon as it is forked."""
        agents.load()
        autodiscover_modules("jobs")
        gc.freeze()  # what stays is not looked at again, and not copied by being looked at
        self._horse = Horse()  # before RQ starts its thread for commands
        super().bootstrap(*args, **kwargs)

    def serialize(self) -> dict[Any, Any]:
        """What RQ keeps of a worker, and which versions this one has, so that the sweeper sees what nobody has."""
        has = {str(made): made.code_digest for made in agents.all_versions()}
        return {**super().serialize(), queues.HAS: json.dumps(has)}

    def handle_warm_shutdown_request(self) -> None:
        shutdown.request()  # a horse forked from now on inherits the flag
        if self._horse:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._horse.pid, signal.SIGUSR1)

    def _shutdown(self) -> None:
        """Runs in the signal handler, so it neither speaks to Valkey nor throws away a job just taken."""
        self._stop_requested = True
        if self._waiting:
            raise StopRequested

    def teardown(self) -> None:
        if self._horse:
            self._horse.bury()
        with contextlib.suppress(redis.RedisError):
            super().teardown()  # type: ignore[no-untyped-call]

    def unsubscribe(self) -> None:
        """RQ stops its thread after waking it, and then waits a second for it."""
        thread: Any = self.pubsub_thread
        if thread:
            thread.stop()
            thread.pubsub.unsubscribe()
            thread.join(timeout=1)

    # -- taking a job -----------------------------------------------------------

    def dequeue_job_and_maintain_ttl(self, timeout: int | None, max_idle_time: int | None = None) -> Any:
        """RQ's own beats its heart before and after; here only while nothing comes: a ring is quick."""
        if self.get_state() != WorkerStatus.IDLE:
            self._state = WorkerStatus.IDLE
            self.heartbeat()
        while not self._stop_requested:
            try:
                return self._wait_for_job(timeout)
            except DequeueTimeout:
                self.heartbeat()
                if self.should_run_maintenance_tasks:
                    self.run_maintenance_tasks()  # type: ignore[no-untyped-call]
        return None

    def _wait_for_job(self, timeout: int | None) -> Any:
        self._waiting = True
        try:
            return self.queue_class.dequeue_any(
                self.queues,
                timeout,
                connection=self.connection,
                job_class=self.job_class,
                serializer=self.serializer,
                death_penalty_class=self.death_penalty_class,
            )
        finally:
            self._waiting = False

    def heartbeat(self, timeout: int | None = None, pipeline: Pipeline | None = None) -> None:
        """In one round trip, and with everything a worker has in Valkey: it may have been emptied."""
        if pipeline is not None:
            super().heartbeat(timeout, pipeline)
            return
        with self.connection.pipeline() as beat:
            super().heartbeat(timeout, beat)
            beat.hset(self.key, mapping={**self.serialize(), "state": self.get_state()})
            worker_registration.register(self, beat)
            beat.execute()

    # -- a job --------------------------------------------------------------------

    def execute_job(self, job: Job, queue: rq.Queue) -> None:
        """Handed over first: the books are kept while the horse works. It finishes even if they cannot be."""
        self.fork_work_horse(job, queue)
        try:
            execution = self.prepare_execution(job)
            self.prepare_job_execution(job, remove_from_intermediate_queue=True)
            self.monitor_work_horse(job, queue, execution)
            self._close_books(job, queue, execution)
        finally:
            self._see_out()
        self._state = WorkerStatus.IDLE

    def fork_work_horse(self, job: Job, queue: rq.Queue) -> None:
        """Hands the job to the warm horse; forks only if the last one has died."""
        self._answer = None
        if self._horse is None or self._horse.is_dead():
            self._replace_horse()
        try:
            self._live_horse.line.send((job.id, job.data))
        except ConnectionError:  # it died between the look and the hand-over
            self._replace_horse()
            self._live_horse.line.send((job.id, job.data))
        self._horse_pid = self._live_horse.pid

    def wait_for_horse(self) -> tuple[int | None, int | None, Any]:
        """The horse's answer or its death. RQ beats its heart when a while has brought neither."""
        horse = self._live_horse
        answered = horse.line.poll(self.job_monitoring_interval)
        if not answered and not horse.is_dead():
            raise HorseMonitorTimeoutException
        self._horse_pid = 0
        with contextlib.suppress(EOFError, ConnectionError):
            self._answer = horse.line.recv() if answered else None
        if self._answer != DONE:
            self._horse, ended = None, horse.bury()
            return ended if self._answer is None else (horse.pid, os.EX_OK, None)
        return horse.pid, os.EX_OK, None

    def kill_horse(self, sig: signal.Signals = signal.SIGKILL) -> None:
        if self.horse_pid:  # RQ asks for the group of pid 0 otherwise, which is the worker's own
            super().kill_horse(sig)

    def _close_books(self, job: Job, queue: rq.Queue, execution: Execution) -> None:
        if self._answer is None:
            return  # killed: RQ has written it down
        if self._answer == DONE:
            try:
                self._finalize_success(job, queue, execution, None)
            except (InvalidJobOperation, NoSuchJobError, ValueError):  # what RQ says of an emptied Valkey
                self.connection.delete(job.key)
            return
        last_line = self._answer.splitlines()[-1]
        logger.warning("Job %s (%s) raised %s", job.id, job.func_name, last_line)
        job._status = JobStatus.FAILED
        self.handle_execution_ended(job, queue, BEAT)
        self.handle_job_failure(job, queue, exc_string=self._answer, execution=execution)

    def _see_out(self) -> None:
        while self.horse_pid:
            with contextlib.suppress(HorseMonitorTimeoutException):
                self.wait_for_horse()

    @property
    def _live_horse(self) -> Horse:
        assert self._horse is not None
        return self._horse

    def _replace_horse(self) -> None:
        if self._horse is not None:
            logger.warning("The horse %s has died; there is a new one", self._horse.pid)
            self._horse.bury()
        self._horse = Horse()


# -- in the horse --------------------------------------------------------------------


@contextlib.contextmanager
def _signals_held() -> Iterator[None]:
    """A signal that comes while forking is for one of the two, and must not meet the other's handlers."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGUSR1})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _be_a_horse(parent: int, line: Connection) -> NoReturn:
    """Never returns, because the frames above are the parent's."""
    try:
        os.setpgid(0, 0)
        _die_with(parent)
        _set_signals()
        _serve(line)
        os._exit(os.EX_OK)
    finally:
        os._exit(os.EX_SOFTWARE)


def _die_with(parent: int) -> None:
    if _libc:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the line above
        os._exit(os.EX_OK)


def _set_signals() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole terminal; the parent decides
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGUSR1, lambda *_: shutdown.request())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGUSR1})


def _serve(line: Connection) -> None:
    """One job after the other, until the parent closes the line or a job raises.

    What a job did not expect may have left threads or timers behind, so its traceback is the last answer.
    """
    while True:
        try:
            job_id, data = line.recv()
        except EOFError:
            return
        job = Job(job_id, connection=_NOWHERE)
        job.data = data
        try:
            job.perform()
        except BaseException:
            line.send(redaction.scrub(traceback.format_exc()))  # RQ keeps it
            raise
        line.send(DONE)
