"""A PostgreSQL of the tests' own, which they may restart, cut off, fill up and give as many sessions as they like.

The one of the wheel, started once. `own` is a fresh database on it for one test: this process's Django and the
processes that `workers` starts talk to it, and what must always hold is checked before it is dropped.
"""

import dataclasses
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.db import connection

from config import children, embedded
from tests import invariants as invariants_of_rows
from tests.crashes.processes import Workers, until

#: Sessions for fifty workers, each with its lease's; and a deadlock is found at once.
FLAGS = ("-c", "max_connections=250", "-c", "deadlock_timeout=100ms")
TEMPLATE = "migrated"


class Server:
    def __init__(self, home: Path, *, durable: bool = False, flags: tuple[str, ...] = FLAGS) -> None:
        [self.engine] = embedded.wanted(home, {"REDIS_URL": "another"}, durable=durable)
        assert isinstance(self.engine, embedded.Postgres)
        self.engine.prepare()
        spec = self.engine.spec()
        self.spec = dataclasses.replace(spec, command=(*spec.command, *flags))
        self.start()

    def start(self) -> None:
        self.process = children.start(self.spec, subprocess.DEVNULL)
        until(self.engine.ready, seconds=60)

    def stop(self, mode: str = "fast") -> None:
        """`fast` ends sessions and writes everything down; `immediate` does neither and recovers at the start."""
        self.process.send_signal({"fast": children.signal.SIGINT, "immediate": children.signal.SIGQUIT}[mode])
        self.process.wait(timeout=30)

    @property
    def sockets(self) -> Path:
        assert isinstance(self.engine, embedded.Postgres)
        return self.engine.sockets

    def url(self, database: str) -> str:
        assert isinstance(self.engine, embedded.Postgres)
        return self.engine.url(database)

    def execute(self, sql: str, database: str = "postgres") -> list[Any]:
        with psycopg.connect(self.url(database), autocommit=True) as session:
            done = session.execute(sql.encode())
            return done.fetchall() if done.description else []

    def migrate(self) -> None:
        """The database that those of the tests are copies of."""
        self.execute(f"CREATE DATABASE {TEMPLATE}")
        env = os.environ | {"DATABASE_URL": self.url(TEMPLATE), "HISTORY_REFUSES_TRUNCATE": "0"}
        command = [sys.executable, "manage.py", "migrate", "--verbosity=0"]
        subprocess.run(command, cwd=settings.BASE_DIR, env=env, check=True)


@dataclasses.dataclass
class Own:
    """A test's database: its name, the server it is on, and its address for processes."""

    server: Server
    name: str

    @property
    def url(self) -> str:
        return self.server.url(self.name)

    def execute(self, sql: str) -> list[Any]:
        return self.server.execute(sql, self.name)

    def cut(self) -> int:
        """Ends every connection to it, as a failover does. How many there were."""
        connection.close()
        sql = f"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = '{self.name}'"
        return int(self.server.execute(sql)[0][0])


@pytest.fixture(scope="session")
def own_server() -> Iterator[Server]:
    home = Path(
        tempfile.mkdtemp(prefix="abeyance-")
    )  # not tmp_path: the name of a socket has room for 107 bytes
    server = Server(home)
    try:
        server.migrate()
        yield server
    finally:
        server.stop()
        shutil.rmtree(home)


@pytest.fixture
def own(own_server: Server, workers: Workers, in_its_own_time: None) -> Iterator[Own]:
    """Asked for instead of `invariants`."""
    made = Own(own_server, f"own_{os.urandom(4).hex()}")
    own_server.execute(f"CREATE DATABASE {made.name} TEMPLATE {TEMPLATE}")
    workers.env["DATABASE_URL"] = made.url
    with elsewhere(NAME=made.name, HOST=str(own_server.sockets), PORT="", USER=embedded.OWNER, PASSWORD=""):
        yield made
        workers.end()
        assert invariants_of_rows.broken() == []
    own_server.execute(f"DROP DATABASE {made.name} WITH (FORCE)")


class elsewhere:
    """While it lasts, this process's Django talks to another database."""

    def __init__(self, **place: str) -> None:
        self.place = place

    def __enter__(self) -> None:
        self.before = {key: connection.settings_dict[key] for key in self.place}
        connection.close()
        connection.settings_dict.update(self.place)

    def __exit__(self, *exc: object) -> None:
        connection.close()
        connection.settings_dict.update(self.before)
