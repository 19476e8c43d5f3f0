"""The state of a run in one glance: what it does or waits for, until when, and what else holds it.

Sentences come from open holds, from steps in flight and from the journal's last word; who may decide is told by
whoever knows people (`people` on a hold).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.urls import reverse

from runs.models import Hold, JournalEntry, Run, Step
from runs.states import Cause, RunStatus, Then

#: What a call waits for, by the cause of its hold; `{step}` is its index.
WAITS = {
    Cause.APPROVAL: "waits for {people} to approve step {step}",
    Cause.QUESTION: "waits for {people} to answer step {step}",
    Cause.ALLOWANCE: "step {step} waits for its allowance",
    Cause.DEPENDENCY: "step {step} waits for an outside service",
    Cause.CREDENTIAL: "step {step} waits for its credential to be authorised again",
    Cause.IN_DOUBT: "step {step} is in doubt: it may have happened",
    Cause.TIMER: "step {step} sleeps",
    Cause.EVENT: "step {step} waits for an event",
    Cause.CHILD: "step {step} waits for its child",
    Cause.ANCESTOR: "a run above it is held",
    Cause.DIVERGED: "its agent asks for something else than the record says",
    Cause.VERSION: "no worker has its agent's version",
}
#: Said by the cause already.
PLAIN = frozenset(
    {Cause.APPROVAL, Cause.QUESTION, Cause.IN_DOUBT, Cause.CHILD, Cause.ANCESTOR, Cause.DIVERGED, Cause.TIMER}
)
#: So many steps are named by their indexes.
NAMED = 5


@dataclass(frozen=True, slots=True)
class Part:
    """One clause; `until` and `since` are its hold's."""

    text: str
    until: datetime | None = None
    since: datetime | None = None
    url: str = ""


@dataclass(frozen=True, slots=True)
class State:
    lead: Part
    also: Sequence[Part] = ()
    why: str = ""


def waits_for(standing: list[Hold]) -> str:
    """What open holds say, the one that binds the whole run first; empty where there is none."""
    if not standing:
        return ""
    first = min(standing, key=lambda hold: (hold.step_id is not None, hold.opened_at))
    more = f" (and {len(standing) - 1} more)" if len(standing) > 1 else ""
    return _said(first) + more


def _said(hold: Hold) -> str:
    if hold.cause == Cause.PERSON:
        said = f"{_paused(hold).capitalize()} by {_who(hold)}"
        return f"{said}: {hold.why}" if hold.why else said
    if hold.cause == Cause.TIMER and hold.expires_at:
        return f"It sleeps until {hold.expires_at:%-d %B %Y, %H:%M} UTC."
    return hold.why or hold.get_cause_display()


def _who(hold: Hold) -> str:
    return hold.opened_by_name or hold.opened_by_kind


def _paused(hold: Hold) -> str:
    return "stopped" if hold.detail.get("stop_now") else "paused"


# -- One run ---------------------------------------------------------------------------


def state(
    run: Run,
    standing: list[Hold],
    flying: Iterable[Step],
    entries: Iterable[JournalEntry] = (),
    *,
    stands: Sequence[int] = (),
) -> State:
    """`standing`: its open holds. `flying`: steps in flight. `entries`: the newest of its journal, first. `stands`:
    the first steps whose effects a run that was cut short left behind."""
    indexes = [step.index for step in flying]
    if run.ended:
        return _ended(run, entries, stands)
    if run.stop_requested is not None:
        return _stopping(run, indexes)
    paused = next((hold for hold in standing if hold.cause == Cause.PERSON), None)
    rest = [hold for hold in standing if hold is not paused]
    if paused is not None and run.status == RunStatus.RUNNING:
        return _pausing(paused, indexes, rest)
    if paused is not None and not rest:
        said = f"{_paused(paused).capitalize()} by {_who(paused)}"
        return State(Part(said + _still_out(indexes), since=paused.opened_at), why=paused.why)
    if rest and run.status != RunStatus.RUNNING:
        return _held(rest, paused, indexes)
    return State(Part(_moving(run, indexes)), [_part(hold) for hold in rest])


def _ended(run: Run, entries: Iterable[JournalEntry], stands: Sequence[int]) -> State:
    last = next((entry for entry in entries if entry.verb == run.status), None)
    by = f" by {last.actor_name}" if last is not None and last.actor_kind in ("person", "key") else ""
    return State(Part(f"{run.get_status_display()}{by}"), _happened(stands))


def _happened(stands: Sequence[int]) -> list[Part]:
    """A run that was cut short is not as if it had never been."""
    if not stands:
        return []
    which = steps(stands) if len(stands) <= NAMED else "its steps"
    return [Part(f"what {which} did outside stands")]


def _stopping(run: Run, indexes: list[int]) -> State:
    asked = run.stop_requested or {}
    by = asked.get("by", {}).get("name") or "Abeyance"
    done = f"Finishing {steps(indexes)}" if indexes else "Ending at its next step"
    return State(Part(f"{done}, then it is cancelled by {by}"), why=asked.get("why", ""))


def _pausing(paused: Hold, indexes: list[int], rest: list[Hold]) -> State:
    done = f"Finishing {steps(indexes)}" if indexes else "Stopping before its next step"
    lead = Part(f"{done}, then {_paused(paused)} by {_who(paused)}", since=paused.opened_at)
    return State(lead, [_part(hold) for hold in rest], why=paused.why)


def _held(rest: list[Hold], paused: Hold | None, indexes: list[int]) -> State:
    lead, *others = rest
    also = [_part(hold) for hold in others[:3]]
    if len(others) > 3:
        also.append(Part(f"{len(others) - 3} more hold it"))
    if paused is not None:
        also.append(Part(f"also {_paused(paused)} by {_who(paused)}"))
    if indexes:
        also.append(Part(_still_out(indexes).removeprefix("; ")))
    first = _part(lead)
    return State(
        Part(first.text[:1].upper() + first.text[1:], first.until, first.since, first.url),
        also,
        why="" if lead.cause in PLAIN else lead.why,
    )


def _still_out(indexes: list[int]) -> str:
    """A call that was left goes on outside; what it brings is kept."""
    return f"; {steps(indexes)} may still be under way outside" if indexes else ""


def _moving(run: Run, indexes: list[int]) -> str:
    if run.status == RunStatus.QUEUED:
        return "Waits for a worker" if run.started_at else "Waits for its first worker"
    return f"Making {steps(indexes)}" if indexes else "Running"


def _part(hold: Hold) -> Part:
    index = hold.step.index if hold.step else ""
    people = getattr(hold, "people", "") or "a reviewer"
    text = WAITS.get(Cause(hold.cause), hold.get_cause_display()).format(step=index, people=people)
    url = getattr(hold, "request_url", "")
    if hold.cause == Cause.IN_DOUBT and hold.step and hold.step.compensated_by_id:
        text, url = f"step {index} is being undone", reverse("run", args=[hold.step.compensated_by_id])
    until = None if hold.on_expiry == Then.WAIT else hold.expires_at  # people are told, and it waits on
    return Part(text, until, hold.opened_at, url)


def steps(indexes: Sequence[int]) -> str:
    """`step 7`, `steps 7 and 8`."""
    if len(indexes) == 1:
        return f"step {indexes[0]}"
    return f"steps {', '.join(map(str, indexes[:-1]))} and {indexes[-1]}"
