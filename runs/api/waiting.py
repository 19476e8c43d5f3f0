"""The long-poll: an answer that waits until its run moves.

A waiter sleeps between looks and holds no transaction; waiters of one run share a look. At most MAX_WAITERS
of a process's threads may wait, so that some are always left for pages: whoever comes after is answered at
once.
"""

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from django.db.models import F

from runs.models import Run

MAX_WAITERS = 8
EVERY = 0.3  # seconds between two looks
RETRY_AFTER = 2  # seconds, for those who find no place

_places = threading.BoundedSemaphore(MAX_WAITERS)
_seen: dict[uuid.UUID, tuple[float, int | None]] = {}


@contextmanager
def place() -> Iterator[bool]:
    """A place to wait in, for as long as the block; False: all are taken."""
    got = _places.acquire(blocking=False)
    try:
        yield got
    finally:
        if got:
            _places.release()


def until_moved(run_id: uuid.UUID, since: int, seconds: float) -> None:
    """Returns when the run has moved on from the version `since`, or the time is over."""
    deadline = time.monotonic() + seconds
    # Not `==`: a shared look may be older than the version the caller knows.
    while (found := _version(run_id)) is not None and found <= since:
        left = deadline - time.monotonic()
        if left <= 0:
            return
        time.sleep(min(EVERY, left))


def _version(run_id: uuid.UUID) -> int | None:
    """What `serializers.version` says, by one look for all who wait for this run; None: no such row."""
    now = time.monotonic()
    at, found = _seen.get(run_id, (0.0, None))
    if now - at < EVERY / 2 and at:
        return found
    if len(_seen) > 4 * MAX_WAITERS:
        _seen.clear()
    found = Run.objects.filter(pk=run_id).values_list(F("seq") + F("position"), flat=True).first()
    _seen[run_id] = (now, found)
    return found
