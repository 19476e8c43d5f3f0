"""All runs of an agent at once: pause, stop now, cancel, resume.

Each run is its own transaction and goes by the verb of one run, so that a sweep may stop half-way, run twice, and
side by side with others. Every run that was there when it began has been asked by the time it answers. A pause
placed here says so (`all_of`); resuming all lifts those alone, and gives pauses that stood before back to whom
they belong (`also_all_of`).
"""

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction

from runs import agents, endings, holds, journal, lifecycle, stops
from runs.actors import Actor
from runs.clock import now
from runs.exceptions import NotFound, RunEnded
from runs.models import Hold, Run
from runs.states import Cause


@dataclass(frozen=True, slots=True)
class Swept:
    """How many live runs there were, and in how many of them this changed something."""

    runs: int
    changed: int


Act = Callable[[uuid.UUID, str, Actor, str], bool]


def known(agent: str) -> bool:
    """Whether an agent of that name stands registered, or has ever run."""
    named = any(made.name == agent for made in agents.all_versions())
    return named or Run.objects.filter(agent=agent).exists()


def sweep(verb: str, agent: str, *, actor: Actor, why: str = "") -> Swept:
    """Does `verb` (of `VERBS`) to all live runs of an agent. Raises NotFound: nobody knows that agent."""
    if not known(agent):
        raise NotFound(f"there is no agent {agent}")
    did = [_one(VERBS[verb], run_id, agent, actor, why) for run_id in _there_are(agent, now())]
    return Swept(sum(each is not None for each in did), sum(bool(each) for each in did))


def _there_are(agent: str, at: datetime) -> Iterator[uuid.UUID]:
    """Live runs that were there at that time; looked for again, because a submission commits a little later."""
    seen: set[uuid.UUID] = set()
    while True:
        live = Run.objects.live().filter(agent=agent, created_at__lte=at)
        found = set(live.values_list("pk", flat=True)) - seen
        if not found:
            return
        seen |= found
        yield from sorted(found)


def _one(act: Act, run_id: uuid.UUID, agent: str, actor: Actor, why: str) -> bool | None:
    try:
        return act(run_id, agent, actor, why)
    except RunEnded:
        return None


# -- Pause and stop now ----------------------------------------------------------------


def _pause(run_id: uuid.UUID, agent: str, actor: Actor, why: str) -> bool:
    return _place(holds.pause_locked, run_id, agent, actor, why)


def _stop(run_id: uuid.UUID, agent: str, actor: Actor, why: str) -> bool:
    changed = _place(stops.stop_locked, run_id, agent, actor, why)
    stops.below(run_id, actor)
    return changed


def _place(place: Callable[..., Hold], run_id: uuid.UUID, agent: str, actor: Actor, why: str) -> bool:
    with transaction.atomic():
        run = lifecycle.lock(run_id)
        before = run.seq
        stood = Hold.objects.open().filter(run=run, cause=Cause.PERSON).first()
        hold = place(run, actor=actor, why=why)
        if stood is None:
            holds.mark(hold, all_of=agent)
        elif hold.by_operator and not stood.by_operator:
            holds.mark(hold, also_all_of=agent)
        return Run.objects.filter(pk=run_id, seq__gt=before).exists()


# -- Cancel and resume -------------------------------------------------------------------


def _cancel(run_id: uuid.UUID, agent: str, actor: Actor, why: str) -> bool:
    asked = Run.objects.filter(pk=run_id, stop_requested__isnull=False).exists()
    endings.cancel(run_id, actor=actor, why=why)
    return not asked


def _resume(run_id: uuid.UUID, agent: str, actor: Actor, why: str) -> bool:
    with transaction.atomic():
        run = lifecycle.lock(run_id)
        if run.ended:
            raise RunEnded(f"run {run_id} has ended: {run.status}")
        hold = Hold.objects.open().filter(run=run, cause=Cause.PERSON).first()
        if hold is None:
            return False
        if hold.detail.get("all_of") == agent:
            holds.release_locked(run, hold, actor=actor, resolution="resumed", answer=why or None)
            return True
        return _give_back(run, hold, agent, actor, why)


def _give_back(run: Run, hold: Hold, agent: str, actor: Actor, why: str) -> bool:
    """A pause that stood before is its owner's again."""
    if hold.detail.get("also_all_of") != agent:
        return False
    holds.mark(hold, also_all_of=None)
    Hold.objects.filter(pk=hold.pk).update(by_operator=False)
    journal.write(run, actor, "pause_given_back", hold=str(hold.pk), why=why)
    return True


VERBS: dict[str, Act] = {"pause": _pause, "stop": _stop, "cancel": _cancel, "resume": _resume}
