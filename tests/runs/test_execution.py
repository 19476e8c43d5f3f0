"""The loop: runs driven to their end, stopped and taken up again; what tools and agents do wrong."""

import asyncio
import json
import sys
import time
import uuid
from collections.abc import Callable
from decimal import Decimal

import pytest
from pydantic import BaseModel, computed_field

from runs import endings, execution, holds, points, queues, shutdown
from runs.agents import RunContext, agent
from runs.exceptions import NotFound
from runs.models import Run
from runs.states import Cause, RunStatus
from runs.tools import PartlyFailed, Rejected, ToolFailed, outcomes, remember, together, tool
from tests import agents_for_tests as ours
from tests.factories import (
    CYD,
    OPERATOR,
    answer,
    approve,
    causes,
    drive,
    driven,
    error,
    go_on,
    open_hold,
    reject,
    result,
    step,
    submitted,
    verbs,
)
from tests.outside import Outside

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("invariants")]
Rules = Callable[..., None]


# -- To the end, and through a stop --------------------------------------------------


def test_drive_to_the_end() -> None:
    run = driven("adder", n=4)
    assert (run.status, result(run), run.position) == (RunStatus.SUCCEEDED, 6, 4)
    assert verbs(run) == ["submitted", "taken", "succeeded"]


def test_drive_twice_does_nothing_more() -> None:
    run = driven("adder", n=2)
    assert (drive(run).epoch, run.position) == (1, 2)


def test_drive_without_a_call() -> None:
    assert result(driven("adder", n=0)) == 0


def test_drive_holds_goes_on_and_calls_once(outside: Outside, rules: Rules) -> None:
    rules(pay="hold")
    run = driven("transfer")
    assert (run.status, causes(run), outside.n("pay")) == (RunStatus.SUSPENDED, ["approval"], 0)
    approve(open_hold(run))
    run.refresh_from_db()
    assert run.status == RunStatus.QUEUED
    assert result(drive(run))["decision"] == "approve by ana: "
    assert [outside.n("note"), outside.n("pay")] == [2, 1]


def test_drive_after_every_answer_asks_nothing_twice(outside: Outside) -> None:
    """F01: what ran before a stop does not run again, however often it stops."""
    run = driven("questioner")
    first = open_hold(run)
    answer(first, number=5)
    drive(run)
    second = open_hold(run)
    answer(second, number=7)
    assert result(drive(run)) == [5, 7]
    assert outside.n("note") == 1
    assert first.pk != second.pk


def test_drive_with_an_edit_sends_the_edited_and_says_so(outside: Outside, rules: Rules) -> None:
    rules(pay="hold")
    run = driven("transfer")
    approve(open_hold(run), arguments={"amount": "25.00", "to": "ACME"}, note="one invoice only")
    said = result(drive(run))
    assert said["decision"] == "edit by ana: one invoice only"
    assert (said["proposed"], said["executed"]) == ("250.00", "25.00")
    assert [call["arguments"]["amount"] for call in outside.acted("pay")] == ["25.00"]


def test_drive_after_a_rejection_tells_the_agent_why(outside: Outside, rules: Rules) -> None:
    rules(pay="hold")
    run = driven("transfer")
    reject(open_hold(run), "wrong payee")
    assert result(drive(run))["paid"] == "Rejected: ('wrong payee', 'ben')"
    assert outside.n("pay") == 0


def test_drive_when_denied(outside: Outside, rules: Rules) -> None:
    rules(pay="deny")
    assert result(driven("transfer"))["paid"] == "Denied: ('test', 'the test says so')"
    assert outside.tried("pay") == []


def test_drive_when_denied_after_an_approval(outside: Outside, rules: Rules) -> None:
    """The gate asks policy again at the call; stricter wins."""
    rules(pay="hold")
    run = driven("transfer")
    approve(open_hold(run))
    rules(pay="deny")
    assert result(drive(run))["paid"] == "Denied: ('test', 'the test says so')"
    assert outside.tried("pay") == []


