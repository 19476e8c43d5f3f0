"""Failures on request: the next N calls of a path go wrong in a named way.

hang   the call waits, then is carried out and answered     503    answered 503, not carried out
late   carried out at once, answered after the wait         drop   carried out, then the connection is closed
                                                            lose   the connection is closed, not carried out

Faults live in memory: a restart forgets them. Clearing them also lets every waiting call go on at once, so
that tests need no long waits. Every call is kept, whatever becomes of it.
"""

from __future__ import annotations

import fnmatch
import threading
from dataclasses import asdict, dataclass
from typing import Any

KINDS = ("hang", "late", "503", "drop", "lose")


@dataclass
class Fault:
    """One failure: its kind, which calls it meets (`path` is a glob), how many are left, the wait."""

    kind: str
    path: str
    method: str | None = None
    times: int = 1
    seconds: float = 60.0

    def meets(self, method: str, path: str) -> bool:
        return self.method in (None, method) and fnmatch.fnmatchcase(path, self.path)


class Faults:
    """The failures asked for, oldest first. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[Fault] = []
        self._cleared = threading.Event()

    def add(self, fault: Fault) -> None:
        with self._lock:
            self._waiting.append(fault)

    def take(self, method: str, path: str) -> tuple[Fault, threading.Event] | None:
        """The fault this call meets, counted down, with the event that ends its wait early."""
        with self._lock:
            for fault in self._waiting:
                if fault.meets(method, path):
                    fault.times -= 1
                    self._waiting = [each for each in self._waiting if each.times > 0]
                    return fault, self._cleared
        return None

    def clear(self, path: str | None = None) -> None:
        """Forget all faults, or those of one path as it was given, and let the calls that wait go on."""
        with self._lock:
            self._waiting = [fault for fault in self._waiting if path not in (None, fault.path)]
            self._cleared.set()
            self._cleared = threading.Event()

    def shown(self) -> list[dict[str, Any]]:
        with self._lock:
            return [asdict(fault) for fault in self._waiting]
