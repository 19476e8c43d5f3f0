"""A rolling deployment: 50 runs in flight, 500 waiting, and every worker is replaced.

The new ones share nothing with the old ones but the database, the queue and the outside: another folder with the
code, another home, other temporary files; and the old ones' are gone before the new ones go on. Half of the old
workers are told once and finish the call they are in; the other half is told a second time and dies in it.
"""

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from runs.models import Run
from runs.states import RunStatus
from tests.crashes.fleet import Release, alone, unpacked
from tests.crashes.own_postgres import Own
from tests.crashes.processes import Workers, until
from tests.crashes.test_whole_workers import LOOP
from tests.factories import approve, causes, driven, later, open_hold, step, submitted, verbs
from tests.outside import Outside

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(400)]
Rules = Callable[..., None]
IN_FLIGHT, WAITING, DECIDED = 50, 500, 20
#: Nobody can tell of the one whether it happened; the bank can of the other.
HOW = ("pay_detached", "pay_cancelled")


@pytest.fixture
def release(workers: Workers, own: Own) -> Iterator[Callable[..., Release]]:
    made: list[Release] = []
    env = workers.env | {"LEASE": "20", "HEARTBEAT": "5", "TEST_RULES": "{}"}

    def start(count: int, folder: Path) -> Release:
        made.append(Release(alone(env, folder / "home"), count, unpacked(folder)))
        return made[-1]

    yield start
    for each in made:
        each.end()


def standing(runs: list[Run]) -> list[tuple[Any, ...]]:
    """All that moves when a run moves."""
    shown = (
        "pk",
        "status",
        "epoch",
        "wakes",
        "position",
        "open_holds",
        "seq",
        "changed_at",
        "snapshots_taken",
    )
    return list(Run.objects.filter(pk__in=[run.pk for run in runs]).order_by("pk").values_list(*shown))


def fresh(run: Run) -> Run:
    run.refresh_from_db()
    return run


def all_are(status: str, runs: list[Run]) -> None:
    """Once they are; as they are then."""
    keys = [run.pk for run in runs]
    until_seldom(lambda: not Run.objects.filter(pk__in=keys).exclude(status=status).exists())
    for run in runs:
        run.refresh_from_db()


def until_seldom(look: Callable[[], object]) -> None:
    """As `until`, and leaves the processor to those that are waited for."""
    until(lambda: look() or time.sleep(0.2), seconds=150)


def told_again(worker: psutil.Process) -> bool:
    """SIGTERM once more; whether it has ended. Within a second RQ takes two for one."""
    with contextlib.suppress(psutil.NoSuchProcess):
        worker.terminate()
        return worker.status() == psutil.STATUS_ZOMBIE
    return True


def test_rolling_deployment(
    release: Callable[..., Release], workers: Workers, outside: Outside, rules: Rules, tmp_path: Path
) -> None:
    """F01, F48: nothing lost, nothing doubled, and those that wait go on waiting."""
    rules(pay="hold")
    waiting = [driven("payer") for _ in range(WAITING)]
    before = standing(waiting)
    for how in HOW:
        outside.will(how, *["act_then_wait"] * IN_FLIGHT)
    flying = [submitted("transfer", how=HOW[number % 2]) for number in range(IN_FLIGHT)]
    old = release(IN_FLIGHT, tmp_path / "old")
    until_seldom(lambda: sum(outside.n(how) for how in HOW) == IN_FLIGHT)
    for how in HOW:
        outside.will(how)  # whatever is called from now on is answered
    by = {run.pk: fresh(run).taken_by for run in flying}

    old.told()
    new = release(4, tmp_path / "new")
    new.ready()
    hurried, calm = flying[: IN_FLIGHT // 2], flying[IN_FLIGHT // 2 :]
    lost = [old.of(int(by[run.pk].split(":")[1])) for run in hurried]
    until_seldom(lambda: sum(map(told_again, lost)) == len(lost))
    (outside.folder / "go").touch()
    old.over()
    shutil.rmtree(tmp_path / "old")

    all_are(RunStatus.SUCCEEDED, calm)
    assert [run for run in calm if run.taken_by == by[run.pk] or "handed_back" not in verbs(run)] == []
    assert {fresh(run).status for run in hurried} == {RunStatus.RUNNING}
    later(3600)
    workers.script = LOOP
    workers.start(calm[0])
    asked, found_out = hurried[::2], hurried[1::2]
    all_are(RunStatus.SUSPENDED, asked)
    all_are(RunStatus.SUCCEEDED, found_out)

    assert [causes(run) for run in asked] == [["in_doubt"]] * len(asked)
    assert {step(run, 1).attempt for run in flying} == {1}
    assert [len(outside.tried(how)) for how in HOW] == [IN_FLIGHT // 2] * 2
    assert len(outside.keys("note")) == 2 * IN_FLIGHT - len(asked)
    assert standing(waiting) == before

    for run in waiting[:DECIDED]:
        approve(open_hold(run))
    all_are(RunStatus.SUCCEEDED, waiting[:DECIDED])
    assert outside.n("pay") == DECIDED
    rest = {run.pk for run in waiting[DECIDED:]}
    assert standing(waiting[DECIDED:]) == [row for row in before if row[0] in rest]
