"""What runs may use: reserved with the start, settled with the receipt, held where it does not suffice."""

import itertools
import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest
from django.conf import settings

from runs import agents, allowance, clock, doubts, endings, holds, lifecycle, points, signals, sweeper
from runs.agents import RunContext, agent
from runs.exceptions import BadValue, KeyReused, NotFound, UnknownAllowance, WrongState
from runs.lifecycle import Limit
from runs.models import Allowance, Draw, JournalEntry, Run
from runs.states import Cause, RunStatus
from runs.tools import NotSent, ToolContext, outcomes, start, tool
from tests.factories import (
    CYD,
    OPERATOR,
    approve,
    causes,
    drive,
    go_on,
    later,
    open_hold,
    result,
    step,
    verbs,
)
from tests.outside import Outside

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("invariants")]
Rules = Callable[..., None]
EUR = "money:EUR"


# -- Tools and agents ------------------------------------------------------------------------


class TurnedDown(Exception):
    """Certainly not done."""


def found(key: str) -> str | None:
    word = Outside.of_this_process().next("found")
    if word == "cannot tell":
        raise ConnectionResetError("no answer")
    return "found" if word == "ok" else None


def act(name: str, context: ToolContext) -> str:
    """What the outside was told to do: used=0.90, fail, not_sent, refuse; else it answers."""
    outside = Outside.of_this_process()
    word = outside.next(name)
    outside.record(name, context.idempotency_key, context.attempt, {}, acted=True)
    if word.startswith("used="):
        context.used(money_EUR=word.removeprefix("used="))
    if word == "fail":
        raise ConnectionResetError("the line went dead")
    if word == "not_sent":
        raise NotSent("no connection")
    if word == "refuse":
        raise TurnedDown("no")
    return "ok"


@tool(name="a.think", estimate={EUR: "0.60"})
def think(context: ToolContext, n: int = 0) -> str:
    return act("think", context)


@tool(
    name="a.think_again", estimate={EUR: "0.60"}, retries=2, backoff=0.001, retry_on=(ConnectionResetError,)
)
def think_again(context: ToolContext) -> str:
    return act("think_again", context)


@tool(name="a.spend", effect=True, estimate=lambda amount: {EUR: amount}, refuses=(TurnedDown,))
def spend(context: ToolContext, amount: Decimal) -> str:
    return act("spend", context)


@tool(name="a.spend_keyed", effect=True, idempotent=True, estimate={EUR: "0.60"})
def spend_keyed(context: ToolContext) -> str:
    return act("spend_keyed", context)


@tool(name="a.spend_checked", effect=True, verify=found, estimate={EUR: "0.60"})
def spend_checked(context: ToolContext) -> str:
    return act("spend_checked", context)


@tool(name="a.count")
def count(context: ToolContext, words: int) -> int:
    """Says what it used only afterwards."""
    context.used(tokens=words)
    context.used(tokens=words)
    return words


@tool(name="a.any", estimate={"tokens": 0})
def any_tokens(n: int) -> int:
    return n


TOOLS: dict[str, Any] = {
    "think": think,
    "think_again": think_again,
    "spend_keyed": spend_keyed,
    "spend_checked": spend_checked,
}


@pytest.fixture(autouse=True)
def agents_of_these_tests(registries: None) -> None:
    @agent(name="a.thinker")
    async def thinker(run: RunContext, how: str = "think", times: int = 1) -> list[str]:
        return [await TOOLS[how]() for _ in range(times)]

    @agent(name="a.four")
    async def four(run: RunContext) -> list[str]:
        return [
            o.get() if o.error is None else "error" for o in await outcomes(*[think(n) for n in range(4)])
        ]

    @agent(name="a.spender")
    async def spender(run: RunContext, amount: Decimal = Decimal("0.60")) -> str:
        try:
            return await spend(amount)
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    @agent(name="a.counter")
    async def counter(run: RunContext, words: int = 5, times: int = 1) -> list[int]:
        return [await count(words) for _ in range(times)]

    @agent(name="a.taker")
    async def taker(run: RunContext) -> list[int]:
        return [await any_tokens(n) for n in range(2)]


def submitted(
    name: str, limits: dict[str, Any] | None = None, *, on: tuple[str, ...] = (), **given: Any
) -> Run:
    asked = lifecycle.Submission(
        name, given, {}, owner_id="cyd", limits=allowance.limits(limits or {}), draws_on=on
    )
    return lifecycle.submit(asked, actor=CYD)[0]


def driven(name: str, limits: dict[str, Any] | None = None, *, on: tuple[str, ...] = (), **given: Any) -> Run:
    return drive(submitted(name, limits, on=on, **given))


