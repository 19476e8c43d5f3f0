"""The sweeper's verbs: each finds what is due, acts on it, and is harmless the second time."""

import itertools
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings

from runs import clock, endings, holds, lifecycle, queues, sweeper
from runs.models import Hold, Run
from runs.states import Cause, RunStatus
from tests.factories import (
    CYD,
    answer,
    approve,
    causes,
    drive,
    driven,
    go_on,
    later,
    open_hold,
    submitted,
    sweep_run,
    verbs,
)
from tests.outside import Outside

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("invariants")]
Rules = Callable[..., None]


def found(name: str) -> list[Any]:
    return list(sweeper._verbs[name].find(clock.now()))


def act(name: str, item: Any) -> bool:
    return sweeper._verbs[name].act(item)


def taken(run: Run) -> Run:
    assert lifecycle.take(run.pk, "w1")
    run.refresh_from_db()
    return run


# -- recover -------------------------------------------------------------------------------


def test_recover_finds_leases_that_ran_out() -> None:
    run = taken(submitted("adder", n=2))
    assert found("recover") == []
    later(settings.LEASE + 0.1)
    assert found("recover") == [run.pk]
    assert (act("recover", run.pk), act("recover", run.pk), found("recover")) == (True, False, [])
    run.refresh_from_db()
    assert drive(run).status == RunStatus.SUCCEEDED


# -- stop ----------------------------------------------------------------------------------


def test_stop_finds_queued_runs_that_were_asked_to() -> None:
    run = taken(submitted("adder", n=2))
    endings.cancel(run.pk, actor=CYD)
    assert found("stop") == []
    later(settings.LEASE + 0.1)
    lifecycle.recover(run.pk)
    assert found("stop") == [run.pk]
    assert (act("stop", run.pk), act("stop", run.pk), found("stop")) == (True, False, [])


# -- ring ----------------------------------------------------------------------------------


def test_ring_finds_queued_runs_nobody_took() -> None:
    run = submitted("adder", n=1)
    assert found("ring") == []
    later(settings.SWEEP_EVERY + 0.1)
    assert found("ring") == [(run.pk, 0)]
    assert (act("ring", (run.pk, 0)), act("ring", (run.pk, 0)), found("ring")) == (True, False, [])


def test_ring_waits_twice_as_long_each_time() -> None:
    run = submitted("adder", n=1)
    queues._push("runs.jobs.drive", ("x",))
    at, waits = 0.0, []
    for rings in range(10):
        step = 0.25
        while found("ring") != [(run.pk, rings)]:
            later(at := at + step)
            step = 0.25 if rings < 4 else 2.0
        waits.append(at)
        assert act("ring", (run.pk, rings))
    gaps = [b - a for a, b in itertools.pairwise(waits)]
    for rings, gap in enumerate(gaps, 1):
        least = min(60.0, settings.SWEEP_EVERY * 2**rings)
        assert least - 0.1 <= gap <= least + 2.5


def test_ring_does_not_wait_when_the_queue_lost_everything() -> None:
    """Nothing waits to be taken, so whatever was rung before is gone."""
    run = submitted("adder", n=1)
    Run.objects.filter(pk=run.pk).update(rings=9)
    later(settings.SWEEP_EVERY + 0.1)
    assert (queues.length(), found("ring")) == (0, [(run.pk, 9)])


def test_ring_waits_for_a_run_that_loses_its_workers() -> None:
    run = submitted("adder", n=1)
    Run.objects.filter(pk=run.pk).update(rings=3, recoveries=3)
    later(settings.SWEEP_EVERY * 7.9)
    assert (queues.length(), found("ring")) == (0, [])
    later(settings.SWEEP_EVERY * 8.1)
    assert found("ring") == [(run.pk, 3)]


def test_ring_begins_anew_after_a_resume(rules: Rules) -> None:
    rules(pay="hold")
    run = driven("payer")
    Run.objects.filter(pk=run.pk).update(rings=9)
    approve(open_hold(run))
    later(settings.SWEEP_EVERY + 0.1)
    assert found("ring") == [(run.pk, 0)]


