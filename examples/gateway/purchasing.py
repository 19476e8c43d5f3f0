"""Vendors, quotes that expire, and purchases that use a quote up."""

from __future__ import annotations

import re
import sqlite3

from examples.gateway import service
from examples.gateway.service import Body, Request
from examples.gateway.store import now


@service.route("GET", "/vendors")
def list_vendors(db: sqlite3.Connection, values: dict[str, str], request: Request) -> tuple[int, Body]:
    rows = db.execute("SELECT id, name, days FROM vendors ORDER BY rowid").fetchall()
    return 200, {"vendors": [dict(row) for row in rows]}


@service.route("POST", "/quotes", keyed=True)
def make_quote(db: sqlite3.Connection, values: dict[str, str], request: Request) -> tuple[int, Body]:
    vendor = service.row(db, "vendors", service.text(request.body, "vendor"))
    item, quantity = (
        service.row(db, "items", service.text(request.body, "item")),
        service.whole(request.body, "quantity"),
    )
    cents = quantity * (item["cents"] * vendor["per_cent"] // 100)
    row = (vendor["id"], item["id"], quantity, cents, now(plus=request.quote_seconds))
    cursor = db.execute(
        "INSERT INTO quotes (vendor, item, quantity, cents, expires_at) VALUES (?, ?, ?, ?, ?)", row
    )
    return 201, _quote(db, f"q_{cursor.lastrowid}")


@service.route("GET", "/quotes/{quote}")
def read_quote(db: sqlite3.Connection, values: dict[str, str], request: Request) -> tuple[int, Body]:
    return 200, _quote(db, values["quote"])


@service.route("POST", "/quotes/{quote}/expire")
def expire_quote(db: sqlite3.Connection, values: dict[str, str], request: Request) -> tuple[int, Body]:
    """The vendor takes the quote back before its time."""
    quote = _quote(db, values["quote"])
    db.execute("UPDATE quotes SET expires_at=? WHERE number=?", (now(), _number(quote["id"])))
    return 200, _quote(db, quote["id"])


@service.route("POST", "/purchases", keyed=True)
def buy(db: sqlite3.Connection, values: dict[str, str], request: Request) -> tuple[int, Body]:
    quote = _quote(db, service.text(request.body, "quote"))
    cents, cost_centre = (
        service.cents(request.body, "amount"),
        service.text(request.body, "cost_centre", limit=100),
    )
    if quote["state"] == "used":
        raise service.Refused(409, "quote_used", f"Quote {quote['id']} has been used.")
    if quote["state"] == "expired":
        raise service.Refused(409, "quote_expired", f"Quote {quote['id']} expired at {quote['expires_at']}.")
    if service.money(cents) != quote["total"]:
        raise service.Refused(409, "amount_differs", f"Quote {quote['id']} is over {quote['total']}.")
    for name in ("vendor", "item", "quantity"):
        if request.body.get(name, quote[name]) != quote[name]:
            raise service.Refused(409, "quote_differs", f"Quote {quote['id']} says {quote[name]} for {name}.")
    number = _number(quote["id"])
    cursor = db.execute(
        "INSERT INTO purchases (quote, cost_centre, cents, key, at) VALUES (?, ?, ?, ?, ?)",
        (number, cost_centre, cents, request.key, now()),
    )
    db.execute("UPDATE quotes SET used=1 WHERE number=?", (number,))
    return 201, _purchase(service.row(db, "purchases", cursor.lastrowid, "number"))


@service.route("GET", "/purchases")
def list_purchases(db: sqlite3.Connection, values: dict[str, str], request: Request) -> tuple[int, Body]:
    return 200, {"purchases": [_purchase(row) for row in service.chosen(db, "purchases", ("key",), request)]}


def _quote(db: sqlite3.Connection, quote: str) -> Body:
    row = service.row(db, "quotes", _number(quote), "number")
    vendor = service.row(db, "vendors", row["vendor"])
    state = "used" if row["used"] else "expired" if row["expires_at"] <= now() else "open"
    return {
        "id": f"q_{row['number']}",
        "vendor": vendor["id"],
        "vendor_name": vendor["name"],
        "days": vendor["days"],
        "item": row["item"],
        "quantity": row["quantity"],
        "total": service.money(row["cents"]),
        "currency": "EUR",
        "expires_at": row["expires_at"],
        "state": state,
    }


def _number(quote: str) -> int:
    if not re.fullmatch(r"q_[0-9]{1,15}", quote):
        raise service.Refused(404, "not_found", f"There is no quote {quote}.")
    return int(quote[2:])


def _purchase(row: sqlite3.Row) -> Body:
    return {
        "id": f"pu_{row['number']}",
        "quote": f"q_{row['quote']}",
        "cost_centre": row["cost_centre"],
        "amount": service.money(row["cents"]),
        "key": row["key"],
        "at": row["at"],
    }