def shared(
    name: str = "team", limit: str | None = "10", *, unit: str = EUR, soft: str | None = None
) -> Allowance:
    hard, mark = (None if x is None else Decimal(x) for x in (limit, soft))
    return allowance.share(name, Limit(unit, hard, mark), actor=OPERATOR)


def spent(row: Allowance, used: str) -> None:
    """As if other runs had used so much."""
    run = submitted("a.thinker", on=(row.name,))
    Draw.objects.create(
        allowance=row, run=run, index=99, attempt=1, estimate=0, used=Decimal(used), settled_at=run.created_at
    )
    Allowance.objects.filter(pk=row.pk).update(used=Decimal(used))
    endings.cancel(run.pk, actor=CYD)


def of(run: Run, unit: str = EUR) -> Allowance:
    return run.allowances.get(unit=unit)


def figures(row: Allowance) -> tuple[str, str]:
    """Used and reserved."""
    row.refresh_from_db()
    return allowance.plain(row.used), allowance.plain(row.reserved)


def cover() -> int:
    """One pass of the sweeper's verb."""
    verb = sweeper._verbs["cover"]
    return sum(verb.act(item) for item in verb.find(clock.now()))


# -- Amounts -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (-5, "-5 is negative; amounts are 0 or more"),
        ("-0.01", "-0.01 is negative; amounts are 0 or more"),
        ("NaN", "'NaN' is not an amount; write one like 12.50, in digits"),
        ("Infinity", "'Infinity' is not an amount; write one like 12.50, in digits"),
        (float("inf"), "'inf' is not an amount; write one like 12.50, in digits"),
        ("1e400", "1e400 is too large; amounts are below 10^15"),
        ("1e-12", "1e-12 is too fine: at most 9 places after the point"),
        (10**30, f"{10**30} is too large; amounts are below 10^15"),
        (True, "True is not an amount; write one like 12.50, in digits"),
        ("", "'' is not an amount; write one like 12.50, in digits"),
        (" 5", "' 5' is not an amount; write one like 12.50, in digits"),
        ("1_000", "'1_000' is not an amount; write one like 12.50, in digits"),
        ("٣", "'٣' is not an amount; write one like 12.50, in digits"),
        ([1], "'[1]' is not an amount; write one like 12.50, in digits"),
    ],
)
def test_refuse_an_amount_that_is_none(given: Any, says: str) -> None:
    """F94."""
    with pytest.raises(BadValue) as refused:
        allowance.amount(given, "/x")
    assert (refused.value.path, refused.value.message) == ("/x", says)


@pytest.mark.parametrize(
    ("given", "is_"), [(0, "0"), ("-0", "0"), ("1e3", "1000"), ("0.000000001", "0.000000001"), (1.5, "1.5")]
)
def test_keep_an_amount_exactly(given: Any, is_: str) -> None:
    assert allowance.plain(allowance.amount(given)) == is_


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ({"money": "5"}, "/money"),
        ({"money:eur": "5"}, "/money:eur"),
        ({"money:EURO": "5"}, "/money:EURO"),
        ({"Steps": 5}, "/Steps"),
        ({"a/b": 5}, "/a~1b"),
        ({"steps": {"soft": 5}}, "/steps/limit"),
        ({"steps": {"limit": 5, "hard": 5}}, "/steps/hard"),
        ({"steps": {"limit": -1}}, "/steps/limit"),
        ({"steps": {"limit": 5, "soft": "6"}}, "/steps/soft"),
        ({"steps": [5]}, "/steps"),
    ],
)
def test_refuse_a_limit_that_does_not_fit(given: dict[str, Any], path: str) -> None:
    with pytest.raises(BadValue) as refused:
        allowance.limits(given)
    assert refused.value.path == path


# -- Submission ----------------------------------------------------------------------------------


def test_submit_with_an_allowance_makes_its_rows() -> None:
    team = shared()
    run = submitted(
        "a.thinker", {"steps": 3, EUR: {"limit": "5.00", "soft": "4"}, "tokens": None}, on=("team",)
    )
    assert run.metered
    rows = {row.unit + ("*" if row.shared else ""): row for row in run.allowances.all()}
    assert {unit: (row.limit, row.soft) for unit, row in rows.items()} == {
        "steps": (Decimal(3), None),
        EUR: (Decimal(5), Decimal(4)),
        "tokens": (None, None),
        f"{EUR}*": (Decimal(10), None),
    }
    assert rows[f"{EUR}*"] == team
    assert rows["steps"].name == f"run:{run.pk}"


