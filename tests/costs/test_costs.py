"""What the hot paths cost, as literals: statements, round trips, commits that waited for the disk.

A change that costs one more says so here; one that saves some changes the figure. Each path is walked once before
it is measured, so that nothing is read or prepared for the first time.
"""

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import Client

from approvals import decisions
from approvals.models import Request
from runs import execution, lifecycle, prepared, sweeper
from runs.actors import Actor
from runs.agents import RunContext, agent
from runs.models import Run
from runs.tools import ToolContext, sleep, tool
from tests.approvals import desk
from tests.costs.meter import Cost, measuring, meter

pytestmark = pytest.mark.integration

#: Statements, round trips, syncs.
COSTS = {
    "a pure step": Cost(2, 2, 1),
    "a step with an effect that may be repeated": Cost(2, 2, 1),
    "a step with an effect that may not": Cost(3, 3, 2),
    "from taken to durably waiting": Cost(24, 8, 1),
    "decide": Cost(14, 4, 1),
    "from taken to the first line of what was approved": Cost(14, 6, 1),
    "the inbox's pulse": Cost(11, 11, 0),
    "a pass with nothing due": Cost(51, 52, 0),
    "a pass with one timer due": Cost(61, 60, 1),
    "a pass with one run that nobody rang for": Cost(52, 53, 1),
}


@tool()
def look(text: str) -> str:
    """Look at {text}."""
    return text


@tool(effect=True, idempotent=True, consequence="{text} is written down.")
def repeatable(context: ToolContext, text: str) -> str:
    """Write down {text}."""
    return text


@tool(effect=True, consequence="{text} is written down.")
def once(context: ToolContext, text: str) -> str:
    """Write down {text}."""
    return text


@tool(effect=True, idempotent=True, consequence="{amount} EUR goes to {to} at once.")
def watched(context: ToolContext, to: str, amount: int) -> str:
    """Wire {amount} EUR to {to}."""
    meter.stop()  # its first line
    return to


KINDS = {
    "a pure step": look,
    "a step with an effect that may be repeated": repeatable,
    "a step with an effect that may not": once,
}


@agent(name="costs-stepper", owner=desk.OWNER)
async def stepping(run: RunContext, kind: str, steps: int) -> None:
    for _ in range(steps):
        await KINDS[kind]("a line")


@agent(name="costs-waiter", owner=desk.OWNER)
async def waiting(run: RunContext) -> str:
    return await watched("ACME", 250)


@agent(name="costs-sleeper", owner=desk.OWNER)
async def sleeping(run: RunContext) -> None:
    await sleep(timedelta(hours=1))


@pytest.fixture
def rules() -> list[dict[str, Any]]:
    hold = {"pass": "verdict", "outcome": "hold", "group": "refunds", "decide_within": 86400}
    allow = {"pass": "verdict", "outcome": "allow", "expression": "true"}
    return [
        {**hold, "name": "desk", "tool": "watched", "expression": "true"},
        {**allow, "name": "again", "tool": "repeatable"},
        {**allow, "name": "once", "tool": "once"},
    ]


def submitted(name: str, **arguments: Any) -> Run:
    asked = lifecycle.Submission(name, arguments, {}, owner_id="0")
    return lifecycle.submit(asked, actor=Actor("key", "k1", "the shop's key", "api"))[0]


def driven(run: Run) -> Cost:
    return cost(lambda: execution.drive(run.pk))


def cost(work: Callable[[], object]) -> Cost:
    with measuring() as found:
        work()
    return found.cost


def held() -> Request:
    run = submitted("costs-waiter")
    execution.drive(run.pk)
    return Request.objects.get(run=run)


def went_on(request: Request, who: Any) -> None:
    desk.decide(request, who)
    execution.drive(request.run_id)


