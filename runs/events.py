"""Events: something outside happened, and a run is told. One that comes before anybody waits for it counts."""

import uuid

from django.db import transaction
from django.db.models import Q

from runs import holds, journal, lifecycle, values
from runs.actors import Actor
from runs.exceptions import KeyReused, RunEnded
from runs.models import Event, Hold, Run, Step
from runs.states import Cause


def tell(run_id: uuid.UUID, *, name: str, event_id: str, payload: object, actor: Actor) -> bool:
    """Tells a run of an event; the first call that waits for it goes on. False: this event was told before.

    Raises NotFound, RunEnded, BadValue, and KeyReused when the id came before with another name or payload.
    """
    text = values.canonical(payload)
    with transaction.atomic():
        run = lifecycle.lock(run_id)
        if _before(run, name, event_id, text):
            return False
        if run.ended:
            raise RunEnded(f"run {run_id} has ended: {run.status}")
        event = Event.objects.create(run=run, name=name, event_id=event_id, payload=text)
        journal.write(run, actor, "event", name=name, event=event_id)
        _release_one(run, event, actor)
    return True


def _before(run: Run, name: str, event_id: str, text: str) -> bool:
    found = Event.objects.filter(run=run, event_id=event_id).first()
    if found is not None and (found.name, found.payload) != (name, text):
        raise KeyReused(f"the event id {event_id!r} was used with another name or payload")
    return found is not None


def _release_one(run: Run, event: Event, actor: Actor) -> None:
    waiting = (
        Hold.objects.waiting_for(Cause.EVENT, event.name).filter(run=run).order_by("step__index").first()
    )
    if waiting is not None:
        Event.objects.filter(pk=event.pk).update(step=waiting.step)
        holds.release_locked(run, waiting, actor=actor, resolution="event")


def take(run: Run, step: Step, name: str) -> Event | None:
    """The event this call waits for, if it came: the one it took before, else the earliest. `run` is locked."""
    free = Event.objects.filter(Q(step=step) | Q(step__isnull=True), run=run, name=name)
    event = free.order_by("step_id", "id").first()  # its own first: nulls are last
    if event is not None and event.step_id is None:
        Event.objects.filter(pk=event.pk).update(step=step)
    return event