def test_submit_without_an_allowance_is_not_metered() -> None:
    run = driven("a.thinker")
    assert (run.metered, run.allowances.count(), Draw.objects.count(), run.status) == (
        False,
        0,
        0,
        RunStatus.SUCCEEDED,
    )


def test_submit_on_an_unknown_shared_allowance_changes_nothing() -> None:
    shared()
    before = (Run.objects.count(), Allowance.objects.count(), JournalEntry.objects.count())
    with pytest.raises(UnknownAllowance) as refused:
        submitted("a.thinker", {"steps": 1}, on=("team", "teams"))
    assert refused.value.path == "/draws_on/1"
    assert (Run.objects.count(), Allowance.objects.count(), JournalEntry.objects.count()) == before


def test_submit_on_another_runs_allowance_is_refused() -> None:
    other = submitted("a.thinker", {"steps": 1})
    with pytest.raises(UnknownAllowance):
        submitted("a.thinker", on=(f"run:{other.pk}",))


# -- Reserve and settle ------------------------------------------------------------------------------


def test_reserve_while_a_call_is_under_way_and_settle_after_it(outside: Outside) -> None:
    run = submitted("a.thinker", {EUR: "10"})
    seen: list[tuple[str, str]] = []
    with points.on("after-intent-before-call", lambda: seen.append(figures(of(run)))):
        drive(run)
    assert (seen, figures(of(run))) == ([("0", "0.6")], ("0.6", "0"))


def test_settle_by_what_the_tool_says(outside: Outside) -> None:
    outside.will("think", "used=0.25", "used=0.90")
    run = driven("a.thinker", {EUR: "10"}, times=2)
    assert figures(of(run)) == ("1.15", "0")


def test_four_calls_at_once_start_as_many_as_fit(outside: Outside) -> None:
    """F93: budget 10, spent 9, four of 0.60: one starts, three are held; its actual 0.90 settles."""
    outside.will("think", "used=0.90")
    team = shared()
    spent(team, "9")
    run = driven("a.four", on=("team",))
    assert (run.status, causes(run), outside.n("think")) == (RunStatus.SUSPENDED, ["allowance"] * 3, 1)
    assert figures(team) == ("9.9", "0")
    why = "It needs 0.60 EUR; “team” has 0.40 EUR left."
    assert list(run.holds.values_list("why", flat=True)) == [why] * 3
    assert [step(run, n).status for n in range(4)] == ["done", "held", "held", "held"]
    assert cover() == 0


def test_top_up_lets_go_on_what_fits_and_resumes_each_run_once(outside: Outside) -> None:
    team = shared(limit="0")
    runs = [driven("a.thinker", on=("team",)) for _ in range(3)]
    assert [causes(run) for run in runs] == [["allowance"]] * 3
    allowance.top_up(team.pk, Decimal("1.30"), actor=OPERATOR, why="more")
    assert cover() == 1
    assert cover() == 0  # what two calls were promised is not given to the third
    for run in runs:
        run.refresh_from_db()
    assert [run.status for run in runs] == ["queued", "queued", "suspended"]
    drive(runs[0])
    assert cover() == 0
    drive(runs[1])
    assert [run.status for run in runs] == ["succeeded", "succeeded", "suspended"]
    assert [verbs(run).count("resumed") for run in runs] == [1, 1, 0]
    assert (figures(team), outside.n("think")) == (("1.2", "0"), 2)


def test_top_up_that_does_not_suffice_lets_nothing_go_on(outside: Outside) -> None:
    run = driven("a.thinker", {EUR: "0"})
    allowance.top_up(of(run).pk, Decimal("0.59"), actor=OPERATOR)
    assert (cover(), causes(run)) == (0, ["allowance"])
    allowance.top_up(of(run).pk, Decimal("0.01"), actor=OPERATOR)
    assert cover() == 1
    run.refresh_from_db()
    assert (drive(run).status, figures(of(run))) == (RunStatus.SUCCEEDED, ("0.6", "0"))


def test_cover_is_not_stopped_by_a_call_that_is_too_large(outside: Outside) -> None:
    team = shared(limit="0")
    large = driven("a.spender", on=("team",), amount="500")
    small = driven("a.thinker", on=("team",))
    approve_if_held(large)
    allowance.top_up(team.pk, Decimal(1), actor=OPERATOR)
    assert cover() == 1
    small.refresh_from_db()
    assert (drive(small).status, causes(large)) == (RunStatus.SUCCEEDED, ["allowance"])


def approve_if_held(run: Run) -> None:
    if "approval" in causes(run):
        approve(open_hold(run, Cause.APPROVAL))
        run.refresh_from_db()
        drive(run)


