"""The queue is emptied, killed, frozen and away for longer than anybody's patience: a doorbell, and nothing more.

The patiences are shortened in the workers (RQ waits 2 s for a job instead of 20, an answer may take 3 s instead of
30, a heart beats each second instead of each ten), and it is away for longer than each of them, than the lease, and
than a caller's half second with its second of deafness.
"""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runs import lifecycle, queues
from runs.models import Run
from runs.states import RunStatus
from tests.crashes.fleet import Release
from tests.crashes.processes import Workers, until
from tests.crashes.test_whole_workers import LOOP
from tests.factories import CYD, approve, causes, driven, open_hold, submitted, verbs
from tests.outside import Outside
from tests.runs.own_valkey import Valkey, running_valkey, valkey

__all__ = ["running_valkey", "valkey"]
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("invariants")]
Rules = Callable[..., None]
SHORTER = {"TTL": 17, "BEAT": 1, "ANSWER_WITHIN": 3.0}
AWAY = 6.0  # seconds


@pytest.fixture
def fleet(workers: Workers, valkey: Valkey) -> Iterator[Callable[[int], Release]]:
    """Workers and a sweeper on the Valkey that is ours."""
    workers.env["REDIS_URL"] = valkey.url
    made: list[Release] = []

    def start(count: int) -> Release:
        workers.env["TEST_RULES"] = os.environ.get("TEST_RULES", "{}")
        made.append(Release(workers.env, count, **SHORTER))
        workers.script = LOOP
        workers.start(Run())
        return made[-1]

    yield start
    for each in made:
        each.end()


def all_succeed(runs: list[Run]) -> None:
    def done() -> bool:
        for run in runs:
            run.refresh_from_db()
        return all(run.status == RunStatus.SUCCEEDED for run in runs)

    until(done, seconds=60)


def test_emptied(fleet: Callable[[int], Release], valkey: Valkey, outside: Outside, rules: Rules) -> None:
    """F49: 20 approved and not resumed, 20 that wait, 5 that run."""
    rules(pay="hold")
    approved, waiting = [driven("payer") for _ in range(20)], [driven("payer") for _ in range(20)]
    outside.will("pay_detached", *["act_then_wait"] * 5)
    running = [submitted("payer", how="pay_detached") for _ in range(5)]
    key = lifecycle.Submission("adder", {"n": 1}, {}, owner_id="cyd", idempotency_key="before")
    first, _ = lifecycle.submit(key, actor=CYD)
    fleet(5)
    until(lambda: outside.n("pay_detached") == 5)
    for run in approved:
        approve(open_hold(run))
    valkey.client.flushall()
    (outside.folder / "go").touch()
    all_succeed([*approved, *running, first])
    assert lifecycle.submit(key, actor=CYD) == (first, False)
    assert (outside.n("pay"), len(outside.tried("pay_detached"))) == (20, 5)
    assert {verbs(run).count("resumed") for run in approved} == {1}
    for run in waiting:
        run.refresh_from_db()
        assert (run.status, causes(run), run.epoch) == (RunStatus.SUSPENDED, ["approval"], 1)


@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_away(
    how: str, fleet: Callable[[int], Release], valkey: Valkey, outside: Outside, rules: Rules, tmp_path: Path
) -> None:
    """F49: doors answer, the call in flight is recorded; the same workers go on with everything when it is back."""
    rules(pay="hold")
    waits = driven("payer")
    outside.will("pay_detached", "act_then_wait")
    calls, chained = submitted("payer", how="pay_detached"), driven("boss", how="pay_keyed")
    started = fleet(2)
    until(lambda: outside.n("pay_detached") == 1)
    (valkey.kill if how == "killed" else valkey.freeze)()
    gone = time.monotonic()
    approve(open_hold(waits))
    rung_by_nobody = submitted("adder", n=2)
    (outside.folder / "go").touch()
    until(lambda: fresh(calls).status == RunStatus.SUCCEEDED)
    assert queues.length() == -1
    time.sleep(max(0.0, AWAY - (time.monotonic() - gone)))
    assert fresh(waits).status == RunStatus.QUEUED
    (valkey.start if how == "killed" else valkey.thaw)()
    all_succeed([waits, rung_by_nobody, chained])
    assert [outside.n(tool) for tool in ("pay", "pay_detached", "pay_keyed")] == [1, 1, 1]
    assert len(started.workers()) == 2


def fresh(run: Run) -> Run:
    run.refresh_from_db()
    return run
