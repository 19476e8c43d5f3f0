"""Workers killed, frozen and cut off, as processes: found by their lease, and nothing is doubled."""

import os
import signal
import time
from collections.abc import Callable

import pytest
from django.conf import settings
from django.db import connection

from runs import endings, holds, lifecycle, sweeper
from runs.models import Run
from runs.states import RunStatus
from tests.crashes.processes import Workers, until
from tests.factories import (
    CYD,
    answer,
    approve,
    causes,
    drive,
    go_on,
    later,
    open_hold,
    result,
    step,
    submitted,
    verbs,
)
from tests.outside import Outside

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("invariants")]
Rules = Callable[..., None]
LONG = 3600.0

#: Where a worker dies around an effect; a call was made there or not.
AROUND = {"after-intent-before-call": 0, "after-call-before-record": 1, "after-effect-before-record": 1}


@pytest.mark.parametrize("point", sorted(AROUND))
@pytest.mark.parametrize("how", ["pay", "pay_keyed", "pay_checked"])
def test_killed_around_an_effect(how: str, point: str, workers: Workers, outside: Outside) -> None:
    """F48: verified, repeated with the same key, or a question; never blindly twice."""
    run = submitted("payer", how=how)
    workers.killed_at(run, point)
    later(settings.LEASE + 5)
    go_on(run)
    later(LONG)
    go_on(run)
    made = AROUND[point]
    if how == "pay":
        assert (run.status, causes(run), len(outside.tried(how))) == (RunStatus.SUSPENDED, ["in_doubt"], made)
    elif how == "pay_keyed":
        assert (run.status, len(outside.tried(how)), len(outside.keys(how))) == (
            RunStatus.SUCCEEDED,
            made + 1,
            1,
        )
    else:
        assert (run.status, outside.n(how), step(run, 0).attempt) == (RunStatus.SUCCEEDED, 1, 2 - made)


@pytest.mark.parametrize("how", ["pay", "pay_keyed", "pay_checked"])
def test_killed_after_the_receipt(how: str, workers: Workers, outside: Outside) -> None:
    run = submitted("payer", how=how)
    workers.killed_at(run, "before-finish")
    later(settings.LEASE + 5)
    assert (go_on(run).status, len(outside.tried(how))) == (RunStatus.SUCCEEDED, 1)


@pytest.mark.parametrize("point", ["after-boundary", "before-park", "after-park"])
def test_killed_around_a_stop_with_the_approval_in_between(
    point: str, workers: Workers, outside: Outside, rules: Rules
) -> None:
    """F45: the request is there, the worker is gone, the answer comes; the run goes on by itself, once."""
    rules(pay="hold")
    workers.env["TEST_RULES"] = os.environ["TEST_RULES"]
    run = submitted("transfer")
    workers.killed_at(run, point)
    later(settings.LEASE + 5)
    if point == "after-boundary":
        go_on(run)
    approve(open_hold(run))
    go_on(run)
    assert (run.status, outside.n("pay")) == (RunStatus.SUCCEEDED, 1)
    assert len({call["key"] for call in outside.tried("note")}) == 2


def test_killed_while_asking_and_every_worker_replaced(workers: Workers, outside: Outside) -> None:
    """F01 with real processes: each stretch of the run in a process of its own."""
    run = submitted("questioner")
    for number in (5, 7):
        assert workers.drives(run) == 0
        answer(open_hold(run), number=number)
    workers.drives(run)
    assert (result(run), outside.n("note"), run.epoch) == ([5, 7], 1, 3)


def test_killed_again_and_again_never_doubles(workers: Workers, outside: Outside) -> None:
    """Three deaths in a row at three places of one run."""
    run = submitted("transfer", how="pay_checked")
    ahead = 0.0
    for point in ("after-call-before-record", "after-intent-before-call", "before-finish"):
        workers.killed_at(run, point)
        ahead += LONG
        later(ahead)
        assert lifecycle.recover(run.pk)
        run.refresh_from_db()
    go_on(run)
    later(ahead + LONG)
    go_on(run)
    assert (run.status, outside.n("pay_checked")) == (RunStatus.SUCCEEDED, 1)
    assert len({call["key"] for call in outside.tried()}) == 3


def test_killed_in_a_call_after_cancel(workers: Workers, outside: Outside) -> None:
    """Cancelled while the call hung, then the worker died: the run ends, and its effect is in doubt."""
    outside.will("pay", "act_then_wait")
    run = submitted("payer")
    worker = workers.start(run)
    until(lambda: (outside.folder / "waiting").exists())
    endings.cancel(run.pk, actor=CYD)
    worker.kill()
    worker.wait()
    later(settings.LEASE + 5)
    sweeper.sweep()
    sweeper.sweep()
    run.refresh_from_db()
    assert (run.status, step(run, 0).effect, outside.n("pay")) == (RunStatus.CANCELLED, "in_doubt", 1)


