"""What a piece of work asks of the database: statements, round trips, commits that waited for the disk.

The first two are counted where they leave the process, in libpq's own trace: the ORM's and the hand-written ones
alike, BEGIN and COMMIT too. Waits are the server's own count of how often this session's backend synced the log
of changes; so it wants a server that is durable and that nobody else writes to. What was sent is printed, for
whoever has to look why a figure is another one.
"""

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import psycopg
from django.db import connection
from psycopg.pq import Trace

SYNCS = "SELECT coalesce(sum(fsyncs), 0) FROM pg_stat_get_backend_io(pg_backend_pid()) WHERE object = 'wal'"
# From us: what is to be done, as a text or as one that was parsed before, by its name.
STATEMENT = re.compile(r'^F\t\d+\t(?:Query\t "(.*)"|Bind\t "" "(\w*)")', re.MULTILINE)
PARSED = re.compile(r'^F\t\d+\tParse\t "(\w*)" "(.*)"', re.MULTILINE)
# Query, Execute, Sync, Flush. To prepare is a Parse and a Sync, at a time that is the driver's affair: not counted.
KIND = re.compile(r"^F\t\d+\t(Query|Execute|Sync|Flush)\b", re.MULTILINE)
TRIP = re.compile(r"Q|E+[SF]")
PREPARED = "SELECT name, statement FROM pg_prepared_statements"


class Cost(NamedTuple):
    statements: int
    trips: int
    syncs: int


class Meter:
    """Runs from `start` to the first `stop`: whoever calls that says that what is measured is done."""

    def __init__(self) -> None:
        self.cost = Cost(-1, -1, -1)
        self._log: Any = None

    def start(self) -> None:
        connection.ensure_connection()
        self._session = connection.connection
        self._before = self._row(SYNCS)
        self._log = tempfile.TemporaryFile("r")  # noqa: SIM115  # closed by `stop`
        self._session.pgconn.trace(self._log.fileno())
        self._session.pgconn.set_trace_flags(Trace.SUPPRESS_TIMESTAMPS)

    def stop(self) -> None:
        if self._log is None:
            return
        assert self._session is connection.connection, "measured over more than one session"
        self._session.pgconn.untrace()
        self._log.seek(0)
        sent = self._log.read()
        self._log.close()
        self._log = None
        trips = TRIP.findall("".join(kind[0] for kind in KIND.findall(sent)))
        self.cost = Cost(len(STATEMENT.findall(sent)), len(trips), int(self._row(SYNCS) - self._before))
        print(self.cost, *self._texts(sent), sep="\n    ")  # noqa: T201

    def _row(self, sql: str) -> Any:
        with psycopg.Cursor(self._session) as cursor:
            cursor.execute("SELECT pg_stat_force_next_flush()")
            return cursor.execute(sql.encode()).fetchone()[0]  # type: ignore[index]

    def _texts(self, sent: str) -> list[str]:
        with psycopg.Cursor(self._session) as cursor:
            known = dict(cursor.execute(PREPARED.encode()).fetchall()) | dict(PARSED.findall(sent))
        texts = [text or known.get(name, name) for text, name in STATEMENT.findall(sent)]
        return [re.sub(r"\\x0a|\s+", " ", text).strip()[:100] for text in texts]


meter = Meter()


@contextmanager
def measuring() -> Iterator[Meter]:
    meter.start()
    try:
        yield meter
    finally:
        meter.stop()
