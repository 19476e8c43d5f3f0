"""The only writer of journal rows: chained streams, and the check that finds a broken one.

A stream's sequence and head stand on its own row (a run, a request), so appends to one stream are
serialised by that row's lock and streams are independent. hash = SHA-256(previous hash || entry), where the
entry is the database's own text of every column: changing, removing or reordering rows breaks the chain,
and cutting the tail off disagrees with the head on the stream's row.
"""

import dataclasses
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

from django.db import connection, models

from runs import points, prepared, redaction, values
from runs.actors import Actor
from runs.models import JournalEntry

#: The time of a statement that journals, as its first CTE.
CLOCK = "clock AS MATERIALIZED (SELECT abeyance_now() AS at)"

#: What to set on a stream's row, in an UPDATE … FROM clock; `{name}` is SQL for the stream's name.
ADVANCE = (
    "seq = seq + 1, head = sha256(head || abeyance_entry({name}, seq + 1, clock.at,"
    " %(actor_kind)s, %(actor_id)s, %(actor_name)s, %(door)s, %(verb)s, %(detail)s))"
)

#: The row itself; the CTE `stream` must return name, seq, head and at of the row just advanced.
APPEND = """
INSERT INTO runs_journalentry
  (stream, seq, at, actor_kind, actor_id, actor_name, door, verb, detail, hash)
SELECT stream.name, stream.seq, stream.at,
  %(actor_kind)s, %(actor_id)s, %(actor_name)s, %(door)s, %(verb)s, %(detail)s, stream.head
FROM stream RETURNING seq
"""

_WRITE = (
    f"WITH {CLOCK}, stream AS (UPDATE {{table}} SET {{changes}}"
    + ADVANCE.format(name="%(stream)s")
    + " FROM clock"
    " WHERE {pk} = %(id)s RETURNING %(stream)s AS name, seq, head, clock.at) " + APPEND
)

#: As a value of `move`: the time of the entry.
AT = object()

#: Where people come from, as the door they came through knows it. Asked when an entry is written: a door may find
#: out, or change it, on the way.
_origin: ContextVar[Callable[[], dict[str, str]]] = ContextVar("origin", default=dict)

# Links are read in order; a stream's first entry follows the empty hash.
_BROKEN = """
SELECT stream, seq FROM (
  SELECT stream, seq, hash,
    row_number() OVER w AS expected,
    sha256(coalesce(lag(hash) OVER w, ''::bytea)
      || abeyance_entry(stream, seq, at, actor_kind, actor_id, actor_name, door, verb, detail)) AS computed
  FROM runs_journalentry WINDOW w AS (PARTITION BY stream ORDER BY seq)
) links WHERE seq <> expected OR hash <> computed ORDER BY stream, seq
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Break:
    """The first entry of a stream that does not follow from the one before, or a head that disagrees."""

    stream: str
    seq: int
    what: str


@contextmanager
def coming_from(origin: Callable[[], dict[str, str]]) -> Iterator[None]:
    """What people do meanwhile is journalled with where they come from, which is for those who see everything."""
    token = _origin.set(origin)
    try:
        yield
    finally:
        _origin.reset(token)


def parameters(actor: Actor, verb: str, detail: dict[str, Any]) -> dict[str, Any]:
    """The columns of one entry, as parameters of `ADVANCE` and `APPEND`."""
    if actor.kind == "person" and (origin := _origin.get()()):
        detail = {**detail, "origin": origin}
    return {
        "actor_kind": actor.kind,
        "actor_id": actor.id,
        "actor_name": actor.name[:200],
        "door": actor.door,
        "verb": verb,
        "detail": redaction.scrub(values.canonical(detail)),
    }


def without_origin(entry: JournalEntry) -> JournalEntry:
    """As it is told to who only sees the run: not where its reviewers sit."""
    if '"origin":' in entry.detail:
        detail = json.loads(entry.detail)
        detail.pop("origin", None)
        entry.detail = values.canonical(detail)
    return entry


def write(row: models.Model, actor: Actor, verb: str, /, **detail: Any) -> None:
    """Appends one entry to the stream of `row` (which has `stream`, `seq`, `head`).

    Call it inside the transaction of what it tells; it takes the row's lock if that is not held yet.
    """
    move(row, actor, verb, {}, **detail)


def move(row: models.Model, actor: Actor, verb: str, changes: dict[str, Any], /, **detail: Any) -> None:
    """`write`, and in the same statement the change it tells of: columns of the stream's row by name, with plain
    values or `AT`. The row's lock is held, and what it was is known."""
    sql = _text(type(row), tuple((name, value is AT) for name, value in changes.items()))
    stream = {"stream": row.stream, "id": row.pk}  # type: ignore[attr-defined]
    told = {**parameters(actor, verb, detail), **stream, **_named(changes)}

    def written(found: prepared.Row | None) -> None:
        assert found is not None, f"{row!r} has no row"
        points.committing(verb)

    prepared.write(sql, told, then=written)


