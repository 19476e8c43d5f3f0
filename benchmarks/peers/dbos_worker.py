"""DBOS Transact: the process that runs workflows.

    python dbos_worker.py DATABASE_URL

An approval is `DBOS.recv`: the workflow keeps a thread while it waits. `set_event` says that it waits, as an
application must that shows what is pending. The same version at every start, so that it recovers its own.
"""

import sys
import threading
import time
from typing import Any

from dbos import DBOS, SetWorkflowID
from saying import serve

WEEK = 7 * 86400
DBOS(
    config={
        "name": "bench",
        "system_database_url": sys.argv[1],
        "log_level": "ERROR",
        "application_version": "1",
    }
)
marks: dict[str, float] = {}
waits: dict[str, float] = {}
entered: dict[str, float] = {}
_lock = threading.Lock()


@DBOS.step()
def step(text: str) -> str:
    return text


@DBOS.step()
def next_line(name: str) -> str:
    marks[name] = time.monotonic()
    return name


@DBOS.workflow()
def steps(count: int, text: str) -> float:
    step(text)
    began = time.monotonic()
    for _ in range(count):
        step(text)
    return time.monotonic() - began


@DBOS.workflow()
def waiter(count: int, text: str) -> str:
    name = DBOS.workflow_id
    entered[name] = time.monotonic()
    for _ in range(count):
        step(text)
    DBOS.set_event("waiting", True)
    with _lock:
        waits[name] = time.monotonic()
    DBOS.recv("approval", timeout_seconds=WEEK)
    return next_line(name)


def do_steps(count: int, text: str) -> dict[str, Any]:
    return {"ms": steps(count, text) * 1e3 / count}


def do_suspend(names: list[str], count: int, text: str) -> dict[str, Any]:
    """One after the other: from starting each until it waits durably, in ms."""
    found = []
    for name in names:
        began = time.monotonic()
        start(name, count, text)
        until(lambda name=name: name in waits)
        found.append((waits[name] - began) * 1e3)
    return {"ms": found}


def do_start(names: list[str], count: int, text: str) -> dict[str, Any]:
    """All at once; seconds until all of them wait."""
    began = time.monotonic()
    for name in names:
        start(name, count, text)
    until(lambda: all(name in waits for name in names))
    return {"seconds": time.monotonic() - began, "threads": threading.active_count()}


def do_went_on(names: list[str]) -> dict[str, Any]:
    """When each came to the line after the approval."""
    until(lambda: all(name in marks for name in names))
    return {"marks": {name: marks[name] for name in names}}


def do_recovered(names: list[str]) -> dict[str, Any]:
    """After a restart: from each workflow's first line to where it waits again, in ms."""
    until(lambda: all(name in waits for name in names))
    return {"ms": [(waits[name] - entered[name]) * 1e3 for name in names]}


def start(name: str, count: int, text: str) -> None:
    with SetWorkflowID(name):
        DBOS.start_workflow(waiter, count, text)


def until(true: Any) -> None:
    """Half a millisecond at a time. The marks are taken where things happen, so this delays none."""
    give_up = time.monotonic() + 280
    while not true():
        if time.monotonic() > give_up:
            raise SystemExit("DBOS did not get there")
        time.sleep(0.0005)


if __name__ == "__main__":
    DBOS.launch()
    verbs = {"steps": do_steps, "suspend": do_suspend, "start": do_start}
    serve({**verbs, "went_on": do_went_on, "recovered": do_recovered})
