"""A service that is away: what depends on it waits, and goes on by itself once it is back.

The tool says which service it needs (`depends_on`) and that it found it away (`Unavailable`: certainly nothing
was done there). After a few failures in a row no call is tried any more until the probe gets an answer.
"""

from __future__ import annotations

from examples import client, world
from runs import dependencies
from runs.agents import RunContext, agent
from runs.exceptions import NotSent, Unavailable
from runs.tools import ToolContext, together, tool


class Parcel(world.Value):
    id: str
    order: int


class ParcelRefused(client.Refused):
    """invalid."""


@tool(
    effect=True,
    idempotent=True,
    depends_on=("carrier",),
    raises=(ParcelRefused,),
    refuses=(ParcelRefused,),
    timeout=10,
    consequence="The carrier fetches the parcel of order {order} today.",
)
def send_parcel(context: ToolContext, order: world.OrderNumber) -> Parcel:
    """Send the parcel of order {order}."""
    try:
        answer = client.act("/parcels", {"order": order}, refused=ParcelRefused, key=context.idempotency_key)
    except (NotSent, client.Away) as error:
        raise Unavailable("carrier", str(error)) from None
    return Parcel.model_validate(answer)


def is_back() -> None:
    """Raises while the carrier is away."""
    client.look("/parcels", key="none")


dependencies.register("carrier", is_back)


@agent(name="dispatcher", version="1")
async def dispatcher(run: RunContext, orders: list[world.OrderNumber]) -> list[Parcel]:
    """Send the parcels of some orders, side by side."""
    return list(await together(*(send_parcel(order) for order in orders)))
