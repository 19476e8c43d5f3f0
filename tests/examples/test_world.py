"""The demo's tools against the real gateway: what each answer, and each way of failing, becomes."""

import socket
import uuid
from datetime import UTC, datetime
from decimal import Decimal

import httpx
import pytest

from examples import client, world
from runs.exceptions import BadArguments, NotSent
from runs.tools import ToolContext


def context(key="k1"):
    return ToolContext(run_id=uuid.UUID(int=1), index=3, idempotency_key=key, attempt=1)


def refund(charge="ch_4401", amount="240.00", key="k1"):
    return world.issue_refund.function(context(key), charge, Decimal(amount))


def test_refund_carries_its_key_and_exact_amount(gateway):
    made = refund()
    assert (made.charge, made.amount) == ("ch_4401", Decimal("240.00"))
    [call] = gateway.calls("/charges/ch_4401/refunds")
    assert (call["body"], call["idempotency_key"]) == ({"amount": "240.00"}, "k1")
    assert world.find_refund("k1") == made


def test_refund_is_refused_by_the_gateway(gateway):
    with pytest.raises(world.RefundRefused) as refused:
        refund(charge="ch_4404")
    assert refused.value.code == "not_refundable"
    assert world.find_refund("k1") is None


def test_refusal_is_rebuilt_from_its_args():
    refused = world.RefundRefused("not_refundable", "Charge ch_1 is disputed.")
    again = type(refused)(*refused.args)
    assert (again.code, again.detail, str(again)) == (refused.code, refused.detail, str(refused))


@pytest.mark.parametrize("amount", ["0.001", "0", "-5.00", "1E+30"])
def test_amount_that_would_be_rounded_makes_no_call(amount):
    with pytest.raises(BadArguments):
        world.issue_refund("ch_4401", Decimal(amount))


def test_argument_reaches_no_other_address(gateway):
    with pytest.raises(world.RefundRefused) as refused:
        refund(charge="ch_4401/dispute?x=")
    assert refused.value.code == "not_found"
    assert gateway.get("/charges/ch_4401")["status"] == "paid"


@pytest.mark.integration
def test_connection_never_made_is_not_sent(settings):
    with socket.socket() as taken:  # bound and not listening: connections are refused
        taken.bind(("127.0.0.1", 0))
        settings.GATEWAY_URL = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(NotSent):
            refund()
        with pytest.raises(NotSent):
            world.charge_status.function("ch_4401")


@pytest.mark.parametrize(
    ("kind", "error", "found"),
    [
        ("503", client.Unclear, False),
        ("lose", httpx.RemoteProtocolError, False),
        ("drop", httpx.RemoteProtocolError, True),
    ],
)  # fmt: skip
def test_unknown_end_is_raised_as_it_came_and_verified(gateway, kind, error, found):
    gateway.fail(kind, "/charges/ch_4401/refunds")
    with pytest.raises(error):
        refund()
    assert (world.find_refund("k1") is not None) == found


def test_late_answer_is_unknown(gateway, monkeypatch):
    monkeypatch.setattr(client, "ACT", 0.05)
    gateway.fail("late", "/charges/ch_4401/refunds")
    with pytest.raises(httpx.ReadTimeout):
        refund()


def test_key_used_with_another_body_is_no_refusal(gateway):
    refund(amount="5.00")
    with pytest.raises(client.Unclear):
        refund(amount="6.00")


def test_verify_that_cannot_tell_raises(gateway):
    gateway.fail("503", "/refunds", method="GET")
    with pytest.raises(client.Unclear):
        world.find_refund("k1")


def test_facts_of_a_refund_drift(gateway):
    facts = [world.charge_status, world.charge_amount, world.refunded_so_far]
    assert [fact.function("ch_4401") for fact in facts] == ["paid", Decimal("240.00"), Decimal("0.00")]
    gateway.post("/charges/ch_4401/refunds", {"amount": "240.00"})
    assert [fact.function("ch_4401") for fact in facts] == ["refunded", Decimal("240.00"), Decimal("240.00")]


def test_facts_of_a_mailing_drift(gateway):
    everybody = world.read_recipients.function("customers")
    assert (world.list_size.function("customers"), len(everybody)) == (1200, 1200)
    assert world.unsubscribed.function("customers", everybody) == 0
    gateway.request("DELETE", f"/lists/customers/members/{everybody[0]}")
    assert world.list_size.function("customers") == 1199
    assert world.unsubscribed.function("customers", everybody) == 1


def test_mailing_sends_no_key_and_counts_as_sent_before(gateway):
    everybody = world.read_recipients.function("customers")
    sent = world.send_mailing.function(context(), "customers", "Lamps", "Come and see.", everybody)
    assert sent.accepted == 1200
    [call] = gateway.calls("/mailings")
    assert (call["idempotency_key"], call["body"]["recipients"]) == (None, everybody)
    assert world.sent_before.function("customers", "Lamps") == 1
    assert world.sent_before.function("customers", "Chairs") == 0


def quote():
    return world.request_quote.function(context("q1"), world.Vendor.KAPPA, "standing-desk", 10)


def purchase(made, *, valid_until=None, amount=None):
    return world.buy.function(
        context("p1"), made.id, made.vendor, made.item, made.quantity, amount or made.total,
        valid_until or made.expires_at, world.CostCentre.STUDIO,
    )  # fmt: skip


def test_quote_is_asked_for_once_under_its_key(gateway):
    assert quote() == quote()
    assert [call["replayed"] for call in gateway.calls("/quotes")] == [False, True]


def test_purchase_is_found_by_its_key(gateway):
    bought = purchase(quote())
    assert (bought.amount, bought.cost_centre) == (Decimal("3872.80"), "4200-studio")
    assert world.find_purchase("p1") == bought
    assert world.quote_state.function("q_1") == "used"


def test_purchase_after_its_time_is_refused_without_a_call(gateway):
    with pytest.raises(world.PurchaseRefused) as refused:
        purchase(quote(), valid_until=datetime(2020, 1, 1, tzinfo=UTC))
    assert refused.value.code == "quote_expired"
    assert gateway.calls("/purchases") == []


def test_purchase_with_an_expired_quote_is_refused(gateway):
    made = quote()
    gateway.post(f"/quotes/{made.id}/expire")
    assert world.quote_state.function(made.id) == "expired"
    with pytest.raises(world.PurchaseRefused) as refused:
        purchase(made)
    assert refused.value.code == "quote_expired"


def test_reply_is_sent_once_under_its_key(gateway):
    made = [world.reply.function(context("r1"), 5512, "Dear Marta") for _ in range(2)]
    assert made[0] == made[1]
    assert len(gateway.get("/tickets/5512")["replies"]) == 1
