"""The real thing, for journeys: what `./run` starts, as processes of their own, beside the test's process.

A database of its own (made empty, filled by `prepare`), a Valkey of its own, the web, workers, the sweeper
and the demo's outside system; mails are files. Processes are started and ended one by one, so that tests may
kill them. Inside `Stack.inside` the test's own Django talks to that database: rows are for looking and for
moving the clock, what is tested goes through doors. Nothing is left at the end.
"""

import contextlib
import email
import email.policy
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx
import psutil
import psycopg
from django.conf import settings
from django.db import connection

from config import children
from config.children import Spec
from examples import demo
from examples.gateway.running import RunningGateway
from runs import clock
from tests.full import database_full
from tests.runs.own_valkey import Valkey

ROOT = Path(__file__).resolve().parent.parent
PATIENCE = 30.0  # seconds within which something must have happened; a wait that ends here is a failure
# A lease long enough that a busy machine loses none by accident, short enough to wait for.
CLOCKS = {"LEASE": "3", "HEARTBEAT": "0.5", "SWEEP_EVERY": "0.3", "FACT_TIMEOUT": "3", "LOG_LEVEL": "INFO"}
T = TypeVar("T")


def until(look: Callable[[], T], what: str, *, within: float = PATIENCE) -> T:
    """The first truthy answer of `look`."""
    deadline = time.monotonic() + within
    while not (found := look()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within:g} s: {what}")
        time.sleep(0.05)
    return found


class Process:
    """One child, with what it printed."""

    def __init__(self, spec: Spec, log: Path) -> None:
        self.spec, self.log = spec, log
        with log.open("ab") as output:
            self.popen = children.start(spec, output.fileno())

    @property
    def running(self) -> bool:
        return self.popen.poll() is None

    def family(self) -> list[psutil.Process]:
        """It and what it started, such as a worker's horse."""
        with contextlib.suppress(psutil.NoSuchProcess):
            top = psutil.Process(self.popen.pid)
            return [top, *top.children(recursive=True)]
        return []

    def kill(self) -> None:
        """`kill -9`, of all of it at once."""
        for each in self.family():
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        self.popen.wait()

    def ask(self) -> None:
        if self.running:
            children.ask(self.spec, self.popen)

    def end(self) -> None:
        """Returns when it has ended, after its patience by force. A second SIGTERM would hurry a worker."""
        try:
            self.popen.wait(self.spec.patience)
        except subprocess.TimeoutExpired:
            self.kill()


