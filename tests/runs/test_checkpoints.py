"""Signed lines outside of the database: what a chain alone cannot show is found by comparing with them."""

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import connection, transaction

from runs import checkpoints, clock, sweeper
from runs.models import JournalEntry, Run
from tests import threads
from tests.factories import driven, later

pytestmark = pytest.mark.django_db


@pytest.fixture
def file(tmp_path: Path, settings: Any) -> Path:
    """What an operator made, and named."""
    path = tmp_path / "checkpoints"
    path.touch()
    settings.JOURNAL_CHECKPOINTS = str(path)
    checkpoints._look_at = None
    return path


def written(*, hours: float = 0.0) -> list[dict[str, Any]]:
    """One pass of the verb, so many hours later; the lines that are there then."""
    later(hours * 3600)
    verb = sweeper._verbs["checkpoint"]
    for item in verb.find(clock.now()):
        verb.act(item)
    return lines(Path(settings.JOURNAL_CHECKPOINTS))


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_bytes().splitlines()]


def found(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What `verify_journal` says; [] if all is well."""
    capsys.readouterr()
    try:
        call_command("verify_journal")
    except CommandError:
        return capsys.readouterr().out.splitlines()
    assert capsys.readouterr().out.startswith("ok: ")
    return []


def tamper(*statements: str) -> None:
    """As somebody who has all rights on the database."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        for sql in statements:
            cursor.execute(sql)
            assert cursor.rowcount, "nothing was tampered with"
        cursor.execute("SET LOCAL session_replication_role = origin")


#: Every chain from its first entry on, as `journal` computes them, and the heads on the rows of runs.
ANEW = """
DO $$ DECLARE entry record; before bytea; stream_before text := '';
BEGIN
  FOR entry IN SELECT * FROM runs_journalentry ORDER BY stream, seq LOOP
    IF entry.stream <> stream_before THEN before := ''::bytea; stream_before := entry.stream; END IF;
    before := sha256(before || abeyance_entry(entry.stream, entry.seq, entry.at, entry.actor_kind, entry.actor_id,
      entry.actor_name, entry.door, entry.verb, entry.detail));
    UPDATE runs_journalentry SET hash = before WHERE id = entry.id;
  END LOOP;
  UPDATE runs_run r SET (seq, head) = (SELECT j.seq, j.hash FROM runs_journalentry j
    WHERE j.stream = 'run:' || r.id ORDER BY j.seq DESC LIMIT 1);
END $$
"""


def test_write_says_how_far_the_journal_reaches(file: Path) -> None:
    driven("adder", n=3)
    (line,) = written()
    last = JournalEntry.objects.latest("pk")
    assert (line["number"], line["upto"], line["entries"]) == (1, last.pk, JournalEntry.objects.count())
    assert clock.now() - timedelta(minutes=1) < checkpoints.Checkpoint(**line).time() <= clock.now()


def test_write_reads_only_what_is_new(file: Path) -> None:
    driven("adder", n=3)
    written()
    before = JournalEntry.objects.count()
    driven("adder", n=4)
    _, line = written(hours=1.1)
    assert (line["number"], line["entries"]) == (2, JournalEntry.objects.count() - before)


def test_write_twice_within_the_interval_adds_one_line(file: Path) -> None:
    assert len(written()) == len(written(hours=0.5)) == 1
    checkpoints._look_at = None  # another sweeper, which has not looked yet
    assert len(written(hours=0.5)) == 1
    assert len(written(hours=1.1)) == 2


def test_write_without_anything_new_says_so_all_the_same(file: Path) -> None:
    driven("adder", n=3)
    first, second = written() and written(hours=1.1)
    assert (second["upto"], second["entries"]) == (first["upto"], 0)


def test_write_is_not_due_without_a_file(settings: Any) -> None:
    checkpoints._look_at = None
    settings.JOURNAL_CHECKPOINTS = ""
    assert checkpoints.due(clock.now()) == []


@pytest.mark.parametrize("change", [lambda file: file.unlink(), lambda file: (file.unlink(), file.mkdir())])
def test_write_without_the_file_is_loud_and_makes_none(
    file: Path, change: Callable[[Path], Any], caplog: pytest.LogCaptureFixture
) -> None:
    change(file)
    assert checkpoints.write(clock.now()) is False
    assert "checkpoint_failed" in caplog.text
    assert not file.is_file()
    assert checkpoints.due(clock.now()) == []
    assert checkpoints.due(clock.now() + timedelta(minutes=2)) != []


def test_write_does_not_build_on_a_line_that_was_changed(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    driven("adder", n=3)
    (line,) = written()
    file.write_text(json.dumps(line | {"entries": 1}) + "\n")
    assert len(written(hours=1.1)) == 1
    assert "its last line has another signature" in caplog.text


def test_write_does_not_build_on_a_journal_that_lost_its_end(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    driven("adder", n=3)
    (line,) = written()
    tamper(f"DELETE FROM runs_journalentry WHERE id = {line['upto']}")
    assert len(written(hours=1.1)) == 1
    assert f"the journal has no entry {line['upto']} any more, where checkpoint 1 ends" in caplog.text


def test_write_goes_on_after_one_that_died_over_its_line(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written()
    with file.open("ab") as end:
        end.write(b'{"number": 2, "at')
    later(1.1 * 3600)
    assert checkpoints.write(clock.now()) is True
    assert found(capsys) == [
        "checkpoint #2: line 2 of the file is not a checkpoint: it was changed, or its writing was cut short"
    ]


def test_untouched_is_whole(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    driven("adder", n=3)
    written()
    driven("adder", n=4)
    assert found(capsys) == []
    written(hours=1.1)
    assert found(capsys) == []
    call_command("verify_journal")
    assert "2 checkpoints, from " in capsys.readouterr().out


def test_verify_finds_newest_entries_cut_off_with_their_heads_adjusted(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = driven("adder", n=3)
    (line,) = written()
    tamper(
        f"DELETE FROM runs_journalentry WHERE id = {line['upto']}",
        f"""UPDATE runs_run SET (seq, head) = (SELECT seq, hash FROM runs_journalentry
            WHERE stream = '{run.stream}' ORDER BY seq DESC LIMIT 1) WHERE id = '{run.pk}'""",
    )
    left = JournalEntry.objects.latest("pk").pk
    assert found(capsys) == [
        f"checkpoint #1: at {line['at']} the journal reached entry {line['upto']}, and now it ends at {left}:"
        " its end was cut off, or an older copy of the database was put back"
    ]


def test_verify_finds_all_chains_written_anew(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    driven("adder", n=3)
    written()
    driven("adder", n=4)
    _, line = written(hours=1.1)
    tamper(f"UPDATE runs_journalentry SET actor_name = 'eve' WHERE id = {line['upto']}")
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute(ANEW)
        cursor.execute("SET LOCAL session_replication_role = origin")
    assert found(capsys) == [
        f"checkpoint #2: the entries up to {line['upto']} are not those of {line['at']}: they were written anew"
    ]


def test_verify_finds_a_run_removed_with_all_that_tells_of_it(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = driven("adder", n=3)
    driven("adder", n=4)
    (line,) = written()
    tamper(
        f"DELETE FROM runs_journalentry WHERE stream = '{gone.stream}'",
        f"DELETE FROM runs_step WHERE run_id = '{gone.pk}'",
        f"DELETE FROM runs_run WHERE id = '{gone.pk}'",
    )
    left = JournalEntry.objects.count()
    assert found(capsys) == [
        f"checkpoint #1: at {line['at']} {line['entries']} entries were new up to entry {line['upto']},"
        f" and now there are {left}: some were removed or put in"
    ]


def test_verify_finds_yesterdays_database_also_when_it_has_grown_again(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The copy is a savepoint: everything, the numbers of entries too, is as it was then."""
    driven("adder", n=3)
    written()
    with transaction.atomic():
        yesterday = transaction.savepoint()
        driven("adder", n=4)
        *_, line = written(hours=1.1)
        transaction.savepoint_rollback(yesterday)
    later(1.2 * 3600)
    ends = JournalEntry.objects.latest("pk").pk
    told = (
        f"checkpoint #2: at {line['at']} the journal reached entry {line['upto']}, and now it ends at {ends}:"
    )
    assert [text.partition(" its end")[0] for text in found(capsys)] == [told]
    with connection.cursor() as cursor:
        cursor.execute("SELECT setval(pg_get_serial_sequence('runs_journalentry', 'id'), %s)", [ends])
    driven("adder", n=5)
    driven("adder", n=6)
    assert found(capsys) == [
        f"checkpoint #2: the entries up to {line['upto']} are not those of {line['at']}: they were written anew"
    ]


def test_verify_finds_a_line_removed(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for hours in (0, 1.1, 2.2):
        driven("adder", n=3)
        written(hours=hours)
    first, second, third = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(first + third)
    assert found(capsys)[0] == (
        "checkpoint #3: does not follow from the line before it: one was removed or put in"
    )
    file.write_bytes(second + third)
    assert found(capsys)[0].startswith("checkpoint #2: does not follow from the line before it")
    file.write_bytes(first + second + third)
    assert found(capsys) == []


@pytest.mark.parametrize("field", ["number", "at", "upto", "entries", "digest", "previous", "signature"])
def test_verify_finds_a_line_changed(file: Path, capsys: pytest.CaptureFixture[str], field: str) -> None:
    driven("adder", n=3)
    (line,) = written()
    file.write_text(json.dumps(line | {field: "0" if isinstance(line[field], str) else 7}) + "\n")
    assert found(capsys)[0] == (
        "checkpoint #1: line 1 of the file has another signature: it was changed, or the key was"
    )


@pytest.mark.parametrize("text", ["x", "[]", "{}", '{"number": 1}', "null", "\udc80"])
def test_verify_finds_a_line_that_is_none(file: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    file.write_bytes(text.encode(errors="surrogateescape") + b"\n")
    assert "line 1 of the file is not a checkpoint" in found(capsys)[0]


def test_verify_finds_lines_signed_by_somebody_else(
    file: Path, capsys: pytest.CaptureFixture[str], settings: Any
) -> None:
    settings.JOURNAL_CHECKPOINT_KEY = "another one"
    written()
    settings.JOURNAL_CHECKPOINT_KEY = ""
    assert "line 1 of the file has another signature" in found(capsys)[0]


def test_verify_misses_the_file(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written()
    file.unlink()
    assert found(capsys) == [
        "checkpoint #0: the file of checkpoints cannot be read: No such file or directory"
    ]


def test_verify_misses_what_was_in_the_file(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert found(capsys) == ["checkpoint #0: the file holds no checkpoint"]


def test_verify_misses_newer_checkpoints(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = written()
    later(1.9 * 3600)
    assert found(capsys) == []
    later(2.1 * 3600)
    assert found(capsys) == [f"checkpoint #1: is the newest, of {line['at']}: no sweeper writes them"]


def test_verify_only_reads(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    driven("adder", n=3)
    written()
    before = file.read_bytes(), JournalEntry.objects.count(), Run.objects.count()
    assert found(capsys) == []
    assert (file.read_bytes(), JournalEntry.objects.count(), Run.objects.count()) == before


@pytest.mark.django_db(transaction=True)
def test_two_sweepers_add_one_line(file: Path) -> None:
    driven("adder", n=3)
    now = clock.now()
    came = threads.together(lambda: checkpoints.write(now), lambda: checkpoints.write(now))
    assert sorted(came) == [False, True]
    assert len(lines(file)) == 1


@pytest.mark.django_db(transaction=True)
def test_write_waits_for_whoever_may_add_a_lower_entry(
    file: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An id is taken before its entry is seen: an open transaction may fill a place below the highest one."""
    monkeypatch.setattr(checkpoints, "PATIENCE", 0.2)
    driven("adder", n=3)

    def elsewhere() -> bool:
        return checkpoints.write(clock.now())

    with transaction.atomic():
        driven("adder", n=4)
        assert threads.together(elsewhere) == [False]
    assert "a transaction that may still write to the journal does not end" in caplog.text
    assert lines(file) == []
    assert checkpoints.write(clock.now()) is True
    assert lines(file)[0]["entries"] == JournalEntry.objects.count()
