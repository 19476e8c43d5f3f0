"""The demo's agents: a refund desk, a mailing, a purchase.

They decide by plain rules where a real one would ask a model; what matters here is what happens between
their decisions and the world. Each ends with a small outcome that says in a sentence what became of it,
also when a person said no, nobody answered, or the outside refused. The setting `AGENTS` names this module.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

from pydantic import BaseModel, ConfigDict, Field

from examples import world
from examples.world import CostCentre, Count, Quote, Vendor
from runs.agents import RunContext, agent
from runs.exceptions import Denied, Expired, PartlyFailed, Rejected
from runs.tools import ask, remember, together

OWNER = "owner@example.com"
SHOP = "Lumen & Oak"


class Outcome(BaseModel):
    """What became of a run, in a sentence and in the fields of its kind."""

    model_config = ConfigDict(frozen=True)
    said: str


# -- Refund desk -------------------------------------------------------------


class RefundOutcome(Outcome):
    refunded: bool
    amount: Decimal = Decimal("0.00")
    refund: str | None = None


@agent(name="refund-desk", version="1", owner=OWNER)
async def refund_desk(run: RunContext, ticket: int) -> RefundOutcome:
    """Read a ticket, refund what it asks for as far as the charge allows, and answer the customer."""
    case = await world.read_ticket(ticket)
    charge = await world.read_charge(case.charge)
    amount = min(case.asks_for, charge.left)
    if amount <= 0:
        outcome = RefundOutcome(refunded=False, said="Your payment has been refunded in full already.")
    else:
        outcome = await _refund(charge.id, amount)
    try:
        await world.reply(ticket, _letter(case.customer.name, outcome.said))
    except (Rejected, Expired, Denied, world.ReplyRefused):
        return outcome.model_copy(update={"said": f"{outcome.said} (The customer was not told.)"})
    return outcome


async def _refund(charge: str, amount: Decimal) -> RefundOutcome:
    try:
        refund = await world.issue_refund(charge, amount)
    except Rejected as no:
        return RefundOutcome(refunded=False, said=f"We cannot refund this: {no.reason}")
    except Expired:
        return RefundOutcome(refunded=False, said="We could not decide on your refund in time.")
    except Denied:
        return RefundOutcome(refunded=False, said="A refund of this size is not made by this desk.")
    except world.RefundRefused as refused:
        return RefundOutcome(refunded=False, said=f"The payment could not be refunded: {refused.detail}")
    # A reviewer may have changed the amount: what counts is what the gateway did.
    changed = "" if refund.amount == amount else f" You asked for {amount} EUR; this is what was agreed."
    said = f"We have refunded {refund.amount} EUR.{changed}"
    return RefundOutcome(refunded=True, amount=refund.amount, refund=refund.id, said=said)


def _letter(name: str, said: str) -> str:
    return f"Dear {name},\n\n{said}\n\nKind regards\n{SHOP}"


# -- Mailing -----------------------------------------------------------------


class MailingOutcome(Outcome):
    sent: bool
    accepted: int = 0
    mailing: str | None = None


@agent(name="mailing", version="1", owner=OWNER)
async def mailing(run: RunContext, topic: str, mailing_list: str = "customers") -> MailingOutcome:
    """Write about a topic to everybody on a list: one e-mail to many, which nothing can call back."""
    about = await world.read_list(mailing_list)
    recipients = await world.read_recipients(mailing_list)
    today = await remember("today", lambda: datetime.now(UTC).date().isoformat())
    subject = f"{topic} · news from {SHOP}"
    try:
        sent = await world.send_mailing(about.id, subject, _newsletter(topic, today), recipients)
    except Rejected as no:
        return MailingOutcome(sent=False, said=f"Not sent: {no.reason}")
    except Expired:
        return MailingOutcome(sent=False, said="Not sent: nobody decided in time.")
    except Denied as no:
        return MailingOutcome(sent=False, said=f"Not sent: {no.why}")
    except world.MailingRefused as refused:
        return MailingOutcome(sent=False, said=f"Not sent: {refused.detail}")
    said = f"Sent to {sent.accepted:,} recipients of “{about.name}”."
    return MailingOutcome(sent=True, accepted=sent.accepted, mailing=sent.id, said=said)


def _newsletter(topic: str, today: str) -> str:
    return (
        f"Good day,\n\nour news of {today} is about {topic.lower()}. Come and see it in the shop, or at "
        f"https://shop.example/news.\n\nYou asked for this; an answer with “stop” ends it.\n\n"
        f"Kind regards\n{SHOP}"
    )


# -- Purchase ----------------------------------------------------------------


class QuoteChoice(BaseModel):
    """Which offer we take, and who pays for it."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    vendor: Vendor = Field(title="Vendor", description="The vendor whose quote we take")
    cost_centre: CostCentre = Field(title="Cost centre", description="Which cost centre pays")


class PurchaseOutcome(Outcome):
    bought: bool
    purchase: str | None = None
    amount: Decimal = Decimal("0.00")


@agent(name="purchase", version="1", owner=OWNER)
async def purchase(run: RunContext, item: str, quantity: Count) -> PurchaseOutcome:
    """Get three quotes, ask a person which to take, and buy while it holds."""
    try:
        quotes = list(await together(*(world.request_quote(each, item, quantity) for each in Vendor)))
    except PartlyFailed as failed:
        whys = [str(each.error) for each in failed.outcomes if each.error]
        return PurchaseOutcome(bought=False, said=f"Not every vendor made a quote: {whys[0]}")
    try:
        choice = await ask(_question(item, quantity, quotes), form=QuoteChoice)
    except Rejected as no:
        return PurchaseOutcome(bought=False, said=f"Not bought: {no.reason}")
    except Expired:
        return PurchaseOutcome(bought=False, said="Not bought: nobody chose a quote in time.")
    chosen = next(each for each in quotes if each.vendor == choice.vendor)
    return await _buy(chosen, choice.cost_centre)


async def _buy(quote: Quote, cost_centre: CostCentre) -> PurchaseOutcome:
    try:
        bought = await world.buy(
            quote.id, quote.vendor, quote.item, quote.quantity, quote.total, quote.expires_at, cost_centre
        )
    except Rejected as no:
        return PurchaseOutcome(bought=False, said=f"Not bought: {no.reason}")
    except Expired:
        return PurchaseOutcome(bought=False, said="Not bought: nobody decided in time.")
    except Denied as no:
        return PurchaseOutcome(bought=False, said=f"Not bought: {no.why}")
    except world.PurchaseRefused as refused:
        return PurchaseOutcome(bought=False, said=f"Not bought: {refused.detail}")
    said = f"Bought from {quote.vendor_name} for {bought.amount} EUR, charged to {bought.cost_centre}."
    return PurchaseOutcome(bought=True, purchase=bought.id, amount=bought.amount, said=said)


def _question(item: str, quantity: int, quotes: list[Quote]) -> str:
    offers = [
        f"{each.vendor_name} ({each.vendor.value}): {each.total} EUR, {each.days} days, "
        f"holds until {each.expires_at:%Y-%m-%d %H:%M} UTC"
        for each in quotes
    ]
    return "\n".join([f"Which quote should we take for {quantity} × {item}?", *offers])
