"""Something that happened outside and was told to a run; counts once, also when it came before the wait."""

from typing import Self

from django.db import models

from runs.clock import Now
from runs.models.run import Run
from runs.models.step import Step


class EventQuerySet(models.QuerySet["Event"]):
    def waiting(self) -> Self:
        """Told, and no call has taken it yet."""
        return self.filter(step__isnull=True)


class Event(models.Model):
    run = models.ForeignKey(Run, models.PROTECT, related_name="events")
    name = models.CharField(max_length=100)
    event_id = models.CharField(max_length=200, help_text="The sender's own id: the same one counts once.")
    payload = models.TextField(help_text="Canonical JSON.")
    step = models.ForeignKey(Step, models.PROTECT, null=True, blank=True, related_name="events")
    told_at = models.DateTimeField(db_default=Now())

    objects = EventQuerySet.as_manager()

    class Meta:
        ordering = ("id",)
        constraints = [
            models.UniqueConstraint(name="event_id_once_a_run", fields=["run", "event_id"]),
        ]

    def __str__(self) -> str:
        return f"{self.name} {self.event_id}"
