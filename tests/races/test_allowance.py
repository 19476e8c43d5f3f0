"""Calls, top-ups and settlements of one allowance at the same moment."""
# ruff: noqa: B023 - what `together` starts has ended before the loop goes on

from decimal import Decimal
from typing import Any

import pytest

from runs import allowance, execution, lifecycle
from runs.agents import RunContext, agent
from runs.exceptions import WrongState
from runs.lifecycle import Limit
from runs.models import Allowance, Run
from runs.states import RunStatus
from runs.tools import ToolContext, outcomes, tool
from tests.factories import CYD, OPERATOR, causes, drive, verbs
from tests.outside import Outside
from tests.threads import behind, together

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("invariants")]


@tool(name="ra.think", estimate={"tokens": 6, "money:EUR": "0.60"})
def think(context: ToolContext, n: int) -> int:
    Outside.of_this_process().record("think", context.idempotency_key, context.attempt, {}, acted=True)
    return n


@pytest.fixture(autouse=True)
def agents_of_these_tests(registries: None) -> None:
    @agent(name="ra.thinker")
    async def thinker(run: RunContext, times: int = 1) -> list[int]:
        return [await think(n) for n in range(times)]

    @agent(name="ra.batch")
    async def batch(run: RunContext) -> int:
        return sum([o.value or 0 for o in await outcomes(*[think(n) for n in range(4)])])


@pytest.fixture(autouse=True)
def one_process_for_many_runs(settings: Any) -> None:
    """A worker has one run at a time; here its threads have one each, and none is to be handed back."""
    settings.LEASE = settings.SLICE = 60.0


def shared(name: str, unit: str, limit: str) -> Allowance:
    return allowance.share(name, Limit(unit, Decimal(limit)), actor=OPERATOR)


def submitted(name: str, on: tuple[str, ...], **given: Any) -> Run:
    return lifecycle.submit(lifecycle.Submission(name, given, {}, draws_on=on), actor=CYD)[0]


def fresh(*runs: Run) -> list[Run]:
    for run in runs:
        run.refresh_from_db()
    return list(runs)


def test_reserve_at_once_never_overshoots(outside: Outside) -> None:
    """F93: four runs, 10 of which 9 are gone: one call of 0.60 is made, whoever is first."""
    for number in range(5):
        team = shared(f"team{number}", "money:EUR", "10")
        Allowance.objects.filter(pk=team.pk).update(limit=Decimal(1))
        runs = [submitted("ra.thinker", (team.name,)) for _ in range(4)]
        before = outside.n("think")
        together(*[lambda run=run: execution.drive(run.pk) for run in runs])
        assert sorted(run.status for run in fresh(*runs)) == [
            "succeeded",
            "suspended",
            "suspended",
            "suspended",
        ]
        team.refresh_from_db()
        assert (team.used, team.reserved, outside.n("think") - before) == (Decimal("0.60"), 0, 1)


def test_reserve_of_two_shared_allowances_by_two_runs_does_not_lock_up(outside: Outside) -> None:
    """Named in either order; locked by id."""
    shared("b", "money:EUR", "1000")
    shared("a", "tokens", "10000")
    for _ in range(5):
        runs = [submitted("ra.thinker", on, times=5) for on in (("a", "b"), ("b", "a"), ("a", "b"))]
        together(*[lambda run=run: execution.drive(run.pk) for run in runs])
        assert {run.status for run in fresh(*runs)} == {RunStatus.SUCCEEDED}
    assert sum(Allowance.objects.values_list("used", flat=True)) == 75 * (Decimal(6) + Decimal("0.60"))


def test_top_up_at_once_adds_up(outside: Outside) -> None:
    """F94."""
    for number in range(5):
        team = shared(f"team{number}", "tokens", "10")
        together(*[lambda: allowance.top_up(team.pk, Decimal(5), actor=OPERATOR)] * 4)
        team.refresh_from_db()
        assert team.limit == 30


def test_top_up_of_one_form_sent_twice_at_once_counts_once() -> None:
    team = shared("team", "tokens", "10")
    together(*[lambda: allowance.top_up(team.pk, Decimal(5), actor=OPERATOR, once="x")] * 4)
    team.refresh_from_db()
    assert team.limit == 15


def test_top_up_goes_on_at_once_and_resumes_each_run_once(outside: Outside) -> None:
    """Without a sweeper; and however many pass at once."""
    for number in range(15):
        team = shared(f"team{number}", "tokens", "0")
        runs = [drive(submitted("ra.thinker", (team.name,))) for _ in range(3)]
        together(
            lambda: allowance.top_up(team.pk, Decimal(6), actor=OPERATOR),
            lambda: allowance.top_up(team.pk, Decimal(6), actor=OPERATOR),
            lambda: allowance.release_covered(team.pk),
        )
        allowance.release_covered(team.pk)
        assert sorted(run.status for run in fresh(*runs)) == ["queued", "queued", "suspended"]
        together(*[lambda run=run: execution.drive(run.pk) for run in runs])
        assert sorted(run.status for run in fresh(*runs)) == ["succeeded", "succeeded", "suspended"]
        assert sum(verbs(run).count("resumed") for run in runs) == 2


def test_lower_before_reserve(outside: Outside) -> None:
    """The call waits for the row that is being lowered, and is held."""
    team = shared("team", "tokens", "100")
    run = submitted("ra.thinker", ("team",))
    behind(
        lambda: Allowance.objects.select_for_update().get(pk=team.pk),
        lambda: allowance.set_limit(team.pk, Decimal(5), None, actor=OPERATOR),
        lambda: execution.drive(run.pk),
    )
    assert (fresh(run)[0].status, causes(run), outside.n("think")) == (RunStatus.SUSPENDED, ["allowance"], 0)


def test_set_limit_at_once_to_the_same_is_done_once() -> None:
    team = shared("team", "tokens", "10")
    found = together(*[lambda: allowance.set_limit(team.pk, Decimal(5), None, actor=OPERATOR)] * 3)
    assert sum(isinstance(f, WrongState) for f in found) == 2


def test_calls_of_one_run_side_by_side_settle_each_its_own(outside: Outside) -> None:
    team = shared("team", "tokens", "18")
    run = drive(submitted("ra.batch", ("team",)))
    team.refresh_from_db()
    assert (run.position, causes(run), team.used, team.reserved) == (3, ["allowance"], 18, 0)
