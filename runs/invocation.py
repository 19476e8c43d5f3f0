"""Running one tool, or several side by side, and saying what is known of the outcome.

A single call runs in the main thread under a timer; those of one `together` each in a thread of their own.
Tools never touch the tables of runs: a connection they use refuses it. Nothing is written here; what is known
comes back as a `Known`, and only a receipt, `NotSent` and declared refusals are certain for an effect.
"""

import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from django.db import close_old_connections, connection, connections

from runs import points, recorded, redaction, timers, values
from runs.exceptions import (
    BadValue,
    CredentialRefused,
    NeedsAuthorisation,
    NotSent,
    TimedOut,
    ToolFailed,
    Unavailable,
)
from runs.tools.calls import Call
from runs.tools.declared import Tool, ToolContext

#: returned: a receipt. refused: certainly not done. unsent: the connection was never made. obstructed: nothing
#: was done, and what is in the way has a name. raised: a pure tool failed. unknown: an effect that may or may
#: not have happened. compensated: it may have happened, and was undone on a person's word.
Kind = Literal["returned", "refused", "unsent", "obstructed", "raised", "unknown", "compensated"]

#: How a process ends whose calls were cancelled, where it is alone in its group or not.
CANCELLED = 71
OBSTRUCTIONS = (Unavailable, CredentialRefused, NeedsAuthorisation)


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
    unsure: bool = False  #: an earlier attempt may have acted
    needs: tuple[str, ...] = ()  #: the services it depends on
    ready_at: float = field(default_factory=time.monotonic)

    def waited(self) -> float:
        """Seconds since its start was asked for."""
        return time.monotonic() - self.ready_at


Late = Callable[[Job, Known], None]
_under_way: dict[int, str] = {}
_changing = threading.Lock()


def run(job: Job) -> Known:
    """One call in this thread, under its time limit."""
    tool = job.call.tool
    points.reach("before-call")
    try:
        with _counted(job), _timed(job), timers.limit(tool.properties.timeout), _no_tables_of_ours():
            value = _perform(job)
    except timers.OutOfTime:
        return _failed(tool, TimedOut(tool.properties.timeout))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # an author's code, which may also exit: a record comes of it
        return _failed(tool, error)
    points.reach("after-call-before-record")
    return _returned(job.call, value)


def is_unknown(job: Job, known: Known) -> bool:
    """That this attempt reached nobody says nothing of an earlier one that may have acted under the same key."""
    return known.kind == "unknown" or (known.kind == "unsent" and job.unsure)


def under_way() -> set[str]:
    """What the tools whose code runs in this process now say of being interrupted; those of threads that
    nobody waits for any more too."""
    with _changing:
        return set(_under_way.values())


def end_process() -> None:
    """Ends this process, with what its tools started, if all of them may be cancelled. No other call begins
    between the look and the end."""
    with _changing:
        if set(_under_way.values()) != {"cancel"}:
            return
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os._exit(CANCELLED)


@contextmanager
def _timed(job: Job) -> Iterator[None]:
    """Counts the seconds a call takes among what it uses."""
    began = time.monotonic()
    try:
        yield
    finally:
        job.context.usage.append(("seconds", f"{time.monotonic() - began:.6f}"))


@contextmanager
def _counted(job: Job) -> Iterator[None]:
    with _changing:
        _under_way[id(job)] = job.call.tool.properties.on_interrupt
    try:
        yield
    finally:
        with _changing:
            _under_way.pop(id(job), None)


def run_together(jobs: Sequence[Job], late: Late) -> Iterator[tuple[Job, Known]]:
    """Several calls in daemon threads; each as it is known. One that never ends is unknown at its limit; what
    it brings after that goes to `late`, in its own thread."""
    if len(jobs) == 1:
        yield jobs[0], run(jobs[0])
        return
    group = _Group(late)
    for place, job in enumerate(jobs):
        threading.Thread(target=_run_apart, args=(place, job, group), daemon=True).start()
    started, waiting = time.monotonic(), dict(enumerate(jobs))
    while waiting:
        nearest = min(job.call.tool.properties.timeout for job in waiting.values())
        try:
            place, known = group.found.get(timeout=max(0.0, started + nearest - time.monotonic()))
        except queue.Empty:
            for place in [p for p, j in waiting.items() if j.call.tool.properties.timeout <= nearest]:
                if group.give_up(place):
                    job = waiting.pop(place)
                    job.context.usage.append(("seconds", f"{time.monotonic() - started:.6f}"))
                    yield job, _failed(job.call.tool, TimedOut(job.call.tool.properties.timeout))
            continue
        yield waiting.pop(place), known


class _Group:
    """What the threads of one `together` bring: in time to the loop, later to `late`, and never to both."""

    def __init__(self, late: Late) -> None:
        self.found: queue.Queue[tuple[int, Known]] = queue.Queue()
        self._late = late
        self._one_at_a_time = threading.Lock()
        self._brought: set[int] = set()
        self._given_up: set[int] = set()

    def bring(self, place: int, job: Job, known: Known) -> None:
        with self._one_at_a_time:
            self._brought.add(place)
            if place not in self._given_up:
                self.found.put((place, known))
                return
        self._late(job, known)

    def give_up(self, place: int) -> bool:
        """False: it was brought at the last moment, and is to be found."""
        with self._one_at_a_time:
            if place in self._brought:
                return False
            self._given_up.add(place)
        return True


def _run_apart(place: int, job: Job, group: _Group) -> None:
    close_old_connections()
    try:
        group.bring(place, job, run(job))
    finally:
        connections.close_all()


def _perform(job: Job) -> Any:
    call, tool = job.call, job.call.tool
    if call.perform is not None:
        return call.perform()
    arguments = tool.signature.read(job.arguments)
    return tool.function(job.context, **arguments) if tool.takes_context else tool.function(**arguments)


def _returned(call: Call[Any], value: Any) -> Known:
    """A result; one that cannot be kept is recorded as the tool's failure: it did return."""
    try:
        return Known("returned", kept(call.returns, value))
    except BadValue as error:
        failed = ToolFailed("BadResult", f"{call.tool.name} returned what cannot be kept: {error}")
        return Known("raised", recorded.write(failed, ()), failed)


def kept(returns: values.Values, value: Any) -> str:
    """A result as it is recorded, without secrets. Raises BadValue: it cannot be kept, or does not fit its type
    any more without them."""
    text = returns.write(value)
    clean = redaction.scrub(text)
    if clean != text:
        returns.read(clean)
    return clean


def _failed(tool: Tool[..., Any], error: BaseException) -> Known:
    text = recorded.write(error, tool.recorded_errors)
    if isinstance(error, NotSent):
        return Known("unsent", text, error)
    if isinstance(error, OBSTRUCTIONS):
        return Known("obstructed", text, error)
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