def test_drive_with_a_permit_that_was_used(outside: Outside, rules: Rules) -> None:
    """One approval, one call: a second call of the same kind asks again."""
    rules(pay="hold")

    @agent()
    async def twice(run: RunContext) -> list[str]:
        return [await ours.pay(Decimal(1), "A"), await ours.pay(Decimal(1), "A")]

    run = driven("twice")
    approve(open_hold(run, index=0))
    drive(run)
    assert (run.status, outside.n("pay"), open_hold(run).step.index) == (RunStatus.SUSPENDED, 1, 1)


# -- Paused while calls wait -----------------------------------------------------------


@pytest.mark.parametrize("how", ["pay", "pay_keyed", "pay_checked"])
def test_drive_of_a_paused_run_starts_nothing_and_goes_on_after(how: str, outside: Outside) -> None:
    """The call that could not start has its row; after the pause it is dispatched from there."""
    run = submitted("payer", how=how)
    holds.pause(run.pk, actor=CYD)
    drive(run)
    assert (run.status, step(run, 0).status, outside.tried()) == (RunStatus.SUSPENDED, "proposed", [])
    holds.unpause(run.pk, actor=CYD)
    assert drive(run).status == RunStatus.SUCCEEDED
    assert outside.n(how) == 1


def test_drive_of_a_pure_step_after_a_pause(outside: Outside) -> None:
    run = submitted("adder", n=2)
    holds.pause(run.pk, actor=CYD)
    drive(run)
    assert (run.status, run.position) == (RunStatus.SUSPENDED, 0)
    holds.unpause(run.pk, actor=CYD)
    assert result(drive(run)) == 1


def test_pause_during_a_pure_step_lets_the_next_not_start() -> None:
    """A pure tool starts only after the receipt before it, whose commit says that nothing holds the run."""
    run = submitted("adder", n=5)
    seen: list[Run] = []

    def pause_once() -> None:
        if not seen:
            seen.append(run)
            holds.pause(run.pk, actor=CYD)

    with points.on("after-call-before-record", pause_once):
        drive(run)
    assert (run.status, run.position) == (RunStatus.SUSPENDED, 1)


def test_pause_during_an_effect_keeps_its_receipt(outside: Outside) -> None:
    """F58: what is in flight is finished and recorded; what comes next does not start."""
    run = submitted("transfer")

    def pause_in_flight() -> None:
        if outside.n("pay") and not causes(run):
            holds.pause(run.pk, actor=OPERATOR)

    with points.on("after-call-before-record", pause_in_flight):
        drive(run)
    assert (run.status, step(run, 1).effect, outside.n("note")) == (RunStatus.SUSPENDED, "confirmed", 1)
    holds.unpause(run.pk, actor=OPERATOR)
    assert drive(run).status == RunStatus.SUCCEEDED
    assert [outside.n("pay"), outside.n("note")] == [1, 2]


def test_pause_between_two_intents_of_a_group_leaves_none_uncalled(outside: Outside) -> None:
    """A call whose intent is in is in flight: it is made. The others of the group wait."""
    run = submitted("batch")
    seen: list[str] = []

    def pause_after_first() -> None:
        seen.append("")
        if len(seen) == 1:
            holds.pause(run.pk, actor=CYD)

    with points.on("after-intent-before-call", pause_after_first):
        drive(run)
    assert (run.status, causes(run), outside.n("pay")) == (RunStatus.SUSPENDED, ["person"], 1)
    assert [s.status for s in run.steps.order_by("index")] == ["done", "proposed", "proposed"]
    holds.unpause(run.pk, actor=CYD)
    assert drive(run).status == RunStatus.SUCCEEDED
    assert outside.n("pay") == 3


def test_pause_between_two_permits_of_a_group_leaves_none_uncalled(outside: Outside, rules: Rules) -> None:
    rules(pay="hold")
    run = driven("batch")
    holds.pause(run.pk, actor=CYD)
    for index in range(3):
        approve(open_hold(run, Cause.APPROVAL, index))
    holds.unpause(run.pk, actor=CYD)
    seen: list[str] = []

    def pause_after_first() -> None:
        seen.append("")
        if len(seen) == 1:
            holds.pause(run.pk, actor=CYD)

    with points.on("after-intent-before-call", pause_after_first):
        drive(run)
    assert (run.status, causes(run), outside.n("pay")) == (RunStatus.SUSPENDED, ["person"], 1)
    holds.unpause(run.pk, actor=CYD)
    assert drive(run).status == RunStatus.SUCCEEDED
    assert outside.n("pay") == 3


