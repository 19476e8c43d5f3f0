"""The journal and the record as somebody would change them who has the database: `verify_journal` notices."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from approvals.models import Request
from tests.approvals import desk

pytestmark = pytest.mark.django_db


@contextmanager
def unguarded() -> Iterator[None]:
    """As a superuser of the database, who switches triggers off."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        yield
        cursor.execute("SET LOCAL session_replication_role = origin")


@pytest.fixture
def request_(people: SimpleNamespace) -> Request:
    """Edited, approved, used; the run has ended."""
    request = desk.opened(amount="240.00")
    desk.decide(request, people.ana, edit=desk.edited(request, amount="50.00"))
    assert desk.result(request)["result"] == "given 50.00"
    return request


def verify(capsys: pytest.CaptureFixture[str]) -> str:
    try:
        call_command("verify_journal")
    except CommandError as error:
        return f"{capsys.readouterr().out}{error}"
    return capsys.readouterr().out


def test_untouched_is_whole(request_: Request, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify(capsys).startswith("ok: ")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("result = '\"given 5000.00\"'", "its steps are not those its record was made of"),
        ("status = 'raised'", "its steps are not those its record was made of"),
        ("tool = 'wire'", "its steps are not those its record was made of"),
        ("index = 7", "its steps are not those its record was made of"),
        ("arguments = '{}'", "the arguments of step 0 are not what was kept"),
        ("executed = '{}'", "the arguments of step 0 are not what was kept"),
        ("executed_digest = ''", "the arguments of step 0 are not what was kept"),
    ],
)
def test_changed_step_is_noticed(
    request_: Request, capsys: pytest.CaptureFixture[str], change: str, told: str
) -> None:
    """Steps have no trigger, since they change while they run; what they add to the record is chained."""
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE runs_step SET {change} WHERE id = %s", [request_.step_id])
    assert told in verify(capsys)


def test_record_written_anew_without_its_steps_is_noticed(
    request_: Request, capsys: pytest.CaptureFixture[str]
) -> None:
    with unguarded(), connection.cursor() as cursor:
        cursor.execute("UPDATE runs_run SET record = sha256('x') WHERE id = %s", [request_.run_id])
    assert "its steps are not those its record was made of" in verify(capsys)


@pytest.mark.parametrize("stream", ["account:1", "run", "Run:1", "request:", "run:1", "", "policy:2"])
def test_entry_in_a_stream_of_nobody_is_noticed(
    request_: Request, capsys: pytest.CaptureFixture[str], stream: str
) -> None:
    """Inserting is allowed to whoever may write at all; the entry's own hash is right."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO runs_journalentry
              (stream, seq, at, actor_kind, actor_id, actor_name, door, verb, detail, hash)
            SELECT %(s)s, 1, t, 'person', '1', 'Ana', 'page', 'decided', '{}',
              sha256(abeyance_entry(%(s)s, 1, t, 'person', '1', 'Ana', 'page', 'decided', '{}'))
            FROM (SELECT abeyance_now() AS t) AS clock
            """,
            {"s": stream},
        )
    assert f"{stream} #1" in verify(capsys)


def test_entry_at_the_end_of_a_stream_is_noticed(
    request_: Request, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rightly chained to the last one, by somebody who may insert and not update."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO runs_journalentry
              (stream, seq, at, actor_kind, actor_id, actor_name, door, verb, detail, hash)
            SELECT stream, seq + 1, at, 'person', '1', 'Ana', 'page', 'decided', '{}',
              sha256(hash || abeyance_entry(stream, seq + 1, at, 'person', '1', 'Ana', 'page', 'decided', '{}'))
            FROM runs_journalentry WHERE stream = %s ORDER BY seq DESC LIMIT 1
            """,
            [request_.stream],
        )
    assert request_.stream in verify(capsys)


@pytest.mark.parametrize(
    "table",
    ["runs_journalentry", "runs_snapshot", "runs_factreading", "approvals_decision", "approvals_revision"],
)
@pytest.mark.parametrize("verb", ["UPDATE {} SET id = id", "DELETE FROM {}"])
def test_history_is_not_rewritten_by_statements(request_: Request, table: str, verb: str) -> None:
    from django.db import DatabaseError, transaction

    with (
        pytest.raises(DatabaseError, match="append-only"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(verb.format(table))
