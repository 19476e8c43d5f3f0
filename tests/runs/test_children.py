"""Children: started once, their result given to the parent, held and cancelled with those above."""

import uuid
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel

from runs import agents, children, clock, endings, execution, holds, lifecycle, points
from runs.agents import RunContext, agent
from runs.models import Hold, Run
from runs.states import Cause, RunStatus
from runs.tools import ChildFailed, ask, outcomes, remember, start, together
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
    only_child,
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


class Slip(BaseModel):
    amount: Decimal
    at: datetime


def again(run: Run) -> Run:
    run.refresh_from_db()
    return run


# -- Started, and what comes of it ------------------------------------------------------


def test_start_gives_the_result_as_its_type() -> None:
    @agent()
    async def clerk(run: RunContext, amount: Decimal) -> Slip:
        return Slip(amount=amount, at=datetime.fromisoformat("2026-11-30T10:00:00+00:00"))

    @agent()
    async def desk(run: RunContext) -> str:
        slip = await start(clerk, Decimal("2.50"))
        return f"{type(slip).__name__} {slip.amount + 1} {slip.at.year}"

    run = driven("desk")
    assert (run.status, causes(run)) == (RunStatus.SUSPENDED, ["child"])
    all_go_on()
    assert result(again(run)) == "Slip 3.50 2026"


def test_start_makes_a_child_of_the_same_submitter() -> None:
    run = driven("boss")
    child = only_child(run)
    same = ("owner_id", "submitter_kind", "submitter_id", "submitter_name", "on_behalf_of", "labels")
    assert [getattr(child, name) for name in same] == [getattr(run, name) for name in same]
    assert (child.status, child.parent_id, child.ancestors) == (RunStatus.QUEUED, run.pk, [run.pk])
    assert (verbs(child), open_hold(run).child_id) == (["submitted"], child.pk)


def test_start_goes_on_and_starts_nothing_twice(outside: Outside) -> None:
    run = driven("boss")
    for _ in range(3):
        lifecycle.resume(run, CYD)
        assert drive(run).status == RunStatus.SUSPENDED
    all_go_on()
    assert (result(again(run))[:7], outside.n("note"), outside.n("pay")) == ("receipt", 2, 1)
    assert (Run.objects.count(), causes(run)) == (2, [])
    assert [h.resolution for h in Hold.objects.filter(run=run)] == ["child_ended"]


def test_start_when_killed_before_the_commit_creates_it_once(outside: Outside) -> None:
    """The child and the hold are one commit: without it there is neither."""

    def die() -> None:
        raise SystemExit("killed")

    run = submitted("boss")
    with points.on("after-boundary", die), pytest.raises(SystemExit):
        execution.drive(run.pk)
    assert Run.objects.count() == 1
    later(3600)
    all_go_on()
    assert (again(run).status, Run.objects.count(), outside.n("pay")) == (RunStatus.SUCCEEDED, 2, 1)


def test_start_when_killed_after_the_commit_creates_it_once(outside: Outside) -> None:
    def die() -> None:
        raise SystemExit("killed")

    run = submitted("boss")
    with points.on("before-park", die), pytest.raises(SystemExit):
        execution.drive(run.pk)
    assert (again(run).status, Run.objects.count()) == (RunStatus.RUNNING, 2)
    later(3600)
    all_go_on()
    assert (again(run).status, Run.objects.count(), outside.n("pay")) == (RunStatus.SUCCEEDED, 2, 1)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("failed", "failed: Rejected: wrong payee, ben"),
        ("cancelled", "cancelled: : not needed"),
        ("expired", "expired: : suspended for"),
    ],
)
def test_start_tells_how_a_child_ended_without_a_result(how: str, said: str, rules: Rules) -> None:
    rules(pay="hold")
    run = driven("boss")
    child = drive(only_child(run))
    if how == "failed":
        reject(open_hold(child))
    elif how == "cancelled":
        endings.cancel(child.pk, actor=CYD, why="not needed")
    else:
        later(31 * 86400)
    all_go_on()
    assert (again(child).status, result(again(run))[: len(said)]) == (how, said)


def test_start_names_an_undeclared_error_by_its_type() -> None:
    @agent()
    async def clumsy(run: RunContext) -> None:
        raise KeyError("sku")

    @agent()
    async def desk(run: RunContext) -> list[str]:
        try:
            await start(clumsy)
        except ChildFailed as failed:
            return [failed.status, failed.kind, failed.message]
        return []

    run = driven("desk")
    all_go_on()
    assert result(again(run)) == ["failed", "KeyError", "'sku'"]


