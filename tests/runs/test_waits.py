"""Sleeping, waiting for an event, and calls side by side of which some wait: the time and the outcomes."""

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.conf import settings
from pydantic import BaseModel

from runs import clock, events, execution, holds, points
from runs.agents import RunContext, agent
from runs.models import Hold, Run
from runs.states import Cause, RunStatus
from runs.tools import BadPayload, Expired, outcomes, sleep, wait_for
from tests import agents_for_tests as ours
from tests.factories import (
    CYD,
    OPERATOR,
    all_go_on,
    approve,
    causes,
    drive,
    driven,
    go_on,
    later,
    open_hold,
    reject,
    result,
    step,
    submitted,
    sweep_run,
    verbs,
)
from tests.outside import Outside

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("invariants")]
Rules = Callable[..., None]
DAY = 86400.0


class Parcel(BaseModel):
    weight: Decimal


def told(run: Run, payload: Any, *, event_id: str = "e1") -> None:
    events.tell(run.pk, name="arrived", event_id=event_id, payload=payload, actor=CYD)
    run.refresh_from_db()


# -- Sleeping -------------------------------------------------------------------------------


def test_sleep_holds_until_the_date_and_goes_on() -> None:
    before = clock.now()
    run = driven("dozer", seconds=60)
    hold = open_hold(run, Cause.TIMER)
    assert hold.expires_at is not None
    assert timedelta(seconds=60) <= hold.expires_at - before < timedelta(seconds=90)
    later(55)
    assert (sweep_run(run), run.status) == ([], RunStatus.SUSPENDED)
    later(95)
    assert (sweep_run(run), result(drive(run))[:7]) == (["expire_holds"], "receipt")
    assert Hold.objects.get(pk=hold.pk).resolution == "due"


def test_sleep_no_time_goes_on_at_once() -> None:
    run = driven("dozer", seconds=0)
    assert (result(run)[:7], Hold.objects.count(), step(run, 0).result) == ("receipt", 0, "null")


def test_sleep_is_not_begun_anew_by_another_worker() -> None:
    """The date stands in the hold: whoever comes later does not add to it."""

    def die() -> None:
        raise SystemExit("killed")

    run = submitted("dozer", seconds=5000)
    with points.on("before-park", die), pytest.raises(SystemExit):
        execution.drive(run.pk)
    ends = open_hold(run).expires_at
    later(4000)
    go_on(run)
    assert open_hold(run).expires_at == ends
    later(5001)
    assert go_on(run).status == RunStatus.SUCCEEDED


def test_sleep_longer_than_a_run_may_stand_still() -> None:
    run = driven("dozer", seconds=90 * DAY)
    later(89 * DAY)
    assert (sweep_run(run), run.status) == ([], RunStatus.SUSPENDED)
    later(91 * DAY)
    assert go_on(run).status == RunStatus.SUCCEEDED


def test_sleep_counts_against_no_later_limit(rules: Rules) -> None:
    """`max_suspended` is per stop: what came before the timer's end does not count."""

    @agent()
    async def late(run: RunContext) -> str:
        await sleep(timedelta(days=29))
        return await ours.pay(Decimal(1), "A")

    rules(pay="hold")
    run = driven("late")
    later(29 * DAY + 60)
    go_on(run)
    assert causes(run) == ["approval"]
    later(50 * DAY)
    assert (sweep_run(run), run.status) == ([], RunStatus.SUSPENDED)
    later(60 * DAY)
    assert (sweep_run(run), run.status) == (["expire_runs"], RunStatus.EXPIRED)


def test_sleep_under_a_pause_is_over_and_the_run_stays_paused() -> None:
    """F59: the timer of one hold does not end another."""
    run = driven("dozer", seconds=60)
    holds.pause(run.pk, actor=OPERATOR)
    later(61)
    assert sweep_run(run) == ["expire_holds"]
    assert (run.status, causes(run)) == (RunStatus.SUSPENDED, ["person"])
    holds.unpause(run.pk, actor=OPERATOR)
    run.refresh_from_db()
    assert drive(run).status == RunStatus.SUCCEEDED


@pytest.mark.parametrize("bad", [-1, float("nan"), float("inf"), timedelta(days=-1), 11 * 366 * DAY])
def test_sleep_refuses_what_is_no_time(bad: Any) -> None:
    with pytest.raises(ValueError, match="is no time to wait: from 0 to 316224000 seconds"):
        sleep(bad)


# -- Waiting for an event ---------------------------------------------------------------------


def test_wait_gives_the_payload_as_its_type() -> None:
    @agent()
    async def porter(run: RunContext) -> str:
        parcel = await wait_for("arrived", Parcel)
        return f"{type(parcel).__name__} {parcel.weight + 1}"

    run = driven("porter")
    told(run, {"weight": "2.50"})
    assert result(drive(run)) == "Parcel 3.50"


@pytest.mark.parametrize("early", [True, False])
def test_wait_for_a_payload_that_does_not_fit_tells_the_agent(early: bool) -> None:
    """A recorded error of its own name, whichever came first; and the agent may wait again."""

    @agent()
    async def porter(run: RunContext) -> list[str]:
        try:
            await wait_for("arrived", Parcel)
        except BadPayload as bad:
            parcel = await wait_for("arrived", Parcel)
            return [bad.event, bad.path, bad.message[:30], str(parcel.weight)]
        return []

    run = submitted("porter") if early else driven("porter")
    told(run, {"weight": "heavy"})
    drive(run)
    assert causes(run) == ["event"]
    told(run, {"weight": "2.50"}, event_id="e2")
    assert result(drive(run)) == ["arrived", "/weight", "Input should be a valid decima", "2.50"]


