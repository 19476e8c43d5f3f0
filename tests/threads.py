"""Several at once, in threads with connections and commits of their own; and one right behind the other.

`together(*work)` starts all at the same moment and gives what came of each, results or conflicts, in order.
`behind(lock, first, second)` lets `second` wait for a row that `first` has locked: the order is certain.
`in_turn(lock, *work)` lets all of them wait for a row that somebody else has locked, in a certain order: each has
read what it reads first before any of them writes.
`standing(work, point)` is a worker that stands at a named point until it is let on.

Whatever is not a conflict that the product tells of, a deadlock for one, is raised by the test.
"""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from django.db import connection, connections, transaction

from approvals.exceptions import ApprovalsError
from runs import points
from runs.exceptions import RunsError

Work = Callable[[], Any]
PATIENCE = 20.0  # seconds


def together(*work: Work, late: int | None = None, by: float = 0.0) -> list[Any]:
    """`late` starts `by` seconds after the others."""
    barrier = threading.Barrier(len(work))
    found: list[Any] = [None] * len(work)

    def do(place: int) -> None:
        connection.ensure_connection()
        barrier.wait(timeout=10)
        if place == late:
            time.sleep(by)
        found[place] = attempt(work[place])

    _run([lambda place=place: do(place) for place in range(len(work))])  # type: ignore[misc]
    return found


def attempt(work: Work) -> Any:
    """Its result, or the conflict it lost by; any other error is raised by the test."""
    try:
        return work()
    except (RunsError, ApprovalsError) as conflict:
        return conflict


def behind(lock: Work, first: Work, second: Work) -> tuple[Any, Any]:
    """`first` commits while `second` already waits for what `lock` locked(or what `second` set going)."""
    later = _Apart(second)
    try:
        with transaction.atomic():
            lock()
            later.start()
            _until_waiting(1)
            done = attempt(first)
    finally:
        later.join()
    return done, later.found()


def in_turn(lock: Work, *work: Work) -> list[Any]:
    """Each waits for what `lock` locked, in this order; then it is let go, and nothing of it was changed.

    PostgreSQL serves those who wait for a row one after the other, so what came of each is certain.
    """
    apart = [_Apart(one) for one in work]
    try:
        with transaction.atomic():
            lock()
            for number, one in enumerate(apart, 1):
                one.start()
                _until_waiting(number)
    finally:
        for one in apart:
            one.join()
    return [one.found() for one in apart]


@contextmanager
def standing(work: Work, point: str, when: Callable[[], object] = lambda: True) -> Iterator[Work]:
    """`work` in a thread of its own, where it stands at `point` the first time it comes there (and `when` is so).
    Gives what lets it go on and tells what came of it."""
    stands, goes = threading.Event(), threading.Event()

    def stand() -> None:
        if not stands.is_set() and when():
            stands.set()
            goes.wait(PATIENCE)

    def go_on() -> Any:
        goes.set()
        apart.join()
        return apart.found()

    apart = _Apart(work)
    with points.on(point, stand):
        apart.start()
        try:
            assert stands.wait(PATIENCE), f"nobody came to {point}"
            yield go_on
        finally:
            goes.set()
            apart.join()


class Answered:
    """Work of which others can wait for the answer: at a point, before they go on."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._done = threading.Event()

    def __call__(self) -> Any:
        try:
            return self._work()
        finally:
            self._done.set()

    def wait(self) -> None:
        assert self._done.wait(PATIENCE)


class _Apart:
    """Work in a thread with a connection of its own."""

    def __init__(self, work: Work) -> None:
        self._future: Future[Any] = Future()
        self._thread = threading.Thread(target=self._do, args=(work,))

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        if self._thread.ident is not None:
            self._thread.join(timeout=PATIENCE)
            assert not self._thread.is_alive(), "it does not end"

    def found(self) -> Any:
        """What came of it; what is no conflict is raised."""
        return self._future.result(0)

    def _do(self, work: Work) -> None:
        try:
            self._future.set_result(attempt(work))
        except BaseException as error:
            self._future.set_exception(error)
        finally:
            connections.close_all()


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


def _closing(work: Work, errors: list[BaseException]) -> None:
    try:
        work()
    except BaseException as error:
        errors.append(error)
    finally:
        connections.close_all()


def _until_waiting(many: int) -> None:
    """Until so many connections of this database wait for a lock."""
    deadline = time.monotonic() + 10
    with connection.cursor() as cursor:
        while time.monotonic() < deadline:
            cursor.execute("SELECT pg_stat_clear_snapshot()")  # else a transaction sees what it saw first
            cursor.execute(
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE datname = current_database() AND wait_event_type = 'Lock'"
            )
            if cursor.fetchone()[0] >= many:
                return
            time.sleep(0.005)
    raise AssertionError(f"fewer than {many} wait for the lock")
