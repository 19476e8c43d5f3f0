"""What the chaos breaks: an installation of its own, every process started, frozen and ended one by one.

PostgreSQL and Valkey are the embedded ones, with their data in a home of their own; beside them the web, workers,
sweepers, the outside, and the people. `supervise` starts again what has died, as a supervisor does. Everything is
started from one thread, because what is started dies with it.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil
import psycopg

from config import children, embedded
from config.children import Spec
from config.environment import ROOT
from config.folders import CannotStart
from tests.chaos import outside

#: Seconds. A lease is short, so that what died is found; an effect may act long after its call, so that whoever is
#: frozen for longer than a lease wakes before its call may be repeated: what comes after is promised by nobody.
CLOCKS = {
    "LEASE": "1.5",
    "HEARTBEAT": "0.4",
    "SWEEP_EVERY": "0.5",
    "LOOK_AGAIN": "2",
    "FACT_TIMEOUT": "2",
    "ACT_MARGIN": "8",
    "SUBMIT_RATE": "100000/min",
    "LOG_LEVEL": "WARNING",
}
START_AGAIN_AFTER = 0.5  # seconds; what dies at once is not started in a circle
RAISED = 1  # the exit status of a Python that an exception ended
PEOPLE = {"submit": 2, "decide": 2, "operate": 1}  # how many of each
SUSTAINED = 120.0  # seconds until something that was started answers


class Slot:
    """A process that is to run, and the one that does."""

    def __init__(self, spec: Spec, log: Path) -> None:
        self.spec, self._log = spec, log
        self.started_at = 0.0
        self.frozen = False
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as output:
            self.process = children.start(self.spec, output.fileno())
        self.started_at, self.frozen = time.monotonic(), False

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def keep(self) -> int | None:
        """Starts it again if it has ended, and says how; None: it has not, or a moment ago."""
        if self.running or time.monotonic() - self.started_at <= START_AGAIN_AFTER:
            return None
        ended = self.process.returncode if self.process else None
        self.start()
        return ended

    def last_words(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""

    def signal(self, sign: signal.Signals, *, top: bool = True, below: bool = True) -> None:
        """To the process and to what it started, such as a worker's horse."""
        if not self.running:
            return
        assert self.process is not None
        with contextlib.suppress(psutil.NoSuchProcess):
            itself = psutil.Process(self.process.pid)
            family = [itself] * top + itself.children(recursive=True) * below
            for each in family:
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.send_signal(sign)

    def freeze(self, *, top: bool = True) -> None:
        self.signal(signal.SIGSTOP, top=top)
        self.frozen = True

    def thaw(self) -> None:
        self.signal(signal.SIGCONT)
        self.frozen = False

    def end(self) -> None:
        if self.process is not None:
            self.thaw()
            children.end(self.spec, self.process)