def test_ring_rests_while_the_queue_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    submitted("adder", n=1)
    later(settings.SWEEP_EVERY + 0.1)
    monkeypatch.setattr(sweeper, "QUEUE_FULL", 0)
    queues._push("runs.jobs.drive", ("x",))
    assert found("ring") == []


def test_ring_of_a_run_that_was_taken() -> None:
    run = taken(submitted("adder", n=1))
    assert not act("ring", (run.pk, 0))


# -- resume --------------------------------------------------------------------------------


def unheld() -> Run:
    """Suspended, and whoever released its hold died before it resumed it."""
    run = driven("questioner")
    Hold.objects.filter(run=run).update(released_at=clock.now(), resolution="look_again")
    run.steps.update(open_holds=0)
    Run.objects.filter(pk=run.pk).update(wakes=1)
    return run


def test_resume_finds_runs_that_nothing_holds() -> None:
    run = unheld()
    assert found("resume") == []
    later(settings.SWEEP_EVERY + 0.1)
    assert found("resume") == [run.pk]
    assert (act("resume", run.pk), act("resume", run.pk), found("resume")) == (True, False, [])
    run.refresh_from_db()
    assert (run.status, verbs(run)[-1]) == (RunStatus.QUEUED, "resumed")
    endings.cancel(run.pk, actor=CYD)
    _write_the_missing_row(run)


def test_resume_finds_a_run_that_has_no_hold_at_all() -> None:
    run = driven("questioner")
    lost = list(Hold.objects.filter(run=run))
    Hold.objects.filter(run=run).delete()
    later(settings.SWEEP_EVERY + 0.1)
    assert found("resume") == [run.pk]
    Hold.objects.bulk_create(lost)


def test_resume_looks_through_many_a_part_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeper, "LOOKED_AT", 2)
    monkeypatch.setattr(sweeper, "_looked_from", None)
    for _ in range(3):
        driven("questioner")
    last = unheld()
    later(settings.SWEEP_EVERY + 0.1)
    passes = [found("resume") for _ in range(4)]
    assert passes == [[], [last.pk], [], [last.pk]]
    assert act("resume", last.pk)
    endings.cancel(last.pk, actor=CYD)
    _write_the_missing_row(last)


def test_resume_looks_at_runs_that_stopped_at_one_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeper, "LOOKED_AT", 1)
    monkeypatch.setattr(sweeper, "_looked_from", None)
    others = [driven("questioner"), driven("questioner")]
    last = unheld()
    Run.objects.filter(pk__in=[run.pk for run in others]).update(suspended_at=last.suspended_at)
    later(settings.SWEEP_EVERY + 0.1)
    assert [last.pk] in [found("resume") for _ in range(2)]
    assert act("resume", last.pk)
    endings.cancel(last.pk, actor=CYD)
    _write_the_missing_row(last)


def _write_the_missing_row(run: Run) -> None:
    """For the invariants: this test released a hold behind the journal's back."""
    from runs import journal

    journal.write(run, CYD, "released")


def test_resume_leaves_held_runs_alone(rules: Rules) -> None:
    rules(pay="hold")
    one, two = driven("questioner"), driven("batch")
    approve(open_hold(two, index=1))
    two.refresh_from_db()
    drive(two)
    three = driven("payer")
    holds.pause(three.pk, actor=CYD)
    approve(open_hold(three, Cause.APPROVAL))
    later(settings.SWEEP_EVERY + 10)
    assert found("resume") == []
    assert [act("resume", run.pk) for run in (one, two, three)] == [False] * 3


# -- expire_holds ----------------------------------------------------------------------------


def test_expire_holds(rules: Rules, outside: Outside) -> None:
    rules(pay="hold", expires_in=60)
    run = driven("transfer")
    assert found("expire_holds") == []
    later(61)
    hold = open_hold(run)
    assert found("expire_holds") == [hold.pk]
    assert (act("expire_holds", hold.pk), act("expire_holds", hold.pk), found("expire_holds")) == (
        True,
        False,
        [],
    )
    go_on(run)
    assert (run.status, outside.n("pay")) == (RunStatus.SUCCEEDED, 0)


