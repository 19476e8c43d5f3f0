"""What the six stops need of the gateway, and their tools against it: which failure means what."""

import sqlite3
import uuid
from decimal import Decimal

import httpx
import pytest

from examples import client
from examples.agents import budget, credential, dependency, doubt
from examples.gateway.running import RunningGateway
from runs.exceptions import CredentialRefused, NeedsAuthorisation, Unavailable
from runs.tools import ToolContext


def context(key="k1", **credentials):
    return ToolContext(uuid.UUID(int=1), 0, key, 1, credentials)


def book(gateway, *, key="k1", token=None):
    told = context(key, ledger=token or credential.obtain_token())
    return credential.book_entry.function(told, "Oil", Decimal("18.40"))


# -- Texts and parcels -----------------------------------------------------------


def test_text_says_what_it_cost(gateway):
    told = context()
    assert budget.write_text.function(told, "Ember").startswith("Ember: ")
    assert list(gateway.post("/texts", {"about": "x"})) == ["text", "cost"]
    assert gateway.post("/texts", {"about": "x"})["cost"] == "1.90"


def test_parcel_is_sent_once_under_a_key(gateway):
    first = dependency.send_parcel.function(context(), 40001)
    assert dependency.send_parcel.function(context(), 40001) == first
    assert [each["order"] for each in gateway.get("/parcels")["parcels"]] == [40001]


def test_carrier_that_is_away_did_nothing(gateway):
    gateway.fail("503", "/parcels", method="POST")
    with pytest.raises(Unavailable) as raised:
        dependency.send_parcel.function(context(), 40001)
    assert raised.value.dependency == "carrier"
    assert gateway.get("/parcels")["parcels"] == []


@pytest.mark.parametrize(("kind", "sent"), [("drop", 1), ("lose", 0)])
def test_carrier_whose_answer_was_lost_is_not_away(gateway, kind, sent):
    gateway.fail(kind, "/parcels", method="POST")
    with pytest.raises(httpx.TransportError):
        dependency.send_parcel.function(context(), 40001)
    assert len(gateway.get("/parcels")["parcels"]) == sent


def test_probe_raises_while_the_carrier_is_away(gateway):
    gateway.fail("503", "/parcels", method="GET")
    with pytest.raises(client.Unclear):
        dependency.is_back()
    dependency.is_back()


def test_faults_of_one_path_end_alone(gateway):
    for path in ("/parcels", "/texts"):
        gateway.fail("503", path, times=5)
    client.end_faults("/parcels")
    assert [fault["path"] for fault in gateway.get("/faults")["faults"]] == ["/texts"]
    assert gateway.request("POST", "/texts", {"about": "x"})[0] == 503


# -- Payouts ---------------------------------------------------------------------


def test_payout_is_made_again_whatever_the_key(gateway):
    for _ in range(2):
        doubt.make_payout.function(context(), "ch_4401", Decimal("15.00"))
    assert [each["amount"] for each in gateway.get("/payouts?charge=ch_4401")["payouts"]] == ["15.00"] * 2


def test_payout_for_no_charge_is_refused(gateway):
    with pytest.raises(doubt.PayoutRefused):
        doubt.make_payout.function(context(), "ch_0", Decimal("15.00"))


# -- The books -------------------------------------------------------------------


def test_entry_is_booked_once_under_a_key(gateway):
    assert book(gateway) == book(gateway)
    assert [each["amount"] for each in gateway.get("/ledger/entries")["entries"]] == ["18.40"]


def test_entry_without_the_token_is_refused(gateway):
    status = gateway.request("POST", "/ledger/entries", {"text": "x", "amount": "1.00"})[0]
    with pytest.raises(CredentialRefused):
        book(gateway, token="wrong")
    assert (status, gateway.get("/ledger/entries")["entries"]) == (401, [])


def test_refused_token_is_not_kept_under_the_key(gateway):
    with pytest.raises(CredentialRefused):
        book(gateway, token="wrong")
    assert book(gateway).text == "Oil"


def test_renewed_token_replaces_the_one_before(gateway):
    before = credential.obtain_token()
    credential.renew_token()
    with pytest.raises(CredentialRefused):
        book(gateway, token=before)
    assert book(gateway).amount == Decimal("18.40")


def test_consent_taken_back_needs_its_owner(gateway):
    gateway.post("/ledger/consent/revoke")
    with pytest.raises(CredentialRefused):
        book(gateway)
    with pytest.raises(NeedsAuthorisation) as raised:
        credential.renew_token()
    assert raised.value.url == f"{gateway.url}/ledger/consent"

    page = httpx.get(raised.value.url)
    assert (page.headers["Content-Type"], "<button>Allow it</button>" in page.text) == (
        "text/html; charset=utf-8",
        True,
    )
    with pytest.raises(CredentialRefused):  # looking gives nothing
        book(gateway)
    assert "Thank you" in httpx.post(raised.value.url).text
    assert book(gateway).text == "Oil"


def test_tables_that_an_older_file_lacks_are_made(gateway, tmp_path):
    gateway.post("/charges/ch_4401/refunds", {"amount": "1.00"})
    gateway.stop()
    with sqlite3.connect(gateway.db) as db:
        for table in ("parcels", "payouts", "consent", "entries"):
            db.execute(f"DROP TABLE {table}")
    db.close()
    later = RunningGateway(gateway.db)
    try:
        assert later.get("/parcels") == {"parcels": []}
        assert later.get("/charges/ch_4401")["refunded"] == "1.00"
    finally:
        later.stop()
