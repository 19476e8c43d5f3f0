"""Versions: workers take what they have, and a run whose version nobody has is held and says so."""

from collections.abc import Callable, Iterator

import pytest

from runs import agents, clock, divergence, endings, execution, holds, lifecycle, queues, sweeper, versions
from runs.agents import RunContext, agent
from runs.models import Hold, Run
from runs.states import Cause, RunStatus
from runs.worker import Worker
from tests import agents_for_tests as ours
from tests.factories import (
    CYD,
    OPERATOR,
    answer,
    causes,
    drive,
    driven,
    go_on,
    later,
    open_hold,
    result,
    submitted,
    verbs,
)
from tests.outside import Outside

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("invariants")]
VERBS = ("miss_versions", "find_versions", "try_other_code", "expire_holds", "ring")
WITHOUT: tuple[tuple[str, str], ...] = (("adder", "1"), ("questioner", "1"))


@pytest.fixture(autouse=True)
def no_grace(settings: object) -> Iterator[None]:
    settings.VERSION_GRACE = 0.0  # type: ignore[attr-defined]
    versions._missing_since.clear()
    versions._passed.clear()
    yield
    versions._missing_since.clear()


def a_worker(*, without: tuple[tuple[str, str], ...] = ()) -> Worker:
    """A live worker as Valkey knows it, with all versions but some."""
    kept = dict(agents._registry)
    for pair in without:
        agents._registry.pop(pair, None)
    worker = Worker()
    worker.register_birth()
    agents._registry.clear()
    agents._registry.update(kept)
    return worker


def lose(*pairs: tuple[str, str]) -> Callable[[], None]:
    """This process has these versions no more; what puts them back."""
    gone = {pair: agents._registry.pop(pair) for pair in pairs}
    return lambda: agents._registry.update(gone)


def sweep(run: Run) -> dict[str, int]:
    done = {}
    for name in VERBS:
        verb = sweeper._verbs[name]
        done[name] = sum(verb.act(item) for item in verb.find(clock.now()))
    run.refresh_from_db()
    return {name: count for name, count in done.items() if count}


def held(run: Run) -> Hold:
    assert (run.status, causes(run)) == (RunStatus.QUEUED, ["version"])
    return open_hold(run)


# -- What workers tell ---------------------------------------------------------------------


def test_fleet_says_what_each_worker_has() -> None:
    a_worker()
    a_worker(without=WITHOUT)
    told = sorted("adder@1" in has for has in queues.fleet() or [])
    assert told == [False, True]
    code = agents.latest("adder").code_digest
    assert {has.get("adder@1") for has in queues.fleet() or []} == {None, code}


def test_fleet_forgets_a_worker_that_stopped() -> None:
    worker = a_worker()
    worker.register_death()
    assert queues.fleet() == []


def test_fleet_forgets_a_worker_whose_key_is_gone() -> None:
    worker = a_worker()
    worker.connection.delete(worker.key)
    assert queues.fleet() == []


def test_fleet_is_unknown_while_a_worker_does_not_tell() -> None:
    worker = a_worker()
    worker.connection.hdel(worker.key, queues.HAS)
    assert queues.fleet() is None


def test_heartbeat_tells_again_after_valkey_was_emptied() -> None:
    worker = a_worker()
    worker.connection.flushdb()
    worker.heartbeat()
    assert [("adder@1" in has) for has in queues.fleet() or []] == [True]


# -- Held, and released ------------------------------------------------------------------------


def test_lacking_holds_a_run_whose_version_nobody_has() -> None:
    a_worker(without=WITHOUT)
    run = submitted("adder", n=1)
    assert sweep(run) == {"miss_versions": 1}
    hold = held(run)
    assert hold.why == "No worker has adder@1. It goes on when one with that version is started."
    assert (hold.scope, hold.detail, hold.opened_by_kind) == ("run", {"version": "adder@1"}, "system")
    assert sweep(run) == {}


def test_lacking_holds_nothing_while_somebody_has_it() -> None:
    a_worker(without=WITHOUT)
    a_worker()
    run = submitted("adder", n=1)
    assert sweep(run) == {}


def test_lacking_holds_nothing_without_any_worker() -> None:
    """A deploy: all are away for a while."""
    run = submitted("adder", n=1)
    assert (queues.fleet(), sweep(run)) == ([], {})


