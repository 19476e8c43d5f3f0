"""The database restarts, picks a victim, or has no room: what a worker, a door and the sweeper make of it.

An error of the database is never an answer. Nothing is half done; who asked asks again, a run is found by its
lease or at the next pass, and what a call brought is kept where there is a way to say it.
"""

import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.db import OperationalError, connection
from psycopg.errors import DeadlockDetected

from runs import endings, holds, lifecycle, sweeper
from runs.models import Run
from runs.states import RunStatus
from tests.crashes.own_postgres import Own
from tests.crashes.processes import Workers, until
from tests.crashes.test_whole_workers import LOOP, WORK
from tests.factories import CYD, approve, causes, driven, go_on, later, open_hold, step, submitted, verbs
from tests.full import database_full
from tests.outside import Outside

pytestmark = pytest.mark.django_db(transaction=True)
Rules = Callable[..., None]
LONG = 3600.0


def status(run: Run) -> str:
    run.refresh_from_db()
    return run.status


# -- Restarted ---------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_restarted_under_workers_and_sweeper(
    mode: str, own: Own, workers: Workers, outside: Outside, rules: Rules
) -> None:
    """One in a call, one queued, one that waits: each goes on from where it was, and the same processes do it."""
    rules(pay="hold")
    waits = driven("payer")
    outside.will("pay_cancelled", "act_then_wait")
    calls = submitted("payer", how="pay_cancelled")
    workers.script = WORK
    working = workers.start(calls)
    workers.script = LOOP
    sweeping = workers.start(calls)
    until((outside.folder / "waiting").exists)
    connection.close()
    own.server.stop(mode)
    (outside.folder / "go").touch()  # the call returns, and there is nobody to tell it to
    time.sleep(2 * settings.LEASE)
    own.server.start()
    queued = submitted("transfer", how="pay_keyed")
    until(lambda: status(queued) == RunStatus.SUCCEEDED)
    later(LONG)
    until(lambda: status(calls) == RunStatus.SUCCEEDED)
    approve(open_hold(waits))
    until(lambda: status(waits) == RunStatus.SUCCEEDED)
    assert [outside.n(tool) for tool in ("pay", "pay_cancelled", "pay_keyed")] == [1, 1, 1]
    assert (working.poll(), sweeping.poll()) == (None, None)


def test_every_connection_ended_in_a_call(own: Own, workers: Workers, outside: Outside) -> None:
    """The horse lives, says what it knows over another connection, and takes the next run."""
    outside.will("pay_detached", "act_then_wait")
    run = submitted("payer", how="pay_detached")
    workers.script = WORK
    working = workers.start(run)
    until((outside.folder / "waiting").exists)
    assert own.cut() > 0
    (outside.folder / "go").touch()
    until(lambda: any(e["kind"] == "returned" for e in step(run, 0).evidence) or step(run, 0).settled)
    later(LONG)
    until(lambda: go_on(run).status == RunStatus.SUCCEEDED)  # by the worker, or here: who comes first
    assert (run.status, len(outside.tried("pay_detached")), working.poll()) == (RunStatus.SUCCEEDED, 1, None)


# -- Chosen as the victim of a deadlock ---------------------------------------------------------


class Rival:
    """A session that locks `second`, waits until the verb waits for it, and then wants `first`, which the verb has.
    It does not look for deadlocks, so that the verb is the one that is chosen."""

    def __init__(self, own: Own, first: str, second: str) -> None:
        self.session = psycopg.connect(own.url)
        self.session.execute("SET deadlock_timeout = '1min'")
        self.session.execute(second.encode())
        self.own, self.first = own, first
        self.thread = threading.Thread(target=self._want, daemon=True)
        self.thread.start()

    def _want(self) -> None:
        waits = "SELECT 1 FROM pg_stat_activity WHERE datname = '{}' AND wait_event_type = 'Lock'"
        until(lambda: self.own.server.execute(waits.format(self.own.name)))
        self.session.execute(self.first.encode())
        self.session.rollback()

    def over(self) -> None:
        self.thread.join(timeout=20)
        assert not self.thread.is_alive()
        self.session.close()


def rivalled(own: Own, run: Run, table: str, verb: Callable[[], Any]) -> Any:
    """What comes of a verb that has the run's row, wants one of `table`, and is chosen."""
    first = f"SELECT 1 FROM runs_run WHERE id = '{run.pk}' FOR UPDATE"
    second = f"SELECT 1 FROM {table} WHERE run_id = '{run.pk}' FOR UPDATE"
    rival = Rival(own, first, second)
    try:
        return verb()
    finally:
        rival.over()


VERBS: dict[str, tuple[str, Callable[[Run], Any], Callable[[Run], Any]]] = {
    "release": ("runs_hold", lambda run: approve(open_hold(run)), lambda run: verbs(run).count("released")),
    "expire": (
        "runs_hold",
        lambda run: holds.expire(open_hold(run).pk),
        lambda run: verbs(run).count("released"),
    ),
    "cancel": (
        "runs_hold",
        lambda run: endings.cancel(run.pk, actor=CYD),
        lambda run: verbs(run).count("cancelled"),
    ),
}


