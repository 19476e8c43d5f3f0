"""A call that may or may not have happened: the bank has no keys and cannot be asked, so a person has to look.

`make_payout` is neither `idempotent` nor has it a `verify`. When its answer is lost it is never made again by itself.
"""

from __future__ import annotations

from examples import client, world
from runs.agents import RunContext, agent
from runs.tools import ToolContext, tool


class Payout(world.Value):
    id: str
    charge: str
    amount: world.Euros


class PayoutRefused(client.Refused):
    """not_found, invalid."""


# A short time limit, so that a person is asked soon: until it is over the call might still act.
@tool(
    effect=True,
    raises=(PayoutRefused,),
    refuses=(PayoutRefused,),
    timeout=3,
    consequence="{amount} EUR leave our account for the customer of charge {charge}; no bank gives them back.",
    questions=["Is {amount} EUR the right amount for the trouble with charge {charge}?"],
)
def make_payout(context: ToolContext, charge: str, amount: world.Euros) -> Payout:
    """Pay {amount} EUR to the customer of charge {charge}."""
    path = client.address("charges", charge, "payouts")
    return Payout.model_validate(client.act(path, {"amount": f"{amount:.2f}"}, refused=PayoutRefused))


@agent(name="goodwill", version="1")
async def goodwill(run: RunContext, charge: str, amount: world.Euros) -> Payout:
    """Pay a customer something for the trouble."""
    return await make_payout(charge, amount)
