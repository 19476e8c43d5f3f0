"""A token that is not accepted any more: it is renewed once, and if that is refused its owner has to act.

The tool names the credential and never keeps it; it is obtained for each call. The agent sees neither the token
nor the 401.
"""

from __future__ import annotations

from django.conf import settings

from examples import client, world
from runs import credentials
from runs.agents import RunContext, agent
from runs.exceptions import CredentialRefused, NeedsAuthorisation
from runs.tools import ToolContext, tool

OWNER = "eli@example.com"
TOKEN, CONSENT = "/ledger/token", "/ledger/consent"


class Entry(world.Value):
    id: str
    text: str
    amount: world.Euros


class EntryRefused(client.Refused):
    """invalid, token_refused."""


@tool(
    effect=True,
    idempotent=True,
    credentials=("ledger",),
    raises=(EntryRefused,),
    refuses=(EntryRefused,),
    timeout=10,
    consequence="“{text}” over {amount} EUR is in the books at once; another entry can undo it.",
)
def book_entry(context: ToolContext, text: str, amount: world.Euros) -> Entry:
    """Book {amount} EUR as “{text}”."""
    body = {"text": text, "amount": f"{amount:.2f}"}
    token, key = context.credential("ledger"), context.idempotency_key
    try:
        answer = client.act("/ledger/entries", body, refused=EntryRefused, key=key, token=token)
    except EntryRefused as refused:
        if refused.code == "token_refused":
            raise CredentialRefused("ledger", refused.detail) from None
        raise
    return Entry.model_validate(answer)


def obtain_token() -> str:
    """The token as it is now."""
    return str(client.act(TOKEN, {}, refused=client.Refused)["token"])


def renew_token() -> None:
    """Another one in its place. Raises NeedsAuthorisation when the owner took the consent back."""
    try:
        client.act(TOKEN, {"renew": True}, refused=client.Refused)
    except client.Refused as refused:
        raise NeedsAuthorisation(f"{settings.GATEWAY_URL}{CONSENT}", refused.detail) from None


credentials.register("ledger", obtain_token, renew=renew_token, owner=OWNER)


@agent(name="bookkeeper", version="1")
async def bookkeeper(run: RunContext, text: str, amount: world.Euros) -> Entry:
    """Book one amount."""
    return await book_entry(text, amount)
