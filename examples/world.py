"""The demo's tools and facts: everything its agents can do to the gateway, and what they look at before.

Each effect declares how its doubts are resolved, and the four show the four ways: a refund is looked up by
its key (`verify`), a reply and a quote are simply sent again with the same key (`idempotent`), a purchase
can do both, and a mailing neither, so that a person settles it. Amounts are euros.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from examples import client
from examples.client import TROUBLE, NotFound, Refused
from runs.tools import ToolContext, fact, tool

# Whole cents above zero: a third decimal is refused, never rounded after somebody approved it.
Euros = Annotated[Decimal, Field(gt=0, max_digits=11, decimal_places=2)]
Count = Annotated[int, Field(ge=1, le=10_000)]
OrderNumber = Annotated[int, Field(ge=1, le=1_000_000_000)]


class Value(BaseModel):
    """A frozen value that ignores what the gateway may add to its answers one day."""

    model_config = ConfigDict(frozen=True, extra="ignore")


V = TypeVar("V", bound=Value)


class Customer(Value):
    id: str
    name: str
    email: str


class Ticket(Value):
    id: int
    customer: Customer
    charge: str
    asks_for: Decimal
    subject: str
    text: str
    status: str


class Charge(Value):
    id: str
    amount: Decimal
    refunded: Decimal
    status: str
    description: str

    @property
    def left(self) -> Decimal:
        """What can still be refunded."""
        return self.amount - self.refunded


class Refund(Value):
    id: str
    charge: str
    amount: Decimal
    at: datetime


class Reply(Value):
    id: str
    ticket: int
    at: datetime


class MailingList(Value):
    id: str
    name: str
    size: int


class Mailing(Value):
    id: str
    subject: str
    accepted: int
    at: datetime


class Vendor(StrEnum):
    NORDE = "norde"
    KAPPA = "kappa"
    TALLIS = "tallis"


class CostCentre(StrEnum):
    OFFICE = "4100-office"
    STUDIO = "4200-studio"
    WAREHOUSE = "4300-warehouse"


class Quote(Value):
    id: str
    vendor: Vendor
    vendor_name: str
    item: str
    quantity: int
    total: Decimal
    days: int
    expires_at: datetime
    state: str


class Purchase(Value):
    id: str
    quote: str
    cost_centre: str
    amount: Decimal
    at: datetime


class RefundRefused(Refused):
    """not_refundable, amount_too_large, not_found, invalid."""


class ReplyRefused(Refused):
    """not_found, invalid."""


class MailingRefused(Refused):
    """not_found, invalid."""


class QuoteRefused(Refused):
    """not_found, invalid."""


class PurchaseRefused(Refused):
    """quote_expired, quote_used, quote_differs, amount_differs, not_found, invalid."""


# -- Tickets -----------------------------------------------------------------


@tool(raises=(NotFound,), timeout=5, retries=2, retry_on=TROUBLE)
def read_ticket(ticket: int) -> Ticket:
    """Read ticket {ticket}."""
    return Ticket.model_validate(client.look(client.address("tickets", ticket)))


@tool(
    effect=True,
    idempotent=True,
    raises=(ReplyRefused,),
    refuses=(ReplyRefused,),
    timeout=10,
    retries=2,
    retry_on=TROUBLE,
    consequence="The customer of ticket {ticket} gets this e-mail at once; it cannot be called back.",
)
def reply(context: ToolContext, ticket: int, text: str) -> Reply:
    """Answer ticket {ticket}."""
    path = client.address("tickets", ticket, "replies")
    answer = client.act(path, {"text": text}, refused=ReplyRefused, key=context.idempotency_key)
    return Reply.model_validate(answer)


# -- Charges and refunds -----------------------------------------------------


@tool(raises=(NotFound,), timeout=5, retries=2, retry_on=TROUBLE)
def read_charge(charge: str) -> Charge:
    """Read charge {charge}."""
    return _charge(charge)


@fact(source="payments", kind="blocking", fresh_for=60)
def charge_status(charge: str) -> str:
    """Status of the charge.

    paid, disputed or refunded.
    """
    return _charge(charge).status


@fact(source="payments", kind="material", fresh_for=60)
def refunded_so_far(charge: str) -> Decimal:
    """Refunded so far, EUR."""
    return _charge(charge).refunded


@fact(source="payments", kind="info", fresh_for=60)
def charge_amount(charge: str) -> Decimal:
    """Paid by the customer, EUR."""
    return _charge(charge).amount


def find_refund(key: str) -> Refund | None:
    """The refund made under this key; None if there is none."""
    return _only(Refund, client.look("/refunds", key=key)["refunds"])


# The gateway would honour the key. A refund is looked up all the same before the call is made again, so that
# who reads the gateway's log finds one call for one refund.
@tool(
    effect=True,
    facts=[charge_status, charge_amount, refunded_so_far],
    verify=find_refund,
    idempotent=False,
    raises=(RefundRefused,),
    refuses=(RefundRefused,),
    timeout=10,
    retries=2,
    consequence="{amount} EUR leaves our account for charge {charge} at once; it cannot be pulled back.",
    questions=["Did the customer of charge {charge} ask for {amount} EUR back?"],
    on_interrupt="finish",
)
def issue_refund(context: ToolContext, charge: str, amount: Euros) -> Refund:
    """Refund {amount} EUR to charge {charge}."""
    path, body = client.address("charges", charge, "refunds"), {"amount": f"{amount:.2f}"}
    return Refund.model_validate(client.act(path, body, refused=RefundRefused, key=context.idempotency_key))


# -- Mailings ----------------------------------------------------------------


@tool(raises=(NotFound,), timeout=5, retries=2, retry_on=TROUBLE)
def read_list(mailing_list: str) -> MailingList:
    """Read what the list {mailing_list} is."""
    return MailingList.model_validate(client.look(client.address("lists", mailing_list)))


@tool(raises=(NotFound,), timeout=5, retries=2, retry_on=TROUBLE)
def read_recipients(mailing_list: str) -> list[str]:
    """Read the addresses on the list {mailing_list}."""
    return _members(mailing_list)


@fact(source="mailings", kind="info", fresh_for=60)
def list_size(mailing_list: str) -> int:
    """Addresses on the list."""
    return MailingList.model_validate(client.look(client.address("lists", mailing_list))).size


@fact(source="mailings", kind="material", fresh_for=60)
def unsubscribed(mailing_list: str, recipients: list[str]) -> int:
    """Recipients who are not on the list any more."""
    return len(set(recipients) - set(_members(mailing_list)))


@fact(source="mailings", kind="material", fresh_for=60)
def sent_before(mailing_list: str, subject: str) -> int:
    """Earlier mailings with this subject."""
    return len(client.look("/mailings", list=mailing_list, subject=subject)["mailings"])


@tool(
    effect=True,
    facts=[list_size, unsubscribed, sent_before],
    raises=(MailingRefused,),
    refuses=(MailingRefused,),
    timeout=10,
    retries=2,
    consequence="Every recipient gets this e-mail at once. It cannot be undone, called back or corrected.",
    questions=[
        "Are the {recipients} the people this e-mail is meant for?",
        "Did you read the text to its end, and may it go out as it is?",
    ],
)
def send_mailing(
    context: ToolContext, mailing_list: str, subject: str, text: str, recipients: list[str]
) -> Mailing:
    """Send “{subject}” to {recipients} of the list {mailing_list}."""
    body = {"list": mailing_list, "subject": subject, "text": text, "recipients": recipients}
    return Mailing.model_validate(client.act("/mailings", body, refused=MailingRefused))


# -- Quotes and purchases ----------------------------------------------------


@tool(
    effect=True,
    idempotent=True,
    raises=(QuoteRefused,),
    refuses=(QuoteRefused,),
    timeout=10,
    retries=2,
    retry_on=TROUBLE,
    consequence="{vendor} makes us an offer that binds nobody to buy.",
)
def request_quote(context: ToolContext, vendor: Vendor, item: str, quantity: Count) -> Quote:
    """Ask {vendor} for a quote for {quantity} × {item}."""
    body = {"vendor": vendor.value, "item": item, "quantity": quantity}
    answer = client.act("/quotes", body, refused=QuoteRefused, key=context.idempotency_key)
    return Quote.model_validate(answer)


@fact(source="purchasing", kind="blocking", fresh_for=30)
def quote_state(quote: str) -> str:
    """State of the quote.

    open, used or expired.
    """
    return _quote(quote).state


@fact(source="purchasing", kind="material", fresh_for=30)
def quote_total(quote: str) -> Decimal:
    """Total of the quote, EUR."""
    return _quote(quote).total


@fact(source="purchasing", kind="material", fresh_for=30)
def quote_expires(quote: str) -> datetime:
    """The quote holds until."""
    return _quote(quote).expires_at


def find_purchase(key: str) -> Purchase | None:
    """The purchase made under this key; None if there is none."""
    return _only(Purchase, client.look("/purchases", key=key)["purchases"])


@tool(
    effect=True,
    facts=[quote_state, quote_total, quote_expires],
    verify=find_purchase,
    idempotent=True,
    raises=(PurchaseRefused,),
    refuses=(PurchaseRefused,),
    timeout=10,
    retries=2,
    retry_on=TROUBLE,
    consequence="{quantity} × {item} is ordered from {vendor} and {amount} EUR charged to {cost_centre} "
    "at once. Cancelling costs a quarter of it.",
    questions=["Is {quantity} × {item} needed, and may {cost_centre} pay {amount} EUR for it?"],
)
def buy(
    context: ToolContext,
    quote: str,
    vendor: Vendor,
    item: str,
    quantity: Count,
    amount: Euros,
    valid_until: datetime,
    cost_centre: CostCentre,
) -> Purchase:
    """Buy {quantity} × {item} from {vendor} for {amount} EUR."""
    if datetime.now(UTC) >= valid_until:
        raise PurchaseRefused(
            "quote_expired", f"The time to buy ended at {valid_until:%Y-%m-%d %H:%M:%S} UTC."
        )
    # All of it is sent, so that nothing a reviewer was shown can differ from what is bought.
    body: dict[str, Any] = {"quote": quote, "amount": f"{amount:.2f}", "cost_centre": cost_centre.value}
    body |= {"vendor": vendor.value, "item": item, "quantity": quantity}
    answer = client.act("/purchases", body, refused=PurchaseRefused, key=context.idempotency_key)
    return Purchase.model_validate(answer)


# -- Reading the gateway's answers -------------------------------------------


def _charge(charge: str) -> Charge:
    return Charge.model_validate(client.look(client.address("charges", charge)))


def _quote(quote: str) -> Quote:
    return Quote.model_validate(client.look(client.address("quotes", quote)))


def _members(mailing_list: str) -> list[str]:
    found = client.look(client.address("lists", mailing_list, "members"))
    return [each["email"] for each in found["members"]]


def _only(kind: type[V], found: list[dict[str, Any]]) -> V | None:
    return kind.model_validate(found[0]) if found else None
