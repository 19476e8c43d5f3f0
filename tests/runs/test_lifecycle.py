"""The verbs that move a run: each works, refuses, loses the race and is called twice."""

from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.db import transaction

from runs import agents, clock, endings, execution, holds, lifecycle, queues
from runs.actors import Actor
from runs.exceptions import (
    BadArguments,
    BadValue,
    EpochLost,
    KeyReused,
    LostRace,
    NotFound,
    RunEnded,
    UnknownAgent,
)
from runs.lifecycle import Fence, Submission
from runs.models import JournalEntry, Run
from runs.states import EDGES, ENDED, LIVE, RunStatus, sources
from tests.factories import BEN, CYD, NO_RUN, OPERATOR, drive, driven, later, open_hold, submitted, verbs

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("invariants")]


def taken(run: Run) -> Fence:
    fence = lifecycle.take(run.pk, "w1")
    assert fence is not None
    return fence


def suspended() -> Run:
    return driven("questioner")


# -- submit ------------------------------------------------------------------------------


def test_submit_makes_a_queued_run() -> None:
    run = submitted("adder", n=3)
    run.refresh_from_db()
    assert (run.status, run.input, run.agent_version, run.rings) == (RunStatus.QUEUED, '{"n":3}', "1", 0)
    assert run.code_digest == agents.latest("adder").code_digest
    assert JournalEntry.objects.of(run.stream).get().actor_id == "cyd"


def test_submit_of_an_unknown_agent_names_those_there_are() -> None:
    with pytest.raises(UnknownAgent, match="no agent is called 'addr'; there are: adder, "):
        submitted("addr", n=3)
    assert Run.objects.count() == 0


@pytest.mark.parametrize(
    ("arguments", "place"),
    [({"n": "three"}, "/n"), ({}, "/n"), ({"n": 1, "m": 2}, "/m"), ({"n": 1.5}, "/n"), ({"n": None}, "/n")],
)
def test_submit_with_arguments_that_do_not_fit(arguments: dict[str, object], place: str) -> None:
    with pytest.raises(BadArguments) as refused:
        lifecycle.submit(Submission("adder", arguments, {}), actor=CYD)
    assert [path for path, _ in refused.value.errors] == [place]
    assert Run.objects.count() == 0


@pytest.mark.parametrize("bad", ["\x00", "half \ud83c", float("nan"), float("inf")])
def test_submit_with_what_cannot_be_kept(bad: object) -> None:
    with pytest.raises(BadValue) as refused:
        lifecycle.submit(Submission("transfer", {"how": bad}, {}), actor=CYD)
    assert refused.value.path == "/how"


def test_submit_with_a_label_that_cannot_be_kept() -> None:
    with pytest.raises(BadValue):
        lifecycle.submit(Submission("adder", {"n": 1}, {"team": "\x00"}), actor=CYD)
    assert Run.objects.count() == 0


def keyed(key: str | None, n: int = 1, actor: Actor = CYD) -> tuple[Run, bool]:
    return lifecycle.submit(Submission("adder", {"n": n}, {}, idempotency_key=key), actor=actor)


def test_submit_twice_with_one_key_is_one_run() -> None:
    first, made = keyed("k")
    again, made_again = keyed("k")
    assert (first.pk, made, made_again) == (again.pk, True, False)
    assert verbs(first) == ["submitted"]


def test_submit_with_a_key_of_another_body() -> None:
    keyed("k", n=1)
    with pytest.raises(KeyReused):
        keyed("k", n=2)


def test_submit_with_the_same_key_of_another_submitter() -> None:
    assert keyed("k")[0].pk != keyed("k", actor=BEN)[0].pk


@pytest.mark.parametrize("none", [None, ""])
def test_submit_without_a_key_is_always_new(none: str | None) -> None:
    assert keyed(none)[0].pk != keyed(none)[0].pk


def test_submit_rings_after_commit(django_capture_on_commit_callbacks: object) -> None:
    with django_capture_on_commit_callbacks() as callbacks:  # type: ignore[operator]
        submitted("adder", n=1)
        assert queues.length() == 0
    assert len(callbacks) == 1
    callbacks[0]()
    assert queues.length() == 1


# -- take --------------------------------------------------------------------------------


def test_take_raises_the_epoch_and_gives_a_lease() -> None:
    run = submitted("adder", n=1)
    fence = taken(run)
    run.refresh_from_db()
    assert (run.status, run.epoch, run.token, run.taken_by) == (RunStatus.RUNNING, 1, fence.token, "w1")
    assert run.lease_until is not None
    assert run.lease_until - clock.now() <= timedelta(seconds=settings.LEASE)
    endings.end(run, RunStatus.FAILED, CYD)


