"""The agents of the chaos: short runs of every kind, over an outside that keeps what was done to it.

They take whatever comes of a call, so that a run succeeds however its calls ended, and its record says how. A tool
gives the outside the amount it was called with: the log shows what was really sent.
"""

import os
from typing import Any

from pydantic import BaseModel

from runs.agents import RunContext, agent
from runs.tools import Call, NotSent, ToolContext, ask, outcomes, sleep, start, tool, wait_for
from tests.chaos import outside

PORT = "CHAOS_OUTSIDE"
LIMIT = 1.5  # seconds until a call counts as unanswered
TOKENS = 5  # what a metered call is estimated to use
EVENT = "parcel"


class Number(BaseModel):
    number: int


def _act(context: ToolContext, tool: str, amount: int, *, honours: bool = False) -> str:
    call = {"tool": tool, "key": context.idempotency_key, "amount": amount, "honours": honours}
    try:
        said = outside.ask(int(os.environ[PORT]), "POST", "/act", {**call, "attempt": context.attempt})
    except outside.Unreached as error:
        raise NotSent(str(error)) from error
    return str(said["answer"])


def find(key: str) -> str | None:
    """What was done under this key."""
    found: str | None = outside.ask(int(os.environ[PORT]), "GET", f"/find?key={key}")["answer"]
    return found


# -- Tools ---------------------------------------------------------------------------------


@tool(name="chaos_look")
def look(amount: int) -> int:
    """Look at {amount}."""
    return amount


@tool(name="chaos_keyed", effect=True, idempotent=True, timeout=LIMIT, retries=1, backoff=0.2)
def keyed(context: ToolContext, amount: int) -> str:
    """Send {amount} under a key that is honoured."""
    return _act(context, "chaos_keyed", amount, honours=True)


@tool(name="chaos_checked", effect=True, verify=find, timeout=LIMIT, on_interrupt="cancel")
def checked(context: ToolContext, amount: int) -> str:
    """Send {amount}, which can be looked up."""
    return _act(context, "chaos_checked", amount)


@tool(name="chaos_plain", effect=True, timeout=LIMIT)
def plain(context: ToolContext, amount: int) -> str:
    """Send {amount}, and nobody can tell afterwards."""
    return _act(context, "chaos_plain", amount)


@tool(name="chaos_detached", effect=True, timeout=LIMIT, on_interrupt="detach")
def detached(context: ToolContext, amount: int) -> str:
    """Send {amount}; nobody has to wait for it."""
    return _act(context, "chaos_detached", amount)


@tool(name="chaos_approved", effect=True, timeout=LIMIT, consequence="{amount} is sent.")
def approved(context: ToolContext, amount: int) -> str:
    """Send {amount} when a person agrees."""
    return _act(context, "chaos_approved", amount)


@tool(name="chaos_approved_slowly", effect=True, verify=find, timeout=LIMIT, consequence="{amount} is sent.")
def approved_slowly(context: ToolContext, amount: int) -> str:
    """Send {amount} when a person agrees, and the time to think again is over."""
    return _act(context, "chaos_approved_slowly", amount)


@tool(
    name="chaos_approved_soon", effect=True, idempotent=True, timeout=LIMIT, consequence="{amount} is sent."
)
def approved_soon(context: ToolContext, amount: int) -> str:
    """Send {amount} when a person agrees within seconds."""
    return _act(context, "chaos_approved_soon", amount, honours=True)


@tool(name="chaos_metered", effect=True, idempotent=True, estimate={"tokens": TOKENS}, timeout=LIMIT)
def metered(context: ToolContext, amount: int) -> str:
    """Send {amount}, which uses tokens."""
    context.used(tokens=TOKENS)
    return _act(context, "chaos_metered", amount, honours=True)


# -- Agents ----------------------------------------------------------------------------------


async def _came(*calls: Call[Any]) -> list[str]:
    """What came of each: its value, or the kind of its error."""
    return [str(o.value) if o.error is None else type(o.error).__name__ for o in await outcomes(*calls)]


@agent()
async def chaos_straight(run: RunContext, amount: int) -> list[str]:
    """One after the other, each kind of effect."""
    came = await _came(look(amount))
    for kind in (keyed, checked, plain, detached):
        came += await _came(kind(amount))
    return came


@agent()
async def chaos_pure(run: RunContext, amount: int) -> list[str]:
    came: list[str] = []
    for more in range(6):
        came += await _came(look(amount + more))
    return came + await _came(keyed(amount))


@agent()
async def chaos_approved(run: RunContext, amount: int) -> list[str]:
    return await _came(keyed(amount)) + await _came(approved(amount)) + await _came(checked(amount))


@agent()
async def chaos_thought_over(run: RunContext, amount: int) -> list[str]:
    return await _came(approved_slowly(amount)) + await _came(keyed(amount))


@agent()
async def chaos_soon(run: RunContext, amount: int) -> list[str]:
    return await _came(approved_soon(amount)) + await _came(plain(amount))


@agent()
async def chaos_batch(run: RunContext, amount: int) -> list[str]:
    side_by_side = (plain(amount), checked(amount + 1), keyed(amount + 2), approved(amount + 3))
    return await _came(look(amount)) + await _came(*side_by_side) + await _came(plain(amount + 4))


@agent()
async def chaos_child(run: RunContext, amount: int) -> list[str]:
    return await _came(checked(amount)) + await _came(plain(amount))


@agent()
async def chaos_parent(run: RunContext, amount: int) -> list[str]:
    children = (start(chaos_child, amount), start(chaos_approved, amount))
    return await _came(keyed(amount)) + await _came(*children) + await _came(plain(amount))


@agent()
async def chaos_metered(run: RunContext, amount: int) -> list[str]:
    """Started with tokens for two calls of three."""
    came: list[str] = []
    for more in range(3):
        came += await _came(metered(amount + more))
    return came


@agent()
async def chaos_asking(run: RunContext, amount: int) -> list[str]:
    return await _came(ask(f"Which number, for {amount}?", Number)) + await _came(keyed(amount))


@agent()
async def chaos_waiting(run: RunContext, amount: int) -> list[str]:
    return await _came(sleep(0.5)) + await _came(wait_for(EVENT, Number)) + await _came(checked(amount))


#: How often each is started, among so many.
MIX = {
    chaos_straight: 4,
    chaos_pure: 2,
    chaos_approved: 6,
    chaos_thought_over: 3,
    chaos_soon: 3,
    chaos_batch: 3,
    chaos_parent: 2,
    chaos_metered: 2,
    chaos_asking: 2,
    chaos_waiting: 2,
}