class World:
    def __init__(self, home: Path, folder: Path, seed: str, environ: Mapping[str, str]) -> None:
        self.home, self.folder, self.seed = home, folder, seed
        self.postgres, self.valkey = _engines(home)
        self.door = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.outside_port = _free_port()
        web = self.door.getsockname()[1]
        self.environ = {
            **environ,
            **CLOCKS,
            "DATABASE_URL": self.postgres.url(),
            "REDIS_URL": self.valkey.url(),
            "BASE_URL": f"http://localhost:{web}",
            "AGENTS": "tests.chaos.agents",
            "DEMO": "false",
            "VAR_DIR": str(home),
            "CHAOS_OUTSIDE": str(self.outside_port),
            "CHAOS_WEB": str(web),
        }
        self.engines: dict[str, subprocess.Popen[bytes]] = {}
        self.slots: dict[str, Slot] = {}
        self.raised: list[str] = []

    # -- Starting and ending -----------------------------------------------------------

    def start_engines(self) -> None:
        """With a database that holds nothing yet."""
        shutil.rmtree(self.home / "mail", ignore_errors=True)
        for engine in (self.postgres, self.valkey):
            engine.prepare()
            self.start_engine(engine)
        with psycopg.connect(self.postgres.url("postgres"), autocommit=True) as server:
            server.execute(f"DROP DATABASE {embedded.DATABASE} WITH (FORCE)")
            server.execute(f"CREATE DATABASE {embedded.DATABASE}")
        self.empty_valkey()

    def start_engine(self, engine: embedded.Engine) -> None:
        """Returns when it answers."""
        spec = engine.spec()
        with (self.folder / "engines.log").open("ab") as output:
            self.engines[spec.name] = children.start(spec, output.fileno())
        self.wait_for(engine.ready, f"the {spec.name} answers")

    def prepare(self) -> None:
        command = [sys.executable, "manage.py", "prepare"]
        done = subprocess.run(
            command, cwd=ROOT, env=self.environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        if done.returncode:
            raise CannotStart(done.stdout.decode(errors="replace").strip())

    def start(self, key: str, *, workers: int = 3, sweepers: int = 2) -> None:
        self.environ["CHAOS_KEY"] = key
        self._slot(
            "outside", "-m", "tests.chaos.outside", str(self.outside_port), str(self.folder / "outside.jsonl")
        )
        door = self.door.fileno()
        flags = ["--worker-class=gthread", "--workers=1", "--threads=8", "--no-control-socket"]
        self._slot(
            "web", "-m", "gunicorn", "config.wsgi", *flags, "--graceful-timeout=2", f"--bind=fd://{door}"
        )
        for number in range(workers):
            self._slot(f"worker {number}", "manage.py", "work")
        for number in range(sweepers):
            self._slot(f"sweeper {number}", "manage.py", "sweep")
        for role, count in PEOPLE.items():
            for number in range(count):
                arguments = (role, str(number), self.seed, str(self.folder))
                self._slot(f"{role} {number}", "-m", "tests.chaos.people", *arguments)

    def _slot(self, name: str, *arguments: str) -> None:
        fds = (self.door.fileno(),) if name == "web" else ()
        spec = Spec(name, (sys.executable, *arguments), env=self.environ, cwd=ROOT, pass_fds=fds)
        self.slots[name] = Slot(spec, self.folder / f"{name.replace(' ', '-')}.log")
        self.slots[name].start()

    def supervise(self) -> None:
        """Starts again what has ended. People whom a door answered with something that is no answer have raised it."""
        for name, slot in self.slots.items():
            words = slot.last_words() if not slot.running else ""
            if slot.keep() == RAISED and name.split()[0] in PEOPLE:
                self.raised.append(f"{name}: {words}")

    def of(self, role: str) -> list[Slot]:
        """By name: `worker`, `sweeper`, `submit`, `decide`, `operate`, `web`, `outside`."""
        return [slot for name, slot in self.slots.items() if name.split()[0] == role]

    def dismiss(self, *roles: str) -> None:
        """Ends them and starts them no more."""
        for role in roles:
            for slot in self.of(role):
                slot.signal(signal.SIGTERM, below=False)
            for slot in self.of(role):
                slot.end()
        self.slots = {name: slot for name, slot in self.slots.items() if name.split()[0] not in roles}

    def heal(self) -> None:
        """Everything runs, and nothing is about to fail."""
        for engine in (self.postgres, self.valkey):
            if self.engines[engine.spec().name].poll() is not None:
                self.start_engine(engine)
        for slot in self.slots.values():
            slot.thaw()
        self.wait_for(self._outside_answers, "the outside answers")
        self.faults_outside([])

    def stop(self) -> None:
        with contextlib.ExitStack() as last:
            last.callback(self.door.close)
            for engine in (self.postgres, self.valkey):
                spec = engine.spec()
                if spec.name in self.engines:
                    last.callback(children.end, spec, self.engines[spec.name])
            last.callback(self.dismiss, *PEOPLE, "web", "worker", "sweeper", "outside")

    def wait_for(self, look: Callable[[], bool], what: str) -> None:
        until = time.monotonic() + SUSTAINED
        while not look():
            if time.monotonic() > until:
                raise CannotStart(f"Not within {SUSTAINED:g} s: {what}. The logs are in {self.folder}.")
            self.supervise()
            time.sleep(0.02)

    # -- Engines -----------------------------------------------------------------------

    def restart(self, engine: embedded.Engine, sign: signal.Signals) -> None:
        self.stop_engine(engine, sign)
        self.start_engine(engine)

    def stop_engine(self, engine: embedded.Engine, sign: signal.Signals) -> None:
        process = self.engines[engine.spec().name]
        if process.poll() is None:
            os.kill(process.pid, sign)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            children.force(engine.spec(), process)
            process.wait()

    def empty_valkey(self) -> None:
        embedded._say(self.valkey.socket, b"FLUSHALL\r\n")

    def end_backends(self, *, one: bool) -> None:
        """Terminates connections, as a failover or somebody with a console does."""
        sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
        ordered = sql + (" ORDER BY xact_start NULLS LAST LIMIT 1" if one else "")
        with contextlib.suppress(psycopg.OperationalError), self._server() as server:
            server.execute(ordered, [embedded.DATABASE])

    def kill_backend(self) -> None:
        """`kill -9` of one: PostgreSQL ends all of them and recovers."""
        sql = "SELECT pid FROM pg_stat_activity WHERE datname = %s ORDER BY xact_start NULLS LAST LIMIT 1"
        with contextlib.suppress(psycopg.OperationalError, ProcessLookupError), self._server() as server:
            row = server.execute(sql, [embedded.DATABASE]).fetchone()
            if row is not None:
                os.kill(row[0], signal.SIGKILL)

    def shift_clock(self, seconds: float) -> None:
        """The database's clock runs so far ahead of the machine's from now on."""
        from runs import clock

        with contextlib.suppress(psycopg.OperationalError):
            address = self.postgres.url()
            with psycopg.connect(address, autocommit=True, connect_timeout=5) as database:
                database.execute(clock.CREATE.format(seconds=seconds))

    def _server(self) -> psycopg.Connection[tuple[int, ...]]:
        return psycopg.connect(self.postgres.url("postgres"), autocommit=True, connect_timeout=5)

    # -- The outside ---------------------------------------------------------------------

    def faults_outside(self, words: list[str]) -> None:
        with contextlib.suppress(outside.Unreached, outside.Unanswered):
            outside.ask(self.outside_port, "POST", "/faults", {"words": words})

    def _outside_answers(self) -> bool:
        return self.under_way_outside() is not None

    def under_way_outside(self) -> int | None:
        """How many calls it is at; None: it does not answer."""
        try:
            return int(outside.ask(self.outside_port, "GET", "/")["under_way"])
        except (outside.Unreached, outside.Unanswered):
            return None


def _engines(home: Path) -> tuple[embedded.Postgres, embedded.Valkey]:
    postgres, valkey = embedded.wanted(home, {}, durable=False)
    assert isinstance(postgres, embedded.Postgres)
    assert isinstance(valkey, embedded.Valkey)
    return postgres, valkey


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])
