"""Breakers and trials of several workers at once, over connections of their own; and a real bell for a probe."""

import pytest

from runs import dependencies, jobs, queues, sweeper
from runs.agents import RunContext, agent
from runs.clock import now
from runs.exceptions import Away, Unavailable
from runs.models import Dependency, Hold, JournalEntry
from runs.states import Cause, Health
from runs.tools import tool
from tests.factories import OPERATOR, driven, later
from tests.threads import together

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("invariants")]


def away(state: Health = Health.AWAY) -> None:
    Dependency.objects.create(name="raced-api", state=state, failures=3, problem="503", probe_at=now())


def test_fail_of_many_at_once_opens_it_once() -> None:
    together(*[lambda: dependencies.failed("raced-api", "503")] * 6)
    row = Dependency.objects.get()
    assert (row.failures, row.state) == (6, Health.AWAY)
    assert list(JournalEntry.objects.of("dependency:raced-api").values_list("verb", flat=True)) == ["away"]


def test_try_out_by_many_at_once_lets_one_through() -> None:
    away(Health.TRIAL)
    found = together(*[lambda: dependencies.try_out(["raced-api"])] * 5)
    assert [type(each) for each in found].count(Away) == 4
    assert found.count(None) == 1


def test_recover_by_many_at_once_is_one_recovery() -> None:
    away()
    together(*[lambda: dependencies.succeeded(["raced-api"])] * 4)
    entries = JournalEntry.objects.of("dependency:raced-api").values_list("verb", flat=True)
    assert (Dependency.objects.get().state, list(entries)) == (Health.HEALTHY, ["healthy"])


def test_ring_by_two_sweepers_rings_once() -> None:
    away()
    later(1)
    assert sorted(together(*[lambda: dependencies.ring_due("raced-api")] * 2)) == [False, True]
    rung = [(job.func_name, tuple(job.args)) for job in queues._bell().jobs]
    assert rung == [("runs.jobs.probe", ("raced-api",))]


def test_ring_through_the_sweeper_and_do_the_job() -> None:
    away()
    dependencies.register("raced-api", lambda: None)
    later(1)
    sweeper.sweep()
    assert Dependency.objects.get().state == Health.AWAY  # the sweeper looks at nothing itself
    jobs.probe("raced-api")
    assert Dependency.objects.get().state == Health.HEALTHY


def test_recover_and_fail_at_once_strands_nothing() -> None:
    """Whatever the order in which the two write: a hold without a date waits for a service that is away, and
    any other has a date."""

    @tool(depends_on=("raced-api",))
    def raced_call() -> None:
        raise Unavailable("raced-api")

    @agent()
    async def raced_caller(run: RunContext) -> None:
        await raced_call()

    for _ in range(4):
        driven("raced-caller")
    for _ in range(10):
        together(
            lambda: dependencies.count_as_healthy("raced-api", actor=OPERATOR),
            *[lambda: dependencies.failed("raced-api", "503")] * 3,
        )
        for name in dependencies.forgotten():
            dependencies.release_waiting(name)
        undated = Hold.objects.waiting_for(Cause.DEPENDENCY, "raced-api").filter(look_again_at__isnull=True)
        assert Dependency.objects.get().state != Health.HEALTHY or not undated.exists()
