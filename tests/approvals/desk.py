"""The desk of the approvals tests: agents, tools, people and rules, and a world in memory that keeps every call.

Facts are what `world.facts` says; an exception there is raised by the fact. Everything else is the real thing:
requests come from runs that were driven, decisions go through `decisions.decide`.
"""

import json
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any

from django.contrib.auth.models import Group, User
from pydantic import BaseModel, Field

from approvals import decisions, looks, policies, reviewers
from approvals.decisions import Choice, Decided
from approvals.models import Decision, Permit, Request, policy
from runs import clock, execution, holds, lifecycle, signals
from runs.actors import Actor
from runs.agents import RunContext, agent
from runs.exceptions import AgentError
from runs.models import JournalEntry, Run, Step
from runs.tools import ToolContext, ask, declared, fact, outcomes, together, tool
from tests.care import YES, care, open_all, step_up

OWNER = "owen@example.org"
# Rooms that tests reach through the desk.
__all__ = [
    "YES",
    "care",
    "declared",
    "execution",
    "holds",
    "lifecycle",
    "open_all",
    "reviewers",
    "signals",
    "step_up",
    "timedelta",
]
EDITOR = Actor("person", "0", "pat", "admin")


class Lazy:
    """A fact that does something when it is looked at."""

    def __init__(self, act: Callable[[], Any], value: Any) -> None:
        self.act, self.value = act, value


class World:
    """What the tools reached: facts to look at, and the calls that came."""

    def __init__(self) -> None:
        self.facts: dict[str, Any] = {}
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def reset(self) -> None:
        self.facts = {"status": "paid", "given": Decimal("0.00"), "size": 3}
        self.calls = []

    def see(self, name: str) -> Any:
        value = self.facts[name]
        if isinstance(value, Exception):
            raise value
        if isinstance(value, Lazy):
            value.act()
            return value.value
        return value

    def n(self, tool_name: str) -> int:
        return sum(1 for name, _ in self.calls if name == tool_name)


world = World()
world.reset()


# -- Tools ---------------------------------------------------------------------------


@fact(source="payments", kind="blocking")
def charge_state(charge: str) -> str:
    """State of the charge"""
    return world.see("status")  # type: ignore[no-any-return]


@fact(source="payments", kind="material")
def given_back(charge: str) -> Decimal:
    """Given back so far"""
    return world.see("given")  # type: ignore[no-any-return]


@fact(source="payments", kind="info")
def list_size() -> int:
    """Size of the list"""
    return world.see("size")  # type: ignore[no-any-return]


@tool(
    effect=True,
    idempotent=True,
    facts=[charge_state, given_back, list_size],
    consequence="{amount} EUR leaves our account for charge {charge} at once.",
)
def give_back(context: ToolContext, charge: str, amount: Decimal) -> str:
    """Give {amount} EUR back to charge {charge}."""
    world.calls.append(("give_back", {"charge": charge, "amount": str(amount)}))
    return f"given {amount}"


@tool(effect=True, idempotent=True, consequence="{amount} EUR goes to {to} at once.")
def wire(context: ToolContext, to: str, amount: Decimal) -> str:
    """Wire {amount} EUR to {to}."""
    if problem := world.facts.get("wire_raises"):
        raise problem
    world.calls.append(("wire", {"to": to, "amount": str(amount)}))
    return f"wired {amount}"


@tool()
def look_up(number: int) -> int:
    """Look up {number}."""
    return number


class Level(StrEnum):
    LOW = "low"
    HIGH = "high"


@tool(effect=True, idempotent=True, consequence="The account is filled in.")
def fill_in(
    context: ToolContext,
    account: int,
    amount: Decimal,
    ratio: float,
    code: str,
    letter: str,
    tree: dict[str, Any],
    many: list[str],
    sure: bool,
    level: Level,
    spare: Level | None = None,
    memo: str | None = None,
    tag: str = "",
    count: int | None = None,
) -> str:
    """Fill in account {account}."""
    world.calls.append(("fill_in", {"account": account}))
    return "filled"


@tool(effect=True, idempotent=True)
def do_something(context: ToolContext, words: str) -> str:
    """Do something."""
    world.calls.append(("do_something", {"words": words}))
    return "done"