def test_terminated_backend_in_a_call(workers: Workers, outside: Outside) -> None:
    """PostgreSQL closes the worker's connections: the process fails, the run is found, nothing is doubled."""
    run = submitted("payer", how="pay_checked")
    worker = workers.start(run, after_effect_before_record="wait")
    workers.reached("after_effect_before_record")
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    workers.go("after_effect_before_record")
    worker.wait(timeout=30)
    later(LONG)
    go_on(run)
    later(2 * LONG)
    assert (go_on(run).status, outside.n("pay_checked")) == (RunStatus.SUCCEEDED, 1)


def test_terminated_backend_after_a_plain_effect_asks_nobody(workers: Workers, outside: Outside) -> None:
    """The worker lives, and knows what came of the call: it says so over another connection."""
    run = submitted("payer")
    worker = workers.start(run, after_effect_before_record="wait")
    workers.reached("after_effect_before_record")
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    workers.go("after_effect_before_record")
    worker.wait(timeout=30)
    assert [e["kind"] for e in step(run, 0).evidence] == ["returned"]
    later(LONG)
    assert (go_on(run).status, outside.n("pay")) == (RunStatus.SUCCEEDED, 1)


# -- Frozen and slow -----------------------------------------------------------------------------


def test_frozen_before_its_fence_makes_no_call_and_no_write(workers: Workers, outside: Outside) -> None:
    """F52 with real processes: W1 is frozen, its lease runs out, W2 goes on; W1 wakes and does nothing."""
    run = submitted("payer", how="pay_keyed")
    first = workers.start(run, after_boundary="wait")
    workers.reached("after_boundary")
    os.kill(first.pid, signal.SIGSTOP)
    until(lambda: lifecycle.recover(run.pk))  # its lease really runs out
    run.refresh_from_db()
    assert drive(run).status == RunStatus.SUCCEEDED
    before = verbs(run)
    workers.go("after_boundary")
    os.kill(first.pid, signal.SIGCONT)
    assert first.wait(timeout=30) == 0
    run.refresh_from_db()
    assert (len(outside.tried("pay_keyed")), outside.tried("pay_keyed")[0]["attempt"]) == (1, 2)
    assert verbs(run) == before


def test_frozen_after_the_call_brings_evidence_only(workers: Workers, outside: Outside) -> None:
    run = submitted("transfer")
    first = workers.start(run, after_effect_before_record="wait")
    until(lambda: Run.objects.filter(pk=run.pk, position__gte=0, status="running").exists())
    workers.reached("after_effect_before_record")  # of the first note
    os.kill(first.pid, signal.SIGSTOP)
    until(lambda: lifecycle.recover(run.pk))
    run.refresh_from_db()
    drive(run)
    assert run.status == RunStatus.SUCCEEDED
    workers.go("after_effect_before_record")
    os.kill(first.pid, signal.SIGCONT)
    assert first.wait(timeout=30) == 0
    run.refresh_from_db()
    note = step(run, 0)
    assert [(e["attempt"], e["kind"], e["key"]) for e in note.evidence] == [(1, "returned", note.key)]
    assert (run.status, outside.n("pay"), len({c["key"] for c in outside.tried("note")})) == (
        RunStatus.SUCCEEDED,
        1,
        2,
    )


def test_slow_call_keeps_its_run(workers: Workers, outside: Outside) -> None:
    """A call may last longer than the lease: a thread renews it until the call's own deadline."""
    run = submitted("slow-adder", n=1)
    worker = workers.start(run)
    until(lambda: (outside.folder / "waiting").exists())
    until_past = time.monotonic() + 2 * settings.LEASE
    while time.monotonic() < until_past:
        assert not lifecycle.recover(run.pk)
        time.sleep(0.1)
    (outside.folder / "go").touch()
    assert worker.wait(timeout=30) == 0
    run.refresh_from_db()
    assert (run.status, run.epoch) == (RunStatus.SUCCEEDED, 1)


def test_stubborn_agent_ends_its_process_and_the_run_is_found(workers: Workers) -> None:
    """Code that swallows every interruption: the fourth ends the process; the lease does the rest."""
    workers.env["AGENT_TIMEOUT"] = "0.2"
    run = submitted("stubborn")
    assert workers.drives(run) == 70
    later(settings.LEASE + 5)
    assert lifecycle.recover(run.pk)
    assert endings.cancel(run.pk, actor=CYD).status == RunStatus.CANCELLED


def test_pause_while_a_process_is_in_the_call(workers: Workers, outside: Outside) -> None:
    """F58 across processes: the call in flight is finished and recorded; nothing new starts."""
    outside.will("note", "wait")
    run = submitted("transfer")
    worker = workers.start(run)
    until(lambda: (outside.folder / "waiting").exists())
    holds.pause(run.pk, actor=CYD)
    (outside.folder / "go").touch()
    assert worker.wait(timeout=30) == 0
    run.refresh_from_db()
    assert (run.status, causes(run), len(outside.tried("pay"))) == (RunStatus.SUSPENDED, ["person"], 0)
    assert step(run, 0).effect == "confirmed"
