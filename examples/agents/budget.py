"""A run that may use so much and no more: each text costs money, and a run's allowance says how much.

What a call is estimated to cost is reserved before it, and what it did cost is charged after it. A call that does
not fit any more waits until somebody raises the limit; the agent sees nothing of it.
"""

from __future__ import annotations

from examples import client
from runs.agents import RunContext, agent
from runs.tools import ToolContext, tool


class TextRefused(client.Refused):
    """invalid."""


@tool(estimate={"money:EUR": "2.00"}, raises=(TextRefused,), timeout=10)
def write_text(context: ToolContext, about: str) -> str:
    """Have a text about {about} written."""
    answer = client.act("/texts", {"about": about}, refused=TextRefused)
    context.used(money_EUR=answer["cost"])  # a little less than the estimate
    return str(answer["text"])


@agent(name="copywriter", version="1")
async def copywriter(run: RunContext, lamps: list[str]) -> list[str]:
    """Write a text about each lamp."""
    return [await write_text(lamp) for lamp in lamps]
