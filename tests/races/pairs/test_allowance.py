"""Topping up against topping up: both have the allowance's row before them, and what waits for it goes on once."""

import json
from decimal import Decimal

import pytest

from runs import allowance, lifecycle
from runs.actors import Actor
from runs.agents import RunContext, agent
from runs.lifecycle import Limit
from runs.models import Allowance, JournalEntry, Run
from runs.states import RunStatus
from runs.tools import tool
from tests.factories import CYD, OPERATOR, causes, drive, verbs
from tests.races.pairs.hammer import clash, rounds
from tests.threads import Work, in_turn

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("invariants")]
race = pytest.mark.race
OLU = Actor("person", "1", "olu", "page", operator=True)
ODA = Actor("person", "2", "oda", "api", operator=True)


@pytest.fixture(autouse=True)
def spender(registries: None) -> None:
    @tool(name="rp.spend", estimate={"tokens": 6})
    def spend() -> int:
        return 1

    @agent(name="rp.spender")
    async def spender(run: RunContext) -> int:
        return await spend()


def team(name: str = "team") -> Allowance:
    return allowance.share(name, Limit("tokens", Decimal(0)), actor=OPERATOR)


def short(of: Allowance) -> Run:
    """A run that waits for six tokens."""
    run, _ = lifecycle.submit(lifecycle.Submission("rp.spender", {}, {}, draws_on=(of.name,)), actor=CYD)
    assert causes(drive(run)) == ["allowance"]
    return run


def topping_up(row: Allowance, by: int, actor: Actor, once: str = "") -> Work:
    return lambda: allowance.top_up(row.pk, Decimal(by), actor=actor, once=once)


def locked(row: Allowance) -> Work:
    return lambda: Allowance.objects.select_for_update().get(pk=row.pk)


def told(row: Allowance) -> list[tuple[str, str, str]]:
    """Who raised it, from what, to what."""
    rows = JournalEntry.objects.of(row.stream).filter(verb="topped_up").order_by("seq")
    said = [(entry.actor_name, json.loads(entry.detail)) for entry in rows]
    return [(who, detail["before"], detail["limit"]) for who, detail in said]


def resumes(*runs: Run) -> list[int]:
    return [verbs(run).count("resumed") for run in runs]


@pytest.mark.parametrize(
    ("first", "second", "between"),
    [
        pytest.param((OLU, 6), (ODA, 7), "6", marks=race("top-up", "top-up")),
        pytest.param((ODA, 7), (OLU, 6), "7", marks=race("top-up", "top-up")),
    ],
    ids=["olu first", "oda first"],
)
def test_top_up_before_top_up(first: tuple[Actor, int], second: tuple[Actor, int], between: str) -> None:
    """F94: they add up in the order of the row, and each waiting run goes on once: two of three fit."""
    row = team()
    runs = [short(row) for _ in range(3)]
    in_turn(locked(row), topping_up(row, first[1], first[0]), topping_up(row, second[1], second[0]))
    row.refresh_from_db()
    assert (row.limit, told(row)) == (13, [(first[0].name, "0", between), (second[0].name, between, "13")])
    allowance.release_covered(row.pk)  # what the sweeper would find: nothing more fits
    assert (resumes(*runs), [causes(run) for run in runs]) == ([1, 1, 0], [[], [], ["allowance"]])
    assert [fresh_drive(run).status for run in runs] == [
        RunStatus.SUCCEEDED,
        RunStatus.SUCCEEDED,
        RunStatus.SUSPENDED,
    ]
    row.refresh_from_db()
    assert (row.used, row.reserved) == (12, 0)


def fresh_drive(run: Run) -> Run:
    run.refresh_from_db()
    return drive(run)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(OLU, ODA, marks=race("top-up", "top-up")),
        pytest.param(ODA, OLU, marks=race("top-up", "top-up")),
    ],
    ids=["olu first", "oda first"],
)
def test_top_up_before_the_same_form_again(first: Actor, second: Actor) -> None:
    """The second reads, under the lock, what the first wrote while it waited, and adds nothing."""
    row = team()
    run = short(row)
    done, again = in_turn(locked(row), topping_up(row, 6, first, "form"), topping_up(row, 6, second, "form"))
    assert (done.limit, again.limit, told(row)) == (6, 6, [(first.name, "0", "6")])
    assert (resumes(run), fresh_drive(run).status) == ([1], RunStatus.SUCCEEDED)


@race("top-up", "top-up", free=True)
def test_top_up_against_top_up() -> None:
    """F94: each adds once, and each waiting run goes on once."""
    for number in rounds():
        row = team(f"team{number}")
        runs = [short(row), short(row)]
        clash(number, topping_up(row, 6, OLU), topping_up(row, 6, ODA))
        row.refresh_from_db()
        assert (row.limit, [limit for _, _, limit in told(row)]) == (12, ["6", "12"])
        allowance.release_covered(row.pk)
        assert (resumes(*runs), row.used) == ([1, 1], 0)
        assert fresh_drive(runs[number % 2]).status == RunStatus.SUCCEEDED
        row.refresh_from_db()
        assert (row.used, row.reserved) == (6, 0)
