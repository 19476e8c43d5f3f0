"""The journal: append-only, chained, and every way of bending it is found."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from django.conf import settings
from django.db import DatabaseError, connection, transaction

from runs import holds, journal
from runs.exceptions import BadValue
from runs.models import JournalEntry, Run
from tests.factories import CYD, OPERATOR, driven, submitted, verbs

pytestmark = pytest.mark.django_db


@pytest.fixture
def run() -> Run:
    """A stream of six rows: submitted, held, pause_taken_over, released, held, released."""
    run = submitted("adder", n=1)
    holds.pause(run.pk, actor=CYD)
    holds.pause(run.pk, actor=OPERATOR)
    holds.unpause(run.pk, actor=OPERATOR)
    holds.pause(run.pk, actor=CYD)
    holds.unpause(run.pk, actor=CYD)
    run.refresh_from_db()
    return run


@contextmanager
def unguarded() -> Iterator[None]:
    """As somebody with the database's password would: the trigger is off."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE runs_journalentry DISABLE TRIGGER journal_append_only")
        yield
        cursor.execute("ALTER TABLE runs_journalentry ENABLE TRIGGER journal_append_only")


def breaks() -> list[tuple[str, int]]:
    return [(b.stream, b.seq) for b in journal.broken([Run])]


def test_write_chains(run: Run) -> None:
    rows = list(JournalEntry.objects.of(run.stream))
    assert [row.seq for row in rows] == [1, 2, 3, 4, 5, 6]
    assert (run.seq, bytes(run.head)) == (6, bytes(rows[-1].hash))
    assert verbs(run) == ["submitted", "held", "pause_taken_over", "released", "held", "released"]
    assert breaks() == []


def test_write_says_who_through_which_door(run: Run) -> None:
    row = JournalEntry.objects.of(run.stream).get(seq=3)
    assert (row.actor_kind, row.actor_id, row.actor_name, row.door) == ("person", "olu", "olu", "admin")


def test_write_what_cannot_be_kept(run: Run) -> None:
    with pytest.raises(BadValue):
        journal.write(run, CYD, "tested", why="\x00")
    assert breaks() == []


def test_write_undone_with_its_transaction(run: Run) -> None:
    with transaction.atomic():
        journal.write(run, CYD, "tested")
        transaction.set_rollback(True)
    run.refresh_from_db()
    assert (run.seq, breaks()) == (6, [])


@pytest.mark.parametrize(
    "change",
    [
        "detail = '{}'",
        "at = at + interval '1 microsecond'",
        "actor_id = 'eve'",
        "actor_name = 'eve'",
        "actor_kind = 'system'",
        "door = 'page'",
        "verb = 'approved'",
        "hash = sha256('x')",
    ],
)
def test_broken_by_a_change(change: str, run: Run) -> None:
    with unguarded():
        JournalEntry.objects.of(run.stream).filter(seq=3).exists()
        with connection.cursor() as cursor:
            cursor.execute(
                f"UPDATE runs_journalentry SET {change} WHERE stream = %s AND seq = 3", [run.stream]
            )
    assert breaks() == [(run.stream, 3)]


def test_broken_by_a_change_of_the_last(run: Run) -> None:
    with unguarded():
        JournalEntry.objects.of(run.stream).filter(seq=6).update(actor_id="eve")
    assert breaks() == [(run.stream, 6)]


@pytest.mark.parametrize("seq", [1, 3])
def test_broken_by_a_removal(seq: int, run: Run) -> None:
    with unguarded():
        JournalEntry.objects.of(run.stream).filter(seq=seq).delete()
    assert breaks() == [(run.stream, seq + 1)]


def test_broken_by_a_removal_with_the_others_moved_up(run: Run) -> None:
    with unguarded():
        JournalEntry.objects.of(run.stream).filter(seq=3).delete()
        for seq in (4, 5, 6):
            JournalEntry.objects.of(run.stream).filter(seq=seq).update(seq=seq - 1)
    assert breaks() == [(run.stream, 3)]


def test_broken_by_an_exchange(run: Run) -> None:
    with unguarded():
        rows = JournalEntry.objects.of(run.stream)
        rows.filter(seq=3).update(seq=99)
        rows.filter(seq=4).update(seq=3)
        rows.filter(seq=99).update(seq=4)
    assert breaks() == [(run.stream, 3)]


@pytest.mark.parametrize("kept", [5, 3])
def test_broken_by_a_cut(kept: int, run: Run) -> None:
    """The head on the stream's row remembers the end."""
    with unguarded():
        JournalEntry.objects.of(run.stream).filter(seq__gt=kept).delete()
    assert breaks() == [(run.stream, 6)]


def test_broken_by_a_cut_of_everything(run: Run) -> None:
    with unguarded():
        JournalEntry.objects.of(run.stream).delete()
    assert breaks() == [(run.stream, 6)]


def test_broken_by_a_row_too_many(run: Run) -> None:
    """Rightly chained, but not by the row's verbs."""
    Run.objects.filter(pk=run.pk).update(seq=5, head=JournalEntry.objects.of(run.stream).get(seq=5).hash)
    assert breaks() == [(run.stream, 5)]


def test_broken_by_a_stream_nobody_knows(run: Run) -> None:
    other = submitted("adder", n=1)
    Run.objects.filter(pk=other.pk).delete()
    assert breaks() == [(other.stream, 1)]


def test_broken_names_each_stream_once(run: Run) -> None:
    other = driven("adder", n=1)
    with unguarded():
        JournalEntry.objects.filter(seq__in=(2, 3)).update(actor_id="eve")
    assert sorted(breaks()) == sorted([(run.stream, 2), (other.stream, 2)])


@pytest.mark.parametrize("verb", ["UPDATE runs_journalentry SET verb = 'x'", "DELETE FROM runs_journalentry"])
def test_history_refuses(verb: str, run: Run) -> None:
    with (
        pytest.raises(DatabaseError, match="runs_journalentry is append-only"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(verb)
    assert breaks() == []


def test_history_refuses_truncate_where_it_is_asked_to() -> None:
    """On a fresh database, migrated as an installation is; in the tests' own this trigger is left out."""
    name = f"{settings.DATABASES['default']['NAME']}_kept"
    address = _address(connection.settings_dict["NAME"])
    with psycopg.connect(address, autocommit=True) as server:
        server.execute(f"DROP DATABASE IF EXISTS {name}")
        server.execute(f"CREATE DATABASE {name}")
    try:
        environment = {**os.environ, "DATABASE_URL": _address(name), "HISTORY_REFUSES_TRUNCATE": "1"}
        command = [sys.executable, "manage.py", "migrate", "runs", "--verbosity", "0"]
        subprocess.run(command, cwd=settings.BASE_DIR, env=environment, check=True)
        with psycopg.connect(_address(name), autocommit=True) as kept:
            for table in ("runs_journalentry", "runs_snapshot"):
                with pytest.raises(
                    psycopg.DatabaseError, match=f"{table} is append-only: TRUNCATE is refused"
                ):
                    kept.execute(f"TRUNCATE {table}")
    finally:
        with psycopg.connect(address, autocommit=True) as server:
            server.execute(f"DROP DATABASE {name}")


def _address(name: str) -> str:
    from urllib.parse import urlsplit

    return urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{name}").geturl()