class Answer(BaseModel):
    vendor: Level = Field(description="Which of the two")
    number: int = Field(ge=1, le=100)
    note: str = ""


# -- Agents ---------------------------------------------------------------------------


@agent(name="approvals-desk", owner=OWNER)
async def giving(
    run: RunContext, amount: Decimal = Decimal("240.00"), charge: str = "ch_1"
) -> dict[str, Any]:
    """One gift, and what the agent was told of it."""
    return await _told(give_back(charge, amount))


@agent(name="approvals-wirer", owner=OWNER)
async def wiring(run: RunContext, amount: Decimal = Decimal("240.00"), to: str = "ACME") -> dict[str, Any]:
    return await _told(wire(to, amount))


@agent(name="approvals-looker", owner=OWNER)
async def looking(run: RunContext, before: int, after: int) -> str:
    """Looks things up, wires, and looks up others side by side with it."""
    for number in range(before):
        await look_up(number)
    done = await together(wire("ACME", Decimal("1.00")), *(look_up(number) for number in range(after)))
    return str(done[0])


@agent(name="approvals-insister", owner=OWNER)
async def insisting(run: RunContext) -> list[dict[str, Any]]:
    """Proposes the same call again after it was decided."""
    return [await _told(wire("ACME", Decimal("250.00"))), await _told(wire("ACME", Decimal("250.00")))]


async def _told(call: Any) -> dict[str, Any]:
    try:
        said: dict[str, Any] = {"result": await call}
    except AgentError as no:
        said = {"error": type(no).__name__, "args": [str(each) for each in no.args]}
    told = call.decision
    said["decision"] = None if told is None else [told.verb, told.by, told.note]
    return {**said, "proposed": str(call.proposed["amount"]), "executed": str(call.executed["amount"])}


@agent(name="approvals-filler", owner=OWNER)
async def filling(run: RunContext, values: dict[str, Any]) -> str:
    return await fill_in(**values)


@agent(name="approvals-blind", owner=OWNER)
async def undescribed(run: RunContext, words: str = "x") -> str:
    return await do_something(words)


@agent(name="approvals-batch", owner=OWNER)
async def batching(run: RunContext) -> list[str]:
    """Three wires at once."""
    calls = [wire(to, Decimal(amount)) for to, amount in (("A", "10.00"), ("B", "20.00"), ("C", "30.00"))]
    found = await outcomes(*calls)
    return [o.get() if o.error is None else f"{type(o.error).__name__}: {o.error.args[0]}" for o in found]


@agent(name="approvals-asker", owner=OWNER)
async def asking(run: RunContext, question: str = "Which vendor?") -> dict[str, Any]:
    try:
        said = await ask(question, Answer)
    except AgentError as no:
        return {"error": type(no).__name__, "args": [str(each) for each in no.args]}
    return {"vendor": said.vendor.value, "number": said.number, "note": said.note}


@agent(name="approvals-asks-twice", owner=OWNER)
async def asking_twice(run: RunContext) -> list[int]:
    first = await ask("The first number?", Answer)
    return [first.number, (await ask("The second number?", Answer)).number]


@agent(name="approvals-both", owner=OWNER)
async def both(run: RunContext) -> list[str]:
    return list(await together(wire("A", Decimal("1.00")), wire("B", Decimal("2.00"))))


# -- People and rules ---------------------------------------------------------------------


def _verdict(name: str, tool_name: str, expression: str, outcome: str, **terms: Any) -> dict[str, Any]:
    return {
        "pass": "verdict",
        "name": name,
        "tool": tool_name,
        "expression": expression,
        "outcome": outcome,
        **terms,
    }


def _tier(name: str, tool_name: str, expression: str, outcome: str) -> dict[str, Any]:
    return {"pass": "tier", "name": name, "tool": tool_name, "expression": expression, "outcome": outcome}