def test_no_limit_and_nothing_are_not_the_same(outside: Outside) -> None:
    """F94: null is no limit, 0 is nothing."""
    assert driven("a.thinker", {EUR: None}).status == RunStatus.SUCCEEDED
    assert causes(driven("a.thinker", {EUR: 0})) == ["allowance"]
    assert causes(driven("a.thinker", {"steps": 0})) == ["allowance"]
    assert causes(driven("a.thinker", {"seconds": 0})) == ["allowance"]
    assert driven("a.thinker", {"tokens": 0}).status == RunStatus.SUCCEEDED  # it uses none


def test_steps_are_counted_one_a_call(outside: Outside) -> None:
    run = driven("a.thinker", {"steps": 2}, times=3)
    assert (causes(run), run.position, figures(of(run, "steps"))) == (["allowance"], 2, ("2", "0"))
    assert open_hold(run).why == "It needs 1 step; the run has 0 steps left."


def test_seconds_are_those_of_calls_and_none_while_it_stands(outside: Outside, rules: Rules) -> None:
    rules(**{"a.spend": "hold"})
    run = driven("a.spender", {"seconds": 3600})
    later(1800)
    assert figures(of(run, "seconds")) == ("0", "0")
    approve(open_hold(run))
    run.refresh_from_db()
    drive(run)
    row = of(run, "seconds")
    row.refresh_from_db()
    assert Decimal(0) < row.used < Decimal(60)


def test_seconds_that_are_used_up_hold_the_next_call(outside: Outside) -> None:
    run = driven("a.thinker", {"seconds": "0.000001"}, times=2)
    assert (run.position, open_hold(run).why) == (1, "It needs some seconds; the run has 0 seconds left.")


def test_what_a_tool_used_without_an_estimate_is_charged(outside: Outside) -> None:
    run = driven("a.counter", {"tokens": 8})
    assert (run.status, figures(of(run, "tokens"))) == (RunStatus.SUCCEEDED, ("10", "0"))
    assert of(run, "tokens").remaining == 0


def test_an_estimate_of_nought_needs_something_to_be_left(outside: Outside) -> None:
    assert driven("a.taker", {"tokens": 1}).status == RunStatus.SUCCEEDED
    assert causes(driven("a.taker", {"tokens": 0})) == ["allowance"]


def test_two_allowances_of_one_unit_both_bind(outside: Outside) -> None:
    team = shared()
    run = driven("a.thinker", {EUR: "0.60"}, on=("team",), times=2)
    own = run.allowances.exclude(pk=team.pk).get()
    assert (figures(own), figures(team), causes(run)) == (("0.6", "0"), ("0.6", "0"), ["allowance"])
    assert open_hold(run).subject == str(own.pk)


# -- Refused, not sent, unknown -----------------------------------------------------------------------


def test_settle_a_refusal_counts_the_step_and_nothing_else(outside: Outside) -> None:
    outside.will("spend", "refuse")
    run = driven("a.spender", {EUR: "10", "steps": 5})
    assert (figures(of(run)), figures(of(run, "steps"))) == (("0", "0"), ("1", "0"))
    assert result(run) == "TurnedDown: no"


def test_settle_a_call_that_was_not_sent(outside: Outside) -> None:
    outside.will("spend", "not_sent")
    run = driven("a.spender", {EUR: "10"})
    assert (run.status, figures(of(run))) == (RunStatus.SUCCEEDED, ("0", "0"))


def test_reserve_again_for_each_attempt_of_a_pure_call(outside: Outside) -> None:
    outside.will("think_again", "fail", "fail", "ok")
    run = driven("a.thinker", {EUR: "10"}, how="think_again")
    assert (run.status, figures(of(run))) == (RunStatus.SUCCEEDED, ("1.8", "0"))
    assert list(Draw.objects.order_by("attempt").values_list("attempt", flat=True)) == [1, 2, 3]


def test_reserve_again_that_does_not_fit_holds_the_call(outside: Outside) -> None:
    outside.will("think_again", "fail", "ok")
    run = driven("a.thinker", {EUR: "1"}, how="think_again")
    assert (causes(run), outside.n("think_again")) == (["allowance"], 1)
    allowance.top_up(of(run).pk, Decimal("0.20"), actor=OPERATOR)
    cover()
    run.refresh_from_db()
    assert (drive(run).status, figures(of(run))) == (RunStatus.SUCCEEDED, ("1.2", "0"))


