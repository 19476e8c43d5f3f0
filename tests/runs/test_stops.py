"""Stop now: who waits for which call, what becomes of one that nobody waits for, and all runs of an agent."""

from collections.abc import Callable
from decimal import Decimal
from itertools import permutations

import pytest

from runs import allowance, bulk, effects, endings, holds, lifecycle, stops, values
from runs.actors import Actor
from runs.exceptions import NotFound, RunEnded
from runs.invocation import Known
from runs.lifecycle import Fence
from runs.models import Allowance, Hold, Run
from runs.states import Cause, RunStatus
from tests.factories import (
    BEN,
    CYD,
    OPERATOR,
    approve,
    causes,
    drive,
    driven,
    go_on,
    metered,
    open_hold,
    result,
    step,
    submitted,
    verbs,
)
from tests.outside import Outside

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("invariants")]
Rules = Callable[..., None]


def calling(agent: str, **arguments: str) -> tuple[Run, Fence]:
    """A run whose first call is dispatched, and whose worker says nothing more."""
    run = submitted(agent, **arguments)
    fence = lifecycle.take(run.pk, "w1")
    assert fence is not None
    dispatch(fence, arguments.get("how", "pay"))
    run.refresh_from_db()
    return run, fence


def dispatch(fence: Fence, tool: str, index: int = 0) -> None:
    """The intent of a payment, as a worker writes it before it is silent."""
    from runs import prepared, statements
    from tests.agents_for_tests import PAYS

    arguments = values.canonical({"amount": "250.00", "to": "ACME"})
    first = {
        "index": index,
        "tool": PAYS[tool].name,
        "tool_version": PAYS[tool].version,
        "arguments": arguments,
        "digest": values.digest(arguments),
        "key": effects.key(fence.run, index),
        "acts_for": 60,
    }
    row = prepared.row(statements.BOUNDARY["", "new"], {**fence.parameters(), **first})
    assert row is not None
    assert row[4] == 1


def brings(run: Run, word: str = "receipt") -> bool:
    call = step(run, 0)
    return effects.evidence(
        run.pk,
        0,
        effect_key=call.key,
        attempt=1,
        digest=call.arguments_digest,
        known=Known("returned", values.canonical(word)),
        actor=Actor.worker("w1"),
    )


# -- Stop now, by what the tool says -------------------------------------------------------


def test_stop_waits_for_a_call_that_is_to_be_finished() -> None:
    run, fence = calling("payer", how="pay")
    hold = stops.stop_now(run.pk, actor=CYD, why="odd")
    run.refresh_from_db()
    assert (run.status, run.epoch, causes(run)) == (RunStatus.RUNNING, fence.epoch, ["person"])
    assert (hold.why, hold.detail) == ("odd", {"stop_now": True})


@pytest.mark.parametrize("how", ["pay_detached", "pay_cancelled"])
def test_stop_leaves_a_call_that_nobody_has_to_wait_for(how: str) -> None:
    run, fence = calling("payer", how=how)
    stops.stop_now(run.pk, actor=CYD)
    run.refresh_from_db()
    assert (run.status, run.epoch, run.token) == (RunStatus.QUEUED, fence.epoch + 1, None)
    assert drive(run).status == RunStatus.SUSPENDED
    assert (causes(run), step(run, 0).effect) == (["person"], "dispatched")


def test_stop_waits_where_one_of_several_is_to_be_finished() -> None:
    run, fence = calling("batch", how="pay_detached")
    dispatch(fence, "pay", 1)
    stops.stop_now(run.pk, actor=CYD)
    run.refresh_from_db()
    assert (run.status, run.epoch) == (RunStatus.RUNNING, fence.epoch)


def test_stop_keeps_a_call_of_an_unknown_tool() -> None:
    run, fence = calling("payer", how="pay_detached")
    run.steps.update(tool="gone")
    stops.stop_now(run.pk, actor=CYD)
    run.refresh_from_db()
    assert (run.status, run.epoch) == (RunStatus.RUNNING, fence.epoch)
    run.steps.update(tool="pay_detached")


def test_stop_of_a_run_between_its_calls_is_a_pause() -> None:
    run = submitted("adder", n=2)
    assert lifecycle.take(run.pk, "w1") is not None
    stops.stop_now(run.pk, actor=CYD)
    run.refresh_from_db()
    assert (run.status, causes(run)) == (RunStatus.RUNNING, ["person"])


@pytest.mark.parametrize("agent", ["adder", "questioner"])
def test_stop_of_a_run_that_has_no_worker_is_a_pause(agent: str) -> None:
    run = submitted("adder", n=1) if agent == "adder" else driven("questioner")
    before = run.status
    stops.stop_now(run.pk, actor=CYD)
    run.refresh_from_db()
    assert (run.status, "person" in causes(run)) == (before, True)