def test_cancel_during_an_effect_names_that_it_happened(outside: Outside) -> None:
    run = submitted("transfer")

    def cancel_in_flight() -> None:
        if outside.n("pay"):
            asked = endings.cancel(run.pk, actor=CYD, why="no more")
            assert (asked.status, asked.stop_requested["why"]) == (RunStatus.RUNNING, "no more")

    with points.on("after-call-before-record", cancel_in_flight):
        drive(run)
    assert (run.status, step(run, 1).effect, outside.n("note")) == (RunStatus.CANCELLED, "confirmed", 1)


def test_cancel_during_the_last_call_wins_over_success() -> None:
    run = submitted("adder", n=1)
    with points.on("before-finish", lambda: endings.cancel(run.pk, actor=CYD)):
        drive(run)
    assert (run.status, run.position) == (RunStatus.CANCELLED, 1)


def test_pause_before_the_end_does_not_keep_a_finished_run() -> None:
    run = submitted("adder", n=1)
    with points.on("before-finish", lambda: holds.pause(run.pk, actor=CYD)):
        drive(run)
    assert (run.status, result(run)) == (RunStatus.SUCCEEDED, 0)


def test_cancel_of_a_run_that_diverges_ends_it() -> None:
    run = _about_to_diverge()
    with points.on("before-diverged", lambda: endings.cancel(run.pk, actor=CYD)):
        drive(run)
    assert run.status == RunStatus.CANCELLED


def test_unpause_while_a_run_diverges_loses_nothing() -> None:
    run = _about_to_diverge()
    seen: list[str] = []

    def wake() -> None:
        if not seen:
            seen.append("")
            holds.pause(run.pk, actor=CYD)
            holds.unpause(run.pk, actor=CYD)

    with points.on("before-park", wake):
        drive(run)
    assert (run.status, causes(run)) == (RunStatus.SUSPENDED, ["diverged"])


def _about_to_diverge() -> Run:
    @agent(name="fickle")
    async def before(run: RunContext) -> int:
        await ours.add(1, 1)
        return (await ours.ask("?", ours.Answer)).number

    run = driven("fickle")
    answer(open_hold(run), number=1)

    @agent(name="fickle")
    async def after(run: RunContext) -> int:
        await ours.add(2, 2)
        return (await ours.ask("?", ours.Answer)).number

    run.refresh_from_db()
    return run


# -- Stopping workers and slices ---------------------------------------------------------


def test_drive_hands_back_at_the_next_boundary_when_the_worker_stops(outside: Outside) -> None:
    run = submitted("transfer")
    with points.on("after-boundary", shutdown.request):
        drive(run)
    assert (run.status, run.position, outside.n("pay")) == (RunStatus.QUEUED, 1, 0)
    shutdown.forget()
    assert drive(run).status == RunStatus.SUCCEEDED
    assert [outside.n("pay"), outside.n("note")] == [1, 2]


def test_drive_makes_a_step_before_it_hands_back() -> None:
    run = submitted("adder", n=3)
    shutdown.request()
    for position in (1, 2, 3):
        assert (drive(run).position, run.status == RunStatus.QUEUED) == (position, position < 3)


def test_drive_ends_its_slice_when_others_are_due(settings: pytest.FixtureRequest) -> None:
    settings.SLICE = 0.0  # type: ignore[attr-defined]
    run = submitted("adder", n=3)
    queues._push("runs.jobs.drive", (str(run.pk),))
    assert (drive(run).status, run.position) == (RunStatus.QUEUED, 1)


def test_drive_goes_on_after_its_slice_when_nobody_waits(settings: pytest.FixtureRequest) -> None:
    settings.SLICE = 0.0  # type: ignore[attr-defined]
    assert driven("adder", n=3).status == RunStatus.SUCCEEDED


# -- Several at once ----------------------------------------------------------------------