# -- look_again ------------------------------------------------------------------------------


def test_look_again_finds_doubts_and_dependencies(outside: Outside) -> None:
    outside.will("pay_keyed", "raise", "ok")
    run = driven("payer", how="pay_keyed")
    assert found("look_again") == []
    later(1)
    hold = open_hold(run)
    assert found("look_again") == [hold.pk]
    assert (act("look_again", hold.pk), act("look_again", hold.pk), found("look_again")) == (True, False, [])
    run.refresh_from_db()
    assert drive(run).status == RunStatus.SUCCEEDED


# -- expire_runs -----------------------------------------------------------------------------


def test_expire_runs_after_a_month() -> None:
    run = driven("questioner")
    later(settings.MAX_SUSPENDED - 5)
    assert found("expire_runs") == []
    later(settings.MAX_SUSPENDED + 1)
    assert found("expire_runs") == [run.pk]
    assert (act("expire_runs", run.pk), act("expire_runs", run.pk), found("expire_runs")) == (True, False, [])


def test_expire_runs_not_while_one_is_paused() -> None:
    run = driven("questioner")
    holds.pause(run.pk, actor=CYD)
    later(settings.MAX_SUSPENDED + 1)
    assert found("expire_runs") == []


def test_expire_runs_though_one_was_paused_before() -> None:
    """A pause that was released, and a question that is open, are two holds."""
    run = driven("questioner")
    holds.pause(run.pk, actor=CYD)
    holds.unpause(run.pk, actor=CYD)
    later(settings.MAX_SUSPENDED + 1)
    assert found("expire_runs") == [run.pk]
    assert sweep_run(run) == ["expire_runs"]


def test_expire_runs_counts_from_the_last_stop() -> None:
    run = driven("questioner")
    later(settings.MAX_SUSPENDED - 5)
    answer(open_hold(run), number=1)
    run.refresh_from_db()
    drive(run)
    later(settings.MAX_SUSPENDED + 1)
    assert found("expire_runs") == []


# -- The pass --------------------------------------------------------------------------------


@pytest.fixture
def one_more() -> Any:
    names: list[str] = []

    def register(name: str, find: Callable[..., Any], act: Callable[[Any], bool]) -> None:
        names.append(name)
        sweeper.register(name, find, act)

    yield register
    for name in names:
        sweeper._verbs.pop(name)


def test_sweep_counts_what_was_done(one_more: Callable[..., None]) -> None:
    one_more("test", lambda now: [1, 2, 3], lambda item: item != 2)
    assert sweeper.sweep() == {"test": 2}


@pytest.mark.django_db(transaction=True)  # it lets go of its connection
def test_sweep_goes_on_after_a_verb_that_fails(one_more: Callable[..., None]) -> None:
    def fail(now: object) -> list[int]:
        raise LookupError

    one_more("failing", fail, bool)
    one_more("after", lambda now: [1], lambda item: True)
    assert sweeper.sweep() == {"after": 1}


@pytest.mark.django_db(transaction=True)  # it lets go of its connection
def test_sweep_goes_on_after_an_item_that_fails(one_more: Callable[..., None]) -> None:
    one_more("test", lambda now: [0, 1], lambda item: 1 // item == 1)
    assert sweeper.sweep() == {"test": 1}


def test_sweep_of_many_kinds_at_once(rules: Rules) -> None:
    rules(pay="hold", expires_in=1)
    run, lapsed, queued = driven("payer"), taken(submitted("adder", n=1)), submitted("adder", n=1)
    later(30)
    done = sweeper.sweep()
    assert {name: done.get(name) for name in ("recover", "expire_holds")} == {"recover": 1, "expire_holds": 1}
    assert done["ring"] >= 1
    run.refresh_from_db()
    assert (run.status, causes(run), queued.status) == (RunStatus.QUEUED, [], RunStatus.QUEUED)
    assert clock.now() - lapsed.created_at > timedelta(seconds=29)