def test_keep_what_is_reserved_while_an_effect_is_in_doubt(outside: Outside) -> None:
    outside.will("spend_checked", "fail")
    outside.will("found", "cannot tell", "ok")
    run = driven("a.thinker", {EUR: "1"}, how="spend_checked")
    assert (causes(run), figures(of(run))) == (["in_doubt"], ("0", "0.6"))
    holds.look_again(open_hold(run).pk)
    run.refresh_from_db()
    assert (result(drive(run)), figures(of(run))) == (["found"], ("0.6", "0"))


def test_draw_once_for_an_effect_that_is_sent_again_under_its_key(outside: Outside) -> None:
    outside.will("spend_keyed", "fail", "ok")
    run = driven("a.thinker", {EUR: "1"}, how="spend_keyed")
    assert (causes(run), figures(of(run))) == (["in_doubt"], ("0", "0.6"))
    later(30)
    holds.look_again(open_hold(run).pk)
    run.refresh_from_db()
    assert (drive(run).status, figures(of(run)), outside.n("spend_keyed")) == (
        RunStatus.SUCCEEDED,
        ("0.6", "0"),
        2,
    )


def test_end_in_doubt_charges_what_was_reserved(outside: Outside) -> None:
    outside.will("spend", "fail")
    run = driven("a.spender", {EUR: "1"})
    assert causes(run) == ["in_doubt"]
    endings.cancel(run.pk, actor=CYD)
    assert figures(of(run)) == ("0.6", "0")


def test_settle_a_doubt_as_not_done_gives_back_what_was_reserved(outside: Outside) -> None:
    """And draws again when it is made after all."""
    outside.will("spend", "fail", "ok")
    run = driven("a.spender", {EUR: "1"})
    later(60)
    doubts.settle(run.pk, 0, doubts.Said("did_not_happen", "the bank says so"), actor=OPERATOR)
    assert figures(of(run)) == ("0", "0")
    run.refresh_from_db()
    assert (drive(run).status, figures(of(run))) == (RunStatus.SUCCEEDED, ("0.6", "0"))


class Died(BaseException):
    """The worker is gone."""


def test_crash_in_a_pure_call_charges_its_estimate(outside: Outside) -> None:
    """F93: the worker that reserved is gone; the call is made again and draws again."""
    run = submitted("a.thinker", {EUR: "1.20"})
    with points.on("after-call-before-record", died), pytest.raises(Died):
        drive(run)
    assert figures(of(run)) == ("0", "0.6")
    recovered(run)
    assert (drive(run).status, figures(of(run))) == (RunStatus.SUCCEEDED, ("1.2", "0"))


def test_crash_in_a_pure_call_that_leaves_too_little_holds_it(outside: Outside) -> None:
    run = submitted("a.thinker", {EUR: "1"})
    with points.on("after-call-before-record", died), pytest.raises(Died):
        drive(run)
    recovered(run)
    drive(run)
    assert (causes(run), outside.n("think")) == (["allowance"], 1)


def test_crash_before_the_call_of_an_effect_draws_once(outside: Outside, rules: Rules) -> None:
    run = submitted("a.thinker", {EUR: "1"}, how="spend_keyed")
    with points.on("after-intent-before-call", died), pytest.raises(Died):
        drive(run)
    recovered(run)
    assert (drive(run).status, figures(of(run)), outside.n("spend_keyed")) == (
        RunStatus.SUCCEEDED,
        ("0.6", "0"),
        1,
    )


def died() -> None:
    raise Died


def recovered(run: Run) -> None:
    later(settings.LEASE + 1)
    assert lifecycle.recover(run.pk)
    run.refresh_from_db()


# -- Held for something else too -------------------------------------------------------------------


def test_approve_a_call_that_does_not_fit_keeps_the_approval(outside: Outside, rules: Rules) -> None:
    rules(**{"a.spend": "hold"})
    run = driven("a.spender", {EUR: "0"})
    approve(open_hold(run, Cause.APPROVAL))
    run.refresh_from_db()
    drive(run)
    assert (causes(run), outside.n("spend")) == (["allowance"], 0)
    allowance.top_up(of(run).pk, Decimal(1), actor=OPERATOR)
    cover()
    run.refresh_from_db()
    assert (drive(run).status, outside.n("spend"), figures(of(run))) == (RunStatus.SUCCEEDED, 1, ("0.6", "0"))


def test_edit_of_the_amount_is_what_is_reserved(outside: Outside, rules: Rules) -> None:
    rules(**{"a.spend": "hold"})
    run = driven("a.spender", {EUR: "10"})
    approve(open_hold(run), arguments={"amount": "7"})
    run.refresh_from_db()
    assert (drive(run).status, figures(of(run))) == (RunStatus.SUCCEEDED, ("7", "0"))