def test_together_with_mixed_decisions(outside: Outside, rules: Rules) -> None:
    """F11: A approved, B rejected, C approved with another amount, each decided and started by itself."""
    rules(pay="hold")
    run = driven("batch")
    approve(open_hold(run, index=0))
    drive(run)
    assert [c["arguments"]["to"] for c in outside.acted("pay")] == ["A"]
    reject(open_hold(run, index=1), "wrong payee")
    drive(run)
    assert run.status == RunStatus.SUSPENDED
    approve(open_hold(run, index=2), arguments={"amount": "2.50", "to": "C"})
    found = result(drive(run))
    assert found[1] == "Rejected: wrong payee"
    assert [found[0][:7], found[2][:7]] == ["receipt", "receipt"]
    assert [(c["arguments"]["to"], c["arguments"]["amount"]) for c in outside.acted("pay")] == [
        ("A", "1.00"),
        ("C", "2.50"),
    ]


def test_together_releases_one_and_starts_only_that(outside: Outside, rules: Rules) -> None:
    """F09."""
    rules(pay="hold")
    run = driven("batch")
    ids = [open_hold(run, index=i).pk for i in range(3)]
    assert len(set(ids)) == 3
    approve(open_hold(run, index=1))
    drive(run)
    assert [c["arguments"]["to"] for c in outside.acted("pay")] == ["B"]
    assert (run.status, len(causes(run))) == (RunStatus.SUSPENDED, 2)


def test_together_raises_one_error_with_every_outcome(outside: Outside) -> None:
    outside.will("pay", "refuse")
    assert result(driven("strict-batch")) == ["3", "TurnedDown", "7"]


def test_together_not_caught_fails_the_run_and_strands_nothing(outside: Outside) -> None:
    outside.will("pay", "refuse")
    run = driven("uncaught-batch")
    assert (run.status, error(run)) == (
        RunStatus.FAILED,
        {"type": "ToolFailed", "args": ["PartlyFailed", "1 of 2 calls failed"]},
    )


def test_together_waits_for_its_one_held_call(outside: Outside, rules: Rules) -> None:
    rules(pay="hold")
    run = driven("strict-batch")
    assert [s.status for s in run.steps.order_by("index")] == ["done", "held", "done"]
    approve(open_hold(run))
    assert result(drive(run))[0] == "3"


def test_together_runs_side_by_side() -> None:
    @tool(name="wait_a_bit")
    def wait_a_bit(n: int) -> float:
        time.sleep(0.2)
        return time.monotonic()

    @agent()
    async def waiter(run: RunContext) -> float:
        done = await together(wait_a_bit(1), wait_a_bit(2), wait_a_bit(3))
        return max(done) - min(done)

    assert result(driven("waiter")) < 0.15


def test_together_with_one_that_hangs_times_out_alone(outside: Outside) -> None:
    @tool(name="hang_or_not", timeout=0.2)
    def hang_or_not(hang: bool) -> str:
        time.sleep(3 if hang else 0)
        return "done"

    @agent()
    async def hanger(run: RunContext) -> list[str]:
        found = await outcomes(hang_or_not(True), hang_or_not(False))
        return [str(o.value or type(o.error).__name__) for o in found]

    assert result(driven("hanger")) == ["TimedOut", "done"]


def test_together_of_nothing() -> None:
    @agent()
    async def idler(run: RunContext) -> int:
        return len(await together())

    assert result(driven("idler")) == 0


# -- remember -----------------------------------------------------------------------------


def test_remember_takes_once(rules: Rules) -> None:
    rules(pay="hold")
    run = driven("keeper")
    kept = json.loads(step(run, 0).result or "")
    approve(open_hold(run))
    assert result(drive(run)) == [kept, kept]


def test_remember_of_what_cannot_be_kept_is_the_agents_to_catch() -> None:
    @agent()
    async def forgetful(run: RunContext) -> str:
        try:
            await remember("it", lambda: object())
        except ToolFailed as failed:
            return failed.kind
        return "kept"

    assert result(driven("forgetful")) == "BadResult"


# -- Retries ------------------------------------------------------------------------------


def test_retry_of_a_pure_tool(outside: Outside) -> None:
    outside.will("read_page", "raise", "raise", "page one")

    @agent()
    async def reader(run: RunContext) -> str:
        return await ours.read_page("one")

    assert (result(driven("reader")), outside.n("read_page")) == ("page one", 3)