RULES = [
    _tier("large", "*", 'has(args.amount) && money(args.amount) > money("1000.00")', "R3"),
    _tier("small", "*", 'has(args.amount) && money(args.amount) <= money("1000.00")', "R2"),
    _verdict("too large", "*", 'has(args.amount) && money(args.amount) > money("10000.00")', "deny"),
    _verdict(
        "finance", "*", 'has(args.amount) && money(args.amount) > money("5000.00")', "hold", group="finance"
    ),
    _verdict("desk", "*", "tool.effect", "hold", group="refunds", decide_within=3600, consume_within=900),
    _verdict("ask", "abeyance.ask", "true", "hold", group="refunds", decide_within=3600, consume_within=900),
]


def change_rule(name: str, **fields: Any) -> None:
    """An editor changes a verdict or tier rule and publishes."""
    rule = policy.Rule.objects.get(name=name)
    for field, value in fields.items():
        setattr(rule, field, value)
    rule.save(update_fields=list(fields))
    policies.publish(EDITOR, why="a test")


def person(name: str, *groups: str, **fields: Any) -> User:
    made = User.objects.create(
        username=name, email=f"{name}@example.org", first_name=name.capitalize(), **fields
    )
    made.groups.set([Group.objects.get_or_create(name=group)[0] for group in groups])
    return made


# -- Moves ----------------------------------------------------------------------------------


def submitted(
    name: str = "approvals-desk", *, owner: User | None = None, on_behalf_of: str = "", **arguments: Any
) -> Run:
    labels = arguments.pop("labels", {})
    asked = lifecycle.Submission(
        name, arguments, labels, on_behalf_of=on_behalf_of, owner_id=str(owner.pk) if owner else "0"
    )
    return lifecycle.submit(asked, actor=Actor("key", "k1", "the shop's key", "api"))[0]


def opened(name: str = "approvals-desk", **more: Any) -> Request:
    """The request of a run that was driven until it stopped."""
    run = submitted(name, **more)
    execution.drive(run.pk)
    return Request.objects.get(run=run)


def decide(request: Request, who: User, verb: str = "approve", **more: Any) -> Decided:
    """Decides on what stands now, unless another digest is given."""
    standing = Request.objects.get(pk=request.pk).revision
    more.setdefault("digest", standing.digest)
    if verb == "reject":
        more.setdefault("reason", "wrong amount")
    if verb == "approve":
        more = {**care(standing, who), **more}
    return decisions.decide(request.ref, person=who, choice=Choice(verb, **more))


def edited(request: Request, **changes: Any) -> str:
    """The standing arguments with some changed, as a page sends them."""
    return json.dumps({**json.loads(request.revision.arguments), **changes})


def drive(request: Request) -> Run:
    execution.drive(request.run_id)
    return Run.objects.get(pk=request.run_id)


def result(request: Request) -> Any:
    """Drives the run on, and gives what its agent returned."""
    run = drive(request)
    assert run.result is not None, (run.status, run.error, list(run.holds.open().values_list("cause", "why")))
    return json.loads(run.result)


def look(request: Request, **facts: Any) -> bool:
    """The world changed, and a worker looks."""
    world.facts.update(facts)
    return looks.look(request.pk)


def later(seconds: float) -> None:
    clock.shift(timedelta(seconds=seconds))


def fresh(request: Request) -> Request:
    return Request.objects.get(pk=request.pk)


def told(request: Request) -> list[str]:
    """Verbs of the request's journal, in order."""
    return list(JournalEntry.objects.of(request.stream).values_list("verb", flat=True))


def refusals(request: Request) -> list[tuple[str, str]]:
    """Who was refused, and with which code."""
    rows = JournalEntry.objects.of(request.stream).filter(verb="refused")
    return [(row.actor_name, json.loads(row.detail)["code"]) for row in rows]


def counts(request: Request) -> tuple[str, int, int]:
    """The state, and how many decisions and permits there are of this request."""
    return (
        fresh(request).state,
        Decision.objects.filter(request=request).count(),
        Permit.objects.filter(request=request).count(),
    )


def step_of(request: Request) -> Step:
    return Step.objects.get(pk=request.step_id)


def numbers(request: Request) -> list[tuple[int, str]]:
    """Revisions and why each was made."""
    return list(request.revisions.order_by("number").values_list("number", "reason"))