def test_expiry_of_the_hold_cancels_the_run(outside: Outside) -> None:
    """Never *allow*: after seven days the run is cancelled."""
    run = driven("a.thinker", {EUR: 0})
    later(7 * 86400 - 60)
    assert not endings.expire_hold(open_hold(run).pk)
    later(7 * 86400 + 60)
    assert endings.expire_hold(open_hold(run).pk)
    run.refresh_from_db()
    assert (run.status, outside.n("think")) == (RunStatus.CANCELLED, 0)


def test_pause_while_it_waits_for_its_allowance(outside: Outside) -> None:
    run = driven("a.thinker", {EUR: 0})
    holds.pause(run.pk, actor=OPERATOR)
    allowance.top_up(of(run).pk, Decimal(1), actor=OPERATOR)
    assert cover() == 1
    run.refresh_from_db()
    assert (run.status, causes(run)) == (RunStatus.SUSPENDED, ["person"])
    holds.unpause(run.pk, actor=OPERATOR)
    run.refresh_from_db()
    assert drive(run).status == RunStatus.SUCCEEDED


# -- Bad estimates and figures ---------------------------------------------------------------------------


def failing(amount: Decimal) -> dict[str, Any]:
    raise RuntimeError("no price list")


@pytest.mark.parametrize("effect", [False, True])
@pytest.mark.parametrize(
    ("estimate", "says"),
    [
        (failing, "RuntimeError: no price list"),
        ({EUR: "-1"}, "-1 is negative"),
        ({EUR: "NaN"}, "'NaN' is not an amount"),
        ({"Tokens": 1}, "units are steps"),
        (lambda amount: None, "TypeError"),
        (lambda amount: {EUR: float("nan")}, "'nan' is not an amount"),
    ],
)
def test_estimate_that_fails_fails_the_call(effect: bool, estimate: Any, says: str, outside: Outside) -> None:
    """Never made, never stranded: the agent is told."""

    @tool(name="a.vague", effect=effect, estimate=estimate)
    def vague(context: ToolContext, amount: Decimal) -> str:
        return act("vague", context)

    @agent(name="a.vaguer")
    async def vaguer(run: RunContext) -> str:
        try:
            return await vague(Decimal(1))
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    run = driven("a.vaguer", {EUR: "10", "steps": 3})
    said = result(run)
    assert "BadEstimate" in said
    assert says in said
    assert (outside.n("vague"), figures(of(run)), figures(of(run, "steps"))) == (0, ("0", "0"), ("0", "0"))


def test_estimate_that_fails_after_an_approval_fails_the_call(outside: Outside, rules: Rules) -> None:
    @tool(name="a.vague", effect=True, estimate=failing)
    def vague(context: ToolContext, amount: Decimal) -> str:
        return act("vague", context)

    @agent(name="a.vaguer")
    async def vaguer(run: RunContext) -> str:
        try:
            return await vague(Decimal(1))
        except Exception as error:
            return type(error).__name__

    rules(**{"a.vague": "hold"})
    run = driven("a.vaguer", {EUR: "10"})
    approve(open_hold(run))
    run.refresh_from_db()
    assert (result(drive(run)), outside.n("vague")) == ("ToolFailed", 0)


def test_estimate_of_an_argument_the_tool_has_not_is_refused_at_import() -> None:
    with pytest.raises(TypeError, match="estimate= needs"):

        @tool(name="a.wrong", estimate=lambda price: {EUR: price})
        def wrong(amount: Decimal) -> str:
            return ""


@pytest.mark.parametrize("word", ["-5", "NaN", "Infinity", "1e400", "1e-12", str(10**30)])
def test_settle_by_bad_figures_charges_the_estimate(word: str, outside: Outside) -> None:
    """F94: what is no amount is journalled, and counts as not said."""
    outside.will("think", f"used={word}")
    run = driven("a.thinker", {EUR: "10"})
    assert (run.status, figures(of(run)), verbs(run).count("usage_refused")) == (
        RunStatus.SUCCEEDED,
        ("0.6", "0"),
        1,
    )


def test_money_in_a_currency_without_an_allowance_is_held(outside: Outside) -> None:
    run = driven("a.thinker", {"money:USD": "100"})
    assert causes(run) == ["allowance"]
    row = of(run, EUR)
    assert (row.limit, open_hold(run).subject) == (Decimal(0), str(row.pk))
    allowance.top_up(row.pk, Decimal(1), actor=OPERATOR)
    assert cover() == 1
    run.refresh_from_db()
    assert (drive(run).status, figures(row), figures(of(run, "money:USD"))) == (
        RunStatus.SUCCEEDED,
        ("0.6", "0"),
        ("0", "0"),
    )


