"""Declaring tools, facts and agents: what a declaration gets wrong is refused when its module is imported."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from runs import agents
from runs.agents import RunContext, agent
from runs.exceptions import BadArguments, UnknownAgent
from runs.tools import ToolContext, fact, get, known, together, tool
from tests import agents_for_tests as ours


def test_call_makes_a_call_and_runs_nothing() -> None:
    call = ours.pay(Decimal("1.10"), to="ACME")
    assert (call.tool.name, call.arguments) == ("pay", '{"amount":"1.10","to":"ACME"}')
    assert (call.proposed, call.executed, call.decision) == (call.executed, call.proposed, None)


def test_call_that_does_not_fit() -> None:
    with pytest.raises(BadArguments) as refused:
        ours.pay("many", 5)  # type: ignore[arg-type]
    assert [path for path, _ in refused.value.errors] == ["/amount", "/to"]


def test_call_of_unequal_text_for_equal_amounts() -> None:
    """1.1 and 1.10 are two texts: what was approved is what runs, byte for byte."""
    assert ours.pay(Decimal("1.1"), "A").arguments != ours.pay(Decimal("1.10"), "A").arguments


def test_registry_knows_tools_by_name() -> None:
    assert get("pay") is ours.pay
    assert get("nothing") is None
    assert known()["pay"] is ours.pay


def paying(amount: Decimal) -> str:
    """Pay {amount}."""
    return ""


@pytest.mark.parametrize(
    "properties",
    [{"effect": True}, {"idempotent": True}, {"effect": True, "verify": str}, {"facts": ()}],
)
def test_version_is_of_schema_and_properties(properties: dict[str, Any]) -> None:
    plain = tool(name="versioned")(paying).version
    assert (tool(name="versioned", **properties)(paying).version == plain) == (properties == {"facts": ()})


def test_version_changes_with_the_schema() -> None:
    def other(amount: Decimal, to: str) -> str:
        """Pay {amount}."""
        return ""

    assert tool(name="versioned")(paying).version != tool(name="versioned")(other).version


@pytest.mark.parametrize(
    ("declare", "words"),
    [
        (lambda: tool(verify=str)(paying), "verify= and refuses= are for tools with effect=True"),
        (lambda: tool(refuses=(ValueError,))(paying), "verify= and refuses= are for tools with effect=True"),
        (lambda: tool(consequence="{to} is paid")(paying), r"names \['to'\], which are no arguments"),
        (lambda: tool(facts=[ours.balance])(paying), r"the fact balance needs \['to'\], no arguments here"),
    ],
)
def test_declaration_that_does_not_fit(declare: Callable[[], object], words: str) -> None:
    with pytest.raises(TypeError, match=words):
        declare()


def test_declaration_of_a_headline_without_its_argument() -> None:
    def pay_somebody(amount: Decimal) -> str:
        """Pay {amount} to {to}."""
        return ""

    with pytest.raises(TypeError, match=r"names \['to'\]"):
        tool()(pay_somebody)


def test_declaration_of_a_name_another_module_has() -> None:
    with pytest.raises(TypeError, match=r"two tools are called pay: in tests\.agents_for_tests and "):
        tool(name="pay")(paying)


def test_context_is_not_asked_of_the_caller() -> None:
    @tool(name="with_context")
    def with_context(context: ToolContext, n: int) -> str:
        return context.idempotency_key

    assert with_context(5).arguments == '{"n":5}'


@pytest.mark.parametrize("thing", [5, "x", None])
def test_together_takes_calls_only(thing: Any) -> None:
    with pytest.raises(TypeError, match="together takes calls of tools, not "):
        together(ours.add(1, 2), thing)


def test_together_refuses_the_same_call_twice() -> None:
    call = ours.add(1, 2)
    with pytest.raises(TypeError, match="the same call twice"):
        together(call, call)


def test_fact_looks_with_the_arguments_it_names() -> None:
    @fact(source="shop", kind="info")
    def price(sku: str) -> Decimal:
        """Price today."""
        return Decimal("1.10") if sku == "a" else Decimal(0)

    assert (price.name, price.title, price.parameters) == ("price", "Price today", ("sku",))
    assert price.observe({"sku": "a", "amount": 5}) == '"1.10"'


# -- Agents ----------------------------------------------------------------------------------


def test_agent_is_called_after_its_function() -> None:
    @agent(version="2", owner="owen@example.org")
    async def refund_desk_two(run: RunContext, n: int) -> None:
        """Refunds.

        More of it.
        """

    assert (str(refund_desk_two), refund_desk_two.title) == ("refund-desk-two@2", "Refunds.")
    assert agents.find("refund-desk-two", "2") is refund_desk_two
    assert len(refund_desk_two.code_digest) == 64


def test_agent_versions_stand_side_by_side_and_the_last_is_for_new_runs() -> None:
    @agent(name="versioned", version="1")
    async def one(run: RunContext) -> None: ...

    @agent(name="versioned", version="2")
    async def two(run: RunContext) -> None: ...

    assert agents.latest("versioned") is two
    assert agents.find("versioned", "1") is one
    with pytest.raises(UnknownAgent):
        agents.latest("nobody")


def test_agent_must_be_async() -> None:
    def plain(run: RunContext) -> None: ...

    with pytest.raises(TypeError, match="an agent is written `async def`"):
        agent()(plain)  # type: ignore[arg-type]


def test_agent_with_what_cannot_be_recorded() -> None:
    async def untyped(run: RunContext, n) -> None: ...  # type: ignore[no-untyped-def]

    with pytest.raises(TypeError, match="the parameter n needs a type"):
        agent()(untyped)


def test_agent_declared_in_two_modules() -> None:
    async def adder(run: RunContext) -> None: ...

    with pytest.raises(TypeError, match="adder@1 is declared twice"):
        agent()(adder)