def test_start_of_an_agent_that_is_not_registered() -> None:
    @agent()
    async def clerk(run: RunContext) -> None:
        return None

    @agent()
    async def desk(run: RunContext) -> list[str]:
        try:
            await start(clerk)
        except ChildFailed as failed:
            return [failed.run, failed.status, failed.kind]
        return []

    del agents._registry["clerk", "1"]
    assert result(driven("desk")) == ["", "not_started", "UnknownAgent"]
    assert Run.objects.count() == 1


def test_start_with_a_result_that_no_longer_fits(outside: Outside) -> None:
    """The child ended under another code than the one its parent goes on with."""

    async def old(run: RunContext) -> Any:
        return {"amount": "much"}

    @agent(name="clerk")
    async def clerk(run: RunContext) -> Slip:
        raise AssertionError

    @agent()
    async def desk(run: RunContext) -> list[str]:
        try:
            await start(clerk)
        except ChildFailed as failed:
            return [failed.status, failed.kind, failed.message]
        return []

    run = driven("desk")
    agents._registry["clerk", "1"] = agents.Agent("clerk", "1", old)
    drive(only_child(run))
    agents._registry["clerk", "1"] = clerk
    all_go_on()
    status, kind, message = result(again(run))
    assert (status, kind, message[:8]) == ("succeeded", "BadResult", "/amount:")


def test_start_of_a_version_that_went_waits_and_a_cancel_frees_the_parent() -> None:
    run = driven("boss")
    child = only_child(run)
    Run.objects.filter(pk=child.pk).update(agent_version="0")
    drive(child)
    assert again(child).status == RunStatus.QUEUED
    endings.cancel(child.pk, actor=OPERATOR, why="its code is gone")
    all_go_on()
    assert result(again(run)) == "cancelled: : its code is gone"


def test_start_with_a_child_that_diverged_waits_and_a_cancel_frees_the_parent() -> None:
    run = driven("boss")
    child = only_child(run)
    Run.objects.filter(pk=child.pk).update(input='{"nonsense":1}')
    drive(child)
    assert (causes(child), causes(run)) == (["diverged"], ["child"])
    endings.cancel(child.pk, actor=OPERATOR, why="spoilt")
    all_go_on()
    assert result(again(run)) == "cancelled: : spoilt"


def test_start_no_deeper_than_allowed(settings: Any) -> None:
    settings.MAX_CHILD_DEPTH = 3

    @agent()
    async def digger(run: RunContext, left: int) -> list[str]:
        if not left:
            return ["ground"]
        try:
            return ["down", *await start(digger, left - 1)]
        except ChildFailed as failed:
            return [failed.status, failed.kind, failed.message]

    run = driven("digger", left=9)
    all_go_on()
    end = ["not_started", "TooDeep", "runs are nested at most 3 deep"]
    assert result(again(run)) == ["down", "down", "down", *end]
    assert [len(r.ancestors) for r in Run.objects.order_by("created_at")] == [0, 1, 2, 3]


def test_start_in_an_unwinding_agent_is_inert() -> None:
    @agent()
    async def tidy(run: RunContext) -> None:
        try:
            await ask("go on?", ours.Answer)
        finally:
            start(ours.payer)

    driven("tidy")
    assert Run.objects.count() == 1


def test_together_with_children_runs_the_rest_meanwhile(outside: Outside) -> None:
    run = driven("crew")
    assert (run.status, causes(run), outside.n("pay")) == (RunStatus.SUSPENDED, ["child", "child"], 1)
    all_go_on()
    receipts = result(again(run))
    assert ([r[:7] for r in receipts], outside.n("pay"), outside.n("pay_keyed")) == (["receipt"] * 3, 2, 1)
    assert len(set(receipts)) == 3


def test_together_gives_each_child_its_own_outcome_whatever_the_order(rules: Rules) -> None:
    rules(pay="hold", pay_keyed="hold")
    run = driven("crew")
    first, second = Run.objects.filter(parent=run).order_by("created_at")
    drive(second)
    approve(open_hold(second))
    drive(first)
    reject(open_hold(first))
    all_go_on()
    approve(open_hold(run))
    all_go_on()
    said = result(again(run))
    assert (said[0], said[1][:7], said[2][:7]) == ("ChildFailed", "receipt", "receipt")


def test_tell_parent_once_and_only_after_the_end() -> None:
    run = driven("boss")
    hold = open_hold(run)
    assert not children.tell_parent(hold.pk)
    drive(only_child(run))
    assert (children.tell_parent(hold.pk), children.tell_parent(hold.pk)) == (True, False)
    assert verbs(again(run))[-2:] == ["released", "resumed"]


# -- Held with those above ----------------------------------------------------------------