def _named(changes: dict[str, Any]) -> dict[str, Any]:
    return {f"to_{name}": value for name, value in changes.items() if value is not AT}


@cache
def _text(model: type[models.Model], changes: tuple[tuple[str, bool], ...]) -> str:
    meta = model._meta
    places = ((name, "clock.at" if is_time else f"%(to_{name})s") for name, is_time in changes)
    sets = "".join(f'"{name}" = {place}, ' for name, place in places)
    assert meta.pk is not None
    return _WRITE.format(table=f'"{meta.db_table}"', pk=f'"{meta.pk.column}"', changes=sets)


def adopt(row: models.Model, entries: list[JournalEntry]) -> Break | None:
    """Takes over a stream that was written elsewhere, as it is; the first thing that is wrong with it, if any.
    `row` carries its head."""
    stream: str = row.stream  # type: ignore[attr-defined]
    strange = next((entry for entry in entries if entry.stream != stream), None)
    if strange is not None:
        return Break(stream, strange.seq, f"it is an entry of {strange.stream}")
    JournalEntry.objects.bulk_create(entries)
    of_stream = _BROKEN.replace("FROM runs_journalentry", "FROM runs_journalentry WHERE stream = %s")
    with connection.cursor() as cursor:
        cursor.execute(of_stream, [stream])
        found = cursor.fetchone()
    if found:
        return Break(stream, found[1], "does not follow from the entry before it")
    last = max(entries, key=lambda entry: entry.seq, default=None)
    seq, head = (last.seq, bytes(last.hash)) if last else (0, b"")
    if (seq, head) != (row.seq, bytes(row.head)):  # type: ignore[attr-defined]
        return Break(stream, seq, "it is not the end that the run remembers")
    return None


def broken(streams: list[type[models.Model]]) -> Iterator[Break]:
    """Every stream's first break. `streams` are the models whose rows carry a stream's head."""
    seen = set()
    with connection.cursor() as cursor:
        cursor.execute(_BROKEN)
        for stream, seq in cursor.fetchall():
            if stream not in seen:
                seen.add(stream)
                yield Break(stream, seq, "does not follow from the entry before it")
    for model in streams:
        yield from _cut(model, seen)


def unknown(streams: list[type[models.Model]]) -> Iterator[Break]:
    """Streams of a kind that nothing writes, `streams` being all there are."""
    prefixes = [model.stream_prefix for model in streams]  # type: ignore[attr-defined]
    sql = """
        SELECT stream, max(seq) FROM runs_journalentry
        WHERE NOT EXISTS (SELECT FROM unnest(%(prefixes)s::text[]) known WHERE starts_with(stream, known))
        GROUP BY stream
        """
    with connection.cursor() as cursor:
        cursor.execute(sql, {"prefixes": prefixes})
        for stream, seq in cursor.fetchall():
            yield Break(stream, seq, "nothing writes streams of this kind")


def _cut(model: type[models.Model], seen: set[str]) -> Iterator[Break]:
    """Streams whose last entry is not the one their row remembers, or whose row is gone."""
    prefix = model.stream_prefix  # type: ignore[attr-defined]
    table, pk = f'"{model._meta.db_table}"', f'"{model._meta.pk.column}"'
    sql = f"""
        SELECT %(prefix)s || r.{pk}, r.seq,
          'the stream''s head is another one: its end was cut off or replaced'
        FROM {table} r
        LEFT JOIN runs_journalentry j ON j.stream = %(prefix)s || r.{pk} AND j.seq = r.seq
        WHERE r.seq > 0 AND (j.hash IS NULL OR j.hash <> r.head)
           OR EXISTS (SELECT FROM runs_journalentry x WHERE x.stream = %(prefix)s || r.{pk} AND x.seq > r.seq)
        UNION ALL
        SELECT j.stream, max(j.seq), 'what this stream tells of is gone' FROM runs_journalentry j
        WHERE starts_with(j.stream, %(prefix)s)
          AND NOT EXISTS (SELECT FROM {table} r WHERE %(prefix)s || r.{pk} = j.stream) GROUP BY j.stream
        """
    with connection.cursor() as cursor:
        cursor.execute(sql, {"prefix": prefix})
        for stream, seq, what in cursor.fetchall():
            if stream not in seen:
                yield Break(stream, seq, what)