def test_money_used_in_another_currency_is_seen(outside: Outside) -> None:
    @tool(name="a.abroad")
    def abroad(context: ToolContext) -> str:
        context.used(money_USD="3")
        return "ok"

    @agent(name="a.traveller")
    async def traveller(run: RunContext) -> str:
        return await abroad()

    run = driven("a.traveller", {EUR: "10"})
    assert (run.status, figures(of(run, "money:USD")), figures(of(run))) == (
        RunStatus.SUCCEEDED,
        ("3", "0"),
        ("0", "0"),
    )


# -- Limits -----------------------------------------------------------------------------------------------


def test_top_up_by_nothing_is_refused() -> None:
    team = shared()
    with pytest.raises(WrongState, match="0 adds nothing to the limit of 10"):
        allowance.top_up(team.pk, Decimal(0), actor=OPERATOR)
    with pytest.raises(WrongState, match="adds nothing"):
        allowance.top_up(team.pk, Decimal(-1), actor=OPERATOR)
    assert shared_limit(team) == Decimal(10)


def shared_limit(row: Allowance) -> Decimal | None:
    row.refresh_from_db()
    return row.limit


def test_top_up_without_a_limit_or_past_what_can_be_kept_is_refused() -> None:
    with pytest.raises(WrongState, match="no limit"):
        allowance.top_up(shared(limit=None).pk, Decimal(1), actor=OPERATOR)
    with pytest.raises(BadValue, match="too large"):
        allowance.top_up(shared("b").pk, Decimal(10) ** 15 - 1, actor=OPERATOR)
    with pytest.raises(NotFound):
        allowance.top_up(0, Decimal(1), actor=OPERATOR)


def test_top_up_sent_twice_counts_once() -> None:
    team = shared()
    for _ in range(2):
        assert allowance.top_up(team.pk, Decimal(5), actor=OPERATOR, once="one form").limit == Decimal(15)
    with pytest.raises(KeyReused):
        allowance.top_up(team.pk, Decimal(6), actor=OPERATOR, once="one form")
    assert allowance.top_up(team.pk, Decimal(5), actor=OPERATOR, once="another").limit == Decimal(20)
    entries = JournalEntry.objects.of(team.stream)
    assert list(entries.values_list("verb", flat=True)) == ["shared", "topped_up", "topped_up"]
    assert json.loads(entries[1].detail) == {
        "before": "10",
        "by": "5",
        "limit": "15",
        "once": "one form",
        "soft": "none",
        "why": "",
    }


def test_lower_below_what_is_used_holds_the_next_call_and_shows_nothing_left(outside: Outside) -> None:
    """F94: 0 remains, not -0.2."""
    run = submitted("a.thinker", {EUR: "5"}, times=2)
    lower = itertools.chain([lambda: lowered(run)], itertools.repeat(lambda: None))
    with points.on("after-effect-before-record", lambda: next(lower)()):
        drive(run)
    row = of(run)
    assert (causes(run), row.remaining, figures(row)) == (["allowance"], Decimal(0), ("0.6", "0"))
    assert open_hold(run).why == "It needs 0.60 EUR; the run has 0.00 EUR left."


def lowered(run: Run) -> None:
    allowance.set_limit(of(run).pk, Decimal("0.40"), None, actor=OPERATOR)


def test_set_limit_to_what_it_is_is_refused() -> None:
    team = shared()
    with pytest.raises(WrongState, match="the limit is 10 already"):
        allowance.set_limit(team.pk, Decimal("10.0"), None, actor=OPERATOR)


def test_set_limit_to_none_lets_everything_go_on(outside: Outside) -> None:
    run = driven("a.thinker", {EUR: 0}, times=3)
    allowance.set_limit(of(run).pk, None, None, actor=OPERATOR)
    cover()
    run.refresh_from_db()
    assert (drive(run).status, of(run).remaining) == (RunStatus.SUCCEEDED, None)


def test_share_a_name_and_unit_twice_is_refused() -> None:
    shared()
    with pytest.raises(WrongState, match="already"):
        shared(limit="99")
    with pytest.raises(BadValue):
        shared("run:x")
    with pytest.raises(BadValue):
        shared(" x")
    assert Allowance.objects.count() == 1


# -- The soft mark ----------------------------------------------------------------------------------------


@pytest.fixture
def told() -> Iterator[list[Allowance]]:
    heard: list[Allowance] = []

    def hear(sender: Any, allowance: Allowance, **_: Any) -> None:
        heard.append(allowance)

    signals.allowance_low.connect(hear)
    yield heard
    signals.allowance_low.disconnect(hear)