@pytest.mark.parametrize("name", sorted(VERBS))
def test_verb_chosen_in_a_deadlock(name: str, own: Own, rules: Rules) -> None:
    """Reported to who asked, nothing done; asked again it is done, once."""
    rules(pay="hold", expires_in=5)
    run = driven("payer")
    later(30)
    table, verb, count = VERBS[name]
    before = verbs(run)
    with pytest.raises(OperationalError) as chosen:
        rivalled(own, run, table, lambda: verb(run))
    assert isinstance(chosen.value.__cause__, DeadlockDetected)
    assert (status(run), causes(run), verbs(run)) == (RunStatus.SUSPENDED, ["approval"], before)
    verb(run)
    assert (causes(run), count(run)) == ([], 1)


def test_sweeper_chosen_in_a_deadlock_does_the_others_and_comes_again(own: Own, rules: Rules) -> None:
    rules(pay="hold", expires_in=5)
    runs = [driven("payer") for _ in range(3)]
    later(30)
    done = rivalled(own, runs[1], "runs_hold", sweeper.sweep)
    assert (done["expire_holds"], sorted(map(status, runs))) == (2, ["queued", "queued", "suspended"])
    assert sweeper.sweep()["expire_holds"] == 1
    assert [verbs(run).count("resumed") for run in runs] == [1, 1, 1]


@pytest.mark.parametrize("how", ["pay", "pay_keyed", "pay_checked"])
def test_receipt_chosen_in_a_deadlock(how: str, own: Own, workers: Workers, outside: Outside) -> None:
    """The worker knows what came of the call: it is evidence, and the call is not made again."""
    run = submitted("payer", how=how)
    worker = workers.start(run, after_effect_before_record="wait")
    workers.reached("after_effect_before_record")
    rivalled(
        own, run, "runs_step", lambda: workers.go("after_effect_before_record") or worker.wait(timeout=30)
    )
    assert worker.returncode != 0
    later(settings.LEASE + 5)
    go_on(run)
    times = 2 if how == "pay_keyed" else 1
    assert (run.status, len(outside.tried(how)), len(outside.keys(how))) == (RunStatus.SUCCEEDED, times, 1)


# -- No room -----------------------------------------------------------------------------------


def test_full_while_nobody_may_write(own: Own, workers: Workers, outside: Outside, rules: Rules) -> None:
    """Doors and sweeper say no and change nothing; what was queued, waited or ran goes on when there is room."""
    rules(pay="hold")
    waits, queued, runs = driven("payer"), submitted("payer", how="pay_checked"), submitted("adder", n=2)
    lifecycle.take(runs.pk, "somebody")
    later(30)
    with psycopg.connect(own.url, autocommit=True) as server, database_full(server):
        for verb in (
            lambda: approve(open_hold(waits)),
            lambda: holds.pause(queued.pk, actor=CYD),
            lambda: endings.cancel(queued.pk, actor=CYD),
            lambda: submitted("adder", n=1),
        ):
            with pytest.raises(OperationalError) as refused:
                verb()
            assert isinstance(refused.value.__cause__, psycopg.errors.DiskFull)
        assert sweeper.sweep() == {}
        assert workers.drives(queued) != 0
    assert (status(waits), status(queued), status(runs)) == ("suspended", "queued", "running")
    assert (Run.objects.count(), outside.tried()) == (3, [])
    for run in (waits, queued, runs):
        go_on(run)
    approve(open_hold(waits))
    assert go_on(waits).status == RunStatus.SUCCEEDED
    assert (queued.status, runs.status, outside.n("pay"), outside.n("pay_checked")) == (
        RunStatus.SUCCEEDED,
        RunStatus.SUCCEEDED,
        1,
        1,
    )


@pytest.mark.parametrize(
    ("how", "ends"), [("pay", "suspended"), ("pay_keyed", "succeeded"), ("pay_checked", "succeeded")]
)
def test_full_when_the_call_returns(
    how: str, ends: str, own: Own, workers: Workers, outside: Outside
) -> None:
    """Neither the receipt nor the evidence can be written: found out, repeated under its key, or a question."""
    run = submitted("payer", how=how)
    worker = workers.start(run, after_effect_before_record="wait")
    workers.reached("after_effect_before_record")
    with psycopg.connect(own.url, autocommit=True) as server, database_full(server):
        workers.go("after_effect_before_record")
        assert worker.wait(timeout=30) != 0
    later(settings.LEASE + 5)
    go_on(run)
    later(LONG)
    go_on(run)
    assert (run.status, len(outside.keys(how)), len(outside.tried(how))) == (
        ends,
        1,
        2 if how == "pay_keyed" else 1,
    )
