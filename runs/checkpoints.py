"""Signed checkpoints of the journal, in a file outside of the database.

A chain shows that an entry was changed, but not that its end was cut off, or that all of it was written anew by
somebody who has all rights on the database, or that an older copy was put back. So a line in a file says now and
then how far the journal reached (the highest id) and what was new: the number of entries since the line before and
a digest over their streams, places and hashes, oldest first. Each line names the one before it and is signed.

The file is never made here: one that is gone is missed. It protects from those who cannot write to it.
"""

import dataclasses
import fcntl
import hashlib
import hmac
import json
import os
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import structlog
from django.conf import settings
from django.db import connection

from runs.journal import Break
from runs.models import JournalEntry

log = structlog.get_logger(__name__)

PURPOSE = b"abeyance.checkpoint.v1"
STREAM = "checkpoint"
#: Seconds that transactions under way are waited for, and until the next try when one could not be written.
PATIENCE = 1.0
AGAIN = timedelta(minutes=1)
#: So many times the interval may pass until the newest checkpoint counts as old.
LATE = 2
TAIL = 4096  # a line has some 400 bytes

_look_at: datetime | None = None  # the file is not read before; None: at once


class Untrusted(Exception):
    """The file's last line is not one of ours, or the journal is not what it says; nothing is added to it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """One line: `upto` is the highest id, `entries` and `digest` are of those after the line before, and
    `previous` is the digest of that line."""

    number: int
    at: str
    upto: int
    entries: int
    digest: str
    previous: str
    signature: str = ""

    def signed(self) -> "Checkpoint":
        return dataclasses.replace(self, signature=_signature(self))

    def line(self) -> bytes:
        return json.dumps(dataclasses.asdict(self)).encode() + b"\n"

    def time(self) -> datetime:
        return datetime.fromisoformat(self.at)


NONE = Checkpoint(number=0, at="0001-01-01T00:00:00+00:00", upto=0, entries=0, digest="", previous="")


# -- Writing: a verb of the sweeper ---------------------------------------------------------------


def due(now: datetime) -> list[datetime]:
    """That a checkpoint is to be written, if there is a file for them and the last was long enough ago."""
    if not settings.JOURNAL_CHECKPOINTS or (_look_at is not None and now < _look_at):
        return []
    return [now]


def write(now: datetime) -> bool:
    """Adds a line, unless another sweeper just has. Whatever keeps it from doing so is logged as an error, and
    it is tried again a minute later."""
    global _look_at
    _look_at = now + AGAIN
    path = settings.JOURNAL_CHECKPOINTS
    try:
        written, last = _append(path, now)
    except BlockingIOError:  # another sweeper is at it
        return False
    except (OSError, Untrusted, TimeoutError) as problem:
        log.error("checkpoint_failed", path=str(path), problem=str(problem))
        return False
    _look_at = last.time() + _interval()
    if written:
        log.info("checkpoint", number=last.number, entries=last.entries, upto=last.upto)
    return written


def _append(path: Any, now: datetime) -> tuple[bool, Checkpoint]:
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb+", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        tail = _tail(file)
        last, before = _last(tail)
        if last is not NONE and last.time() + _interval() > now:
            return False, last
        made = _next(last, before, now)
        torn = b"\n" if tail and not tail.endswith(b"\n") else b""  # whoever wrote it died over it
        file.write(torn + made.line())
        os.fsync(file)
    return True, made


def _tail(file: Any) -> bytes:
    file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL))
    read: bytes = file.read()
    return read


def _last(tail: bytes) -> tuple[Checkpoint, bytes]:
    """The last whole line. One that is not ours is no ground to build on."""
    whole = [line for line in tail.split(b"\n")[:-1] if line]
    if not whole:
        return NONE, b""
    read = _read(whole[-1])
    if isinstance(read, str):
        raise Untrusted(f"its last line {read}")
    return read, whole[-1]


def _next(last: Checkpoint, before: bytes, now: datetime) -> Checkpoint:
    if last is not NONE and not _holds(last.upto):
        raise Untrusted(f"the journal has no entry {last.upto} any more, where checkpoint {last.number} ends")
    upto = _settled(last.upto)
    entries, digest = _digest(last.upto, upto)
    return Checkpoint(
        number=last.number + 1,
        at=now.isoformat(),
        upto=upto,
        entries=entries,
        digest=digest,
        previous=hashlib.sha256(before).hexdigest(),
    ).signed()


def _holds(entry: int) -> bool:
    return entry == 0 or JournalEntry.objects.filter(pk=entry).exists()


def _settled(after: int) -> int:
    """The highest id, when nothing below it can be added any more.

    An id is taken before its entry is seen, so others that are under way may still add lower ones. Whoever took an id
    has held the table's lock for rows since before, and keeps it to the end: those that have it now are waited for.
    """
    until = time.monotonic() + PATIENCE
    with connection.cursor() as cursor:
        cursor.execute("SELECT coalesce(max(id), 0) FROM runs_journalentry")
        upto: int = cursor.fetchone()[0]
        writing = _writing(cursor)
        while writing & _writing(cursor):
            if time.monotonic() > until:
                raise TimeoutError("a transaction that may still write to the journal does not end")
            time.sleep(0.02)
    return max(upto, after)


def _writing(cursor: Any) -> set[str]:
    """Transactions under way, but for ours, that have written to the journal or may be about to."""
    cursor.execute(
        """
        SELECT virtualtransaction FROM pg_locks
        WHERE relation = 'runs_journalentry'::regclass AND mode = 'RowExclusiveLock'
          AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
          AND pid IS DISTINCT FROM pg_backend_pid()
        """
    )
    return {name for (name,) in cursor.fetchall()}


# -- Comparing: `verify_journal` ------------------------------------------------------------------


def broken(now: datetime) -> Iterator[Break]:
    """What the file says that is not so, or nobody can say: the lines first, then the entries they tell of."""
    if not settings.JOURNAL_CHECKPOINTS:
        return
    try:
        with open(settings.JOURNAL_CHECKPOINTS, "rb") as file:
            lines = file.read().splitlines()
    except OSError as problem:
        yield Break(STREAM, 0, f"the file of checkpoints cannot be read: {problem.strerror}")
        return
    known: list[Checkpoint] = []
    yield from _lines(lines, known)
    yield from _entries(known)
    yield from _age(known, now)


def told() -> str:
    """How far the checkpoints reach, for whoever reads that all is well."""
    with open(settings.JOURNAL_CHECKPOINTS, "rb") as file:
        lines = [read for line in file.read().splitlines() if isinstance(read := _read(line), Checkpoint)]
    return f"{len(lines)} checkpoints, from {lines[0].at} to {lines[-1].at}, as far as entry {lines[-1].upto}"


def _lines(lines: list[bytes], known: list[Checkpoint]) -> Iterator[Break]:
    """The chain of the lines; `known` gets those that are ours."""
    before = b""
    for number, line in enumerate(lines, 1):
        read = _read(line)
        if isinstance(read, str):
            yield Break(STREAM, number, f"line {number} of the file {read}")
            continue
        if read.previous != hashlib.sha256(before).hexdigest():
            yield Break(
                STREAM, read.number, "does not follow from the line before it: one was removed or put in"
            )
        known.append(read)
        before = line


def _entries(known: list[Checkpoint]) -> Iterator[Break]:
    """The first checkpoint that the journal does not bear out; later ones would say the same again."""
    after = 0
    highest = JournalEntry.objects.order_by("-pk").values_list("pk", flat=True).first() or 0
    for checkpoint in known:
        entries, digest = _digest(after, checkpoint.upto)
        if (entries, digest) != (checkpoint.entries, checkpoint.digest):
            yield Break(STREAM, checkpoint.number, _differs(checkpoint, entries, highest))
            return
        after = checkpoint.upto


def _differs(checkpoint: Checkpoint, entries: int, highest: int) -> str:
    if highest < checkpoint.upto:
        return (
            f"at {checkpoint.at} the journal reached entry {checkpoint.upto}, and now it ends at {highest}:"
            " its end was cut off, or an older copy of the database was put back"
        )
    if entries != checkpoint.entries:
        return (
            f"at {checkpoint.at} {checkpoint.entries} entries were new up to entry {checkpoint.upto},"
            f" and now there are {entries}: some were removed or put in"
        )
    return f"the entries up to {checkpoint.upto} are not those of {checkpoint.at}: they were written anew"


def _age(known: list[Checkpoint], now: datetime) -> Iterator[Break]:
    if not known:
        yield Break(STREAM, 0, "the file holds no checkpoint")
    elif now - known[-1].time() > LATE * _interval():
        yield Break(STREAM, known[-1].number, f"is the newest, of {known[-1].at}: no sweeper writes them")


# -- Both -----------------------------------------------------------------------------------------


def _digest(after: int, upto: int) -> tuple[int, str]:
    """How many entries there are after one id up to another, and SHA-256 over them."""
    told, count = hashlib.sha256(), 0
    rows = JournalEntry.objects.filter(pk__gt=after, pk__lte=upto).order_by("pk")
    for pk, stream, seq, head in rows.values_list("pk", "stream", "seq", "hash").iterator(chunk_size=5000):
        told.update(f"{pk} {stream} {seq} {bytes(head).hex()}\n".encode())
        count += 1
    return count, told.hexdigest()


def _read(line: bytes) -> Checkpoint | str:
    """The line as it was written, or what is wrong with it."""
    try:
        found = Checkpoint(**json.loads(line))
        right = hmac.compare_digest(found.signature, _signature(found)) and found.line() == line + b"\n"
    except (ValueError, TypeError):
        return "is not a checkpoint: it was changed, or its writing was cut short"
    return found if right else "has another signature: it was changed, or the key was"


def _signature(checkpoint: Checkpoint) -> str:
    body = dataclasses.replace(checkpoint, signature="").line()
    key = (settings.JOURNAL_CHECKPOINT_KEY or settings.SECRET_KEY).encode()
    return hmac.digest(hmac.digest(key, PURPOSE, "sha256"), body, "sha256").hex()


def _interval() -> timedelta:
    return timedelta(seconds=settings.CHECKPOINT_EVERY)