def test_meter_sees_every_way_to_the_database(people: SimpleNamespace) -> None:
    run = submitted("costs-waiter")
    prepared.row("SELECT 1", [])
    assert cost(Run.objects.count) == (1, 1, 0)
    assert cost(lambda: prepared.row("SELECT 1", [])) == (1, 1, 0)
    assert cost(lambda: Run.objects.filter(pk=run.pk).update(rings=1)) == (1, 1, 1)
    with transaction.atomic():
        assert cost(lambda: Run.objects.filter(pk=run.pk).update(rings=2)) == (1, 1, 0)
    assert cost(lambda: _unsynced(run)) == (4, 4, 0)


def _unsynced(run: Run) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL synchronous_commit = off")
        Run.objects.filter(pk=run.pk).update(rings=3)


@pytest.mark.parametrize("kind", KINDS)
def test_step(people: SimpleNamespace, kind: str) -> None:
    """What ten more of them cost."""
    runs = [submitted("costs-stepper", kind=kind, steps=steps) for steps in (12, 2, 12)]
    _, few, many = [driven(run) for run in runs]
    assert {run.status for run in Run.objects.all()} == {"succeeded"}
    assert [more - less for more, less in zip(many, few, strict=True)] == [10 * each for each in COSTS[kind]]


def test_suspend(people: SimpleNamespace) -> None:
    held()
    run = submitted("costs-waiter")
    assert driven(run) == COSTS["from taken to durably waiting"]
    run.refresh_from_db()
    assert (run.status, Request.objects.get(run=run).state) == ("suspended", "open")


def test_decide(people: SimpleNamespace) -> None:
    went_on(held(), people.ana)
    request = held()
    choice = decisions.Choice("approve", request.revision.digest, basis=desk.YES)
    assert cost(lambda: decisions.decide(request.ref, person=people.ana, choice=choice)) == COSTS["decide"]
    assert desk.fresh(request).state == "in_force"


def test_resume(people: SimpleNamespace) -> None:
    went_on(held(), people.ana)
    request = held()
    desk.decide(request, people.ana)
    run = Run.objects.get(pk=request.run_id)
    assert driven(run) == COSTS["from taken to the first line of what was approved"]
    run.refresh_from_db()
    assert run.status == "succeeded"


@pytest.mark.parametrize("waiting", [1, 3])
def test_poll(people: SimpleNamespace, waiting: int) -> None:
    browser = Client()
    browser.force_login(people.ana)
    for _ in range(waiting):
        held()
    asked = {"v": browser.get("/").context["version"]}
    poll = partial(browser.get, "/inbox/pulse", asked, headers={"HX-Request": "true"})
    assert poll().status_code == 204
    assert cost(poll) == COSTS["the inbox's pulse"]


def test_sweep_with_nothing_due(people: SimpleNamespace) -> None:
    held()
    sweeper.sweep()
    done: list[dict[str, int]] = []
    assert cost(lambda: done.append(sweeper.sweep())) == COSTS["a pass with nothing due"]
    assert done == [{}]


def test_sweep_with_a_timer_due(people: SimpleNamespace) -> None:
    first, second = submitted("costs-sleeper"), submitted("costs-sleeper")
    execution.drive(first.pk)
    desk.later(3601)
    sweeper.sweep()
    for run in (first, second):
        execution.drive(run.pk)
    desk.later(2 * 3601)
    done: list[dict[str, int]] = []
    assert cost(lambda: done.append(sweeper.sweep())) == COSTS["a pass with one timer due"]
    assert done == [{"expire_holds": 1}]


def test_sweep_with_a_run_nobody_rang_for(people: SimpleNamespace) -> None:
    run = submitted("costs-stepper", kind="a pure step", steps=1)
    desk.later(600)
    sweeper.sweep()
    execution.drive(run.pk)
    submitted("costs-stepper", kind="a pure step", steps=1)
    desk.later(1200)
    done: list[dict[str, int]] = []
    assert cost(lambda: done.append(sweeper.sweep())) == COSTS["a pass with one run that nobody rang for"]
    assert done == [{"ring": 1}]