def test_pause_of_the_root_holds_what_is_below_and_resume_frees_it(outside: Outside) -> None:
    run = driven("chief")
    boss = drive(only_child(run))
    holds.pause(run.pk, actor=CYD)
    payer = drive(only_child(boss))
    assert (payer.status, causes(payer), outside.n("pay")) == (RunStatus.SUSPENDED, ["ancestor"], 0)
    assert open_hold(payer).why == f"A run above it, chief {run.short_id}, is held."
    assert step(payer, 0).status == "proposed"
    all_go_on()
    assert causes(payer) == ["ancestor"]
    holds.unpause(run.pk, actor=CYD)
    all_go_on()
    assert (again(run).status, outside.n("pay"), outside.n("note")) == (RunStatus.SUCCEEDED, 1, 2)


def test_pause_of_the_parent_while_the_child_waits_for_an_approval(rules: Rules, outside: Outside) -> None:
    rules(pay="hold")
    run = driven("boss")
    child = drive(only_child(run))
    holds.pause(run.pk, actor=CYD)
    approve(open_hold(child))
    assert again(child).status == RunStatus.QUEUED
    drive(child)
    assert (child.status, causes(child), outside.n("pay")) == (RunStatus.SUSPENDED, ["ancestor"], 0)
    holds.unpause(run.pk, actor=CYD)
    all_go_on()
    assert (again(run).status, outside.n("pay")) == (RunStatus.SUCCEEDED, 1)


def test_pause_of_the_parent_asks_nobody_for_its_child(rules: Rules) -> None:
    rules(pay="hold")
    run = driven("boss")
    holds.pause(run.pk, actor=CYD)
    child = drive(only_child(run))
    assert causes(child) == ["ancestor"]
    holds.unpause(run.pk, actor=CYD)
    all_go_on()
    assert causes(child) == ["approval"]


def test_pause_of_the_parent_holds_every_kind_of_call() -> None:
    """Pure tools, values taken once, questions, waits and starts: none of them begins."""

    @agent()
    async def busy(run: RunContext, kind: int) -> None:
        calls: list[Any] = [
            ours.add(1, 1),
            remember("now", lambda: 1),
            ask("which?", ours.Answer),
            ours.sleep(5),
            ours.wait_for("go", int),
            start(ours.payer),
        ]
        await calls[kind]

    @agent()
    async def above(run: RunContext) -> None:
        await outcomes(*(start(busy, kind) for kind in range(6)))

    run = driven("above")
    holds.pause(run.pk, actor=CYD)
    for child in Run.objects.filter(parent=run):
        assert causes(drive(child)) == ["ancestor"]
        assert step(child, 0).status == "proposed"
    assert Run.objects.count() == 7
    holds.unpause(run.pk, actor=CYD)
    all_go_on()
    waits = [causes(child) for child in Run.objects.filter(parent=run).order_by("created_at")]
    assert waits == [[], [], ["question"], ["timer"], ["event"], []]


def test_pause_of_the_parent_stops_the_second_attempt(outside: Outside) -> None:
    """A call that was certainly not sent is not tried again below a run that was paused meanwhile."""
    outside.will("pay_retried", "not_sent", "ok")

    @agent()
    async def above(run: RunContext) -> str:
        return await start(ours.payer, how="pay_retried")

    run = driven("above")
    child = only_child(run)
    with (
        points.on("after-effect-before-record", lambda: None),
        points.on("after-intent-before-call", lambda: holds.pause(run.pk, actor=CYD)),
    ):
        drive(child)
    assert len(outside.tried("pay_retried")) == 1


def test_pause_of_a_child_is_its_own(outside: Outside) -> None:
    run = driven("boss")
    child = only_child(run)
    holds.pause(child.pk, actor=CYD)
    all_go_on()
    assert (causes(child), causes(run), outside.n("pay")) == (["person"], ["child"], 0)
    holds.unpause(child.pk, actor=CYD)
    all_go_on()
    assert again(run).status == RunStatus.SUCCEEDED


def test_pauses_of_two_above_are_both_waited_for(outside: Outside) -> None:
    run = driven("chief")
    boss = drive(only_child(run))
    for paused in (run, boss):
        holds.pause(paused.pk, actor=CYD)
    payer = drive(only_child(boss))
    holds.unpause(run.pk, actor=CYD)
    all_go_on()
    assert causes(payer) == ["ancestor"]
    holds.unpause(boss.pk, actor=CYD)
    all_go_on()
    assert (again(run).status, outside.n("pay")) == (RunStatus.SUCCEEDED, 1)


def test_free_below_finds_only_what_is_free() -> None:
    """So that many that stay held hide none that may go on."""
    paused, freed = driven("boss"), driven("boss")
    for run in (paused, freed):
        holds.pause(run.pk, actor=CYD)
        drive(only_child(run))
    holds.unpause(freed.pk, actor=CYD)
    assert [hold.run for hold in Hold.objects.free_above()] == [only_child(freed)]
    stays = open_hold(only_child(paused))
    assert not children.free_below(stays.pk)
    assert sweep_run(only_child(freed)) == ["free_below"]
    assert not children.free_below(Hold.objects.get(run=only_child(freed)).pk)
    all_go_on()
    assert causes(only_child(paused)) == ["ancestor"]


