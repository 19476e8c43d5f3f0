"""Named places where tests may stop or kill a process; no-ops otherwise.

They stand before and after each commit and each call that goes outside. `ABEYANCE_POINTS` (read once, at import)
names what happens: `NAME=kill:FILE` kills the process there, once, by claiming FILE; `NAME=wait:FILE` waits there
while FILE exists; parts are separated by `;`. Tests in the same process use `on(name, action)`, and `watch` for all
of them. Production sets none, and a point is one look at an empty dictionary.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from django.db import transaction

EVERY = ""  # stands for the points that have no action of their own
_actions: dict[str, Callable[[str], object]] = {}


def reach(name: str) -> None:
    """Called by the code at the place `name`."""
    if _actions and (action := _actions.get(name) or _actions.get(EVERY)):
        action(name)


def committing(what: str) -> None:
    """Called in a transaction when `what` is written: two places, `committing-…` here and `committed-…` as soon as
    it is committed."""
    if _actions:
        reach(f"committing-{what}")
        transaction.on_commit(lambda: reach(f"committed-{what}"))


@contextmanager
def on(name: str, action: Callable[[], object]) -> Iterator[None]:
    """For tests in the same process: `action()` runs whenever `name` is reached."""
    with _acting(name, lambda _: action()):
        yield


@contextmanager
def watch(saw: Callable[[str], object]) -> Iterator[None]:
    """For tests in the same process: `saw(name)` runs whenever any point is reached, but for those of `on`."""
    with _acting(EVERY, saw):
        yield


@contextmanager
def _acting(name: str, action: Callable[[str], object]) -> Iterator[None]:
    _actions[name] = action
    try:
        yield
    finally:
        _actions.pop(name, None)


def _kill(claim: Path) -> None:
    try:
        claim.unlink()
    except FileNotFoundError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def _wait(gate: Path) -> None:
    gate.with_suffix(".reached").touch()
    while gate.exists():
        time.sleep(0.01)


def _parse(text: str) -> None:
    for part in filter(None, text.split(";")):
        name, _, action = part.partition("=")
        verb, _, file = action.partition(":")
        act = {"kill": _kill, "wait": _wait}[verb]
        _actions[name] = lambda _, act=act, file=file: act(Path(file))  # type: ignore[misc]


_parse(os.environ.get("ABEYANCE_POINTS", ""))