def test_stop_twice_is_one_stop() -> None:
    run, _ = calling("payer", how="pay")
    first = stops.stop_now(run.pk, actor=CYD, why="first")
    said = verbs(run)
    again = stops.stop_now(run.pk, actor=CYD, why="second")
    assert (again.pk, again.why, again.opened_at) == (first.pk, "first", first.opened_at)
    assert verbs(run) == said


def test_stop_after_a_pause_keeps_its_reason_and_leaves_the_call() -> None:
    run, fence = calling("payer", how="pay_detached")
    paused = holds.pause(run.pk, actor=CYD, why="looks odd")
    assert lifecycle.renew(fence)
    stopped = stops.stop_now(run.pk, actor=CYD, why="at once")
    run.refresh_from_db()
    assert (stopped.pk, stopped.why, run.status) == (paused.pk, "looks odd", RunStatus.QUEUED)
    assert verbs(run)[-3:] == ["held", "stopped_now", "interrupted"]


def test_stop_of_an_ended_run() -> None:
    run = driven("adder", n=1)
    with pytest.raises(RunEnded):
        stops.stop_now(run.pk, actor=CYD)


# -- What a left call brings --------------------------------------------------------------


def test_left_call_brings_its_result_and_the_run_goes_on_with_it(outside: Outside) -> None:
    run, fence = calling("payer", how="pay_detached")
    stops.stop_now(run.pk, actor=CYD)
    drive(run)
    assert brings(run)
    holds.unpause(run.pk, actor=CYD)
    assert (go_on(run).status, result(run), outside.tried()) == (RunStatus.SUCCEEDED, "receipt", [])
    assert not lifecycle.renew(fence)


def test_left_call_that_brings_nothing_is_a_doubt(outside: Outside) -> None:
    run, _ = calling("payer", how="pay_detached")
    stops.stop_now(run.pk, actor=CYD)
    drive(run)
    holds.unpause(run.pk, actor=CYD)
    go_on(run)
    assert (run.status, causes(run), outside.tried()) == (RunStatus.SUSPENDED, ["in_doubt"], [])
    assert brings(run)
    assert (go_on(run).status, result(run)) == (RunStatus.SUCCEEDED, "receipt")


# -- Cancel ---------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["pay_detached", "pay_cancelled"])
def test_cancel_ends_at_once_where_the_call_may_be_left(how: str) -> None:
    run, _ = calling("payer", how=how)
    assert endings.cancel(run.pk, actor=CYD, why="enough").status == RunStatus.CANCELLED
    assert (step(run, 0).effect, verbs(run)[-2:]) == ("in_doubt", ["in_doubt", "cancelled"])
    assert brings(run)
    assert step(run, 0).effect == "confirmed"


def test_cancel_waits_for_a_call_that_is_to_be_finished() -> None:
    run, fence = calling("payer", how="pay")
    assert endings.cancel(run.pk, actor=CYD).status == RunStatus.RUNNING
    said = verbs(run)
    assert endings.cancel(run.pk, actor=CYD).status == RunStatus.RUNNING
    assert verbs(run) == said
    endings.stop(fence)
    run.refresh_from_db()
    assert run.status == RunStatus.CANCELLED


# -- What a worker does with its own --------------------------------------------------------


def test_leave_is_for_runs_that_were_stopped_now() -> None:
    run = submitted("slow-reader")
    fence = lifecycle.take(run.pk, "w1")
    assert fence is not None
    assert endings.leave(fence) is False
    holds.pause(run.pk, actor=CYD)
    assert endings.leave(fence) is False
    stops.stop_now(run.pk, actor=CYD)
    assert endings.leave(fence) is True
    run.refresh_from_db()
    assert (run.status, run.epoch) == (RunStatus.QUEUED, fence.epoch + 1)
    assert endings.leave(fence) is True
    assert verbs(run).count("interrupted") == 1


def test_leave_ends_what_was_cancelled() -> None:
    run = submitted("slow-reader")
    fence = lifecycle.take(run.pk, "w1")
    assert fence is not None
    endings.cancel(run.pk, actor=CYD, why="enough")
    assert endings.leave(fence) is True
    run.refresh_from_db()
    assert run.status == RunStatus.CANCELLED


def test_leave_is_refused_while_a_call_is_to_be_finished() -> None:
    run, fence = calling("payer", how="pay")
    stops.stop_now(run.pk, actor=CYD)
    assert endings.leave(fence) is False


# -- A pause and something else (F59) ---------------------------------------------------------


def test_person_and_approval_are_told_apart(rules: Rules, outside: Outside) -> None:
    rules(pay="hold")
    run = driven("payer")
    stops.stop_now(run.pk, actor=OPERATOR, why="stop")
    approve(open_hold(run, Cause.APPROVAL))
    run.refresh_from_db()
    assert (run.status, causes(run), outside.tried()) == (RunStatus.SUSPENDED, ["person"], [])
    held = open_hold(run)
    assert (held.by_operator, held.detail, held.opened_by_name) == (True, {"stop_now": True}, "olu")
    holds.unpause(run.pk, actor=OPERATOR)
    assert (go_on(run).status, outside.n("pay")) == (RunStatus.SUCCEEDED, 1)


