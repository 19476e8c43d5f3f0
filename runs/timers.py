"""A time limit on code of others in the main thread, by the process's one interval timer.

The timer raises in the code; code that swallows it is interrupted again each second, and the fourth time
the process ends at once: the lease does the rest. A limit around another goes on after it. Off the main
thread (tests, the admin) there is no limit.
"""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

AGAIN_EVERY = 1.0
PATIENCE = 4


class OutOfTime(BaseException):
    """Raised inside code that ran past its limit. Not an Exception: broad handlers must not swallow it."""


@contextmanager
def limit(seconds: float) -> Iterator[None]:
    """Raises OutOfTime in the body after `seconds`."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    fired, over = 0, False

    def interrupt(signum: int, frame: FrameType | None) -> None:
        nonlocal fired
        if over:
            return
        fired += 1
        if fired >= PATIENCE:
            os._exit(70)
        raise OutOfTime

    before, started = signal.signal(signal.SIGALRM, interrupt), time.monotonic()
    outer, interval = signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_EVERY)
    try:
        yield
    finally:
        try:
            over = True
        finally:  # also when the alarm rang at the last moment: no timer stays armed behind us
            left = max(0.001, outer - (time.monotonic() - started)) if outer else 0.0
            signal.signal(signal.SIGALRM, before)
            signal.setitimer(signal.ITIMER_REAL, left, interval)
