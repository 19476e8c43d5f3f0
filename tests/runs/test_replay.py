"""The agent rebuilt from the record: the first difference holds the run, and nothing runs."""

from collections.abc import Callable
from decimal import Decimal

import pytest

from runs import agents, endings, holds, replay
from runs.agents import RunContext, agent
from runs.exceptions import Diverged
from runs.models import Run, Step
from runs.states import RunStatus
from runs.tools import Call, tool
from runs.tools.declared import Properties, Tool
from tests import agents_for_tests as ours
from tests.factories import CYD, OPERATOR, answer, causes, drive, driven, open_hold, result
from tests.outside import Outside

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("invariants")]
Rules = Callable[..., None]


def stopped() -> Run:
    """A run that noted, added and stands at a question, and whose question is answered."""

    @agent(name="changing")
    async def changing(run: RunContext) -> int:
        await ours.note("a")
        total = await ours.add(1, 2)
        return total + (await ours.ask("how many?", ours.Answer)).number

    run = driven("changing")
    answer(open_hold(run), number=5)
    run.refresh_from_db()
    return run


def goes_on(run: Run, body: Callable[[RunContext], object]) -> Run:
    """The run driven with other code under the same name and version."""
    agents.register(agents.Agent("changing", "1", body))  # type: ignore[arg-type]
    return drive(run)


def held_as_diverged(run: Run, index: int) -> dict[str, object]:
    assert (run.status, causes(run)) == (RunStatus.SUSPENDED, ["diverged"])
    hold = open_hold(run)
    assert (hold.detail["index"], hold.scope) == (index, "run")
    return hold.detail


def test_replay_with_the_same_code(outside: Outside) -> None:
    assert result(drive(stopped())) == 8
    assert outside.n("note") == 1


def test_replay_with_code_that_asks_the_same_in_other_words(outside: Outside) -> None:
    """The code's digest is kept and shown, not compared."""

    async def changing(run: RunContext) -> int:
        await ours.note(text="".join(["a"]))
        total = await ours.add(b=2, a=1)
        return total + (await ours.ask("how many?", ours.Answer)).number

    assert result(goes_on(stopped(), changing)) == 8


def test_replay_with_an_argument_changed(outside: Outside) -> None:
    async def changing(run: RunContext) -> int:
        await ours.note("b")
        return 0

    detail = held_as_diverged(goes_on(stopped(), changing), 0)
    assert str(detail["recorded"])[:5] == "note "
    assert str(detail["asked"]).endswith(': {"text":"b"}')
    assert outside.n("note") == 1


def test_replay_with_a_call_inserted(outside: Outside) -> None:
    async def changing(run: RunContext) -> int:
        await ours.note("a")
        await ours.note("inserted")
        return await ours.add(1, 2)

    held_as_diverged(goes_on(stopped(), changing), 1)
    assert outside.n("note") == 1


def test_replay_with_a_call_removed(outside: Outside) -> None:
    async def changing(run: RunContext) -> int:
        await ours.add(1, 2)
        await ours.note("never")
        return 0

    held_as_diverged(goes_on(stopped(), changing), 0)
    assert outside.n("note") == 1


def test_replay_with_two_calls_exchanged() -> None:
    async def changing(run: RunContext) -> int:
        await ours.add(1, 2)
        await ours.note("a")
        return 0

    held_as_diverged(goes_on(stopped(), changing), 0)


def test_replay_with_an_end_that_comes_too_early() -> None:
    async def changing(run: RunContext) -> int:
        await ours.note("a")
        return 0

    assert held_as_diverged(goes_on(stopped(), changing), 1)["asked"] == "nothing: the agent ended"


def test_replay_with_an_error_that_comes_too_early() -> None:
    async def changing(run: RunContext) -> int:
        await ours.note("a")
        raise ValueError

    held_as_diverged(goes_on(stopped(), changing), 1)


def test_replay_with_the_question_changed() -> None:
    async def changing(run: RunContext) -> int:
        await ours.note("a")
        await ours.add(1, 2)
        return (await ours.ask("how few?", ours.Answer)).number

    held_as_diverged(goes_on(stopped(), changing), 2)


def test_replay_with_a_tool_renamed(outside: Outside) -> None:
    """F34 (b): the right name, or a named mismatch; never the wrong step."""

    @tool(name="add_up")
    def add_up(a: int, b: int) -> int:
        return a + b

    async def changing(run: RunContext) -> int:
        await ours.note("a")
        return await add_up(1, 2)

    detail = held_as_diverged(goes_on(stopped(), changing), 1)
    assert (str(detail["recorded"])[:4], str(detail["asked"])[:7]) == ("add ", "add_up ")


def test_replay_with_a_parameter_renamed(rules: Rules, outside: Outside) -> None:
    """F34 (d): `to` is now `payee` while the payment waits."""
    rules(pay="hold")

    def paying_payee(amount: Decimal, payee: str) -> str:
        """Pay {amount} to {payee}."""
        raise AssertionError("never called")

    paying = Tool(paying_payee, Properties(effect=True), name="pay")
    run = driven("payer")
    held = open_hold(run)

    async def changing(run: RunContext) -> str:
        return await paying(Decimal("250.00"), "ACME")

    agents._registry["payer", "1"] = agents.Agent("payer", "1", changing)
    holds.release(held.pk, actor=OPERATOR, resolution="approved", answer="{}")
    assert causes(drive(run)) == ["diverged"]
    assert outside.tried("pay") == []


