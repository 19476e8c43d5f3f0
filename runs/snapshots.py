"""Snapshots: what a stopped run must still be when it goes on.

`lifecycle.park` writes one at every stop. On resume the record up to the snapshot's count is hashed again and
compared, and the versions; what was settled since is a legitimate addition. A difference holds the run.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from django.db import connection

from runs.exceptions import RunsError
from runs.journal import Break
from runs.models import Run, Snapshot
from runs.models.snapshot import SCHEMA_VERSION
from runs.prepared import Given, Query
from runs.replay import Entry

LAST = Query(lambda: Snapshot.objects.filter(run=Given("run")).order_by("-number")[:1])


@dataclass(frozen=True, slots=True)
class Mismatch:
    """What the snapshot says and what is there."""

    what: str
    then: str
    now: str

    def __str__(self) -> str:
        return f"{self.what} was {self.then} when the run stopped and is {self.now} now"


class Mismatched(RunsError):
    """What is stored is not what the snapshot remembers; nothing runs."""

    def __init__(self, mismatch: Mismatch) -> None:
        super().__init__(str(mismatch))


def entry(
    index: int, tool: str, tool_version: str, digest: str, executed_digest: str, status: str, result: str
) -> bytes:
    """What one settled step adds to the record: the record's hash is SHA-256(record || entry)."""
    kept = hashlib.sha256(result.encode()).hexdigest()
    return _joined(index, tool, tool_version, digest, executed_digest, status, kept)


def _joined(*parts: object) -> bytes:
    return "|".join(map(str, parts)).encode()


def entry_of(e: Entry) -> bytes:
    """The same, of a loaded step."""
    return entry(e.index, e.tool, e.tool_version, e.digest, e.executed_digest, e.status, e.result or "")


def chained(entries: Iterable[Entry], count: int) -> bytes:
    """The record's hash after its first `count` settled steps."""
    head = b""
    for e in sorted((e for e in entries if e.settled is not None), key=lambda e: e.settled or 0)[:count]:
        head = hashlib.sha256(head + entry_of(e)).digest()
    return head


def check(run: Run, entries: list[Entry], last: Snapshot | None) -> Mismatch | None:
    """The first difference between the run's last snapshot (None: it never stopped) and what is stored now."""
    if last is None:
        return None
    if last.schema_version > SCHEMA_VERSION:
        return Mismatch(
            "the snapshot's schema", f"version {last.schema_version}", f"at most {SCHEMA_VERSION}"
        )
    then, now = f"{last.agent}@{last.agent_version}", f"{run.agent}@{run.agent_version}"
    if then != now:
        return Mismatch("the agent", then, now)
    there = sum(1 for e in entries if e.is_settled)
    if there < last.steps:
        return Mismatch("the number of settled steps", str(last.steps), str(there))
    then, now = bytes(last.record).hex(), chained(entries, last.steps).hex()
    return (
        None if then == now else Mismatch(f"the record of the first {last.steps} steps", then[:16], now[:16])
    )


# One statement, so that what runs meanwhile is seen whole; digests are made there, and no value travels.
_SETTLED = """
SELECT r.id, r.position, r.record, s.index, s.tool, s.tool_version, s.arguments_digest, s.executed_digest, s.status,
  encode(sha256(convert_to(coalesce(s.result, ''), 'UTF8')), 'hex'),
  encode(sha256(convert_to(s.arguments, 'UTF8')), 'hex') = s.arguments_digest
    AND (s.executed IS NULL OR encode(sha256(convert_to(s.executed, 'UTF8')), 'hex') = s.executed_digest)
FROM runs_run r LEFT JOIN runs_step s ON s.run_id = r.id AND s.settled IS NOT NULL ORDER BY r.id, s.settled
"""


def broken() -> Iterator[Break]:
    """Runs whose settled steps are not those their record was made of: a result, arguments, a step changed."""
    with connection.cursor() as cursor:
        cursor.execute(_SETTLED)
        for (run, position, record), rows in groupby(iter(cursor.fetchone, None), key=lambda row: row[:3]):
            head, touched = b"", -1
            for row in rows:
                if row[3] is None:
                    continue
                head = hashlib.sha256(head + _joined(*row[3:10])).digest()
                touched = row[3] if not row[10] and touched < 0 else touched
            if touched >= 0:
                yield Break(f"run:{run}", position, f"the arguments of step {touched} are not what was kept")
            elif head != bytes(record):
                yield Break(f"run:{run}", position, "its steps are not those its record was made of")