def test_soft_mark_tells_once_and_stops_nothing(told: list[Allowance], outside: Outside) -> None:
    team = shared(soft="1")
    run = driven("a.thinker", on=("team",), times=4)
    assert (run.status, [row.pk for row in told]) == (RunStatus.SUCCEEDED, [team.pk])
    entries = JournalEntry.objects.of(team.stream).filter(verb="soft_mark")
    assert [json.loads(entry.detail) for entry in entries] == [
        {"reserved": "0.6", "soft": "1", "used": "0.6"}
    ]
    allowance.top_up(team.pk, Decimal(5), actor=OPERATOR)
    driven("a.thinker", on=("team",))
    assert len(told) == 1
    allowance.set_limit(team.pk, Decimal(20), Decimal(2), actor=OPERATOR)
    driven("a.thinker", on=("team",))
    assert len(told) == 2


# -- Children ---------------------------------------------------------------------------------------------


def test_children_draw_on_their_parents(outside: Outside) -> None:
    thinker = agents.latest("a.thinker")

    @agent(name="a.parent")
    async def parent(run: RunContext) -> list[Any]:
        found = await outcomes(start(thinker), start(thinker))
        return [o.get() if o.error is None else type(o.error).__name__ for o in found]

    run = driven("a.parent", {EUR: "1"})
    children = list(Run.objects.filter(parent=run).order_by("created_at"))
    for child in children:
        drive(child)
    assert [child.metered for child in children] == [True, True]
    assert [causes(child) for child in children] == [[], ["allowance"]]
    assert figures(of(run)) == ("0.6", "0")
    allowance.top_up(of(run).pk, Decimal("0.20"), actor=OPERATOR)
    assert cover() == 1
    children[1].refresh_from_db()
    assert (drive(children[1]).status, figures(of(run))) == (RunStatus.SUCCEEDED, ("1.2", "0"))


def test_run_again_has_the_same_limits() -> None:
    shared()
    run = submitted("a.thinker", {EUR: {"limit": "5", "soft": "4"}, "steps": None}, on=("team",))
    limits, names = allowance.asked_for(run)
    assert set(limits) == {Limit(EUR, Decimal(5), Decimal(4)), Limit("steps", None)}
    assert names == ("team",)


def test_ended_run_has_nothing_reserved(outside: Outside) -> None:
    run = driven("a.thinker", {EUR: "10"})
    assert not Draw.objects.open().exists()
    assert [row.reserved for row in run.allowances.all()] == [0]


# -- Put back --------------------------------------------------------------------------------------


def test_call_put_back_beside_a_held_one_waits_for_what_it_needs(outside: Outside, rules: Rules) -> None:
    """The second attempt does not fit the limit: it is said so, and topping up lets it go on, although the call
    beside it waits for a person."""
    rules(**{"a.spend": "hold"})

    @agent(name="a.pair")
    async def pair(run: RunContext) -> list[str]:
        return [o.get() for o in await outcomes(spend(Decimal("0.10")), think_again())]

    outside.will("think_again", "fail")
    run = driven("a.pair", {EUR: "0.60"})
    assert sorted(causes(run)) == ["allowance", "approval"]
    row = Allowance.objects.get(name=run.stream)
    allowance.top_up(row.pk, Decimal("0.60"), actor=OPERATOR)
    allowance.release_covered(row.pk)
    drive(run)
    assert (causes(run), step(run, 1).status) == (["approval"], "done")


def test_estimate_that_fails_for_an_effect_that_may_have_acted(outside: Outside) -> None:
    """It is not refused because nobody can say what it will use: it stays in doubt, and in the ledger."""

    def guess() -> dict[str, Any]:
        word = Outside.of_this_process().next("guess")
        return {} if word == "ok" else {"no such unit": 1}

    @tool(name="a.spend_odd", effect=True, idempotent=True, estimate=guess)
    def spend_odd(context: ToolContext) -> str:
        return act("spend_odd", context)

    @agent(name="a.odd")
    async def odd(run: RunContext) -> str:
        return await spend_odd()  # type: ignore[no-any-return]

    outside.will("spend_odd", "fail")
    run = driven("a.odd", {"tokens": "5"})
    outside.will("guess", "bad")
    later(3600)
    go_on(run)
    assert (causes(run), step(run, 0).effect) == (["in_doubt"], "in_doubt")
    later(7300)
    assert (result(go_on(run)), step(run, 0).effect, len(outside.keys("spend_odd"))) == ("ok", "confirmed", 1)