def test_retry_gives_up(outside: Outside) -> None:
    outside.will("read_page", *["raise"] * 9)

    @agent()
    async def reader(run: RunContext) -> str:
        return await ours.read_page("one")

    run = driven("reader")
    assert (run.status, outside.n("read_page")) == (RunStatus.FAILED, 3)
    assert error(run) == {"type": "ToolFailed", "args": ["ConnectionResetError", "not now"]}


# -- What agents do wrong -----------------------------------------------------------------


def test_agent_awaiting_asyncio_sleep_is_told_what_to_do() -> None:
    @agent()
    async def sleeper(run: RunContext) -> None:
        await asyncio.sleep(1)

    run = driven("sleeper")
    kind, message = error(run)["args"]
    assert (run.status, kind) == (RunStatus.FAILED, "RuntimeError")
    assert message.endswith("put waiting and outside things into a tool.")


def test_agent_awaiting_something_of_its_own_is_told_what_to_do() -> None:
    class Odd:
        def __await__(self):  # type: ignore[no-untyped-def]
            yield 5

    @agent()
    async def odd(run: RunContext) -> None:
        await Odd()

    kind, message = error(driven("odd"))["args"]
    assert (kind, message[:22]) == ("AgentMistake", "the agent awaited int;")


def test_agent_with_an_await_in_finally(outside: Outside, rules: Rules) -> None:
    """When it is dropped, `finally` reaches nobody; on the real continuation it runs."""
    rules(pay="hold")

    @agent()
    async def tidy(run: RunContext) -> str:
        try:
            return await ours.pay(Decimal(1), "A")
        finally:
            await ours.note("tidied up")

    run = driven("tidy")
    assert (run.status, outside.n("note")) == (RunStatus.SUSPENDED, 0)
    approve(open_hold(run))
    assert drive(run).status == RunStatus.SUCCEEDED
    assert [outside.n("pay"), outside.n("note")] == [1, 1]


def test_agent_that_swallows_everything_does_not_see_the_stop(outside: Outside, rules: Rules) -> None:
    rules(pay="hold")

    @agent()
    async def swallower(run: RunContext) -> str:
        try:
            return await ours.pay(Decimal(1), "A")
        except BaseException as caught:
            await ours.note(f"caught {type(caught).__name__}")
            return "caught"

    run = driven("swallower")
    assert (run.status, outside.n("note")) == (RunStatus.SUSPENDED, 0)
    approve(open_hold(run))
    assert result(drive(run))[:7] == "receipt"


def test_agent_that_spins_is_interrupted(settings: pytest.FixtureRequest) -> None:
    settings.AGENT_TIMEOUT = 0.2  # type: ignore[attr-defined]

    @agent()
    async def spinner(run: RunContext) -> None:
        while True:
            pass

    run = driven("spinner")
    assert (run.status, error(run)["args"]) == (
        RunStatus.FAILED,
        ["AgentMistake", "the agent's own code ran for more than 0.2 s between two calls"],
    )


@pytest.mark.parametrize("kind", [SystemExit, asyncio.CancelledError, GeneratorExit])
def test_agent_that_raises_what_is_no_exception_fails(kind: type[BaseException]) -> None:
    @agent()
    async def leaver(run: RunContext) -> None:
        raise kind("bye")

    run = driven("leaver")
    assert (run.status, error(run)["args"]) == (RunStatus.FAILED, [kind.__name__, "bye"])


@pytest.mark.parametrize("kind", [SystemExit, asyncio.CancelledError, RecursionError])
def test_tool_that_raises_what_is_no_exception_fails(kind: type[BaseException]) -> None:
    @tool(name="leave")
    def leave() -> int:
        raise kind("bye")

    @agent()
    async def caller(run: RunContext) -> str:
        try:
            await leave()
        except ToolFailed as failed:
            return failed.kind
        return ""

    assert result(driven("caller")) == kind.__name__


def test_tool_in_a_group_that_exits_is_known_at_once() -> None:
    @tool(name="leave", timeout=60)
    def leave() -> int:
        sys.exit(3)

    @agent()
    async def caller(run: RunContext) -> list[str]:
        return [str(o.value or type(o.error).__name__) for o in await outcomes(leave(), ours.add(1, 2))]

    assert result(driven("caller")) == ["ToolFailed", "3"]


