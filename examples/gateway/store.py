"""The service's SQLite file: its tables, one connection behind a lock, and the calls it has received.

A call is committed before anything is done with it, so that it stays readable however the call ends. What a
call does, and the answer kept under its idempotency key, are one transaction.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from examples.gateway import seed

TABLES = """
CREATE TABLE IF NOT EXISTS customers (id TEXT PRIMARY KEY, name TEXT NOT NULL, email TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS charges (id TEXT PRIMARY KEY, customer TEXT NOT NULL, cents INTEGER NOT NULL,
    status TEXT NOT NULL, description TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS refunds (number INTEGER PRIMARY KEY AUTOINCREMENT, charge TEXT NOT NULL, cents
    INTEGER NOT NULL, reason TEXT NOT NULL, key TEXT, at TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS tickets (id INTEGER PRIMARY KEY, customer TEXT NOT NULL, charge TEXT NOT NULL,
    cents INTEGER NOT NULL, subject TEXT NOT NULL, text TEXT NOT NULL, status TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS replies (number INTEGER PRIMARY KEY AUTOINCREMENT, ticket INTEGER NOT NULL, text
    TEXT NOT NULL, at TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS lists (id TEXT PRIMARY KEY, name TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS members (list TEXT NOT NULL, email TEXT NOT NULL, name TEXT NOT NULL, PRIMARY KEY
    (list, email));
CREATE TABLE IF NOT EXISTS mailings (number INTEGER PRIMARY KEY AUTOINCREMENT, list TEXT NOT NULL, subject
    TEXT NOT NULL, text TEXT NOT NULL, accepted INTEGER NOT NULL, at TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS vendors (id TEXT PRIMARY KEY, name TEXT NOT NULL, days INTEGER NOT NULL, per_cent
    INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS items (id TEXT PRIMARY KEY, name TEXT NOT NULL, cents INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS quotes (number INTEGER PRIMARY KEY AUTOINCREMENT, vendor TEXT NOT NULL, item TEXT
    NOT NULL, quantity INTEGER NOT NULL, cents INTEGER NOT NULL, expires_at TEXT NOT NULL, used INTEGER NOT
    NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS purchases (number INTEGER PRIMARY KEY AUTOINCREMENT, quote INTEGER NOT NULL
    UNIQUE, cost_centre TEXT NOT NULL, cents INTEGER NOT NULL, key TEXT, at TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS parcels (number INTEGER PRIMARY KEY AUTOINCREMENT, order_number INTEGER NOT NULL,
    key TEXT, at TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS payouts (number INTEGER PRIMARY KEY AUTOINCREMENT, charge TEXT NOT NULL, cents
    INTEGER NOT NULL, at TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS consent (id INTEGER PRIMARY KEY, token TEXT NOT NULL, given INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS entries (number INTEGER PRIMARY KEY AUTOINCREMENT, text TEXT NOT NULL, cents
    INTEGER NOT NULL, at TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS keys (key TEXT PRIMARY KEY, request TEXT NOT NULL, status INTEGER NOT NULL,
    answer TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS calls (id INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, method TEXT NOT
    NULL, path TEXT NOT NULL, query TEXT NOT NULL, key TEXT, body TEXT, fault TEXT, replayed INTEGER NOT
    NULL DEFAULT 0, status INTEGER);
CREATE INDEX IF NOT EXISTS calls_path ON calls (path);
CREATE INDEX IF NOT EXISTS refunds_charge ON refunds (charge);
CREATE INDEX IF NOT EXISTS refunds_key ON refunds (key);
CREATE INDEX IF NOT EXISTS purchases_key ON purchases (key);
"""


def now(*, plus: float = 0.0) -> str:
    """The time, `plus` seconds later: ISO 8601 in UTC, of one width, so that texts compare as times do."""
    moment = datetime.now(UTC) + timedelta(seconds=plus)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


class Store:
    """One SQLite connection shared by the server's threads. `transaction` is the only way to it."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.RLock()
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10)
        self._db.row_factory = sqlite3.Row
        # NORMAL with a write-ahead log keeps every commit when this process is killed, at no sync a call.
        self._db.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;")
        self._prepare()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """The connection, alone, in a transaction that commits at the end or leaves nothing."""
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def close(self) -> None:
        """Wait for the transaction under way, then close."""
        with self._lock:
            self._db.close()

    def received(self, *, method: str, path: str, query: str, key: str | None, body: str | None) -> int:
        """Keep a call before anything is done with it. Its number."""
        with self.transaction() as db:
            cursor = db.execute(
                "INSERT INTO calls (at, method, path, query, key, body) VALUES (?, ?, ?, ?, ?, ?)",
                (now(), method, path, query, key, body),
            )
            return int(cursor.lastrowid or 0)

    def answered(self, call: int, *, status: int | None, replayed: bool, fault: str | None) -> None:
        """Note how a call ended; a status of None: no answer was given."""
        with self.transaction() as db:
            db.execute(
                "UPDATE calls SET status=?, replayed=?, fault=? WHERE id=?", (status, replayed, fault, call)
            )

    def calls(self, filters: dict[str, str]) -> dict[str, Any]:
        """The calls in order of arrival, filtered by `path` (a glob), `method`, `key`, `after` (a number)."""
        conditions = {"path": "path GLOB ?", "method": "method = ?", "key": "key = ?", "after": "id > ?"}
        chosen = [name for name in conditions if name in filters]
        where = " AND ".join(conditions[name] for name in chosen) or "1"
        values = [int(filters[name]) if name == "after" else filters[name] for name in chosen]
        with self.transaction() as db:
            rows = db.execute(f"SELECT * FROM calls WHERE {where} ORDER BY id", values).fetchall()
        return {"count": len(rows), "calls": [_shown(row) for row in rows]}

    def _prepare(self) -> None:
        with self.transaction() as db:
            filled = db.execute("SELECT 1 FROM sqlite_master WHERE name='calls'").fetchone()
            for statement in TABLES.split(";"):  # also those an older version did not have
                db.execute(statement)
            if not filled:
                seed.fill(db, at=now())


def decoded(text: str) -> Any:
    """The value of a JSON text. Raises ValueError for what is none, is too deep, or cannot be stored."""
    try:
        value = json.loads(text, parse_constant=_no_number)
        json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair could not be stored or sent
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    return value


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is not a number in JSON")


def _shown(row: sqlite3.Row) -> dict[str, Any]:
    call = dict(row)
    call["replayed"] = bool(call["replayed"])
    call["idempotency_key"] = call.pop("key")
    if call["body"] is not None:
        with suppress(ValueError):  # what is no JSON is shown as it came
            call["body"] = decoded(call["body"])
    return call
