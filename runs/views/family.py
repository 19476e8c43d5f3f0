"""What a run's page says of the runs above and below it, and of the events it was told.

A run is linked only for those who may see it; who reviews a child's request sees the agents above it by name.
"""

from dataclasses import dataclass, field
from typing import Any

from runs import children
from runs.callers import Caller
from runs.models import Event, Run

NEWEST = 50


@dataclass(frozen=True, slots=True)
class Relative:
    """A run above or below. `url` is empty for those who may not see it."""

    agent: str
    short_id: str
    status: str
    url: str


@dataclass(frozen=True, slots=True)
class Family:
    """`below` are the newest children of `below_total`; `events` the newest of `events_total`."""

    above: list[Relative] = field(default_factory=list)
    below: list[Relative] = field(default_factory=list)
    below_total: int = 0
    events: list[Event] = field(default_factory=list)
    events_total: int = 0


def of(caller: Caller, run: Run) -> Family:
    above = children.chain(run)[:-1]
    below = Run.objects.filter(parent=run).defer("input", "result", "error")
    newest = list(below.order_by("-created_at", "-id")[:NEWEST])
    told = Event.objects.filter(run=run).select_related("step")
    events = list(told.order_by("-pk")[:NEWEST])
    seen = _seen(caller, [*above, *newest])
    return Family(
        above=[_relative(one, seen) for one in above],
        below=[_relative(one, seen) for one in newest],
        below_total=below.count() if len(newest) == NEWEST else len(newest),
        events=events,
        events_total=told.count() if len(events) == NEWEST else len(events),
    )


def _seen(caller: Caller, runs: list[Run]) -> set[Any]:
    if not runs:
        return set()
    visible = caller.visible(Run.objects.filter(pk__in=[run.pk for run in runs]))
    return set(visible.values_list("pk", flat=True))


def _relative(run: Run, seen: set[Any]) -> Relative:
    return Relative(run.agent, run.short_id, run.status, run.get_absolute_url() if run.pk in seen else "")