def test_take_twice() -> None:
    run = submitted("adder", n=1)
    assert (taken(run).epoch, lifecycle.take(run.pk, "w2")) == (1, None)


def test_take_of_what_is_not_queued() -> None:
    assert lifecycle.take(suspended().pk, "w1") is None
    assert lifecycle.take(driven("adder", n=0).pk, "w1") is None


def test_take_of_a_version_this_process_does_not_have() -> None:
    run = submitted("adder", n=1)
    Run.objects.filter(pk=run.pk).update(agent_version="99")
    assert lifecycle.take(run.pk, "w1") is None


# -- renew -------------------------------------------------------------------------------


def test_renew_prolongs() -> None:
    run = submitted("adder", n=1)
    fence = taken(run)
    later(1)
    assert lifecycle.renew(fence)
    run.refresh_from_db()
    assert run.lease_until is not None
    assert run.lease_until - clock.now() > timedelta(seconds=settings.LEASE - 0.5)


def test_renew_with_an_old_epoch_or_token() -> None:
    """F52: a stalled worker's heartbeat prolongs nobody's lease."""
    run = submitted("adder", n=1)
    old = taken(run)
    later(settings.LEASE + 1)
    assert lifecycle.recover(run.pk)
    assert not lifecycle.renew(old)
    new = taken(run)
    assert not lifecycle.renew(old)
    assert not lifecycle.renew(Fence(run.pk, new.epoch, old.token, "w1"))
    assert lifecycle.renew(new)


# -- park and resume -----------------------------------------------------------------------


def test_park_takes_a_snapshot() -> None:
    run = suspended()
    kept = run.snapshots.get()
    assert (kept.number, kept.steps, kept.attempted, kept.effects) == (1, 1, 2, 1)
    assert (bytes(kept.record), kept.epoch) == (bytes(run.record), 1)
    assert [(why["cause"], why["index"]) for why in kept.why] == [("question", 1)]
    assert (run.token, run.lease_until, run.suspended_at is None) == (None, None, False)


def test_park_after_a_wake() -> None:
    run = submitted("adder", n=1)
    fence = taken(run)
    holds.pause(run.pk, actor=CYD)
    holds.unpause(run.pk, actor=CYD)
    with pytest.raises(LostRace):
        lifecycle.park(fence, 0)


def test_park_after_a_stop_was_asked_for() -> None:
    run = submitted("adder", n=1)
    fence = taken(run)
    endings.cancel(run.pk, actor=CYD)
    with pytest.raises(LostRace):
        lifecycle.park(fence, 0)
    endings.stop(fence)


def test_park_with_an_old_epoch() -> None:
    run = submitted("adder", n=1)
    fence = taken(run)
    lifecycle.hand_back(fence, "test")
    with pytest.raises(LostRace):
        lifecycle.park(fence, 0)


def test_resume_is_one_move() -> None:
    run = suspended()
    holds.release(
        open_hold(run).pk, actor=CYD, resolution="answered", answer='{"answer":{"number":1},"by":"a"}'
    )
    run.refresh_from_db()
    assert (run.status, run.suspended_at, run.rings) == (RunStatus.QUEUED, None, 0)
    assert not lifecycle.resume(run, CYD)
    assert verbs(run)[-2:] == ["released", "resumed"]


def test_resume_of_a_running_or_paused_run() -> None:
    run = submitted("adder", n=1)
    taken(run)
    assert not lifecycle.resume(run, CYD)
    other = suspended()
    holds.pause(other.pk, actor=CYD)
    assert not lifecycle.resume(other, CYD)


# -- hand back and recover -------------------------------------------------------------------


def test_hand_back() -> None:
    run = submitted("adder", n=1)
    fence = taken(run)
    lifecycle.hand_back(fence, "the worker is stopping")
    run.refresh_from_db()
    assert (run.status, run.epoch, run.token, run.lease_until) == (RunStatus.QUEUED, 2, None, None)
    with pytest.raises(EpochLost):
        lifecycle.hand_back(fence, "again")


def test_recover_a_lease_that_ran_out() -> None:
    run = submitted("adder", n=1)
    taken(run)
    later(settings.LEASE + 0.1)
    assert (lifecycle.recover(run.pk), lifecycle.recover(run.pk)) == (True, False)
    run.refresh_from_db()
    assert (run.status, run.epoch, verbs(run)[-1]) == (RunStatus.QUEUED, 2, "recovered")


