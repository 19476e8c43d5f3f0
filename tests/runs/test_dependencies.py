"""Dependencies: a breaker a name, probes in workers, and a release that is no herd."""

import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from runs import agents, clock, dependencies, endings, execution, holds, points, queues, sweeper
from runs.agents import RunContext, agent
from runs.exceptions import NotFound, Unavailable
from runs.models import Dependency, Hold, JournalEntry, Run, Step
from runs.states import Cause, Health, RunStatus
from runs.tools import ToolContext, tool
from tests.factories import (
    OPERATOR,
    approve,
    causes,
    drive,
    driven,
    go_on,
    later,
    open_hold,
    result,
    step,
    sweep_run,
    verbs,
)

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("invariants")]


class Bank:
    """The service: it is there or not, and counts who came."""

    def __init__(self) -> None:
        self.away = False
        self.calls = 0
        self.probes = 0
        self.probe_hangs = False

    def call(self) -> str:
        self.calls += 1
        if self.away:
            raise Unavailable("bank", "503")
        return f"answer {self.calls}"

    def probe(self) -> None:
        self.probes += 1
        if self.probe_hangs:
            time.sleep(5)
        if self.away:
            raise ConnectionResetError("still away")


bank = Bank()


@pytest.fixture(autouse=True)
def fresh_bank() -> Bank:
    bank.__init__()  # type: ignore[misc]
    return bank


@tool(effect=True, depends_on=("bank",), timeout=1.0)
def bank_in(context: ToolContext, n: int) -> str:
    """Deposit {n}."""
    return bank.call()


@tool(depends_on=("bank",))
def bank_rate(n: int) -> str:
    return bank.call()


@tool(effect=True, timeout=1.0)
def bank_in_unsaid(context: ToolContext, n: int) -> str:
    """Its declaration does not say what it depends on."""
    return bank.call()


@tool(effect=True, idempotent=True, depends_on=("bank",), timeout=1.0)
def bank_in_keyed(context: ToolContext, n: int) -> str:
    if context.attempt == 1:
        raise TimeoutError("no answer")
    return bank.call()


TOOLS: dict[str, Any] = {
    "bank_in": bank_in,
    "bank_rate": bank_rate,
    "bank_in_unsaid": bank_in_unsaid,
    "bank_in_keyed": bank_in_keyed,
}


@agent()
async def saver_of_tests(run: RunContext, how: str = "bank_in") -> str:
    return await TOOLS[how](1)  # type: ignore[no-any-return]


def broken(settings: Any = None, *, runs: int = 3) -> list[Run]:
    """So many runs that found the bank away: three open its breaker."""
    bank.away = True
    return [driven("saver-of-tests") for _ in range(runs)]


def health() -> str:
    return Dependency.objects.get(pk="bank").state


def sweep(*names: str) -> None:
    for name in names or tuple(sweeper._verbs):
        verb = sweeper._verbs[name]
        for item in verb.find(clock.now()):
            verb.act(item)