def test_agent_whose_arguments_do_not_fit_fails() -> None:
    @agent()
    async def careless(run: RunContext) -> int:
        return await ours.add("one", 2)  # type: ignore[arg-type]

    run = driven("careless")
    assert (run.status, error(run)["args"][0]) == (RunStatus.FAILED, "BadArguments")


@pytest.mark.parametrize(
    ("amount", "to", "why"),
    [
        ("1", "a\x00b", "/to: contains the character NUL (U+0000), which cannot be stored"),
        ("1", "half \ud83c", "/to: contains half of a surrogate pair, which is not a character"),
        ("NaN", "ACME", "/amount: Input should be a finite number"),
        ("sNaN", "ACME", "/amount: Input should be a finite number"),
        ("Infinity", "ACME", "/amount: Input should be a finite number"),
        ("-Infinity", "ACME", "/amount: Input should be a finite number"),
    ],
)
def test_agent_proposing_what_cannot_be_kept_fails_with_its_place(
    amount: str, to: str, why: str, outside: Outside, rules: Rules
) -> None:
    """F30: refused before anybody is asked, replaced by nothing, and not tried again."""
    rules(pay="hold")

    @agent()
    async def careless(run: RunContext) -> str:
        return await ours.pay(Decimal(amount), to)

    run = driven("careless")
    assert (run.status, error(run)) == (
        RunStatus.FAILED,
        {"type": "ToolFailed", "args": ["BadArguments", f"pay: {why}"]},
    )
    assert (run.epoch, outside.tried(), run.holds.count()) == (1, [], 0)


def test_agent_proposing_any_other_text_sends_it_as_it_is(outside: Outside, rules: Rules) -> None:
    """F30, the control: emoji of several characters, right to left, and an override of the direction."""
    rules(pay="hold")
    text = "\U0001f469\u200d\U0001f4bb \u0645\u0631\u062d\u0628\u0627 \u202eABC"

    @agent()
    async def polite(run: RunContext) -> str:
        return await ours.pay(Decimal(1), text)

    run = driven("polite")
    approve(open_hold(run))
    assert drive(run).status == RunStatus.SUCCEEDED
    assert [call["arguments"]["to"] for call in outside.acted("pay")] == [text]


def test_agent_returning_what_cannot_be_kept_fails() -> None:
    @agent()
    async def careless(run: RunContext) -> float:
        return float("inf")

    run = driven("careless")
    assert (run.status, error(run)["args"][0]) == (RunStatus.FAILED, "BadValue")


def test_agent_error_with_a_nul_is_recorded() -> None:
    @agent()
    async def careless(run: RunContext) -> None:
        raise ValueError("nul \x00 and half \ud83c")

    assert error(driven("careless"))["args"] == ["ValueError", "nul \\x00 and half \\ud83c"]


def test_agent_letting_a_rejection_through_fails_with_it(rules: Rules) -> None:
    rules(pay="hold")
    run = driven("payer")
    reject(open_hold(run), "no")
    assert (drive(run).status, error(run)) == (RunStatus.FAILED, {"type": "Rejected", "args": ["no", "ben"]})


def test_tool_touching_the_tables_of_runs_is_refused() -> None:
    @tool(name="meddle")
    def meddle() -> int:
        return Run.objects.count()

    @agent()
    async def meddler(run: RunContext) -> str:
        try:
            await meddle()
        except ToolFailed as failed:
            return failed.kind
        return ""

    assert result(driven("meddler")) == "TouchesRuns"


def test_tool_whose_result_does_not_read_back_is_refused_when_written() -> None:
    """A model that writes more than it reads would hold the run for ever: the tool failed instead."""

    class Odd(BaseModel, extra="forbid"):
        x: int

        @computed_field
        def double(self) -> int:
            return 2 * self.x

    @tool(name="odd_result")
    def odd_result() -> Odd:
        return Odd(x=1)

    @agent()
    async def caller(run: RunContext) -> str:
        try:
            await odd_result()
        except ToolFailed as failed:
            return failed.kind
        return ""

    assert result(driven("caller")) == "BadResult"


# -- Facts, as far as the loop is concerned -----------------------------------------------


