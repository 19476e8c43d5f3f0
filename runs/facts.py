"""Facts: looking at them, keeping what was seen, and saying what changed.

A look runs in a worker, never inside a page's request or a transaction; each fact has its own thread and
time limit. Unreadable is a reading too, and counts as changed.
"""

import queue
import threading
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from django.conf import settings
from django.db import close_old_connections, connections

from runs import points, prepared, redaction
from runs.exceptions import BadValue
from runs.models import FactReading, Step
from runs.models.fact import Moment
from runs.tools.declared import Fact, Tool

PROBLEM = 500


@dataclass(frozen=True, slots=True)
class Reading:
    """What one look at one fact gave: canonical JSON, or why there is none."""

    name: str
    title: str
    source: str
    kind: str
    fresh_for: float
    value: str | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """A fact that differs from the one decided on. `None`: it could not be read."""

    name: str
    title: str
    kind: str
    then: str | None
    now: str | None


def look(tool: Tool[..., Any], arguments: dict[str, Any]) -> list[Reading]:
    """Looks at every fact of a tool, side by side, each for at most FACT_TIMEOUT seconds."""
    found: queue.Queue[tuple[str, Reading]] = queue.Queue()
    points.reach("before-look")
    for fact in tool.properties.facts:
        threading.Thread(target=_observe, args=(fact, arguments, found), daemon=True).start()
    seen = _collect(found, len(tool.properties.facts))
    points.reach("after-look")
    return [seen.get(f.name) or _reading(f, None, _slow()) for f in tool.properties.facts]


def _slow() -> str:
    return f"no answer in {settings.FACT_TIMEOUT:g} s"


def _observe(
    fact: Fact[..., Any], arguments: dict[str, Any], found: "queue.Queue[tuple[str, Reading]]"
) -> None:
    close_old_connections()
    try:
        reading = _reading(fact, redaction.scrub(fact.observe(arguments)), "")
    except Exception as error:  # a fact is an author's code: whatever it raises is "unreadable"
        reading = _reading(fact, None, _problem(error))
    finally:
        connections.close_all()
    found.put((fact.name, reading))


def _collect(found: "queue.Queue[tuple[str, Reading]]", count: int) -> dict[str, Reading]:
    deadline = time.monotonic() + settings.FACT_TIMEOUT
    seen: dict[str, Reading] = {}
    while len(seen) < count:
        try:
            name, reading = found.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            break
        seen[name] = reading
    return seen


def _reading(fact: Fact[..., Any], value: str | None, problem: str) -> Reading:
    return Reading(fact.name, fact.title, fact.source, fact.kind, fact.fresh_for, value, problem)


def _problem(error: Exception) -> str:
    return (
        redaction.kept(str(error), PROBLEM) if isinstance(error, BadValue) else redaction.said(error, PROBLEM)
    )


def keep(step: Step, readings: Iterable[Reading], moment: Moment) -> uuid.UUID:
    """Stores the readings of one look; their common id."""
    look_id = uuid.uuid4()
    with prepared.Batch():
        for reading in readings:
            prepared.insert(_kept(step, look_id, moment, reading))
    return look_id


def _kept(step: Step, look_id: uuid.UUID, moment: Moment, reading: Reading) -> FactReading:
    return FactReading(
        step=step,
        look=look_id,
        moment=str(moment),
        name=reading.name,
        source=reading.source,
        kind=reading.kind,
        value=reading.value,
        problem=reading.problem,
        fresh_for=reading.fresh_for,
    )


def changes(tool: Tool[..., Any], then: dict[str, str | None], readings: Sequence[Reading]) -> list[Change]:
    """The facts whose value differs from `then` (name → canonical JSON, None for unreadable), info ones too.

    Unreadable now counts as changed, unless it was decided on as unreadable.
    """
    tolerances = {f.name: f.tolerance for f in tool.properties.facts}
    return [
        Change(r.name, r.title, r.kind, then.get(r.name), r.value)
        for r in readings
        if not equal(then.get(r.name), r.value, tolerances.get(r.name, 0.0))
    ]


def equal(then: str | None, now: str | None, tolerance: float) -> bool:
    """Whether two canonical values count as the same; numbers may differ by `tolerance`."""
    if then == now:
        return True
    if then is None or now is None or not tolerance:
        return False
    first, second = _number(then), _number(now)
    return first is not None and second is not None and abs(first - second) <= Decimal(str(tolerance))


def _number(text: str) -> Decimal | None:
    """A JSON number, or a JSON string that holds one (decimals travel as text)."""
    try:
        found = Decimal(text.strip('"'))
    except InvalidOperation:
        return None
    return found if found.is_finite() else None
