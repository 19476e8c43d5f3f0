"""Tickets with their replies, charges with their refunds.

A charge is paid, disputed or refunded; only what is paid and not refunded yet can be given back.
"""

from __future__ import annotations

import sqlite3

from examples.gateway import service
from examples.gateway.service import Body, Request
from examples.gateway.store import now


@service.route("GET", "/tickets")
def list_tickets(db: sqlite3.Connection, values: dict[str, str], request: Request) -> tuple[int, Body]:
    rows = db.execute("SELECT * FROM tickets ORDER BY id").fetchall()
    return 200, {"tickets": [_ticket(db, row) for row in rows]}


@service.route("POST", "/tickets", keyed=True)
def open_ticket(db: sqlite3.Connection, values: dict[str, str], request: Request) -> tuple[int, Body]:
    charge = service.row(db, "charges", service.text(request.body, "charge"))
    cents = service.cents(request.body, "asks_for")
    subject, text = service.text(request.body, "subject"), service.text(request.body, "text")
    cursor = db.execute(
        "INSERT INTO tickets (customer, charge, cents, subject, text, status) VALUES (?, ?, ?, ?, ?, 'open')",
        (charge["customer"], charge["id"], cents, subject, text),
    )
    return 201, _ticket(db, service.row(db, "tickets", cursor.lastrowid))


@service.route("GET", "/tickets/{ticket}")
def read_ticket(db: sqlite3.Connection, values: dict[str, str], request: Request) -> tuple[int, Body]:
    return 200, _ticket(db, service.row(db, "tickets", values["ticket"]))


@service.route("POST", "/tickets/{ticket}/replies", keyed=True)
def reply(db: sqlite3.Connection, values: dict[str, str], request: Request) -> tuple[int, Body]:
    ticket = service.row(db, "tickets", values["ticket"])
    text, at = service.text(request.body, "text"), now()
    cursor = db.execute("INSERT INTO replies (ticket, text, at) VALUES (?, ?, ?)", (ticket["id"], text, at))
    db.execute("UPDATE tickets SET status='answered' WHERE id=?", (ticket["id"],))
    return 201, {"id": f"rp_{cursor.lastrowid}", "ticket": ticket["id"], "text": text, "at": at}


def _ticket(db: sqlite3.Connection, row: sqlite3.Row) -> Body:
    customer = service.row(db, "customers", row["customer"])
    replies = db.execute("SELECT text, at FROM replies WHERE ticket=? ORDER BY number", (row["id"],))
    return {
        "id": row["id"],
        "customer": dict(customer),
        "charge": row["charge"],
        "asks_for": service.money(row["cents"]),
        "subject": row["subject"],
        "text": row["text"],
        "status": row["status"],
        "replies": [dict(each) for each in replies],
    }


@service.route("POST", "/charges", keyed=True)
def take_charge(db: sqlite3.Connection, values: dict[str, str], request: Request) -> tuple[int, Body]:
    customer = service.row(db, "customers", service.text(request.body, "customer"))
    cents, description = service.cents(request.body, "amount"), service.text(request.body, "description")
    number = db.execute("SELECT count(*) FROM charges").fetchone()[0]
    charge = f"ch_{9000 + number}"
    db.execute(
        "INSERT INTO charges VALUES (?, ?, ?, 'paid', ?)", (charge, customer["id"], cents, description)
    )
    return 201, _charge(db, charge)


@service.route("GET", "/charges/{charge}")
def read_charge(db: sqlite3.Connection, values: dict[str, str], request: Request) -> tuple[int, Body]:
    return 200, _charge(db, values["charge"])


@service.route("POST", "/charges/{charge}/dispute")
def dispute(db: sqlite3.Connection, values: dict[str, str], request: Request) -> tuple[int, Body]:
    """The customer's bank takes the payment back: from then on nothing can be refunded."""
    charge = service.row(db, "charges", values["charge"])
    db.execute("UPDATE charges SET status='disputed' WHERE id=?", (charge["id"],))
    return 200, _charge(db, charge["id"])


@service.route("POST", "/charges/{charge}/refunds", keyed=True)
def refund(db: sqlite3.Connection, values: dict[str, str], request: Request) -> tuple[int, Body]:
    """Give money back. The agents come here, and so does anybody with a shell: facts drift by it."""
    charge, cents = service.row(db, "charges", values["charge"]), service.cents(request.body, "amount")
    if charge["status"] != "paid":
        raise service.Refused(409, "not_refundable", f"Charge {charge['id']} is {charge['status']}.")
    left = charge["cents"] - _refunded(db, charge["id"])
    if cents > left:
        raise service.Refused(
            409, "amount_too_large", f"{service.money(left)} of charge {charge['id']} can still be refunded."
        )
    reason = str(request.body.get("reason") or "requested by customer")
    cursor = db.execute(
        "INSERT INTO refunds (charge, cents, reason, key, at) VALUES (?, ?, ?, ?, ?)",
        (charge["id"], cents, reason, request.key, now()),
    )
    if cents == left:
        db.execute("UPDATE charges SET status='refunded' WHERE id=?", (charge["id"],))
    return 201, _refund(service.row(db, "refunds", cursor.lastrowid, "number"))


@service.route("GET", "/refunds")
def list_refunds(db: sqlite3.Connection, values: dict[str, str], request: Request) -> tuple[int, Body]:
    """The refunds of a `charge` or under a `key`. None is an empty list, which no wrong address answers."""
    return 200, {
        "refunds": [_refund(row) for row in service.chosen(db, "refunds", ("charge", "key"), request)]
    }


def _charge(db: sqlite3.Connection, number: str) -> Body:
    row = service.row(db, "charges", number)
    return {
        "id": row["id"],
        "customer": row["customer"],
        "amount": service.money(row["cents"]),
        "currency": "EUR",
        "status": row["status"],
        "refunded": service.money(_refunded(db, number)),
        "description": row["description"],
    }


def _refunded(db: sqlite3.Connection, charge: str) -> int:
    total = db.execute("SELECT coalesce(sum(cents), 0) FROM refunds WHERE charge=?", (charge,)).fetchone()
    return int(total[0])


def _refund(row: sqlite3.Row) -> Body:
    return {
        "id": f"re_{7000 + row['number']}",
        "charge": row["charge"],
        "amount": service.money(row["cents"]),
        "reason": row["reason"],
        "key": row["key"],
        "at": row["at"],
    }