@pytest.fixture
def rung(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """What the sweeper asks workers to do. Transactions of tests never commit: the bell itself is not heard."""
    found: list[tuple[str, ...]] = []
    monkeypatch.setattr(queues, "enqueue", lambda path, *ids: found.append((path, *ids)))
    return found


# -- One call -----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["bank_in", "bank_rate", "bank_in_unsaid"])
def test_hold_a_call_that_found_the_service_away(how: str) -> None:
    """Certainly not done: nothing is in doubt, the agent sees nothing, and it is tried again."""
    bank.away = True
    run = driven("saver-of-tests", how=how)
    hold = open_hold(run)
    assert (run.status, hold.cause, hold.subject) == (RunStatus.SUSPENDED, "dependency", "bank")
    assert hold.why == "bank is away: 503"
    assert (hold.expires_at, hold.on_expiry) == (hold.opened_at + timedelta(days=1), "wait")
    assert hold.look_again_at == hold.opened_at + timedelta(seconds=30)
    assert verbs(run).count("not_sent") == 1
    bank.away = False
    later(31)
    assert result(go_on(run)) == "answer 2"


def test_hold_shows_the_refused_attempt_and_the_next_in_the_ledger() -> None:
    bank.away = True
    run = driven("saver-of-tests")
    assert (step(run, 0).status, step(run, 0).effect, step(run, 0).attempt) == ("held", "refused", 1)
    bank.away = False
    later(31)
    go_on(run)
    assert (step(run, 0).status, step(run, 0).effect, step(run, 0).attempt) == ("done", "confirmed", 2)


def test_hold_looks_again_later_each_time_five_minutes_at_most() -> None:
    """Below the breaker's threshold nobody probes: each run looks by itself, and its wait has one end."""
    bank.away = True
    run = driven("saver-of-tests")
    first, waits, at = open_hold(run), [], 0.0
    for _ in range(5):
        Dependency.objects.update(failures=0)
        hold = open_hold(run)
        assert hold.expires_at == first.expires_at
        assert hold.look_again_at is not None
        waits.append(round((hold.look_again_at - hold.opened_at).total_seconds()))
        at += waits[-1] + 1
        later(at)
        go_on(run)
    assert waits == [30, 60, 120, 240, 300]


def test_give_the_permit_back_and_use_it_again(rules: Any) -> None:
    rules(bank_in="hold")
    run = driven("saver-of-tests")
    bank.away = True
    approve(open_hold(run))
    go_on(run)
    assert causes(run) == ["dependency"]
    bank.away = False
    later(31)
    assert result(go_on(run)) == "answer 2"
    assert Hold.objects.filter(cause=Cause.APPROVAL).count() == 1


def test_keep_a_doubt_while_the_service_is_away() -> None:
    """The first attempt may have acted: the ledger goes on saying so while the repetition waits."""
    run = driven("saver-of-tests", how="bank_in_keyed")
    assert causes(run) == ["in_doubt"]
    bank.away = True
    later(31)
    go_on(run)
    assert (causes(run), step(run, 0).status, step(run, 0).effect) == (
        ["dependency"],
        "dispatched",
        "in_doubt",
    )
    bank.away = False
    later(120)
    assert result(go_on(run)) == "answer 2"


# -- The breaker ----------------------------------------------------------------------------------


def test_open_after_so_many_failures_in_a_row() -> None:
    broken(runs=2)
    assert health() == Health.HEALTHY
    broken(runs=1)
    assert health() == Health.AWAY
    entries = JournalEntry.objects.of("dependency:bank").values_list("verb", flat=True)
    assert list(entries) == ["away"]


def test_open_not_where_a_call_got_through_in_between() -> None:
    broken(runs=2)
    bank.away = False
    driven("saver-of-tests")
    broken(runs=2)
    assert health() == Health.HEALTHY


def test_hold_at_the_gate_without_a_call_while_it_is_open() -> None:
    broken()
    run = driven("saver-of-tests")
    assert (bank.calls, causes(run), step(run, 0).attempt) == (3, ["dependency"], 0)
    assert open_hold(run).look_again_at is None


def test_open_takes_their_dates_from_those_that_wait() -> None:
    """No herd: nobody looks again while the service is known to be away."""
    waiting = broken()
    assert [open_hold(run).look_again_at for run in waiting] == [None] * 3
    later(3600)
    sweep("look_again")
    assert bank.calls == 3


def test_count_two_failures_of_one_moment_as_two(settings: Any) -> None:
    settings.BREAKER_AFTER = 2
    dependencies.failed("bank", "503")
    assert dependencies.failed("bank", "503").look_again_in is None
    assert Dependency.objects.get().failures == 2


def test_failed_with_a_name_and_a_text_that_the_database_refuses() -> None:
    away = dependencies.failed("b\x00" * 100, "\ud800 gone \x00")
    assert len(away.subject) == 100
    assert Dependency.objects.get().problem == "\\ud800 gone \\x00"


# -- Probes ------------------------------------------------------------------------------------------


def test_probe_is_asked_of_a_worker(rung: list[tuple[str, ...]]) -> None:
    """The sweeper touches no network."""
    dependencies.register("bank", bank.probe)
    broken()
    rung.clear()
    later(31)
    sweep("probe")
    sweep("probe")
    assert (rung, bank.probes) == ([("runs.jobs.probe", "bank")], 0)


def test_probe_that_finds_it_healthy_lets_all_go_on() -> None:
    dependencies.register("bank", bank.probe)
    waiting = [*broken(), driven("saver-of-tests")]
    later(31)
    bank.away = False
    dependencies.probe("bank")
    assert (health(), bank.probes) == (Health.HEALTHY, 1)
    later(40)
    for run in waiting:
        assert go_on(run).status == RunStatus.SUCCEEDED
    entries = JournalEntry.objects.of("dependency:bank").values_list("verb", flat=True)
    assert list(entries) == ["away", "healthy"]


def test_probe_that_fails_is_repeated_later_each_time(rung: list[tuple[str, ...]]) -> None:
    dependencies.register("bank", bank.probe)
    broken()
    gaps, at = [], 31.0
    for _ in range(6):
        later(at)
        before = clock.now()
        sweep("probe")
        dependencies.probe("bank")
        row = Dependency.objects.get()
        assert (row.state, row.problem) == (Health.AWAY, "ConnectionResetError: still away")
        assert row.probe_at is not None
        gaps.append(round((row.probe_at - before).total_seconds()))
        at += gaps[-1] + 1
    assert gaps == [60, 120, 240, 300, 300, 300]
    assert bank.probes == 6


def test_probe_that_hangs_is_away(settings: Any) -> None:
    settings.PROBE_TIMEOUT = 0.05
    dependencies.register("bank", bank.probe)
    broken()
    bank.probe_hangs = True
    dependencies.probe("bank")
    assert (health(), Dependency.objects.get().problem) == (Health.AWAY, "no answer in 0.05 s")


def test_probe_of_a_healthy_service_does_nothing() -> None:
    dependencies.register("bank", bank.probe)
    broken(runs=1)
    assert dependencies.probe("bank") is False
    assert dependencies.probe("unknown") is False
    assert bank.probes == 0


def test_register_refuses_a_name_that_cannot_be_kept() -> None:
    for name in ("", "n" * 101):
        with pytest.raises(ValueError, match="no name for a dependency"):
            dependencies.register(name, bank.probe)


# -- Trials: without a probe one call is let through -----------------------------------------------------


def test_try_with_one_call_and_let_the_rest_follow() -> None:
    waiting = [*broken(), driven("saver-of-tests"), driven("saver-of-tests")]
    dependencies.probe("bank")
    assert health() == Health.TRIAL
    bank.away = False
    tried = [run for run in waiting if sweep_run(run) and run.status == RunStatus.QUEUED]
    assert tried == waiting[:1]  # one alone, the one that waited longest
    assert drive(waiting[0]).status == RunStatus.SUCCEEDED
    assert health() == Health.HEALTHY
    later(10)
    assert [go_on(run).status for run in waiting[1:]] == [RunStatus.SUCCEEDED] * 4


def test_try_with_one_call_that_finds_it_away_still() -> None:
    waiting = broken()
    dependencies.probe("bank")
    go_on(waiting[0])
    assert (health(), bank.calls, causes(waiting[0])) == (Health.AWAY, 4, ["dependency"])
    assert open_hold(waiting[0]).look_again_at is None
    later(3600)
    sweep("look_again")
    assert bank.calls == 4


def test_try_with_one_call_although_two_come_at_once() -> None:
    broken()
    dependencies.probe("bank")
    assert dependencies.check(["bank"]) == ["bank"]
    dependencies.try_out(["bank"])
    with pytest.raises(dependencies.Away):
        dependencies.try_out(["bank"])


def test_try_again_when_the_worker_died_in_its_trial(rung: list[tuple[str, ...]]) -> None:
    """Nobody hears what came of the trial: the next probe lets another call through."""
    waiting = broken()
    later(31)
    sweep("probe")
    dependencies.probe("bank")
    sweep_run(waiting[0])

    def die() -> None:
        raise KeyboardInterrupt

    with points.on("after-intent-before-call", die), pytest.raises(KeyboardInterrupt):
        execution.drive(waiting[0].pk)
    assert health() == Health.AWAY
    later(200)
    bank.away = False
    sweep("probe")
    assert rung[-1] == ("runs.jobs.probe", "bank")
    dependencies.probe("bank")
    go_on(waiting[1])
    assert (waiting[1].status, health()) == (RunStatus.SUCCEEDED, Health.HEALTHY)


def test_try_with_a_run_that_nothing_else_holds() -> None:
    waiting = broken()
    holds.pause(waiting[0].pk, actor=OPERATOR)
    dependencies.probe("bank")
    due = Hold.objects.to_look_at(clock.now()).get()
    assert due.run == waiting[1]


def test_try_with_a_tool_that_does_not_say_what_it_depends_on() -> None:
    """That it was held for the bank is enough to know it."""
    bank.away = True
    waiting = [driven("saver-of-tests", how="bank_in_unsaid") for _ in range(4)]
    assert health() == Health.AWAY
    bank.away = False
    dependencies.probe("bank")
    go_on(waiting[0])
    assert health() == Health.HEALTHY
    later(10)
    assert [go_on(run).status for run in waiting] == [RunStatus.SUCCEEDED] * 4


def test_wait_on_trial_when_nobody_waits_is_tried_by_the_next() -> None:
    waiting = broken()
    for run in waiting:
        endings.cancel(run.pk, actor=OPERATOR)
    dependencies.probe("bank")
    bank.away = False
    assert driven("saver-of-tests").status == RunStatus.SUCCEEDED
    assert health() == Health.HEALTHY


# -- Going on ----------------------------------------------------------------------------------------------


def many(count: int) -> None:
    """So many runs that wait for the bank, as rows."""
    made = agents.latest("saver-of-tests")
    Run.objects.bulk_create(
        Run(
            agent="saver-of-tests",
            agent_version=made.version,
            status="suspended",
            input="{}",
            suspended_at=clock.now(),
        )
        for _ in range(count)
    )
    steps = [
        Step(run=run, index=0, tool="bank_in", arguments="{}", status="held", open_holds=1)
        for run in Run.objects.all()
    ]
    Step.objects.bulk_create(steps)
    Hold.objects.bulk_create(
        Hold(run=s.run, step=s, cause="dependency", scope="call", subject="bank", opened_at=clock.now())
        for s in Step.objects.select_related("run")
    )


def first_due() -> datetime:
    found = Hold.objects.open().order_by("look_again_at").values_list("look_again_at", flat=True).first()
    assert found is not None
    return found


@pytest.fixture
def crowd(db: None) -> Iterator[None]:
    """500 runs that wait. They were never submitted, which the invariants would tell: they go before that."""
    Dependency.objects.create(name="bank", state=Health.AWAY, failures=3, problem="503")
    many(500)
    yield
    Hold.objects.all().delete()
    Step.objects.all().delete()
    Run.objects.all().delete()


def test_release_500_no_faster_than_the_rate(crowd: None, settings: Any) -> None:
    settings.RELEASE_RATE = 20.0
    dependencies.count_as_healthy("bank", actor=OPERATOR)
    began = first_due()
    due = [Hold.objects.to_look_at(began + timedelta(seconds=second + 0.5)).count() for second in range(30)]
    a_second = [after - before for before, after in pairwise(due)]
    assert max(a_second) <= 20
    assert a_second[:23] == [20] * 23
    assert due[-1] == 500


def test_release_by_a_sweeper_that_passes_each_second(settings: Any) -> None:
    """What arrives in the queue, pass by pass."""
    settings.RELEASE_RATE = 5.0
    broken()
    for _ in range(10):
        driven("saver-of-tests")
    dependencies.count_as_healthy("bank", actor=OPERATOR)
    began = first_due()
    verb, arrived = sweeper._verbs["look_again"], []
    for second in range(4):
        found = list(verb.find(began + timedelta(seconds=second + 0.9)))
        assert [holds.look_again(pk) for pk in found] == [True] * len(found)
        arrived.append(Run.objects.filter(status="queued").count())
    assert arrived == [5, 10, 13, 13]


def test_release_stops_when_the_service_goes_away_again(crowd: None) -> None:
    dependencies.count_as_healthy("bank", actor=OPERATOR)
    for _ in range(3):
        dependencies.failed("bank", "503")
    assert Hold.objects.filter(look_again_at__isnull=False).count() == 0


def test_release_what_was_held_just_after_the_recovery() -> None:
    """A worker saw the bank away, it recovered, and then the hold was placed: nobody would release it."""
    broken()
    run = driven("saver-of-tests")
    Dependency.objects.update(state=Health.HEALTHY, failures=0)
    bank.away = False
    assert open_hold(run).look_again_at is None
    sweep("services_back")
    later(10)
    assert go_on(run).status == RunStatus.SUCCEEDED


def test_release_what_waits_for_a_service_whose_row_is_gone() -> None:
    run = broken(runs=1)[0]
    Dependency.objects.all().delete()
    Hold.objects.update(look_again_at=None)
    assert dependencies.forgotten() == {"bank"}
    bank.away = False
    sweep("services_back")
    later(10)
    assert go_on(run).status == RunStatus.SUCCEEDED


def test_release_nothing_of_a_service_that_is_away() -> None:
    broken()
    assert dependencies.forgotten() == set()


def test_count_as_healthy_twice_and_of_an_unknown_one() -> None:
    broken()
    assert dependencies.count_as_healthy("bank", actor=OPERATOR, why="seen it") == 3
    assert dependencies.count_as_healthy("bank", actor=OPERATOR) == 3
    entries = JournalEntry.objects.of("dependency:bank").values_list("verb", "actor_name")
    assert list(entries) == [("away", "Abeyance"), ("healthy", "olu")]
    with pytest.raises(NotFound):
        dependencies.count_as_healthy("other", actor=OPERATOR)


def test_ring_now_before_it_is_due(rung: list[tuple[str, ...]]) -> None:
    broken()
    rung.clear()
    dependencies.ring_now("bank", actor=OPERATOR, why="it should be back")
    assert rung == [("runs.jobs.probe", "bank")]
    with pytest.raises(NotFound):
        dependencies.ring_now("other", actor=OPERATOR)


# -- Too long -----------------------------------------------------------------------------------------------


def test_overdue_after_a_day_waits_and_tells_once() -> None:
    run = broken()[0]
    later(86400 + 60)
    sweep("expire_holds")
    assert (causes(run), verbs(run).count("overdue")) == (["dependency"], 1)
    sweep("expire_holds")
    assert verbs(run).count("overdue") == 1


def test_overdue_counts_from_the_first_of_many_looks() -> None:
    """Trials and looks close one hold and place the next: the wait is one, and is told once."""
    bank.away = True
    run = driven("saver-of-tests")
    for hour in range(1, 27):
        Dependency.objects.update(failures=0)
        later(hour * 3600)
        go_on(run)
    assert causes(run) == ["dependency"]
    assert verbs(run).count("overdue") == 1
