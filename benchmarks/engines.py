"""One PostgreSQL and one Valkey for everybody in a sitting, and databases that are gone afterwards.

What the environment names, else embedded ones below `var/bench`; durable as in production, or nothing is measured:
without `fsync` a figure says nothing.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import redis

from config import embedded, environment

OUR_QUEUE, PEERS_QUEUE = 15, 14  # databases of that Valkey
PREFIX = "abeyance_bench_"
DURABLE = ("fsync", "synchronous_commit", "full_page_writes")


@dataclass
class Engines:
    """Where the server is, and what was made there. `own`: nobody else uses it."""

    home: Path
    address: str
    queue: str
    own: bool
    made: list[str] = field(default_factory=list)

    def database(self, what: str) -> str:
        """The address of a new database."""
        name = f"{PREFIX}{what}_{os.getpid()}_{len(self.made)}"
        self.made.append(name)
        with psycopg.connect(self.address, autocommit=True) as server:
            server.execute(f"CREATE DATABASE {name}")
        return urlsplit(self.address)._replace(path=f"/{name}").geturl()

    def valkey(self, number: int) -> str:
        """The address of one of its databases."""
        address = self.queue.partition("?")[0]
        if not address.startswith("unix"):
            address = urlsplit(address)._replace(path="").geturl()
        return f"{address}?db={number}"

    def begin(self) -> None:
        """Nothing of an earlier sitting is left, and nobody else works in our databases of Valkey."""
        if self.own:
            self._drop(self._left_over())
        for number in (OUR_QUEUE, PEERS_QUEUE):
            with redis.Redis.from_url(self.valkey(number)) as queue:
                if self.own:
                    queue.flushdb()
                elif queue.dbsize():
                    sys.exit(f"Database {number} of that Valkey is not empty; this wants one of its own.")

    def clear(self) -> None:
        self._drop(self.made)
        for number in (OUR_QUEUE, PEERS_QUEUE):
            with redis.Redis.from_url(self.valkey(number)) as queue:
                queue.flushdb()

    def _left_over(self) -> list[str]:
        with psycopg.connect(self.address) as server:
            found = server.execute("SELECT datname FROM pg_database WHERE datname LIKE %s", [f"{PREFIX}%"])
            return [name for (name,) in found]

    def _drop(self, names: list[str]) -> None:
        with psycopg.connect(self.address, autocommit=True) as server:
            for name in names:
                server.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@contextmanager
def running() -> Iterator[Engines]:
    """The engines, while it lasts; the addresses are in the environment of this process then."""
    home = environment.var() / "bench"
    with embedded.held(home, "./run bench"):
        environ = environment.make(home)
        wanted = embedded.wanted(home, environ)
        with embedded.running(home, wanted) as addresses:
            os.environ.update(environ | addresses)
            found = Engines(home, os.environ["DATABASE_URL"], os.environ["REDIS_URL"], len(wanted) == 2)
            _refuse_forgetful(found.address)
            found.begin()
            try:
                yield found
            finally:
                found.clear()


def _refuse_forgetful(address: str) -> None:
    with psycopg.connect(address) as server:
        for name in DURABLE:
            row = server.execute("SELECT current_setting(%s)", [name]).fetchone()
            if row is None or row[0] != "on":
                sys.exit(f"That PostgreSQL runs with {name} off; what is measured there says nothing.")