def test_hold_of_a_run_above_that_was_lifted_meanwhile_is_not_placed(outside: Outside) -> None:
    """Paused when the child asked, resumed before its hold was written: it goes on, and nothing is stranded."""
    run = driven("boss")
    child = only_child(run)
    holds.pause(run.pk, actor=CYD)
    with points.on("before-obstacle-hold", lambda: holds.unpause(run.pk, actor=CYD)):
        drive(child)
    assert (child.status, outside.n("pay"), Hold.objects.filter(run=child).count()) == ("succeeded", 1, 0)


# -- Cancelled with those above --------------------------------------------------------------


def test_cancel_of_the_root_ends_all_below(rules: Rules, outside: Outside) -> None:
    rules(pay="hold")
    run = driven("chief")
    boss = drive(only_child(run))
    payer = drive(only_child(boss))
    hold = open_hold(payer)
    endings.cancel(run.pk, actor=CYD)
    all_go_on()
    assert {r.agent: r.status for r in Run.objects.all()} == dict.fromkeys(
        ("chief", "boss", "payer"), RunStatus.CANCELLED
    )
    hold.refresh_from_db()
    assert (hold.resolution, outside.n("pay")) == ("run_ended", 0)
    assert verbs(payer)[-1] == "cancelled"


def test_cancel_of_the_parent_ends_a_child_that_nobody_took() -> None:
    run = driven("boss")
    endings.cancel(run.pk, actor=CYD)
    child = only_child(run)
    assert drive(child).status == RunStatus.SUSPENDED  # taken before the sweeper came: it starts nothing
    assert causes(child) == ["ancestor"]
    assert sweep_run(child) == ["cancel_orphans"]
    assert child.status == RunStatus.CANCELLED


def test_cancel_of_the_parent_leaves_those_that_ended() -> None:
    run = driven("boss")
    child = drive(only_child(run))
    endings.cancel(run.pk, actor=CYD)
    all_go_on()
    assert (again(child).status, children.cancel_orphan(child.pk)) == (RunStatus.SUCCEEDED, False)


def test_cancel_orphan_below_a_live_run_does_nothing() -> None:
    run = driven("boss")
    assert not children.cancel_orphan(only_child(run).pk)
    assert children.cancel_below(run.pk) == 0


def test_cancel_orphan_twice_is_once() -> None:
    run = driven("boss")
    endings.cancel(run.pk, actor=CYD)
    child = only_child(run)
    assert [children.cancel_orphan(child.pk), children.cancel_orphan(child.pk)] == [True, False]
    assert verbs(child) == ["submitted", "cancelled"]


def test_expiry_of_a_child_leaves_its_parent_waiting_for_the_rest(rules: Rules) -> None:
    """Waiting for a child expires nobody; its child, which waits for an approval, ends by itself."""
    rules(pay="hold")
    run = driven("boss")
    drive(only_child(run))
    holds.pause(run.pk, actor=CYD)
    later(31 * 86400)
    sweep_run(run)
    sweep_run(run)
    assert (run.status, again(only_child(run)).status) == (RunStatus.SUSPENDED, RunStatus.EXPIRED)
    assert causes(run) == ["person"]


# -- Costs -----------------------------------------------------------------------------------


def test_share_costs_a_root_run_nothing(django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(0):
        children.share([])


def test_share_is_one_statement_however_deep(django_assert_num_queries: Any) -> None:
    run = driven("chief")
    boss = drive(only_child(run))
    payer = only_child(boss)
    with django_assert_num_queries(1):
        children.share(payer.ancestors)


def test_drive_of_a_root_run_without_children_asks_nothing_above() -> None:
    run = driven("adder", n=3)
    assert (result(run), Hold.objects.count(), uuid.UUID(int=0) in run.ancestors) == (3, 0, False)
    assert go_on(run).status == RunStatus.SUCCEEDED
    assert clock.now() >= run.ended_at
    assert Cause.ANCESTOR not in causes(run)


def test_together_of_two_children_that_fail_raises_once() -> None:
    @agent()
    async def clumsy(run: RunContext) -> None:
        raise ValueError("no")

    @agent()
    async def desk(run: RunContext) -> None:
        await together(start(clumsy), start(clumsy))

    run = driven("desk")
    all_go_on()
    assert (again(run).status, "2 of 2 calls failed" in str(run.error)) == (RunStatus.FAILED, True)