def test_replay_with_a_schema_under_which_the_result_no_longer_fits() -> None:
    run = stopped()

    def noted(text: str) -> int:
        return len(text)

    note = Tool(noted, Properties(effect=True, idempotent=True), name="note")

    async def changing(run: RunContext) -> int:
        return await note("a")

    detail = held_as_diverged(goes_on(run, changing), 0)
    assert detail["recorded"] == "a result of note"


def test_replay_with_a_schema_that_would_write_the_result_otherwise() -> None:
    """1.10 read as a float would be 1.1: a named difference, not another value."""

    @tool(name="quote")
    def quoted() -> Decimal:
        return Decimal("1.10")

    @agent(name="changing")
    async def before(run: RunContext) -> int:
        await quoted()
        return (await ours.ask("how many?", ours.Answer)).number

    run = driven("changing")
    answer(open_hold(run), number=5)

    @tool(name="quote")
    def quoted_as_float() -> float:
        return 1.1

    async def changing(run: RunContext) -> int:
        await quoted_as_float()
        return 0

    held_as_diverged(goes_on(run, changing), 0)


def test_replay_with_a_schema_that_only_grew() -> None:
    """A property changed, the value is the same: the run goes on."""
    run = stopped()

    def added(a: int, b: int) -> int:
        raise AssertionError("never called")

    add = Tool(added, Properties(timeout=5, idempotent=True), name="add")
    assert add.version != ours.add.version

    async def changing(run: RunContext) -> int:
        await ours.note("a")
        total = await add(1, 2)
        return total + (await ours.ask("how many?", ours.Answer)).number

    assert result(goes_on(run, changing)) == 8


def test_replay_with_an_input_that_no_longer_fits() -> None:
    @agent(name="changing")
    async def before(run: RunContext, n: int) -> int:
        return (await ours.ask("how many?", ours.Answer)).number

    run = driven("changing", n=1)
    answer(open_hold(run), number=5)

    async def changing(run: RunContext, n: int, m: int) -> int:
        return 0

    held_as_diverged(goes_on(run, changing), 0)


def test_diverged_again_places_one_hold() -> None:
    async def changing(run: RunContext) -> int:
        return 0

    run = goes_on(stopped(), changing)
    hold = open_hold(run)
    holds.release(hold.pk, actor=OPERATOR, resolution="accepted")
    run.refresh_from_db()
    drive(run)
    assert open_hold(run).pk != hold.pk
    assert endings.cancel(run.pk, actor=CYD).status == RunStatus.CANCELLED


def test_diverged_and_the_code_is_back(outside: Outside) -> None:
    async def changing(run: RunContext) -> int:
        return 0

    right = stopped()
    known = agents.find("changing", "1")
    assert known is not None
    run = goes_on(right, changing)
    holds.release(open_hold(run).pk, actor=OPERATOR, resolution="accepted")
    agents.register(known)
    run.refresh_from_db()
    assert result(drive(run)) == 8
    assert outside.n("note") == 1


# -- Rebuilding alone -------------------------------------------------------------------------


def entry(call: Call[object], **changes: object) -> replay.Entry:
    from runs import values

    made = {
        "id": 1,
        "index": 0,
        "tool": call.tool.name,
        "tool_version": call.tool.version,
        "digest": values.digest(call.arguments),
        "status": "done",
        "result": "3",
        "settled": 1,
        "open_holds": 0,
        "effect": "",
        "executed": None,
        "executed_digest": "",
        "decision": None,
    }
    return replay.Entry(**{**made, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("changes", [{"tool": "sub"}, {"digest": "0" * 64}])
def test_compare_refuses(changes: dict[str, object]) -> None:
    call = ours.add(1, 2)
    replay.compare(0, call, entry(call))
    with pytest.raises(Diverged, match="step 0: the record has "):
        replay.compare(0, call, entry(call, **changes))


def test_outcome_reads_the_value_the_decision_and_what_was_sent() -> None:
    call = ours.add(1, 2)
    found = replay.outcome(
        call, entry(call, executed='{"a":5,"b":6}', decision={"verb": "edit", "by": "ana", "note": "n"})
    )
    assert (found.value, found.error) == (3, None)
    assert (call.proposed, call.executed) == ({"a": 1, "b": 2}, {"a": 5, "b": 6})
    assert call.decision is not None
    assert (call.decision.verb, call.decision.by, call.decision.note) == ("edit", "ana", "n")


def test_replay_of_many_steps_calls_and_writes_nothing(outside: Outside) -> None:
    @agent(name="changing")
    async def long_one(run: RunContext) -> int:
        total = 0
        for n in range(200):
            total = await ours.add(total, n)
        return total + (await ours.ask("how many?", ours.Answer)).number

    run = driven("changing")
    before = list(Step.objects.filter(run=run, index__lt=200).values_list("settled_at", flat=True))
    answer(open_hold(run), number=5)
    assert result(drive(run)) == 19905
    assert list(Step.objects.filter(run=run, index__lt=200).values_list("settled_at", flat=True)) == before
