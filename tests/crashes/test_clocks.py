"""The clocks of the hosts are five minutes apart, each way: the database's is the one that counts.

Leases, deadlines, timers and undo windows are of one time, and no row says another; a clock that is wrong wakes
nobody too early, takes no run away and lets nothing expire.
"""

import os
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest
from django.apps import apps
from django.conf import settings
from django.db.models import DateTimeField, Max, Min

from runs import clock
from runs.models import Hold, Run
from runs.states import Cause, RunStatus
from tests.crashes.own_postgres import Own
from tests.crashes.processes import Workers, until
from tests.crashes.test_two_installations import GOES_ON, RULES, STOPS, Installation
from tests.crashes.test_whole_workers import LOOP, WORK
from tests.factories import approve, causes, open_hold, result, step, submitted, verbs
from tests.outside import FOLDER, Outside

pytestmark = pytest.mark.django_db(transaction=True)
Rules = Callable[..., None]
APART = 300.0
#: What lies ahead by design; all other times are of something that happened.
AHEAD = {
    "claim_due_at",
    "consume_by",
    "decide_by",
    "expires_at",
    "lease_until",
    "look_again_at",
    "may_act_until",
    "next_try_at",
    "probe_at",
    "renewing_until",
    "takes_effect_at",
}
#: Django's own, which no deadline hangs on.
NOT_OURS = {"auth", "sessions", "admin", "account", "socialaccount", "mfa", "contenttypes"}


def off(by: float) -> dict[str, str]:
    """The environment of a process on a host whose clock is `by` seconds ahead."""
    return {"SKEW": str(by), "PYTHONPATH": str(Path(__file__).parent / "skewed")}


def told_times() -> dict[str, tuple[datetime, datetime]]:
    """By column: the earliest and the latest time that any row of ours says something happened at."""
    found = {}
    for model in apps.get_models():
        if model._meta.app_label in NOT_OURS:
            continue
        for field in model._meta.concrete_fields:
            if isinstance(field, DateTimeField) and field.name not in AHEAD:
                span = model._default_manager.aggregate(first=Min(field.name), last=Max(field.name))
                if span["first"] is not None:
                    found[f"{model._meta.label}.{field.name}"] = (span["first"], span["last"])
    return found


def assert_all_between(before: datetime, after: datetime) -> None:
    wrong = {name: span for name, span in told_times().items() if span[0] < before or span[1] > after}
    assert wrong == {}


def test_workers_and_sweepers_five_minutes_apart(
    own: Own, workers: Workers, outside: Outside, rules: Rules
) -> None:
    """F52: one worker ahead, one behind, a sweeper on each side; every kind of waiting at once."""
    before = clock.now()
    rules(pay="hold", expires_in=60)
    workers.env["TEST_RULES"] = os.environ["TEST_RULES"]
    sleeps, waits = submitted("dozer", seconds=3.0), submitted("payer")
    calls, notes = submitted("slow-adder", n=1), submitted("transfer", how="pay_checked")
    right = dict(workers.env)
    for by in (APART, -APART):
        workers.env = right | off(by)
        for workers.script in (WORK, LOOP):
            workers.start(calls)
    until((outside.folder / "waiting").exists)
    held = until_now(lambda: Hold.objects.filter(run=sleeps, cause=Cause.TIMER).first())
    until(lambda: status(notes) == RunStatus.SUCCEEDED)
    until(lambda: status(sleeps) == RunStatus.SUCCEEDED, seconds=60)
    released = Hold.objects.get(pk=held.pk)
    assert released.released_at >= held.expires_at
    (outside.folder / "go").touch()
    until(lambda: status(calls) == RunStatus.SUCCEEDED)
    assert (verbs(calls).count("taken"), verbs(calls).count("recovered")) == (1, 0)
    assert (status(waits), causes(waits)) == (RunStatus.SUSPENDED, ["approval"])
    approve(open_hold(waits))
    until(lambda: status(waits) == RunStatus.SUCCEEDED)
    assert (outside.n("pay"), outside.n("pay_checked"), result(calls), step(waits, 0).attempt) == (1, 1, 0, 1)
    workers.end()
    assert_all_between(before, clock.now())


def test_lease_of_a_dead_worker_that_was_ahead_runs_out_in_its_time(
    own: Own, workers: Workers, outside: Outside
) -> None:
    """And no sooner for a sweeper that is ahead, and no later for what a worker that was ahead has written."""
    workers.env |= off(APART)
    run = submitted("payer", how="pay_checked")
    workers.killed_at(run, "after-call-before-record")
    run.refresh_from_db()
    lapses = run.lease_until
    assert lapses is not None
    assert (lapses - clock.now()).total_seconds() <= settings.LEASE
    workers.script = LOOP
    workers.start(run)
    until(lambda: status(run) == RunStatus.QUEUED)
    assert (run.changed_at > lapses, verbs(run)[-1]) == (True, "recovered")


def test_decided_on_a_host_that_is_ahead(own: Own, workers: Workers, outside: Outside) -> None:
    """Requests, decisions and permits say the database's time, and what is approved there is used here."""
    before = clock.now()
    env = workers.env | {FOLDER: os.environ[FOLDER]}
    ahead, behind = Installation(env | off(APART)), Installation(env | off(-APART))
    assert float(ahead.runs("import time; print(time.time())")) > time.time() + APART - 60
    ahead.runs(RULES + STOPS, "ana")
    behind.runs(GOES_ON, "ana")
    told = behind.told()
    assert (told["status"], told["requests"], outside.n("pay")) == ("succeeded", ["consumed"], 1)
    assert_all_between(before, clock.now())


def status(run: Run) -> str:
    run.refresh_from_db()
    return run.status


def until_now(look: Callable[[], Hold | None]) -> Hold:
    until(look)
    found = look()
    assert found is not None
    return found