def test_wait_that_nobody_ends_expires_in_the_agent() -> None:
    @agent()
    async def patient(run: RunContext) -> str:
        try:
            return str(await wait_for("arrived", int, within=timedelta(minutes=1)))
        except Expired as expired:
            return expired.at

    run = driven("patient")
    hold = open_hold(run)
    later(61)
    assert sweep_run(run) == ["expire_holds"]
    assert hold.expires_at is not None
    assert result(drive(run)) == hold.expires_at.isoformat().replace("+00:00", "Z")
    assert verbs(run).count("resumed") == 1


def test_wait_without_time_takes_only_what_is_there() -> None:
    run = driven("expectant", within=0)
    assert sweep_run(run) == ["expire_holds"]
    assert drive(run).status == RunStatus.FAILED
    early = submitted("expectant", within=0)
    told(early, 3)
    assert result(drive(early)) == [3]


def test_wait_longer_than_a_run_may_stand_still() -> None:
    """A wait with a time of its own ends then; one without ends with the run."""
    timed, open_ended = driven("expectant", within=90 * DAY), driven("expectant")
    later(settings.MAX_SUSPENDED + DAY)
    sweep_run(timed)
    open_ended.refresh_from_db()
    assert (timed.status, open_ended.status) == (RunStatus.SUSPENDED, RunStatus.EXPIRED)
    later(91 * DAY)
    assert go_on(timed).status == RunStatus.FAILED


@pytest.mark.parametrize("name", ["", "x" * 101])
def test_wait_refuses_a_name_that_cannot_be_kept(name: str) -> None:
    with pytest.raises(ValueError, match=f"an event's name has 1 to 100 characters, not {len(name)}"):
        wait_for(name, int)


def test_wait_for_the_longest_name() -> None:
    run = driven("expectant", name="é" * 100)
    assert (causes(run), open_hold(run).subject) == (["event"], "é" * 100)


# -- Side by side -------------------------------------------------------------------------------


def test_outcomes_with_mixed_ends_keep_each_its_own(rules: Rules, outside: Outside) -> None:
    """F11: as proposed, edited, rejected and expired; each once or never, in order."""

    @agent()
    async def four(run: RunContext) -> list[str]:
        calls = [ours.pay(Decimal(n), to) for n, to in ((1, "A"), (2, "B"), (3, "C"), (4, "D"))]
        found = await outcomes(*calls)
        return [
            str(c.executed["amount"]) if o.error is None else f"{type(o.error).__name__}: {o.error.args[0]}"
            for c, o in zip(calls, found, strict=True)
        ]

    rules(pay="hold", expires_in=60)
    run = driven("four")
    reject(open_hold(run, index=2), "wrong payee")
    approve(open_hold(run, index=0))
    approve(open_hold(run, index=1), arguments={"amount": "0.50", "to": "B"})
    run.refresh_from_db()
    drive(run)
    assert (run.status, outside.n("pay")) == (RunStatus.SUSPENDED, 2)
    later(61)
    said = result(go_on(run))
    assert (said[:3], said[3][:8]) == (["1", "0.50", "Rejected: wrong payee"], "Expired:")
    sent = sorted((c["arguments"] for c in outside.acted("pay")), key=lambda told: str(told["to"]))
    assert sent == [
        {"amount": "1", "to": "A"},
        {"amount": "0.50", "to": "B"},
    ]


def test_outcomes_of_every_kind_of_wait_at_once(rules: Rules, outside: Outside) -> None:
    """Those that are free run while others wait; whatever ends first is kept, and nothing is made twice."""

    @agent()
    async def all_at_once(run: RunContext) -> list[str]:
        found = await outcomes(
            ours.pay(Decimal(1), "A"),
            ours.add(1, 2),
            sleep(60),
            wait_for("arrived", int),
            ours.start(ours.payer, how="pay_keyed"),
            ours.note("free"),
        )
        return [str(o.value)[:7] for o in found]

    rules(pay="hold")
    run = driven("all-at-once")
    assert causes(run) == ["approval", "timer", "event", "child"]
    assert (outside.n("note"), step(run, 1).status, step(run, 5).status) == (1, "done", "done")
    told(run, 9)
    drive(run)
    approve(open_hold(run, Cause.APPROVAL))
    run.refresh_from_db()
    drive(run)
    assert (causes(run), outside.n("pay")) == (["timer", "child"], 1)
    later(61)
    all_go_on()
    run.refresh_from_db()
    assert result(run) == ["receipt", "3", "None", "9", "receipt", "receipt"]
    assert [outside.n(name) for name in ("pay", "pay_keyed", "note")] == [1, 1, 1]


@pytest.mark.parametrize("point", ["after-effect-before-record", "after-boundary", "before-park"])
def test_outcomes_when_killed_in_between_run_no_sibling_twice(
    point: str, rules: Rules, outside: Outside
) -> None:
    """One sibling waits for a person, the other was made; the worker dies around it."""

    @agent()
    async def two(run: RunContext) -> list[str]:
        found = await outcomes(ours.pay(Decimal(1), "A"), ours.pay_checked(Decimal(2), "B"))
        return [str(o.value)[:7] for o in found]

    def die() -> None:
        raise SystemExit("killed")

    rules(pay="hold")
    run = submitted("two")
    with points.on(point, die), pytest.raises(SystemExit):
        execution.drive(run.pk)
    later(3600)
    go_on(run)
    approve(open_hold(run))
    run.refresh_from_db()
    drive(run)
    assert result(run) == ["receipt", "receipt"]
    assert [outside.n("pay"), outside.n("pay_checked")] == [1, 1]