@pytest.mark.parametrize("order", sorted(permutations(("approve", "top up", "resume"))))
def test_every_order_of_three_releases_gives_the_same_end(
    order: tuple[str, ...], rules: Rules, outside: Outside
) -> None:
    """F59, with a real budget: nothing goes out before the last of the three, and once after it."""
    rules(pay="hold")
    run = drive(metered("uncaught-batch", {"steps": "0"}))
    stops.stop_now(run.pk, actor=OPERATOR, why="odd")
    assert sorted(causes(run)) == ["allowance", "approval", "person"]
    budget = run.allowances.get()
    events: dict[str, Callable[[], object]] = {
        "approve": lambda: approve(open_hold(run, Cause.APPROVAL)),
        "top up": lambda: topped_up(budget),
        "resume": lambda: holds.unpause(run.pk, actor=OPERATOR),
    }
    for event in order:
        assert outside.n("pay") == 0
        events[event]()
        go_on(run)
    assert (run.status, outside.n("pay")) == (RunStatus.SUCCEEDED, 1)
    by_cause = {hold.cause: hold.opened_by_kind for hold in Hold.objects.filter(run=run)}
    assert (by_cause["person"], by_cause["allowance"]) == ("person", "agent")
    with pytest.raises(RunEnded):
        holds.unpause(run.pk, actor=OPERATOR)


def topped_up(budget: Allowance) -> None:
    allowance.top_up(budget.pk, Decimal(10), actor=OPERATOR)
    allowance.release_covered(budget.pk)


# -- All runs of an agent ---------------------------------------------------------------------


def test_pause_all_reaches_every_status_and_no_other_agent() -> None:
    queued, asks, other = submitted("payer"), driven("questioner"), submitted("adder", n=1)
    running, _ = calling("payer", how="pay")
    assert bulk.sweep("pause", "payer", actor=OPERATOR, why="rates") == bulk.Swept(2, 2)
    assert [causes(run) for run in (queued, running, other, asks)] == [["person"]] * 2 + [[], ["question"]]
    assert open_hold(queued).detail == {"all_of": "payer"}


def test_pause_all_twice_changes_nothing_more() -> None:
    run = submitted("payer")
    bulk.sweep("pause", "payer", actor=OPERATOR)
    said = verbs(run)
    assert bulk.sweep("pause", "payer", actor=OPERATOR) == bulk.Swept(1, 0)
    assert verbs(run) == said


def test_stop_all_leaves_what_may_be_left() -> None:
    run, _ = calling("payer", how="pay_detached")
    kept, _ = calling("payer", how="pay")
    assert bulk.sweep("stop", "payer", actor=OPERATOR) == bulk.Swept(2, 2)
    run.refresh_from_db()
    kept.refresh_from_db()
    assert (run.status, kept.status) == (RunStatus.QUEUED, RunStatus.RUNNING)


def test_cancel_all_ends_them_and_says_how_many() -> None:
    ended, runs = driven("adder", n=1), [submitted("adder", n=1) for _ in range(2)]
    assert bulk.sweep("cancel", "adder", actor=OPERATOR) == bulk.Swept(2, 2)
    assert {r.status for r in Run.objects.filter(pk__in=[run.pk for run in runs])} == {RunStatus.CANCELLED}
    assert bulk.sweep("cancel", "adder", actor=OPERATOR) == bulk.Swept(0, 0)
    ended.refresh_from_db()
    assert ended.status == RunStatus.SUCCEEDED


def test_resume_all_lifts_its_own_pauses_and_no_others() -> None:
    free, by_owner, by_operator, by_ben = (submitted("payer") for _ in range(4))
    holds.pause(by_owner.pk, actor=CYD, why="mine")
    holds.pause(by_operator.pk, actor=OPERATOR, why="that one")
    bulk.sweep("pause", "payer", actor=OPERATOR)
    holds.unpause(by_ben.pk, actor=OPERATOR)
    holds.pause(by_ben.pk, actor=BEN, why="later")
    assert bulk.sweep("resume", "payer", actor=OPERATOR) == bulk.Swept(4, 2)
    assert [causes(run) for run in (free, by_owner, by_operator, by_ben)] == [[]] + [["person"]] * 3
    assert [open_hold(run).by_operator for run in (by_owner, by_operator, by_ben)] == [False, True, False]
    assert holds.unpause(by_owner.pk, actor=CYD).open_holds == 0
    assert bulk.sweep("resume", "payer", actor=OPERATOR) == bulk.Swept(4, 0)


def test_sweep_of_an_unknown_agent() -> None:
    with pytest.raises(NotFound):
        bulk.sweep("pause", "nobody", actor=OPERATOR)
    assert not Hold.objects.exists()