class Stack:
    """Everything Abeyance is, started with `Stack(folder)` and ended with `stop`."""

    def __init__(self, folder: Path, *, number: int = 0) -> None:
        """`number` tells test processes side by side apart."""
        self.folder = folder
        self.var = folder / "var"
        self.mail = self.var / "mail"
        self.database = f"abeyance_journeys_{os.getpid()}_{number}"
        self.valkey = Valkey(Path(tempfile.mkdtemp(prefix="abeyance-")))  # a short path: it has a socket
        self.door = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.url = f"http://localhost:{self.door.getsockname()[1]}"
        self.workers: list[Process] = []
        self._started: list[Process] = []
        self.web: Process
        self.sweeper: Process
        self.gateway = RunningGateway(folder / "gateway.sqlite3")
        self.environ = self._environ()

    def start(self) -> None:
        self._create_database()
        self._run("prepare")
        notes = demo.PASSWORD.search((self.var / "demo.txt").read_text())
        assert notes is not None
        self.password = notes.group(1)
        self.key = (self.var / "demo.key").read_text().strip()
        self.start_web()
        self.start_sweeper()
        self.start_workers()
        self.answers()

    def stop(self) -> None:
        """All of it, also when a part was never started or does not end as it should."""
        with contextlib.ExitStack() as last:
            last.callback(self._drop_database)
            last.callback(shutil.rmtree, self.valkey.socket.parent)
            last.callback(self.valkey.client.close)
            last.callback(self.valkey.kill)
            last.callback(self.door.close)
            last.callback(self.gateway.stop)
            for process in self._started:
                last.callback(process.end)
            for process in self._started:
                process.ask()

    # -- Processes ---------------------------------------------------------------

    def _environ(self) -> dict[str, str]:
        ours = {
            "DATABASE_URL": _database_address(os.environ["DATABASE_URL"], self.database),
            "REDIS_URL": self.valkey.url,
            "SECRET_KEY": settings.SECRET_KEY,
            "BASE_URL": self.url,
            "GATEWAY_URL": self.gateway.url,
            "VAR_DIR": str(self.var),
            "DEMO": "true",
            "DJANGO_SETTINGS_MODULE": "config.settings",
            "PYTHONHASHSEED": "0",
            "PYTHONUNBUFFERED": "1",
            "TZ": "UTC",
        }
        return {**os.environ, **CLOCKS, **ours}

    def _start(self, name: str, *arguments: str, fds: tuple[int, ...] = (), **more: str) -> Process:
        env = {**self.environ, **more}
        spec = Spec(name, (sys.executable, *arguments), env=env, cwd=ROOT, pass_fds=fds, patience=20.0)
        self._started.append(Process(spec, self.folder / f"{name}.log"))
        return self._started[-1]

    def start_web(self) -> None:
        door = self.door.fileno()
        flags = ["--worker-class=gthread", "--workers=1", "--threads=16", "--no-control-socket"]
        flags += ["--graceful-timeout=2", f"--bind=fd://{door}"]
        self.web = self._start("web", "-m", "gunicorn", "config.wsgi:application", *flags, fds=(door,))

    def start_sweeper(self, **more: str) -> None:
        self.sweeper = self._start("sweeper", "manage.py", "sweep", **more)

    def end_sweeper(self) -> None:
        self.sweeper.ask()
        self.sweeper.end()

    def start_workers(self, count: int = 2, *, wait: bool = False, **more: str) -> None:
        """`wait`: until each of them takes runs."""
        ready = self._ready_workers()
        for _ in range(count):
            self.workers.append(self._start("worker", "manage.py", "work", **more))
        if wait:
            until(lambda: self._ready_workers() >= ready + count, "the workers take runs")

    def _ready_workers(self) -> int:
        log = self.folder / "worker.log"
        return log.read_text().count(" takes runs") if log.exists() else 0

    def kill_workers(self) -> None:
        """`kill -9` of every worker and its horse."""
        for worker in self.workers:
            worker.kill()
        self.workers.clear()

    def end_workers(self) -> None:
        """Warmly: each after the step it is at."""
        for worker in self.workers:
            worker.ask()
        for worker in self.workers:
            worker.end()
        self.workers.clear()

    def answers(self) -> None:
        """Returns when the web answers."""
        until(lambda: self._healthy(), "the web answers")

    def _healthy(self) -> bool:
        assert self.web.running, self.web.log.read_text()
        with contextlib.suppress(httpx.HTTPError):
            return httpx.get(f"{self.url}/healthz", timeout=5).status_code == 200
        return False

    def heal(self) -> None:
        """As it was at the start, whatever a test did: web, sweeper, two workers as they are, no faults."""
        if not self.valkey.answers():
            self.valkey.start()
        if not (self.sweeper.running and self._plain(self.sweeper)):
            self.end_sweeper()
            self.start_sweeper()
        if not self.web.running:
            self.start_web()
            self.answers()
        if len(self.workers) != 2 or not all(each.running and self._plain(each) for each in self.workers):
            self.kill_workers()
            self.start_workers()
        self.gateway.clear_faults()

    def _plain(self, process: Process) -> bool:
        return process.spec.env == self.environ

    def _run(self, *command: str) -> None:
        done = subprocess.run(
            [sys.executable, "manage.py", *command],
            cwd=ROOT,
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert done.returncode == 0, done.stdout[-1500:]

    def said(self, lines: int = 60) -> str:
        """The end of every log, and what does not run any more: for a test that failed."""
        logs = sorted(self.folder.glob("*.log"))
        ended = [
            f"{each.log.stem} ended with {each.popen.poll()}" for each in self._started if not each.running
        ]
        tails = [f"== {log.stem}\n" + "\n".join(log.read_text().splitlines()[-lines:]) for log in logs]
        return "\n".join([*tails, *ended])

    # -- Database and queue --------------------------------------------------------

    @contextlib.contextmanager
    def _server(self, database: str = "postgres") -> Iterator[psycopg.Connection[Any]]:
        parts = connection.get_connection_params()
        kept = {name: parts[name] for name in ("host", "port", "user", "password") if parts.get(name)}
        with psycopg.connect(**kept, dbname=database, autocommit=True) as server:
            yield server

    @contextlib.contextmanager
    def lined_up(self, run_id: str) -> Iterator[Callable[[], int]]:
        """Nobody else gets at the run until this ends; gives how many wait for a row."""
        with self._server(self.database) as held, held.transaction():
            held.execute("SELECT 1 FROM runs_run WHERE id = %s FOR UPDATE", [run_id])
            yield self._waiting

    def _waiting(self) -> int:
        with self._server() as server:
            counted = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND wait_event_type = 'Lock'"
            return int(server.execute(counted, [self.database]).fetchone()[0])  # type: ignore[index]

    def _create_database(self) -> None:
        self._drop_database()
        with self._server() as server:
            server.execute(f'CREATE DATABASE "{self.database}"')

    def _drop_database(self) -> None:
        with self._server() as server:
            server.execute(f'DROP DATABASE IF EXISTS "{self.database}" WITH (FORCE)')

    @contextlib.contextmanager
    def full(self) -> Iterator[None]:
        """While it lasts, its database has no room for another row."""
        with self._server(self.database) as server, database_full(server):
            yield

    def end_backends(self) -> int:
        """Ends every connection to the database, as a failover does. How many there were."""
        connection.close()
        sql = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = %s"
        with self._server() as server:
            row = server.execute(sql, [self.database]).fetchone()
        assert row is not None
        return int(row[0])

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """While it lasts, this process's Django talks to the stack's database."""
        before = connection.settings_dict["NAME"]
        connection.close()
        connection.settings_dict["NAME"] = self.database
        try:
            yield
        finally:
            connection.close()
            connection.settings_dict["NAME"] = before

    # -- Time and mail -------------------------------------------------------------

    def later(self, **by: float) -> None:
        """From now on every process's clock runs so far ahead of the machine's."""
        clock.shift(timedelta(**by))

    def mails(self, to: str, about: str) -> list[str]:
        """Bodies of the messages to somebody that name `about`, oldest first."""
        found = []
        for file in sorted(self.mail.glob("*.eml")):
            message = email.message_from_bytes(file.read_bytes(), policy=email.policy.default)
            body = message.get_body()
            if to in str(message["To"]) and body is not None and about in (text := body.get_content()):
                found.append(text)
        return found

    def address_in_mail(self, to: str, ref: str) -> str:
        """The address in the mail about a request, once the mail is there."""
        [text] = until(lambda: self.mails(to, ref), f"a mail to {to} about {ref}")
        [found] = re.findall(r"https?://\S+", text)
        return str(found)


def _database_address(address: str, name: str) -> str:
    return urlsplit(address)._replace(path=f"/{name}").geturl()
