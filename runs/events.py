"""Events: something outside happened, and a run is told. One that comes before anybody waits for it counts.

All is done under the run's lock, so the same id counts once, whoever brings it and however often; each event goes to
one call, in the order in which they came.
"""

import uuid

from django.db import transaction
from django.db.models import Q

from runs import holds, journal, lifecycle, values
from runs.actors import Actor
from runs.clock import now
from runs.exceptions import EventReused, RunEnded
from runs.models import Event, Hold, Run, Step
from runs.states import Cause


def tell(run_id: uuid.UUID, *, name: str, event_id: str, payload: object, actor: Actor) -> tuple[Event, bool]:
    """Tells a run of an event, and the first call that waits for it goes on. The event, and whether it is new.

    Raises NotFound, RunEnded, BadValue, and EventReused when the id came before with another name or payload.
    """
    text = values.canonical(payload)
    with transaction.atomic():
        run = lifecycle.lock(run_id)
        if (before := _before(run, name, event_id, text)) is not None:
            return before, False
        if run.ended:
            raise RunEnded(f"run {run_id} has ended: {run.status}")
        event = Event.objects.create(run=run, name=name, event_id=event_id, payload=text, told_at=now())
        journal.write(run, actor, "event", name=name, event=event_id, payload=values.digest(text))
        _release_one(run, event, actor)
    return event, True


def _before(run: Run, name: str, event_id: str, text: str) -> Event | None:
    found = Event.objects.filter(run=run, event_id=event_id).first()
    if found is not None and (found.name, found.payload) != (name, text):
        raise EventReused(f"the event id {event_id!r} was told before, with another name or payload")
    return found


def _release_one(run: Run, event: Event, actor: Actor) -> None:
    """A wait whose time is up gets nothing any more, even if nobody has noticed yet: the clock decides."""
    in_time = Q(expires_at__isnull=True) | Q(expires_at__gt=event.told_at)
    waiting = Hold.objects.waiting_for(Cause.EVENT, event.name).filter(in_time, run=run)
    first = waiting.order_by("step__index").first()
    if first is not None:
        Event.objects.filter(pk=event.pk).update(step=first.step)
        event.step = first.step
        holds.release_locked(run, first, actor=actor, resolution="event")


def take(run: Run, step: Step, name: str) -> Event | None:
    """The event this call waits for, if it came: the one it took before, else the earliest. `run` is locked."""
    free = Event.objects.filter(Q(step=step) | Q(step__isnull=True), run=run, name=name)
    event = free.order_by("step_id", "id").first()  # its own first: nulls are last
    if event is not None and event.step_id is None:
        Event.objects.filter(pk=event.pk).update(step=step)
    return event
