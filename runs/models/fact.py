"""One look at one fact a call depends on: value, time, source, or why it could not be read."""

from django.db import models
from django.db.models import Q

from runs.clock import Now
from runs.models.run import words
from runs.models.step import Step


class Moment(models.TextChoices):
    PROPOSAL = "proposal"
    REQUEST = "request"
    CALL = "call"


class FactKind(models.TextChoices):
    INFO = "info"
    MATERIAL = "material"
    BLOCKING = "blocking"


class FactReading(models.Model):
    step = models.ForeignKey(Step, models.PROTECT, related_name="readings")
    look = models.UUIDField(help_text="Readings of one look share it.")
    name = models.CharField(max_length=100)
    source = models.CharField(max_length=100)
    kind = models.CharField(max_length=10, choices=FactKind.choices)
    moment = models.CharField(max_length=10, choices=Moment.choices)
    value = models.TextField(null=True, help_text="Canonical JSON; null when unreadable.")
    problem = models.TextField(blank=True)
    fresh_for = models.FloatField()
    read_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ("id",)
        constraints = [
            models.UniqueConstraint(name="fact_once_a_look", fields=["look", "name"]),
            models.CheckConstraint(name="fact_kind_is_a_known_word", condition=Q(kind__in=words(FactKind))),
            models.CheckConstraint(
                name="fact_has_value_or_problem",
                condition=Q(value__isnull=False, problem="") | (Q(value__isnull=True) & ~Q(problem="")),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} = {self.value or self.problem}"

    @property
    def readable(self) -> bool:
        return self.value is not None
