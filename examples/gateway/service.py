"""What carries a call out, without HTTP: the table of addresses, idempotency keys, reading what was sent.

The functions behind the addresses are in `payments`, `mailings`, `purchasing` and `office`. A function gets the open
transaction, the values from the address, and the request; it returns status and body or raises `Refused`,
which is an answer too (a code and a sentence). Money goes in and out as text with two decimals. Calls
marked `keyed` honour an idempotency key: the first answer is kept and given again. Mailings do not, on
purpose.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any
from urllib.parse import unquote

from examples.gateway.store import Store

Body = dict[str, Any]
MONEY = re.compile(r"[0-9]{1,9}\.[0-9]{2}")
EMAIL = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")
QUOTE_SECONDS = 2 * 3600.0


class Refused(Exception):
    """The call is well understood and not carried out. Status, a code for programs, a sentence for people."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(status, code, detail)
        self.answer = Answer(status, {"code": code, "detail": detail})


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    body: Body = field(default_factory=dict)
    query: dict[str, str] = field(default_factory=dict)
    key: str | None = None
    quote_seconds: float = QUOTE_SECONDS
    token: str = ""


@dataclass(frozen=True)
class Answer:
    """A body of nothing but a `page` is HTML; any other is JSON."""

    status: int
    body: Body
    replayed: bool = False


Action = Callable[[sqlite3.Connection, dict[str, str], Request], tuple[int, Body]]
Guard = Callable[[sqlite3.Connection, Request], None]


@dataclass(frozen=True)
class Route:
    method: str
    pattern: re.Pattern[str]
    action: Action
    keyed: bool
    guard: Guard | None


ROUTES: list[Route] = []


def route(
    method: str, path: str, *, keyed: bool = False, guard: Guard | None = None
) -> Callable[[Action], Action]:
    """Answer `path` with the function; `{name}` in it becomes a value. `guard` refuses who may not call: no key
    keeps that answer, since the same call with the right token is another call."""
    pattern = re.compile(re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", path))

    def register(action: Action) -> Action:
        ROUTES.append(Route(method, pattern, action, keyed, guard))
        return action

    return register


def perform(store: Store, request: Request) -> Answer:
    """Carry out one call: find its route, give the kept answer or make one, all in one transaction."""
    try:
        found, values = _find(request)
        with store.transaction() as db:
            if found.guard:
                found.guard(db, request)
            if request.key and found.keyed:
                return _once(db, found, values, request)
            return Answer(*found.action(db, values, request))
    except Refused as refused:
        return refused.answer


def _find(request: Request) -> tuple[Route, dict[str, str]]:
    matches = [(each, each.pattern.fullmatch(request.path)) for each in ROUTES]
    here = [(each, match) for each, match in matches if match]
    for each, match in here:
        if each.method == request.method:
            return each, {name: unquote(value) for name, value in match.groupdict().items()}
    if here:
        raise Refused(405, "method_not_allowed", f"{request.path} does not answer {request.method}.")
    raise Refused(404, "not_found", f"There is nothing at {request.path}.")


def _once(db: sqlite3.Connection, found: Route, values: dict[str, str], request: Request) -> Answer:
    """The first answer under this key, again; a refusal is an answer and is kept as well."""
    same = json.dumps([request.method, request.path, request.body], sort_keys=True)
    kept = db.execute("SELECT * FROM keys WHERE key=?", (request.key,)).fetchone()
    if kept:
        if kept["request"] != same:
            raise Refused(409, "idempotency_conflict", "This key was used before, with another request.")
        return Answer(kept["status"], json.loads(kept["answer"]), replayed=True)
    try:
        answer = Answer(*found.action(db, values, request))
    except Refused as refused:  # actions refuse before they write, so there is nothing to take back
        answer = refused.answer
    row = (request.key, same, answer.status, json.dumps(answer.body))
    db.execute("INSERT INTO keys VALUES (?, ?, ?, ?)", row)
    return answer


# -- Reading what was sent, writing what is kept ------------------------------


def text(body: Body, name: str, *, limit: int = 20_000) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not value.strip() or len(value) > limit:
        raise Refused(422, "invalid", f"{name}: a text of 1 to {limit} characters is needed.")
    return value


def cents(body: Body, name: str) -> int:
    value = body.get(name)
    if not isinstance(value, str) or not MONEY.fullmatch(value) or Decimal(value) == 0:
        raise Refused(
            422, "invalid", f'{name}: an amount above zero as text with two decimals, like "240.00".'
        )
    return int(Decimal(value) * 100)


def whole(body: Body, name: str, *, limit: int = 10_000) -> int:
    value = body.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= limit:
        raise Refused(422, "invalid", f"{name}: a whole number from 1 to {limit} is needed.")
    return value


def emails(body: Body, name: str) -> list[str]:
    value = body.get(name)
    if not isinstance(value, list) or not 1 <= len(value) <= 50_000:
        raise Refused(422, "invalid", f"{name}: a list of 1 to 50,000 addresses is needed.")
    for index, each in enumerate(value):
        if not isinstance(each, str) or not EMAIL.fullmatch(each):
            raise Refused(422, "invalid", f"{name}[{index}] is not an e-mail address.")
    if len(set(value)) < len(value):
        raise Refused(422, "invalid", f"{name} names an address twice.")
    return value


def row(db: sqlite3.Connection, table: str, number: object, column: str = "id") -> sqlite3.Row:
    found: sqlite3.Row | None = db.execute(f"SELECT * FROM {table} WHERE {column}=?", (number,)).fetchone()
    if found is None:
        raise Refused(404, "not_found", f"There is no {number} among the {table}.")
    return found


def money(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02d}"


def chosen(db: sqlite3.Connection, table: str, names: tuple[str, ...], request: Request) -> list[sqlite3.Row]:
    chosen = [name for name in names if name in request.query]
    where = " AND ".join(f"{name}=?" for name in chosen) or "1"
    values = [request.query[name] for name in chosen]
    return db.execute(f"SELECT * FROM {table} WHERE {where} ORDER BY number", values).fetchall()
