"""The reckoning sees what is lost, doubled, stranded, waiting and broken; and the command says so and fails.

The runs are driven here, with the real rules and reviewers, over the outside of the chaos in a thread; then
something is planted in the rows, the accounts or the log.
"""

import itertools
import json
import os
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from approvals.models import Decision, Request
from config.environment import ROOT
from runs import execution, lifecycle
from runs.actors import Actor
from runs.models import Run, Step
from tests.chaos import __main__ as command
from tests.chaos import agents, faults, outside, people, reckoning
from tests.factories import later

MINE = Actor("key", "k1", "the chaos", "api")
NOBODY = "00000000-0000-4000-8000-000000000000"


class Here:
    """A small chaos in this process: one run of each kind of trouble, all well so far."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, folder / "outside.jsonl"
        people.prepare()
        self.straight = self.drive("chaos-straight", 10)
        self.approved = self.drive("chaos-approved", 20)
        self.decide("ana", reject=False)
        self.drive_on(self.approved)

    def submit(self, agent: str, amount: int) -> Run:
        run, _ = lifecycle.submit(
            lifecycle.Submission(agent, {"amount": amount}, {}, owner_id="0"), actor=MINE
        )
        self.account("submit", by=0, n=amount, run=str(run.pk), agent=agent)
        return run

    def drive(self, agent: str, amount: int) -> Run:
        return self.drive_on(self.submit(agent, amount))

    def drive_on(self, run: Run) -> Run:
        execution.drive(run.pk)
        run.refresh_from_db()
        return run

    def decide(self, who: str, *, reject: bool) -> None:
        class Fixed(random.Random):
            def random(self) -> float:
                return 0.1 if reject else 0.9

        account = people.Account(self.folder / "decide-0.jsonl")
        people.decide(Request.objects.get(state="open"), who, Fixed(), account)

    def account(self, role: str, **said: Any) -> None:
        people.Account(self.folder / f"{role}-0.jsonl").note(**said)

    def rewrite(self, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
        acts = change(outside.acts(self.log))
        self.log.write_text("".join(json.dumps(act) + "\n" for act in acts))

    def table(self) -> reckoning.Table:
        return reckoning.reckon(self.folder, Counter({"worker killed": 2}))

    def wrong(self) -> dict[str, int]:
        """How many of each that is not zero; and the verdict goes with it."""
        table = self.table()
        found = {name: len(sentences) for name, sentences in table.wrong.items() if sentences}
        assert table.passes == (not found)
        return found


@pytest.fixture
def here(transactional_db: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Here]:
    service = outside.Service(0, tmp_path / "outside.jsonl")
    monkeypatch.setenv(agents.PORT, str(service.server_address[1]))
    serving = threading.Thread(target=service.serve_forever)
    serving.start()
    yield Here(tmp_path)
    later(0)
    service.shutdown()
    serving.join()
    service.server_close()


def test_all_well_is_zeros(here: Here) -> None:
    table = here.table()
    assert table.passes
    assert list(table.sentences()) == []
    assert [line.split()[:2] for line in table.text().splitlines()] == [
        ["runs", "2"],
        ["decisions", "1"],
        ["effects", "7"],
        *([name, "0"] for name in reckoning.ZEROS),
        ["faults", "2"],
    ]


# -- Lost ---------------------------------------------------------------------------------------------


def test_effect_that_the_outside_does_not_have_is_lost(here: Here) -> None:
    here.rewrite(lambda acts: acts[1:])
    assert here.wrong() == {"lost": 1}


def test_effect_that_nobody_recorded_is_lost(here: Here) -> None:
    here.rewrite(lambda acts: [*acts, {**acts[0], "key": "of nobody"}])
    assert here.wrong() == {"lost": 1}


def test_effect_that_is_recorded_as_not_done_is_lost(here: Here) -> None:
    Step.objects.filter(run=here.straight, tool="chaos_plain").update(effect="refused")
    assert here.wrong() == {"lost": 1}


@pytest.mark.parametrize(
    "change", [{"amount": 99}, {"answer": "something else"}], ids=lambda c: next(iter(c))
)
def test_effect_that_is_not_what_was_recorded_is_lost(here: Here, change: dict[str, Any]) -> None:
    here.rewrite(lambda acts: [{**acts[0], **change}, *acts[1:]])
    assert here.wrong() == {"lost": 1}


def test_submission_that_has_no_row_is_lost(here: Here) -> None:
    here.account("submit", by=0, n=1, run=NOBODY, agent="chaos-pure")
    assert here.wrong() == {"lost": 1}


def test_decision_that_has_no_row_is_lost(here: Here) -> None:
    here.account("decide", decision=NOBODY, request="ref", verb="approve", again=False, waits_for="")
    assert here.wrong() == {"lost": 1}


def test_decision_without_what_it_decided_is_lost(here: Here) -> None:
    """And what was sent without it breaks an invariant."""
    Request.objects.update(state="rejected")
    assert here.wrong()["lost"] == 1


def test_rejection_is_no_loss(here: Here) -> None:
    run = here.drive("chaos-approved", 30)
    here.decide("ben", reject=True)
    assert here.drive_on(run).status == "succeeded"
    assert here.wrong() == {}


# -- Doubled ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tool", ["chaos_plain", "chaos_checked", "chaos_keyed"])
def test_effect_done_twice_under_one_key_is_doubled(here: Here, tool: str) -> None:
    def twice(acts: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [*acts, next(act for act in acts if act["tool"] == tool)]

    here.rewrite(twice)
    assert here.wrong() == {"doubled": 1}


def test_two_decisions_of_one_revision_are_doubled(here: Here) -> None:
    made = Decision.objects.get()
    Decision.objects.create(
        request=made.request,
        revision=made.revision,
        person_id="another",
        person_name="another",
        verb="approve",
        digest=made.digest,
        door="page",
    )
    assert here.wrong() == {"doubled": 1}


# -- Stranded, waiting, broken ----------------------------------------------------------------------------


def test_run_that_nobody_takes_is_stranded(here: Here) -> None:
    here.submit("chaos-pure", 40)
    assert here.wrong() == {"stranded": 1}


def test_run_whose_worker_is_gone_is_stranded(here: Here) -> None:
    run = here.submit("chaos-pure", 40)
    assert lifecycle.take(run.pk, "one that dies") is not None
    later(60)
    assert here.wrong() == {"stranded": 1}


def test_suspended_run_that_nothing_holds_is_stranded(here: Here) -> None:
    """The invariants say so too."""
    run = here.drive("chaos-approved", 40)
    run.holds.update(why="")
    assert here.wrong()["stranded"] == 1


def test_run_that_waits_for_somebody_is_waiting(here: Here) -> None:
    here.drive("chaos-approved", 40)
    assert here.wrong() == {"waiting": 1}


def test_result_that_was_changed_breaks_an_invariant(here: Here) -> None:
    Step.objects.filter(run=here.straight, tool="chaos_look").update(result="77")
    assert here.wrong() == {"broken": 1}


def test_table_says_each_that_is_not_as_it_must_be(here: Here) -> None:
    here.submit("chaos-pure", 40)
    here.rewrite(lambda acts: [*acts[1:], acts[2]])
    table = here.table()
    lines = dict(line.split()[:2] for line in table.text().splitlines())
    assert [lines[name] for name in reckoning.ZEROS] == ["1", "1", "1", "0", "0"]
    assert [sentence.split(":")[0] for sentence in table.sentences()] == ["lost", "doubled", "stranded"]


# -- The command ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("minutes", ["0", "-1", "ten", "nan", "inf", "100000"])
def test_minutes_that_are_none_are_refused(minutes: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main([f"--minutes={minutes}"])
    assert ended.value.code == 2
    assert f"'{minutes}': minutes are a number above 0, 1440 at most" in capsys.readouterr().err


@pytest.mark.parametrize("seed", ["", "../elsewhere", "a b", "é", "x" * 41])
def test_seed_that_names_no_folder_is_refused(seed: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main([f"--seed={seed}"])
    assert ended.value.code == 2
    assert f"{seed!r}: a seed is up to 40 letters and digits" in capsys.readouterr().err


def test_argument_nobody_knows_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(["--hours", "2"])
    assert ended.value.code == 2
    assert "unrecognized arguments: --hours 2" in capsys.readouterr().err


def test_seed_decides_the_faults() -> None:
    first, again, other = (list(itertools.islice(faults.choices(seed), 500)) for seed in ("7", "7", "8"))
    assert first == again
    assert first != other
    assert {chosen.kind for chosen in first} == set(faults.KINDS)


@pytest.mark.timeout(600)
def test_command_fails_and_keeps_its_logs_when_something_is_lost_and_doubled() -> None:
    """All of it for seconds, over an outside whose log lies."""
    seed = f"lies{os.getpid()}"
    given = [sys.executable, "-m", "config.launch", "chaos", "--minutes", "0.05", "--seed", seed]
    done = subprocess.run(
        given, cwd=ROOT, env={**os.environ, "CHAOS_LIES": "6"}, capture_output=True, text=True, timeout=500
    )
    kept = ROOT / "test-results" / f"chaos-{seed}"
    counts = dict(line.split()[:2] for line in done.stdout.splitlines() if line.startswith("  "))
    assert (done.returncode, f"The logs are in {kept}" in done.stdout) == (1, True), done.stdout + done.stderr
    assert int(counts["lost"]) > 0
    assert int(counts["doubled"]) > 0
    assert (counts["stranded"], counts["waiting"]) == ("0", "0")
    assert "lost" in (kept / "table.txt").read_text()
