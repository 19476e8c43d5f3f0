"""What happened to a run, in order: its steps, and between them what the journal and people say of it.

A page of it is the page of steps; what else is told lies between its first step and the first of the next page,
the newest `EVENTS` of it. Raw entries, and those of workers coming and going, are in the journal below.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.http import HttpRequest

from runs.models import Hold, JournalEntry, Run, Step

EVENTS = 300
#: Told by the steps themselves, or of workers only.
UNTOLD = frozenset(
    {"taken", "handed_back", "suspended", "resumed", "dispatched", "holds_closed", "refused", "expiry_set"}
)
#: Holds that a request was opened for.
ASKS = frozenset({"approval", "question"})
SAID = {
    "submitted": "Submitted",
    "event": "Told of an event",
    "settled": "Its doubt was settled",
    "compensation_started": "Its undoing was started",
    "compensated": "Undone by another run",
    "not_compensated": "Its undoing came to nothing",
    "claims_owed": "What it has reserved is to be given back",
    "claim_given_back": "Given back",
    "claim_not_given_back": "Not given back yet",
    "recovered": "Its worker was lost; another one goes on",
    "interrupted": "Its call in flight was left; nobody waits for it",
    "stopped_now": "Stop now",
    "pause_taken_over": "Pause taken over: only an operator resumes it",
    "pause_given_back": "Pause given back to whom it belongs",
    "stop_requested": "Cancel",
    "in_doubt": "In doubt: it may have happened",
    "evidence": "A late result came",
    "not_sent": "Not sent: certainly not done",
    "question_put": "Asked before deciding",
    "question_answered": "Answered what was asked",
    "overdue": "Held for longer than meant; operators were told",
    "run_again": "Run again",
    "succeeded": "Succeeded",
    "failed": "Failed",
    "cancelled": "Cancelled",
    "expired": "Expired",
}
RELEASED = {
    "resumed": "Pause over",
    "expired": "Expired: nobody decided in time",
    "due": "Its time is up",
    "evidence": "Settled by a late result",
    "look_again": "Looks again",
    "covered": "The allowance covers it now",
    "child_ended": "Its child has ended",
    "ancestor_free": "The run above goes on",
    "event": "Its event came",
    "happened": "Settled: it happened",
    "did_not_happen": "Settled: it did not happen",
    "compensated": "Undone",
    "accepted": "Difference accepted",
    "other_code": "Workers have other code of its version",
    "version_is_back": "A worker has its version",
    "run_ended": "The run ended",
}


@dataclass(frozen=True, slots=True)
class Event:
    """One line. `step` is a whole step; the others have a sentence, and who, why and through which door."""

    at: datetime
    kind: str
    what: str = ""
    who: str = ""
    door: str = ""
    why: str = ""
    index: int | None = None
    url: str = ""
    step: Step | None = None


#: Gives what people said of these steps.
Decisions = Callable[[HttpRequest, Sequence[Step]], list[Event]]


def _nobody(request: HttpRequest, steps: Sequence[Step]) -> list[Event]:
    return []


_decisions: Decisions = _nobody


def tell_decisions_with(teller: Decisions) -> None:
    """Registers who knows what people decided on steps."""
    global _decisions
    _decisions = teller


def of(
    request: HttpRequest,
    run: Run,
    steps: list[Step],
    held: list[Hold],
    *,
    first: bool,
    until: datetime | None,
) -> list[Event]:
    """The page of `steps`. `first`: it begins with the run. `until`: when the next page's first step began."""
    decided = _decisions(request, steps)
    answered = {event.index for event in decided}
    holds = {str(hold.pk): hold for hold in held}
    told = [_event(entry, holds) for entry in _entries(run, steps, first, until)]
    told = [each for each in told if not (each.kind == "decided" and each.index in answered)]
    lines = [alone(step) for step in steps]
    lines += _ends(steps, told)
    return sorted([*lines, *told, *decided], key=_order)


def alone(step: Step) -> Event:
    """One step, and nothing else."""
    return Event(step.created_at, "step", index=step.index, step=step)


def _entries(run: Run, steps: list[Step], first: bool, until: datetime | None) -> list[JournalEntry]:
    found = JournalEntry.objects.of(run.stream).exclude(verb__in=UNTOLD)
    if not first and steps:
        found = found.filter(at__gte=steps[0].created_at)
    if until is not None:
        found = found.filter(at__lt=until)
    return list(found.order_by("-seq")[:EVENTS])[::-1]


def _event(entry: JournalEntry, holds: dict[str, Hold]) -> Event:
    said: dict[str, Any] = json.loads(entry.detail or "{}")
    hold = holds.get(str(said.get("hold", "")))
    kind, what = _words(entry.verb, said)
    why = str(said.get("why") or "")
    if entry.verb == "released":
        why = hold.answer or "" if hold is not None and said.get("resolution") == "resumed" else ""
    index = said.get("index")
    if index is None and hold is not None and hold.step is not None:
        index = hold.step.index
    asks = hold is not None and entry.verb == "held" and hold.cause in ASKS
    url = getattr(hold, "request_url", "") if asks else ""
    return Event(entry.at, kind, what, entry.actor_name, entry.door, why, index, url)


def _words(verb: str, said: dict[str, Any]) -> tuple[str, str]:
    if verb == "held":
        return ("stop", "Pause") if said["cause"] == "person" else ("hold", _held(said["cause"]))
    if verb == "released":
        resolution = said["resolution"]
        kind = "decided" if resolution in ("approved", "rejected", "answered") else "release"
        return kind, released(resolution)
    kind = {"in_doubt": "doubt", "evidence": "effect", "not_sent": "effect"}.get(verb, "run")
    return kind, SAID.get(verb, _sentence(verb))


def released(resolution: str) -> str:
    """What released a hold, as a sentence begins."""
    return RELEASED.get(resolution, _sentence(resolution))


def _held(cause: str) -> str:
    waits = {
        "approval": "Held for approval",
        "question": "Held for an answer",
        "in_doubt": "Held: in doubt",
        "child": "Waits for its child",
        "timer": "Sleeps",
        "event": "Waits for an event",
        "ancestor": "Held by a run above it",
        "allowance": "Waits: its allowance does not cover it",
        "dependency": "Waits for an outside service",
        "credential": "Waits for a credential",
        "diverged": "Held: it differs from its record",
        "version": "Waits for a worker with its version",
    }
    return waits.get(cause, f"Held: {cause.replace('_', ' ')}")


def _sentence(word: str) -> str:
    return word.replace("_", " ").capitalize()


def _ends(steps: list[Step], told: list[Event]) -> list[Event]:
    """When a step ended, where something was told of it since it began."""
    spoken = {event.index for event in told}
    return [
        Event(step.settled_at, "end", f"Step {step.index} {_came(step)}", index=step.index)
        for step in steps
        if step.settled_at is not None and step.index in spoken
    ]


def _came(step: Step) -> str:
    if step.effect == "confirmed":
        return "happened"
    return "is done" if step.status == "done" else "ended without a result"


def _order(event: Event) -> tuple[datetime, int]:
    """A step is before what is told of it in the same transaction, its end after it."""
    return event.at, {"step": 0, "end": 2}.get(event.kind, 1)