def test_lacking_holds_nothing_when_valkey_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    a_worker(without=WITHOUT)
    run = submitted("adder", n=1)
    monkeypatch.setattr(queues, "_deaf_until", float("inf"))
    assert (queues.fleet(), sweep(run)) == (None, {})


def test_lacking_holds_nothing_within_the_grace(settings: object) -> None:
    settings.VERSION_GRACE = 3600.0  # type: ignore[attr-defined]
    worker = a_worker(without=WITHOUT)
    run = submitted("adder", n=1)
    assert sweep(run) == {}
    assert versions._missing_since != {}
    worker.register_death()
    a_worker()
    assert sweep(run) == {}
    assert versions._missing_since == {}, "it is back, and the time begins anew"


def test_lacking_leaves_a_run_that_is_to_stop_or_moved() -> None:
    a_worker(without=WITHOUT)
    run = submitted("adder", n=1)
    endings.cancel(run.pk, actor=CYD)
    assert not versions.hold(run.pk)
    taken = submitted("adder", n=1)
    assert lifecycle.take(taken.pk, "w")
    assert not versions.hold(taken.pk)
    taken.refresh_from_db()
    assert taken.status == RunStatus.RUNNING


def test_held_run_is_not_rung() -> None:
    a_worker(without=WITHOUT)
    run = submitted("adder", n=1)
    sweep(run)
    later(3600)
    assert sweep(run) == {}


def test_found_again_releases_and_rings() -> None:
    a_worker(without=WITHOUT)
    run = submitted("adder", n=3)
    sweep(run)
    Run.objects.filter(pk=run.pk).update(rings=9)
    a_worker()
    assert sweep(run)["find_versions"] == 1
    assert (run.status, run.open_holds, run.rings) == (RunStatus.QUEUED, 0, 0)
    assert Hold.objects.get().resolution == "version_is_back"
    assert result(drive(run)) == 3


def test_release_twice() -> None:
    a_worker(without=WITHOUT)
    run = submitted("adder", n=1)
    sweep(run)
    hold = open_hold(run)
    assert versions.release(hold.pk)
    assert not versions.release(hold.pk)


def test_a_worker_that_takes_the_run_has_its_version() -> None:
    """Whoever takes it proves it, whatever the sweeper saw."""
    a_worker(without=WITHOUT)
    run = submitted("adder", n=3)
    sweep(run)
    assert (result(drive(run)), run.snapshots.count()) == (3, 0)
    assert verbs(run) == ["submitted", "held", "taken", "released", "succeeded"]


def test_a_paused_run_is_held_for_its_version_as_well() -> None:
    a_worker(without=WITHOUT)
    run = submitted("adder", n=3)
    holds.pause(run.pk, actor=CYD)
    sweep(run)
    assert causes(run) == ["person", "version"]
    a_worker()
    sweep(run)
    assert (drive(run).status, causes(run)) == (RunStatus.SUSPENDED, ["person"])
    holds.unpause(run.pk, actor=CYD)
    assert result(go_on(run)) == 3


def test_cancel_works_on_a_held_run() -> None:
    a_worker(without=WITHOUT)
    run = submitted("adder", n=1)
    sweep(run)
    assert endings.cancel(run.pk, actor=CYD).status == RunStatus.CANCELLED


def test_hold_that_outlasts_its_time_waits_and_operators_are_told(settings: object) -> None:
    a_worker(without=WITHOUT)
    run = submitted("adder", n=1)
    sweep(run)
    later(31 * 86400)
    assert sweep(run) == {"expire_holds": 1}
    assert held(run).overdue_at is not None


def test_approved_run_whose_version_is_gone_waits_and_goes_on(outside: Outside) -> None:
    """F34 (c): the definition is deleted while the run waits; then it is back."""
    run = driven("questioner")
    back = lose(("questioner", "1"))
    a_worker()
    answer(open_hold(run), number=1)
    run.refresh_from_db()
    execution.drive(run.pk)
    sweep(run)
    held(run)
    back()
    a_worker()
    sweep(run)
    answer(open_hold(drive(run)), number=2)
    run.refresh_from_db()
    assert (result(drive(run)), outside.n("note")) == ([1, 2], 1)