def test_recover_waits_longer_for_a_run_that_loses_worker_after_worker(
    django_capture_on_commit_callbacks: Any,
) -> None:
    """The first ring is at once; the later ones are the sweeper's, twice as far apart each time."""
    run = submitted("adder", n=1)
    for lost, rung in ((1, 1), (2, 0), (3, 0)):
        taken(run)
        later(lost * (settings.LEASE + 0.1))
        with django_capture_on_commit_callbacks() as rings:
            lifecycle.recover(run.pk)
        run.refresh_from_db()
        assert (run.recoveries, run.rings, len(rings)) == (lost, lost, rung)
    drive(run)
    run.refresh_from_db()
    assert (run.status, run.recoveries) == (RunStatus.SUCCEEDED, 0)


def test_recover_a_lease_that_is_live() -> None:
    run = submitted("adder", n=1)
    fence = taken(run)
    assert not lifecycle.recover(run.pk)
    later(settings.LEASE - 0.5)
    lifecycle.renew(fence)
    later(settings.LEASE + 0.5)
    assert not lifecycle.recover(run.pk)


def test_recover_of_what_is_not_running() -> None:
    later(settings.LEASE + 1)
    assert not lifecycle.recover(submitted("adder", n=1).pk)
    assert not lifecycle.recover(NO_RUN)


# -- finish and close --------------------------------------------------------------------------


def test_finish_in_one_statement() -> None:
    run = submitted("adder", n=1)
    fence = taken(run)
    assert lifecycle.finish(fence, RunStatus.SUCCEEDED, result="1")
    run.refresh_from_db()
    assert (run.status, run.result, run.token, run.ended_at is None) == (
        RunStatus.SUCCEEDED,
        "1",
        None,
        False,
    )
    assert not lifecycle.finish(fence, RunStatus.FAILED, error="{}")


def test_finish_with_a_hold_or_a_stop_in_the_way() -> None:
    run = submitted("adder", n=1)
    fence = taken(run)
    holds.pause(run.pk, actor=CYD)
    assert not lifecycle.finish(fence, RunStatus.SUCCEEDED, result="1")
    endings.finish(fence, RunStatus.SUCCEEDED, result="1")


def test_finish_with_an_old_epoch() -> None:
    run = submitted("adder", n=1)
    fence = taken(run)
    lifecycle.hand_back(fence, "test")
    assert not lifecycle.finish(fence, RunStatus.SUCCEEDED, result="1")
    with pytest.raises(EpochLost):
        endings.finish(fence, RunStatus.SUCCEEDED, result="1")


@pytest.mark.parametrize("target", sorted(ENDED))
@pytest.mark.parametrize("source", sorted(LIVE))
def test_close_only_along_the_edges(source: RunStatus, target: RunStatus) -> None:
    run = {"queued": lambda: submitted("adder", n=1), "running": running, "suspended": suspended}[source]()
    if target in EDGES[source]:
        with transaction.atomic():
            endings.end(lifecycle.lock(run.pk), target, CYD)
        run.refresh_from_db()
        assert run.status == target
        return
    with pytest.raises(LostRace), transaction.atomic():
        endings.end(lifecycle.lock(run.pk), target, CYD)
    run.refresh_from_db()
    assert run.status == source


def running() -> Run:
    run = submitted("adder", n=1)
    taken(run)
    run.refresh_from_db()
    return run


def test_close_of_what_has_ended() -> None:
    run = driven("adder", n=0)
    with pytest.raises(RunEnded):
        endings.end(run, RunStatus.CANCELLED, CYD)


def test_sources_are_the_edges_read_backwards() -> None:
    assert sources(RunStatus.EXPIRED) == ["suspended"]
    assert sources(RunStatus.SUCCEEDED) == ["running"]
    assert sources(RunStatus.CANCELLED) == ["queued", "running", "suspended"]


# -- lock, rung ----------------------------------------------------------------------------------


def test_lock_of_an_unknown_run() -> None:
    with pytest.raises(NotFound), transaction.atomic():
        lifecycle.lock(NO_RUN)


def test_rung_counts_once() -> None:
    run = submitted("adder", n=1)
    assert (lifecycle.rung(run.pk, 0), lifecycle.rung(run.pk, 0)) == (True, False)
    run.refresh_from_db()
    assert run.rings == 1


def test_rung_of_a_run_that_moved() -> None:
    run = submitted("adder", n=1)
    taken(run)
    assert not lifecycle.rung(run.pk, 0)


def test_actor_of_a_worker_is_itself() -> None:
    run = drive(submitted("adder", n=0))
    rows = JournalEntry.objects.of(run.stream).exclude(verb="submitted")
    assert {(row.actor_kind, row.actor_id) for row in rows} == {("worker", execution.worker_name())}
    assert OPERATOR.operator
