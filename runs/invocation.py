"""Running one tool, or several side by side, and saying what is known of the outcome.

A single call runs in the main thread under a timer; those of one `together` each in a thread of their own.
Tools never touch the tables of runs: a connection they use refuses it. Nothing is written here; what is known
comes back as a `Known`, and only a receipt, `NotSent` and declared refusals are certain for an effect.
"""

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from django.db import close_old_connections, connection, connections

from runs import points, recorded, timers
from runs.exceptions import BadValue, NotSent, TimedOut, ToolFailed
from runs.tools.calls import Call
from runs.tools.declared import Tool, ToolContext

#: returned: a receipt. refused: certainly not done. unsent: the connection was never made. raised: a pure
#: tool failed. unknown: an effect that may or may not have happened.
Kind = Literal["returned", "refused", "unsent", "raised", "unknown"]


@dataclass(frozen=True, slots=True)
class Known:
    """What is known after a call: `text` is the result, or the recorded error."""

    kind: Kind
    text: str
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A call that may start now, with the arguments to send and what its tool is told."""

    call: Call[Any]
    arguments: str
    context: ToolContext


def run(job: Job) -> Known:
    """One call in this thread, under its time limit."""
    tool = job.call.tool
    try:
        with timers.limit(tool.properties.timeout), _no_tables_of_ours():
            value = _perform(job)
    except timers.OutOfTime:
        return _failed(tool, TimedOut(tool.properties.timeout))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # an author's code, which may also exit: a record comes of it
        return _failed(tool, error)
    points.reach("after-call-before-record")
    return _returned(job.call, value)


def run_together(jobs: Sequence[Job]) -> Iterator[tuple[Job, Known]]:
    """Several calls in daemon threads; each as it is known. One that never ends is unknown at its limit."""
    if len(jobs) == 1:
        yield jobs[0], run(jobs[0])
        return
    found: queue.Queue[tuple[int, Known]] = queue.Queue()
    for place, job in enumerate(jobs):
        threading.Thread(target=_run_apart, args=(place, job, found), daemon=True).start()
    started, waiting = time.monotonic(), dict(enumerate(jobs))
    while waiting:
        nearest = min(job.call.tool.properties.timeout for job in waiting.values())
        try:
            place, known = found.get(timeout=max(0.0, started + nearest - time.monotonic()))
        except queue.Empty:
            for place in [p for p, j in waiting.items() if j.call.tool.properties.timeout <= nearest]:
                late = waiting.pop(place)
                yield late, _failed(late.call.tool, TimedOut(late.call.tool.properties.timeout))
            continue
        if place in waiting:
            yield waiting.pop(place), known


def _run_apart(place: int, job: Job, found: "queue.Queue[tuple[int, Known]]") -> None:
    close_old_connections()
    try:
        known = run(job)
    finally:
        connections.close_all()
    found.put((place, known))


def _perform(job: Job) -> Any:
    call, tool = job.call, job.call.tool
    if call.perform is not None:
        return call.perform()
    arguments = tool.signature.read(job.arguments)
    return tool.function(job.context, **arguments) if tool.takes_context else tool.function(**arguments)


def _returned(call: Call[Any], value: Any) -> Known:
    """A result; one that cannot be kept is recorded as the tool's failure: it did return."""
    try:
        return Known("returned", call.returns.write(value))
    except BadValue as error:
        failed = ToolFailed("BadResult", f"{call.tool.name} returned what cannot be kept: {error}")
        return Known("raised", recorded.write(failed, ()), failed)


def _failed(tool: Tool[..., Any], error: BaseException) -> Known:
    text = recorded.write(error, tool.recorded_errors)
    if isinstance(error, NotSent):
        return Known("unsent", text, error)
    if not tool.properties.effect:
        return Known("raised", text, error)
    if isinstance(error, tool.properties.refuses):
        return Known("refused", text, error)
    return Known("unknown", text, error)


@contextmanager
def _no_tables_of_ours() -> Iterator[None]:
    """Refuses SQL on the tables of runs while a tool has the thread."""
    with connection.execute_wrapper(_refuse):
        yield


def _refuse(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
    if '"runs_' in sql or '"approvals_' in sql:
        raise ToolFailed("TouchesRuns", "a tool must not touch the tables of runs; return a value instead")
    return execute(sql, params, many, context)
