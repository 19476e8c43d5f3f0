"""`submit` and `verify_journal`, as they are typed."""

import threading
import time
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, connections

from runs import execution
from runs.agents import RunContext, agent
from runs.management.commands import verify_journal
from runs.models import JournalEntry, Run
from tests.factories import driven, result, submitted, verbs

pytestmark = pytest.mark.django_db


def say(*words: str) -> list[str]:
    out = StringIO()
    call_command(*words, stdout=out)
    return out.getvalue().splitlines()


def refused(*words: str) -> str:
    before = Run.objects.count()
    with pytest.raises(CommandError) as error:
        call_command(*words, stdout=StringIO())
    assert Run.objects.count() == before
    return str(error.value)


# -- submit ------------------------------------------------------------------------------


def test_submit_prints_id_and_address(settings: Any) -> None:
    settings.BASE_URL = "http://localhost:8123"
    said = say(
        "submit", "adder", "n=3", "--label", "team=blue", "--label", "case=a=b", "--for", "ana@example.com"
    )
    run = Run.objects.get()
    assert said == [str(run.id), f"http://localhost:8123{run.get_absolute_url()}"]
    assert (run.input, run.labels, run.on_behalf_of) == (
        '{"n":3}',
        {"team": "blue", "case": "a=b"},
        "ana@example.com",
    )
    entry = JournalEntry.objects.of(run.stream).get()
    assert (entry.verb, entry.actor_kind, entry.door) == ("submitted", "command", "command")


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        (["amount=12.50"], '{"amount":"12.50","how":"pay"}'),
        (["how=5512"], '{"amount":"250.00","how":"5512"}'),
        (["how=null"], '{"amount":"250.00","how":"null"}'),
        (["how=a=b"], '{"amount":"250.00","how":"a=b"}'),
        (["how="], '{"amount":"250.00","how":""}'),
        (["amount=7", "--input", '{"how": "pay_if"}'], '{"amount":"7","how":"pay_if"}'),
    ],
)
def test_submit_reads_values_as_the_signature_wants_them(typed: list[str], kept: str) -> None:
    say("submit", "transfer", *typed)
    assert Run.objects.get().input == kept


def test_submit_reads_json_where_text_does_not_fit() -> None:
    @agent()
    async def sorter(run: RunContext, numbers: list[int], limit: int | None = 3) -> list[int]:
        return sorted(numbers)[:limit]

    say("submit", "sorter", "numbers=[3, 1]", "limit=null")
    assert Run.objects.get().input == '{"limit":null,"numbers":[3,1]}'


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["adder", "n=three"], "n: Input should be a valid integer, unable to parse string as an integer"),
        (["adder"], "n: Field required"),
        (["adder", "m=3"], "m: adder has no such argument; it takes: n"),
        (["adder", "n"], "'n': an argument is written name=value"),
        (["adder", "=3"], "'=3': an argument is written name=value"),
        (["adder", "n=3", "n=4"], "n: given twice"),
        (["adder", "n=3", "--input", '{"n": 3}'], "n: given twice, by itself and in --input"),
        (["adder", "--input", "[3]"], "--input: a JSON object is wanted"),
        (["adder", "--input", '{"n": NaN}'], "--input: /n: NaN is not a JSON value"),
        (["adder", "--input", '{"n": 1, "n": 2}'], "--input: /n: this key appears twice in one object"),
        (["adder", "n=3", "--label", "x"], "'x': a label is written name=value"),
        (["adder", "n=3", "--for", "x" * 201], "on_behalf_of: String should have at most 200 characters"),
        (["transfer", "how=\udc80"], "/how: contains half of a surrogate pair, which is not a character"),
    ],
)
def test_submit_refuses_and_names_the_place(words: list[str], answer: str) -> None:
    assert refused("submit", *words) == answer


@pytest.mark.parametrize("seconds", ["-1", "nan", "inf", "soon"])
def test_submit_waits_for_a_number_of_seconds(seconds: str) -> None:
    said = refused("submit", "adder", "n=3", f"--wait={seconds}")
    assert said.endswith(f"argument --wait: '{seconds}' is not a number of seconds, such as 60")


def test_submit_takes_options_between_the_arguments() -> None:
    say("submit", "transfer", "--label", "team=blue", "how=pay", "--for", "ana@example.com", "amount=3")
    run = Run.objects.get()
    assert (run.input, run.labels) == ('{"amount":"3","how":"pay"}', {"team": "blue"})


def test_submit_asks_for_no_more_than_the_agent() -> None:
    assert refused("submit").endswith("the following arguments are required: agent")


def test_submit_of_an_unknown_agent_names_those_there_are() -> None:
    assert refused("submit", "nobody").startswith("no agent is called 'nobody'; there are: adder, ")


def test_submit_does_not_wait_for_ever() -> None:
    assert say("submit", "adder", "n=3", "--wait", "0.1")[2:] == ["queued"]


def _drive_when_submitted() -> None:
    until = time.monotonic() + 20
    try:
        while time.monotonic() < until and not (run := Run.objects.first()):
            time.sleep(0.02)
        execution.drive(run.pk)  # type: ignore[union-attr]
    finally:
        connections.close_all()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("words", "says", "said"),
    [
        (["adder", "n=3"], {}, ["succeeded", "3"]),
        (["payer"], {"pay": "hold"}, ["suspended", "waits (approval): the test says so"]),
    ],
)
def test_submit_waits_for_the_end_or_a_stop(words: list[str], says: Any, rules: Any, said: list[str]) -> None:
    rules(**says)
    driver = threading.Thread(target=_drive_when_submitted)
    driver.start()
    try:
        assert say("submit", *words, "--wait", "20")[2:] == said
    finally:
        driver.join()


