"""Several at once, in threads with connections and commits of their own; and one right behind the other.

`together(*work)` starts all at the same moment and gives what came of each, results or errors, in order.
`behind(lock, first, second)` lets `second` wait for a row that `first` has locked: the order is certain.
"""

import threading
import time
from collections.abc import Callable
from typing import Any

from django.db import connection, connections, transaction

from runs.exceptions import RunsError

Work = Callable[[], Any]


def together(*work: Work) -> list[Any]:
    barrier = threading.Barrier(len(work))
    found: list[Any] = [None] * len(work)

    def do(place: int) -> None:
        connection.ensure_connection()
        barrier.wait(timeout=10)
        found[place] = attempt(work[place])

    _run([lambda place=place: do(place) for place in range(len(work))])  # type: ignore[misc]
    return found


def attempt(work: Work) -> Any:
    """Its result, or the conflict it lost by; any other error is raised by the test."""
    try:
        return work()
    except RunsError as conflict:
        return conflict


def behind(lock: Work, first: Work, second: Work) -> tuple[Any, Any]:
    """`first` commits while `second` already waits for what `lock` locked(or what `second` set going)."""
    found: list[Any] = [None]
    thread = threading.Thread(target=_closing, args=(lambda: found.__setitem__(0, attempt(second)),))
    with transaction.atomic():
        lock()
        thread.start()
        _until_somebody_waits()
        done = attempt(first)
    thread.join(timeout=10)
    assert not thread.is_alive()
    return done, found[0]


def elsewhere(work: Work) -> Any:
    """In another thread, with another connection, to its end."""
    found: list[Any] = [None]
    _run([lambda: found.__setitem__(0, attempt(work))])
    return found[0]


def _run(work: list[Work]) -> None:
    errors: list[BaseException] = []
    threads = [threading.Thread(target=_closing, args=(one, errors)) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
        assert not thread.is_alive()
    if errors:
        raise errors[0]


def _closing(work: Work, errors: list[BaseException] | None = None) -> None:
    try:
        work()
    except BaseException as error:
        if errors is None:
            raise
        errors.append(error)
    finally:
        connections.close_all()


def _until_somebody_waits() -> None:
    deadline = time.monotonic() + 10
    with connection.cursor() as cursor:
        while time.monotonic() < deadline:
            cursor.execute("SELECT pg_stat_clear_snapshot()")  # else a transaction sees what it saw first
            cursor.execute(
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE datname = current_database() AND wait_event_type = 'Lock'"
            )
            if cursor.fetchone()[0]:
                return
            time.sleep(0.005)
    raise AssertionError("nobody waits for the lock")