def test_definition_deleted_and_cancelled() -> None:
    run = driven("questioner")
    lose(("questioner", "1"))
    assert endings.cancel(run.pk, actor=CYD).status == RunStatus.CANCELLED


# -- Side by side --------------------------------------------------------------------------------


def test_a_run_stays_on_the_version_it_started_with() -> None:
    async def first(run: RunContext) -> list[str]:
        return ["1", str((await ours.ask("?", ours.Answer)).number)]

    async def second(run: RunContext) -> list[str]:
        return ["2", str((await ours.ask("?", ours.Answer)).number)]

    agent(name="desk", version="1")(first)
    old = driven("desk")
    agent(name="desk", version="2")(second)
    new = driven("desk")
    for run in (new, old):
        answer(open_hold(run), number=5)
        run.refresh_from_db()
    assert [result(drive(run)) for run in (old, new)] == [["1", "5"], ["2", "5"]]


def test_ring_at_the_wrong_worker_is_handed_on() -> None:
    a_worker()
    run = submitted("adder", n=1)
    queues._bell().empty()
    back = lose(("adder", "1"))
    execution.drive(run.pk)
    back()
    run.refresh_from_db()
    assert (run.status, run.rings) == (RunStatus.QUEUED, 1)


def test_rings_are_handed_on_a_few_times_a_second_only() -> None:
    a_worker()
    run = submitted("adder", n=1)
    back = lose(("adder", "1"))
    for _ in range(versions.PASSES + 5):
        execution.drive(run.pk)
    back()
    run.refresh_from_db()
    assert run.rings == versions.SOONER, "the sweeper rings it soon, however often it was handed on"


def test_ring_is_not_handed_on_when_nobody_has_the_version() -> None:
    a_worker(without=WITHOUT)
    run = submitted("adder", n=1)
    lose(("adder", "1"))
    execution.drive(run.pk)
    run.refresh_from_db()
    assert run.rings == 0


# -- For operators -----------------------------------------------------------------------------------


def test_overview_says_what_is_missing_and_what_waits() -> None:
    a_worker(without=(("adder", "1"),))
    waiting, asked = submitted("adder", n=1), driven("questioner")
    sweep(waiting)
    found, workers = versions.overview()
    by_name = {each.named: each for each in found}
    adder, questioner, payer = (by_name[f"{name}@1"] for name in ("adder", "questioner", "payer"))
    assert workers == 1
    assert (adder.workers, adder.queued, adder.held, adder.suspended, adder.missing) == (0, 1, 1, 0, True)
    assert (questioner.workers, questioner.queued, questioner.suspended, questioner.missing) == (
        1,
        0,
        1,
        False,
    )
    assert (payer.queued, payer.missing, len(payer.codes)) == (0, False, 1)
    assert asked.status == RunStatus.SUSPENDED


# -- Diverged, and other code is there ----------------------------------------------------------------


def changing(body: Callable[[RunContext], object]) -> None:
    agents.register(agents.Agent("changing", "1", body))  # type: ignore[arg-type]


async def right(run: RunContext) -> int:
    await ours.note("a")
    return (await ours.ask("how many?", ours.Answer)).number


async def wrong(run: RunContext) -> int:
    await ours.note("b")
    return (await ours.ask("how many?", ours.Answer)).number


def diverged() -> Run:
    changing(right)
    run = driven("changing")
    answer(open_hold(run), number=5)
    changing(wrong)
    a_worker()
    run.refresh_from_db()
    assert causes(drive(run)) == ["diverged"]
    return run


def test_other_code_is_tried_once_nobody_has_the_code_that_differed(outside: Outside) -> None:
    run = diverged()
    assert sweep(run) == {}
    changing(right)
    newer = a_worker()
    assert sweep(run) == {}, "the code that differed is still about and might take it again"
    newer.connection.flushdb()
    a_worker()
    assert sweep(run) == {"try_other_code": 1}
    assert (result(drive(run)), outside.n("note")) == (5, 1)


def test_other_code_without_any_worker_is_not_tried() -> None:
    run = diverged()
    queues._bell().connection.flushdb()
    assert sweep(run) == {}
    assert not divergence.try_again(holds.release(open_hold(run).pk, actor=OPERATOR, resolution="x").pk)
    assert Hold.objects.filter(resolution="x").get().cause == Cause.DIVERGED
