"""Which rooms a process passed through, without touching them: the interpreter's own profile says so.

One line a call, written at once, so that a process that is killed has said how far it came.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from runs import effects, endings, gate, holds, lifecycle, replay, snapshots
from runs.execution import calls
from runs.execution.drive import Drive

FILE = "TEST_TRACE"
#: The way through the machinery, by what each function is called here.
WATCHED: dict[CodeType, str] = {
    function.__code__: name
    for name, function in {
        "take": lifecycle.taking,
        "load": Drive.first.__func__,  # type: ignore[attr-defined]
        "check": snapshots.check,
        "advance": replay.Conversation.advance,
        "outcome": replay.outcome,
        "pass": calls._pass,
        "arrive": gate.arrive,
        "come_back": gate.come_back,
        "resolve": effects.resolve,
        "place": holds.place,
        "park": lifecycle.park,
        "release": holds.release_locked,
        "resume": lifecycle.resume,
        "finish": endings.finish,
    }.items()
} | {lifecycle.resume_known.__code__: "resume"}


def start(file: Path) -> None:
    """From now on this thread writes down what it passes."""
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def look(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and (name := WATCHED.get(frame.f_code)):
            os.write(descriptor, f"{name}\n".encode())

    sys.setprofile(look)


@contextmanager
def tracing(file: Path) -> Iterator[None]:
    before = sys.getprofile()
    start(file)
    try:
        yield
    finally:
        sys.setprofile(before)


def passed(file: Path) -> list[str]:
    """The names, in order; the file is empty afterwards."""
    found = file.read_text().split() if file.exists() else []
    file.write_text("")
    return found
