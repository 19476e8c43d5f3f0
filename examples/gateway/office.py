"""What the six stops of the demo need: paid texts, parcels, payouts without a key, and books behind a token.

A token is given out as long as the owner's consent stands. Once that is taken back, the token is refused and no
other is made until somebody gives consent again on the page `/ledger/consent`.
"""

from __future__ import annotations

import hmac
import secrets
import sqlite3

from examples.gateway import service
from examples.gateway.service import Body, Request
from examples.gateway.store import now

TEXT_COSTS = 1_90  # cents
CONSENT = "/ledger/consent"
PAGE = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><title>Lumen &amp; Oak books</title>'
    '<link rel="icon" href="data:,">'
    "<h1>The books of Lumen &amp; Oak</h1>{}</html>"
)
ASKS = '<p>Abeyance asks to write into them.</p><form method="post"><button>Allow it</button></form>'
THANKS = "<p>Thank you. Now go back to the run, and say there that it is authorised.</p>"


# -- Texts and parcels ---------------------------------------------------------


@service.route("POST", "/texts")
def write_text(db: sqlite3.Connection, values: dict[str, str], request: Request) -> tuple[int, Body]:
    about = service.text(request.body, "about", limit=200)
    text = f"{about}: a warm light for long evenings, made of oak and linen."
    return 201, {"text": text, "cost": service.money(TEXT_COSTS)}


@service.route("POST", "/parcels", keyed=True)
def send_parcel(db: sqlite3.Connection, values: dict[str, str], request: Request) -> tuple[int, Body]:
    sent = (service.whole(request.body, "order", limit=10**9), request.key, now())
    cursor = db.execute("INSERT INTO parcels (order_number, key, at) VALUES (?, ?, ?)", sent)
    return 201, _parcel(service.row(db, "parcels", cursor.lastrowid, "number"))


@service.route("GET", "/parcels")
def list_parcels(db: sqlite3.Connection, values: dict[str, str], request: Request) -> tuple[int, Body]:
    found = service.chosen(db, "parcels", ("key",), request)
    return 200, {"parcels": [_parcel(row) for row in found]}


def _parcel(row: sqlite3.Row) -> Body:
    return {"id": f"pa_{row['number']}", "order": row["order_number"], "at": row["at"]}


# -- Payouts -------------------------------------------------------------------


@service.route("POST", "/charges/{charge}/payouts")
def pay_out(db: sqlite3.Connection, values: dict[str, str], request: Request) -> tuple[int, Body]:
    """Money to the customer's account. Whatever key is sent: the same call again pays again."""
    charge, cents = service.row(db, "charges", values["charge"]), service.cents(request.body, "amount")
    paid = (charge["id"], cents, now())
    cursor = db.execute("INSERT INTO payouts (charge, cents, at) VALUES (?, ?, ?)", paid)
    return 201, _payout(service.row(db, "payouts", cursor.lastrowid, "number"))


@service.route("GET", "/payouts")
def list_payouts(db: sqlite3.Connection, values: dict[str, str], request: Request) -> tuple[int, Body]:
    return 200, {"payouts": [_payout(row) for row in service.chosen(db, "payouts", ("charge",), request)]}


def _payout(row: sqlite3.Row) -> Body:
    amount = service.money(row["cents"])
    return {"id": f"po_{row['number']}", "charge": row["charge"], "amount": amount, "at": row["at"]}


# -- The books -----------------------------------------------------------------


@service.route("POST", "/ledger/token")
def make_token(db: sqlite3.Connection, values: dict[str, str], request: Request) -> tuple[int, Body]:
    """The token that is valid now; with `renew`, another one in its place."""
    consent = _consent(db)
    if not request.body.get("renew"):
        return 200, {"token": consent["token"]}
    if not consent["given"]:
        raise service.Refused(403, "consent_needed", "The owner took the consent back.")
    return 201, {"token": _give(db)}


@service.route("POST", "/ledger/consent/revoke")
def take_consent_back(db: sqlite3.Connection, values: dict[str, str], request: Request) -> tuple[int, Body]:
    _consent(db)
    db.execute("UPDATE consent SET given=0")
    return 200, {"given": False}


@service.route("POST", "/ledger/consent/give")
def give_consent_back(db: sqlite3.Connection, values: dict[str, str], request: Request) -> tuple[int, Body]:
    _consent(db)
    _give(db)
    return 200, {"given": True}


@service.route("GET", CONSENT)
def ask_consent(db: sqlite3.Connection, values: dict[str, str], request: Request) -> tuple[int, Body]:
    return 200, {"page": PAGE.format(ASKS)}


@service.route("POST", CONSENT)
def press_consent(db: sqlite3.Connection, values: dict[str, str], request: Request) -> tuple[int, Body]:
    give_consent_back(db, values, request)
    return 200, {"page": PAGE.format(THANKS)}


def refuse_stranger(db: sqlite3.Connection, request: Request) -> None:
    consent = _consent(db)
    if not (consent["given"] and hmac.compare_digest(request.token.encode(), consent["token"].encode())):
        raise service.Refused(401, "token_refused", "The token is not valid.")


@service.route("POST", "/ledger/entries", keyed=True, guard=refuse_stranger)
def book(db: sqlite3.Connection, values: dict[str, str], request: Request) -> tuple[int, Body]:
    entry = (service.text(request.body, "text", limit=200), service.cents(request.body, "amount"))
    cursor = db.execute("INSERT INTO entries (text, cents, at) VALUES (?, ?, ?)", (*entry, now()))
    return 201, _entry(service.row(db, "entries", cursor.lastrowid, "number"))


@service.route("GET", "/ledger/entries")
def list_entries(db: sqlite3.Connection, values: dict[str, str], request: Request) -> tuple[int, Body]:
    return 200, {"entries": [_entry(row) for row in service.chosen(db, "entries", ("text",), request)]}


def _consent(db: sqlite3.Connection) -> sqlite3.Row:
    """The one row; consent was given before anybody asked."""
    db.execute("INSERT OR IGNORE INTO consent VALUES (1, ?, 1)", (secrets.token_urlsafe(24),))
    return service.row(db, "consent", 1)


def _give(db: sqlite3.Connection) -> str:
    token = secrets.token_urlsafe(24)
    db.execute("UPDATE consent SET token=?, given=1", (token,))
    return token


def _entry(row: sqlite3.Row) -> Body:
    amount = service.money(row["cents"])
    return {"id": f"en_{row['number']}", "text": row["text"], "amount": amount, "at": row["at"]}
