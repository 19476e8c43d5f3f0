"""Jobs that tests give to a real worker. Each says what it saw in a line of the file it is given."""

import os
import signal
import sys
import time
from pathlib import Path

from runs import shutdown


def _say(file: str, word: object) -> None:
    with Path(file).open("a") as lines:
        lines.write(f"{word}\n")


def pid(file: str) -> None:
    _say(file, os.getpid())


def fail(file: str) -> None:
    _say(file, os.getpid())
    raise LookupError("as it was meant to")


def leave(file: str) -> None:
    """Ends its process without an answer, and calls that a success."""
    _say(file, os.getpid())
    os._exit(0)


def sleep(file: str) -> None:
    _say(file, os.getpid())
    time.sleep(600)


def spin(file: str) -> None:
    _say(file, os.getpid())
    while True:
        pass


def wait_for_file(file: str, gate: str) -> None:
    """Works until the gate is there, then says whether it has been asked to stop."""
    _say(file, os.getpid())
    while not Path(gate).exists():
        time.sleep(0.01)
    _say(file, shutdown.requested())


def alarm(file: str) -> None:
    """Uses the alarm as the loop does."""

    def ring(*_: object) -> None:
        raise TimeoutError

    _say(file, signal.getsignal(signal.SIGALRM) == signal.SIG_DFL)
    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 0.02)
    try:
        time.sleep(600)
    except TimeoutError:
        _say(file, "interrupted")
    finally:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


def hash_seed(file: str) -> None:
    _say(file, f"{os.environ['PYTHONHASHSEED']} {sys.flags.hash_randomization}")
