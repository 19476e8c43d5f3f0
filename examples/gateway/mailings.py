"""Mailing lists and what was sent to them: at once, to all, for good."""

from __future__ import annotations

import sqlite3

from examples.gateway import service
from examples.gateway.service import Body, Request
from examples.gateway.store import now


@service.route("GET", "/lists/{list}")
def read_list(db: sqlite3.Connection, values: dict[str, str], request: Request) -> tuple[int, Body]:
    found = service.row(db, "lists", values["list"])
    size = db.execute("SELECT count(*) FROM members WHERE list=?", (found["id"],)).fetchone()[0]
    return 200, {"id": found["id"], "name": found["name"], "size": size}


@service.route("GET", "/lists/{list}/members")
def read_members(db: sqlite3.Connection, values: dict[str, str], request: Request) -> tuple[int, Body]:
    found = service.row(db, "lists", values["list"])
    rows = db.execute(
        "SELECT email, name FROM members WHERE list=? ORDER BY email", (found["id"],)
    ).fetchall()
    return 200, {"members": [dict(row) for row in rows]}


@service.route("DELETE", "/lists/{list}/members/{email}")
def unsubscribe(db: sqlite3.Connection, values: dict[str, str], request: Request) -> tuple[int, Body]:
    """Somebody leaves the list, perhaps while a mailing to it waits for its decision."""
    left = db.execute("DELETE FROM members WHERE list=? AND email=?", (values["list"], values["email"]))
    if left.rowcount == 0:
        raise service.Refused(404, "not_found", f"{values['email']} is not on the list {values['list']}.")
    return 200, {"list": values["list"], "email": values["email"], "subscribed": False}


@service.route("POST", "/mailings")
def send_mailing(db: sqlite3.Connection, values: dict[str, str], request: Request) -> tuple[int, Body]:
    """Send at once to all. It cannot be called back, and a second call sends a second time, key or no key."""
    found = service.row(db, "lists", service.text(request.body, "list"))
    subject, text = service.text(request.body, "subject", limit=200), service.text(request.body, "text")
    accepted = len(service.emails(request.body, "recipients"))
    cursor = db.execute(
        "INSERT INTO mailings (list, subject, text, accepted, at) VALUES (?, ?, ?, ?, ?)",
        (found["id"], subject, text, accepted, now()),
    )
    return 201, _mailing(service.row(db, "mailings", cursor.lastrowid, "number"))


@service.route("GET", "/mailings")
def list_mailings(db: sqlite3.Connection, values: dict[str, str], request: Request) -> tuple[int, Body]:
    return 200, {
        "mailings": [_mailing(row) for row in service.chosen(db, "mailings", ("list", "subject"), request)]
    }


def _mailing(row: sqlite3.Row) -> Body:
    return {
        "id": f"ml_{row['number']}",
        "list": row["list"],
        "subject": row["subject"],
        "accepted": row["accepted"],
        "at": row["at"],
    }
