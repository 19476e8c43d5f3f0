"""A durable PostgreSQL of the tests' own, and on it the people, rules and world of the desk."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from django.db import connection

from approvals import policies
from config import embedded
from tests.approvals import desk
from tests.crashes.own_postgres import TEMPLATE, Server, elsewhere

#: Nobody but the session that is measured writes the log of changes, or syncs it for that session.
ALONE = {"autovacuum": "off", "wal_writer_delay": "10s", "checkpoint_timeout": "1h"}


@pytest.fixture(scope="session")
def durable() -> Iterator[Server]:
    home = Path(
        tempfile.mkdtemp(prefix="abeyance-")
    )  # not tmp_path: the name of a socket has room for 107 bytes
    server = Server(
        home, durable=True, flags=tuple(p for name, to in ALONE.items() for p in ("-c", f"{name}={to}"))
    )
    try:
        server.migrate()
        yield server
    finally:
        server.stop()
        shutil.rmtree(home)


@pytest.fixture
def people(
    rules: list[dict[str, Any]], durable: Server, django_db_blocker: Any, settings: Any
) -> Iterator[SimpleNamespace]:
    """Everything is committed for real, in a database of this test's own; nothing happens by the hour."""
    settings.LEASE, settings.HEARTBEAT, settings.SLICE = 600.0, 600.0, 600.0
    name = f"costs_{os.urandom(4).hex()}"
    durable.execute(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE}")
    place = {"NAME": name, "HOST": str(durable.sockets), "PORT": "", "USER": embedded.OWNER, "PASSWORD": ""}
    with django_db_blocker.unblock(), elsewhere(**place):
        desk.world.reset()
        policies.seed(rules)
        connection.ensure_connection()
        yield SimpleNamespace(ana=desk.person("ana", "refunds"), ben=desk.person("ben", "refunds"))
        _empty_queue(settings.REDIS_URL)
    durable.execute(f"DROP DATABASE {name} WITH (FORCE)")


def _empty_queue(url: str) -> None:
    with redis.Redis.from_url(url) as queue:
        if jobs := list(queue.scan_iter("rq:*")):
            queue.delete(*jobs)
