"""An agent that hands its work to another one: the child is a run of its own, and its parent waits for it.

What the child asks people stands in the same inbox, with the chain it belongs to. Pausing the parent holds the
child too, and a child's end releases its parent.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from examples.agents.shop import refund_desk
from runs.agents import RunContext, agent
from runs.exceptions import ChildFailed
from runs.tools import start


class Returned(BaseModel):
    """What became of the tickets: those refunded, and those that were not."""

    model_config = ConfigDict(frozen=True)
    refunded: list[int]
    not_refunded: list[int]


@agent(name="after-sales", version="1")
async def after_sales(run: RunContext, tickets: list[int]) -> Returned:
    """Have the refund desk see to each of these tickets."""
    refunded = [ticket for ticket in tickets if await _refunded(ticket)]
    return Returned(refunded=refunded, not_refunded=[each for each in tickets if each not in refunded])


async def _refunded(ticket: int) -> bool:
    try:
        outcome = await start(refund_desk, ticket)
    except ChildFailed:
        return False
    return outcome.refunded