def test_facts_equal_at_the_call(outside: Outside, rules: Rules) -> None:
    rules(pay_if="hold")
    outside.will("balance", "100", "100")
    run = driven("payer", how="pay_if")
    approve(open_hold(run))
    assert drive(run).status == RunStatus.SUCCEEDED
    assert outside.n("pay_if") == 1


def test_facts_changed_at_the_call_ask_again(outside: Outside, rules: Rules) -> None:
    rules(pay_if="hold")
    outside.will("balance", "100", "90", "90")
    run = driven("payer", how="pay_if")
    first = open_hold(run)
    approve(first)
    drive(run)
    second = open_hold(run)
    assert (first.pk != second.pk, second.cause, outside.tried("pay_if")) == (True, "approval", [])
    approve(second)
    assert drive(run).status == RunStatus.SUCCEEDED


def test_facts_unreadable_at_the_call_wait_for_their_source(outside: Outside, rules: Rules) -> None:
    rules(pay_if="hold")
    outside.will("balance", "100", "raise", "100")
    run = driven("payer", how="pay_if")
    approve(open_hold(run))
    drive(run)
    held = open_hold(run)
    assert (held.cause, held.subject, outside.tried("pay_if")) == ("dependency", "bank", [])
    assert held.look_again_at is not None
    assert holds.look_again(held.pk)
    run.refresh_from_db()
    assert drive(run).status == RunStatus.SUCCEEDED


# -- Results equal live and replayed --------------------------------------------------------


def test_results_are_equal_live_and_replayed(outside: Outside, rules: Rules) -> None:
    """9: dropped and rebuilt at every step, the agent sees what it saw first."""
    seen: list[list[object]] = []
    shutdown.request()  # hands back after every step

    @agent()
    async def watcher(run: RunContext) -> int:
        saw: list[object] = []
        seen.append(saw)
        for call in _calls_of_all_kinds():
            try:
                saw.append(await call)
            except Exception as caught:
                saw.append((type(caught), caught.args))
        return len(saw)

    outside.will("pay", "refuse", "ok")
    run = submitted("watcher")
    for _ in range(20):
        if drive(run).status != RunStatus.QUEUED:
            break
    assert result(run) == len(_calls_of_all_kinds())
    assert len(seen) == 5
    for saw in seen:
        assert saw == seen[-1][: len(saw)]
        assert [type(value) for value in saw] == [type(value) for value in seen[-1]][: len(saw)]


def _calls_of_all_kinds() -> list[ours.together]:  # type: ignore[valid-type]
    return [
        ours.add(1, 2),
        ours.pay(Decimal("1.10"), "A"),
        ours.pay(Decimal("1.10"), "A"),
        ours.remember("a moment", ours._moment),
        ours.note("x"),
    ]


def test_error_types_are_equal_live_and_replayed(rules: Rules) -> None:
    rules(pay="hold")
    seen: list[Exception] = []

    @agent()
    async def watcher(run: RunContext) -> str:
        try:
            await ours.pay(Decimal(1), "A")
        except Rejected as no:
            seen.append(no)
        return (await ours.ask("?", ours.Answer)).model_dump_json()

    run = driven("watcher")
    reject(open_hold(run), "no")
    drive(run)
    answer(open_hold(run), number=1)
    drive(run)
    assert seen == [Rejected("no", "ben")] * 2


def test_partly_failed_is_an_error_agents_catch() -> None:
    assert issubclass(PartlyFailed, Exception)


# -- Not queued, unknown ---------------------------------------------------------------------


def test_drive_of_a_version_this_process_does_not_have() -> None:
    run = submitted("adder", n=1)
    Run.objects.filter(pk=run.pk).update(agent_version="0")
    assert (drive(run).status, run.epoch) == (RunStatus.QUEUED, 0)


def test_drive_of_an_unknown_run() -> None:
    with pytest.raises(NotFound):
        execution.drive(uuid.uuid4())


def test_go_on_of_an_answer_that_does_not_fit_the_form() -> None:
    """The door validates; were it not to, the agent is told and nothing is stranded."""
    run = driven("questioner")
    answer(open_hold(run), number="many")
    assert go_on(run).status == RunStatus.FAILED
