"""The agents that `latency.py` measures, in the worker's process: each says what time it is, by a socket.

An agent's own code must not reach outside; here it does, because its next line is what is measured. All
processes of a machine share the monotonic clock.
"""

import os
import socket
import time

from runs.agents import RunContext, agent
from runs.tools import ToolContext, tool


def _say(what: str) -> None:
    now = time.monotonic_ns()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.sendto(f"{what} {now}".encode(), os.environ["LATENCY_SOCKET"])


@tool(effect=True, idempotent=True, consequence="{text} is written down.")
def approved(context: ToolContext, text: str) -> str:
    """Write down {text}, once somebody agreed."""
    _say("tool")
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


@agent()
async def waiter(run: RunContext, text: str) -> str:
    """Looks, waits for a decision, and goes on."""
    await look(text)
    await approved(text)
    _say("line")
    return text


@agent()
async def stepper(run: RunContext, what: str, steps: int, text: str) -> None:
    """So many steps of one kind, one after another."""
    kind = {"pure": look, "repeatable": repeatable, "once": once}[what]
    _say("begin")
    for _ in range(steps):
        await kind(text)
    _say("end")
