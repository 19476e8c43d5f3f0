"""The failures that a machinery of stopping and going on must not have: where each is proven.

What is not proven here stands in the rooms' own tests (`tests/architecture/test_cases.py` sees that they are there):

| failure | proven by |
| --- | --- |
| resumed with an expired credential | tests/runs/test_credentials.py::test_obtain_after_a_long_pause_gives_the_value_of_now |
| - the agent sees no 401 | tests/runs/test_credentials.py::test_hold_after_a_second_refusal_and_go_on_when_authorised |
| e-mail sent before the stop, not sent again | tests/runs/test_execution.py::test_drive_after_every_answer_asks_nothing_twice |
| - with every process replaced | tests/crashes/test_workers_killed.py::test_killed_while_asking_and_every_worker_replaced |
| stop and go on is not a fresh start | tests/crashes/test_every_cause.py::test_every_cause_goes_the_same_way_back |
| all workers replaced while 500 runs wait | tests/runs/test_failures.py::test_five_hundred_wait_while_all_workers_are_replaced |
| budget pause resumed | tests/runs/test_allowance.py::test_top_up_lets_go_on_what_fits_and_resumes_each_run_once |
| - not by a person's resume | tests/runs/test_allowance.py::test_pause_while_it_waits_for_its_allowance |
| a prompt rebuilt differently is caught | tests/runs/test_divergence.py::test_prompt_rebuilt_differently_is_caught |
| nothing pending after its end | tests/runs/test_failures.py::test_nothing_is_pending_after_its_end |
| - its claims are free | tests/runs/test_claims.py::test_owe_at_a_cancel_and_an_expiry |
| - given back, once | tests/runs/test_claims.py::test_give_back_calls_once_under_a_key_of_the_claim |
| a late call after resume elsewhere moves nothing | tests/crashes/test_workers_killed.py::test_frozen_after_the_call_brings_evidence_only |
| - before its fence it is not made | tests/crashes/test_workers_killed.py::test_frozen_before_its_fence_makes_no_call_and_no_write |
| approval on stale facts is asked again | tests/runs/test_execution.py::test_facts_changed_at_the_call_ask_again |
| the queue is emptied | tests/runs/test_failures.py::test_emptied_queue_loses_no_run |
"""

from collections.abc import Callable

import pytest
import redis
from django.conf import settings

from runs import endings, jobs, lifecycle, points, queues, sweeper
from runs.clock import now
from runs.exceptions import HoldClosed, RunEnded
from runs.models import Hold, Run
from runs.states import Cause, EffectState, RunStatus
from tests import agents_of_causes as world
from tests.factories import CYD, approve, causes, drive, later, metered, open_hold, step, submitted
from tests.outside import Outside

Rules = Callable[..., None]
MANY = 500


class Killed(BaseException):
    """As if the process had died."""


def die() -> None:
    raise Killed


# -- Many at once ------------------------------------------------------------------------------


@pytest.mark.timeout(600)
@pytest.mark.django_db(transaction=True)
def test_five_hundred_wait_while_all_workers_are_replaced(rules: Rules, outside: Outside) -> None:
    """Nothing of a worker is needed to go on: every one is taken by another, rung for twice, and none acts twice."""
    rules(act_approved="hold")
    for _ in range(MANY):
        drive(submitted("spread", stages=[["approval"]]))
    assert (Run.objects.filter(status=RunStatus.SUSPENDED).count(), outside.n("act_approved")) == (MANY, 0)
    assert not Run.objects.exclude(token=None, lease_until=None).exists()
    Run.objects.update(taken_by="a worker that is gone")
    for hold in Hold.objects.open():
        approve(hold)
    for run in [*Run.objects.all(), *Run.objects.all()]:  # a bell that rings twice
        drive(run)
    keys = [call["key"] for call in outside.acted("act_approved")]
    assert (len(keys), len(set(keys))) == (MANY, MANY)
    assert (
        Run.objects.filter(status=RunStatus.SUCCEEDED, epoch=2).exclude(taken_by__contains="gone").count()
        == MANY
    )


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("invariants")
def test_emptied_queue_loses_no_run(rules: Rules, outside: Outside) -> None:
    """F49: 20 approved and not resumed, 20 waiting, 5 running when Valkey is emptied. The sweeper finds the 25,
    the 20 wait on and can be answered; each acts once. A key used before still gives its run."""
    rules(act_approved="hold")
    approved = [drive(submitted("spread", stages=[["approval"]])) for _ in range(20)]
    waiting = [drive(submitted("spread", stages=[["approval"]])) for _ in range(20)]
    asked = lifecycle.Submission("adder", {"n": 1}, {}, idempotency_key="k")
    first, _ = lifecycle.submit(asked, actor=CYD)
    running = [submitted("spread", stages=[["remark"], ["keyed"]]) for _ in range(5)]
    for run in running:
        with pytest.raises(Killed), points.on("after-boundary", die):
            drive(run)
    for run in approved:
        approve(open_hold(run))
    with redis.Redis.from_url(settings.REDIS_URL) as valkey:
        valkey.flushdb()
    assert queues.length() == 0
    assert lifecycle.submit(asked, actor=CYD) == (first, False)
    later(settings.LEASE + 5)
    sweeper.sweep()
    answer_the_bell()
    assert {drive(run).status for run in [*approved, *running]} == {RunStatus.SUCCEEDED}
    assert [causes(run) for run in waiting] == [["approval"]] * 20
    for run in waiting:
        approve(open_hold(run))
    answer_the_bell()
    assert {drive(run).status for run in waiting} == {RunStatus.SUCCEEDED}
    assert (outside.n("act_approved"), outside.n("act_keyed"), len(outside.keys("act_approved"))) == (
        40,
        5,
        40,
    )


def answer_the_bell() -> None:
    """What idle workers do: whatever was rung is driven."""
    queue = queues._bell()
    for job in queue.jobs:
        if job.func_name == "runs.jobs.drive":
            jobs.drive(*job.args)
    queue.empty()


# -- Ends --------------------------------------------------------------------------------------------


@pytest.mark.django_db
@pytest.mark.usefixtures("invariants")
def test_nothing_is_pending_after_its_end(rules: Rules, outside: Outside) -> None:
    """Held for four reasons, one a doubt: no hold is open, nothing reserved, nothing can be answered."""
    rules(act_approved="hold")
    outside.will("act", "act_then_raise")
    stages = [["allowance", "approval", "question", "event"]]
    run = drive(metered("spread", {"tokens": str(world.ESTIMATE)}, stages=stages))
    assert sorted(causes(run)) == ["approval", "event", "in_doubt", "question"]
    asked = open_hold(run, Cause.APPROVAL)
    later(settings.MAX_SUSPENDED + 1)
    assert not endings.expire(run.pk, settings.MAX_SUSPENDED)  # a doubt waits for as long as it takes
    endings.cancel(run.pk, actor=CYD)
    run.refresh_from_db()
    assert (run.status, causes(run), run.open_holds) == (RunStatus.CANCELLED, [], 0)
    assert [row.reserved for row in run.allowances.all()] == [0]
    assert step(run, 0).effect == EffectState.IN_DOUBT
    with pytest.raises((HoldClosed, RunEnded)):
        approve(asked)
    assert lifecycle.take(run.pk, "late") is None
    assert [verb.name for verb in sweeper._verbs.values() if run.pk in set(verb.find(now()))] == []
