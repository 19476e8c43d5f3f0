"""The agents that are measured, in the worker's process: each says what time it is, by a socket.

An agent's own code must not reach outside; here it does, because its next line is what is measured, and it reads how
often its own backend has synced. All processes of a machine share the monotonic clock.
"""

import contextlib
import os
import socket
import time

from benchmarks import synced
from runs import points
from runs.agents import RunContext, agent
from runs.tools import ToolContext, sleep, tool


def say(what: str, value: float | None = None) -> None:
    now = time.monotonic_ns()
    if (address := os.environ.get("BENCH_SOCKET")) is None:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.sendto(f"{what} {now if value is None else value}".encode(), address)


# For as long as the process lives: it says whenever it has parked a run.
_standing = contextlib.ExitStack()
_standing.enter_context(points.on("after-park", lambda: say("parked")))


@tool(effect=True, idempotent=True, consequence="{text} is written down.")
def approved(context: ToolContext, text: str) -> str:
    """Write down {text}, once somebody agreed."""
    say("tool")
    return text


@tool(effect=True, idempotent=True, consequence="{text} is written down.")
def counting(context: ToolContext, text: str) -> str:
    """Write down {text}, once somebody agreed; it says how often the backend has synced until its first line."""
    say("tool_synced", synced.of_django())
    return text


@tool()
def look(text: str) -> str:
    """Look at {text}."""
    return text


@tool(effect=True, idempotent=True, consequence="{text} is written down.")
def repeatable(context: ToolContext, text: str) -> str:
    """Write down {text}; the same key again is harmless."""
    return text


@tool(effect=True, consequence="{text} is written down.")
def once(context: ToolContext, text: str) -> str:
    """Write down {text}; nobody can tell afterwards whether it happened."""
    return text


KINDS = {"pure": look, "repeatable": repeatable, "once": once}


@agent()
async def stepper(run: RunContext, what: str, steps: int, text: str) -> None:
    """So many steps of one kind, one after another, timed between the first and the last."""
    kind = KINDS[what]
    await kind(text)
    say("begin")
    for _ in range(steps):
        await kind(text)
    say("end")


@agent()
async def counter(run: RunContext, what: str, steps: int, text: str) -> None:
    """The same; says how often its backend synced in between."""
    kind = KINDS[what]
    await kind(text)
    before = synced.of_django()
    for _ in range(steps):
        await kind(text)
    say("synced", synced.of_django() - before)


@agent()
async def waiter(run: RunContext, steps: int, text: str) -> str:
    """Looks, waits for a decision, and goes on."""
    say("begin")
    for _ in range(steps):
        await look(text)
    await approved(text)
    say("line")
    return text


@agent()
async def counted(run: RunContext, text: str) -> None:
    """Waits for a decision; says at its first line, and after it, how often its backend has synced so far."""
    say("synced", synced.of_django())
    await counting(text)
    say("line_synced", synced.of_django())


@agent()
async def idle(run: RunContext) -> None:
    """Says how often its backend has synced so far, and ends."""
    say("synced", synced.of_django())


@agent()
async def sleeper(run: RunContext, seconds: int, text: str) -> None:
    """Waits for a date."""
    await look(text)
    await sleep(seconds)


@agent()
async def walker(run: RunContext, text: str) -> None:
    """One step and an end."""
    await look(text)
