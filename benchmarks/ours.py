"""Our side: a database with people and rules in it, real workers, runs submitted and decided by the verbs.

Everything is on: intent, receipt, record, journal, fence, a gate with policies, requests with their mails in the
outbox; the undo window is 0. Agents say by a socket what time it is; a thread keeps what they said, because a
sender waits when nobody reads.
"""

import os
import queue
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks import engines

ROOT = Path(__file__).resolve().parent.parent
TEXT = "a hundred bytes, as a step of an agent usually has some of them, and often more than these, mostly s"
PATIENCE = 300.0  # seconds for anything to happen
PAUSE = 0.03  # for a worker to be back at the queue
HELD = {"decide_within": 86400, "consume_within": 3600, "undo_seconds": 0, "group": "reviewers"}


class NotReached(Exception):
    """What was waited for did not happen in time."""


class Ours:
    """One installation, with Django of this process set up for it."""

    def __init__(self, found: engines.Engines) -> None:
        self._log = found.home / "workers.log"
        self._said: queue.Queue[tuple[str, float]] = queue.Queue()
        self._last = ExitStack()
        self._folder = Path(self._last.enter_context(tempfile.TemporaryDirectory(prefix="abeyance-bench-")))
        self._listen()
        os.environ |= {
            "DATABASE_URL": found.database("ours"),
            "REDIS_URL": found.valkey(engines.OUR_QUEUE),
            "AGENTS": "benchmarks.agents",
            "DEMO": "false",
            "LOG_LEVEL": "WARNING",
            "PYTHONPATH": str(ROOT),
            "BENCH_SOCKET": str(self._folder / "said"),
        }
        self._manage("migrate", "--verbosity=0", "--skip-checks")
        set_up_django()
        self.reviewer = people_and_rules()

    def close(self) -> None:
        from django.db import connections

        connections.close_all()
        self._last.close()

    # -- Processes ---------------------------------------------------------------

    @contextmanager
    def worker(self, command: str = "work", *, ready: bool = True) -> Iterator[subprocess.Popen[str]]:
        """A worker (or the sweeper) as an installation runs it, while it lasts."""
        with self._log.open("ab") as errors:
            process = subprocess.Popen(
                [sys.executable, "manage.py", command],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        try:
            assert process.stdout
            if ready:
                process.stdout.readline()  # its one line: it is ready
            yield process
        finally:
            process.terminate()
            process.wait()

    def _manage(self, *arguments: str) -> None:
        subprocess.run([sys.executable, "manage.py", *arguments], cwd=ROOT, check=True)

    # -- What agents say -----------------------------------------------------------

    def _listen(self) -> None:
        line = self._last.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        line.bind(str(self._folder / "said"))
        threading.Thread(target=self._keep, args=[line], daemon=True).start()

    def _keep(self, line: socket.socket) -> None:
        while True:
            try:
                what, value = line.recv(100).decode().split(" ")
            except OSError:
                return  # closed
            self._said.put((what, float(value)))

    def heard(self, what: str) -> float:
        """The next of that kind that an agent says; what else it says before is passed over."""
        give_up = time.monotonic() + PATIENCE
        while True:
            try:
                said, value = self._said.get(timeout=max(0.01, give_up - time.monotonic()))
            except queue.Empty:
                raise NotReached(f"No agent said {what!r} within {PATIENCE:g} s.") from None
            if said == what:
                return value

    def forget_said(self) -> None:
        while not self._said.empty():
            self._said.get()

    # -- Runs ------------------------------------------------------------------------

    def submit(self, agent: str, **arguments: Any) -> Any:
        from runs import lifecycle
        from runs.actors import Actor

        asked = lifecycle.Submission(agent, arguments, {})
        return lifecycle.submit(asked, actor=Actor("key", "bench", "bench", "api"))[0].pk

    def waiting(self, count: int, *, steps: int = 1) -> list[Any]:
        """So many runs that wait for a decision. A worker must be there."""
        made = [self.submit("waiter", steps=steps, text=f"{number} {TEXT}"[:100]) for number in range(count)]
        self.until(made, "suspended")
        return made

    def decide(self, run: Any) -> tuple[int, int]:
        """Approves what the run waits for: the monotonic time before the verb and after it, in ns."""
        from approvals import decisions
        from approvals.models import Request

        request = Request.objects.get(run=run)
        choice = decisions.Choice("approve", request.revision.digest, basis={"1": "yes"})
        asked = time.monotonic_ns()
        decisions.decide(request.ref, person=self.reviewer, choice=choice)
        return asked, time.monotonic_ns()

    def taken_at(self, run: Any) -> float:
        """When a worker took the run for the first time, as monotonic ns: the database has this machine's clock."""
        from runs.models import Run

        at = Run.objects.values_list("started_at", flat=True).get(pk=run)
        return at.timestamp() * 1e9 - (time.time_ns() - time.monotonic_ns())

    def until(self, made: Sequence[Any], status: str, within: float = PATIENCE) -> None:
        from runs.models import Run

        until(
            lambda: Run.objects.filter(pk__in=made, status=status).count() == len(made),
            f"{len(made)} runs are {status}",
            within,
        )


def until(true: Callable[[], bool], what: str, within: float = PATIENCE) -> None:
    give_up = time.monotonic() + within
    while not true():
        if time.monotonic() > give_up:
            raise NotReached(f"Not within {within:g} s: {what}.")
        time.sleep(0.005)


def set_up_django() -> None:
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    django.setup()
    from runs import agents

    agents.load()


def people_and_rules() -> Any:
    """A reviewer, and rules as an installation has them: the demo's, and some for our tools."""
    from django.contrib.auth.models import Group, User

    from approvals import policies
    from examples.policies import SEED

    def rule(name: str, tool: str, outcome: str, **terms: object) -> dict[str, object]:
        said = {"pass": "verdict", "name": name, "tool": tool, "expression": "true", "outcome": outcome}
        return {**said, **terms}

    ours = [rule(name, name, "allow") for name in ("repeatable", "once")]
    ours += [rule(name, name, "hold", **HELD) for name in ("approved", "counting")]
    policies.seed([*SEED, *ours])
    person = User.objects.create_user("reviewer@example.com", "reviewer@example.com", first_name="Ana")
    person.groups.set(Group.objects.filter(name="reviewers"))
    return person