@pytest.mark.django_db(transaction=True)
def test_submit_fails_when_the_run_does() -> None:
    driver = threading.Thread(target=_drive_when_submitted)
    driver.start()
    out = StringIO()
    with pytest.raises(CommandError, match="it did not succeed"):
        call_command("submit", "transfer", "how=nothing", "--wait", "20", stdout=out)
    driver.join()
    assert out.getvalue().splitlines()[2] == "failed"


# -- verify_journal ------------------------------------------------------------------------


def tamper(sql: str, *parameters: Any) -> None:
    """What only somebody with the database's own rights can do: the triggers refuse it otherwise."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE runs_journalentry DISABLE TRIGGER journal_append_only")
        cursor.execute(sql, parameters)
        assert cursor.rowcount, "nothing was tampered with"
        cursor.execute("ALTER TABLE runs_journalentry ENABLE TRIGGER journal_append_only")


def broken() -> tuple[list[str], str]:
    out = StringIO()
    with pytest.raises(CommandError) as error:
        call_command("verify_journal", stdout=out)
    return out.getvalue().splitlines(), str(error.value)


def test_verify_journal_counts_what_is_well() -> None:
    assert say("verify_journal") == ["ok: 0 entries in 0 streams"]
    for n in (1, 2):
        assert result(driven("adder", n=n)) == n - 1
    assert say("verify_journal") == ["ok: 6 entries in 2 streams"]


def test_verify_journal_only_reads() -> None:
    run = driven("adder", n=1)
    say("verify_journal")
    assert verbs(run) == ["submitted", "taken", "succeeded"]


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("UPDATE runs_journalentry SET actor_name = 'eve' WHERE stream = %s AND seq = 2", 2),
        ("UPDATE runs_journalentry SET at = at - interval '1 day' WHERE stream = %s AND seq = 1", 1),
        ("UPDATE runs_journalentry SET detail = detail || ' ' WHERE stream = %s AND seq = 3", 3),
        ("DELETE FROM runs_journalentry WHERE stream = %s AND seq = 1", 2),
        ("DELETE FROM runs_journalentry WHERE stream = %s AND seq = 2", 3),
        ("UPDATE runs_journalentry SET seq = seq + 10 WHERE stream = %s AND seq = 3", 13),
    ],
)
def test_verify_journal_finds_an_entry_changed_removed_or_moved(sql: str, found: int) -> None:
    run, other = driven("adder", n=1), driven("adder", n=1)
    tamper(sql, run.stream)
    lines, verdict = broken()
    assert lines == [f"{run.stream} #{found}: does not follow from the entry before it"]
    assert verdict == "the journal is broken in 1 stream"
    assert other.stream not in lines[0]


def test_verify_journal_finds_two_entries_exchanged() -> None:
    run = driven("adder", n=1)
    tamper("UPDATE runs_journalentry SET seq = -seq WHERE stream = %s AND seq IN (1, 2)", run.stream)
    tamper("UPDATE runs_journalentry SET seq = 3 + seq WHERE stream = %s AND seq < 0", run.stream)
    assert broken()[0] == [f"{run.stream} #1: does not follow from the entry before it"]


def test_verify_journal_finds_a_tail_cut_off() -> None:
    run = driven("adder", n=1)
    tamper("DELETE FROM runs_journalentry WHERE stream = %s AND seq = 3", run.stream)
    assert broken()[0] == [
        f"{run.stream} #3: the stream's head is another one: its end was cut off or replaced"
    ]


def test_verify_journal_finds_a_whole_stream_removed() -> None:
    run = driven("adder", n=1)
    tamper("DELETE FROM runs_journalentry WHERE stream = %s", run.stream)
    assert len(broken()[0]) == 1


def test_verify_journal_finds_a_chain_written_anew() -> None:
    """Somebody who can compute hashes still leaves a head that disagrees."""
    run = driven("adder", n=1)
    tamper(
        "UPDATE runs_journalentry SET actor_name = 'eve', hash = sha256((SELECT hash FROM runs_journalentry x"
        " WHERE x.stream = runs_journalentry.stream AND x.seq = 2) || abeyance_entry(stream, seq, at,"
        " actor_kind, actor_id, 'eve', door, verb, detail)) WHERE stream = %s AND seq = 3",
        run.stream,
    )
    assert broken()[0] == [
        f"{run.stream} #3: the stream's head is another one: its end was cut off or replaced"
    ]


def test_verify_journal_finds_a_row_that_took_its_head_along() -> None:
    run = submitted("adder", n=1)
    Run.objects.filter(pk=run.pk).delete()
    assert broken()[0] == [f"{run.stream} #1: what this stream tells of is gone"]


def test_verify_journal_says_every_broken_stream_once() -> None:
    runs = sorted((driven("adder", n=1) for _ in range(3)), key=lambda run: run.stream)
    for run in runs:
        tamper("UPDATE runs_journalentry SET actor_name = 'eve' WHERE stream = %s", run.stream)
    lines, verdict = broken()
    assert [line.split(" ")[0] for line in lines] == [run.stream for run in runs]
    assert verdict == "the journal is broken in 3 streams"


def test_every_model_with_a_head_is_verified() -> None:
    """Whoever writes to the journal has a row that remembers its end; those of other apps are found too."""
    names = {model.stream_prefix: model.__name__ for model in verify_journal.streams()}  # type: ignore[attr-defined]
    assert names == {
        "run:": "Run",
        "allowance:": "Allowance",
        "credential:": "Credential",
        "dependency:": "Dependency",
        "policy:": "Policy",
        "request:": "Request",
    }
