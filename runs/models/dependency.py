"""A named outside service and how it is: the breaker that calls look at before they start."""

from datetime import datetime
from typing import Self

from django.db import models
from django.db.models import Q

from runs.clock import Now
from runs.models.run import words
from runs.states import Health


class DependencyQuerySet(models.QuerySet["Dependency"]):
    def to_probe(self, now: datetime) -> Self:
        return self.exclude(state=Health.HEALTHY).filter(probe_at__lte=now)

    def troubled(self) -> Self:
        """Away, or found away by the last call."""
        return self.filter(~Q(state=Health.HEALTHY) | Q(failures__gt=0))


class Dependency(models.Model):
    name = models.CharField(max_length=100, primary_key=True)
    state = models.CharField(max_length=10, choices=Health.choices, default=Health.HEALTHY)
    failures = models.IntegerField(default=0, help_text="Failed calls in a row.")
    probes = models.IntegerField(default=0, help_text="Looks since it went away.")
    since = models.DateTimeField(db_default=Now())
    probe_at = models.DateTimeField(null=True, blank=True)
    problem = models.CharField(max_length=500, blank=True)
    seq = models.BigIntegerField(default=0)
    head = models.BinaryField(default=bytes)

    stream_prefix = "dependency:"
    objects = DependencyQuerySet.as_manager()

    class Meta:
        ordering = ("name",)
        verbose_name_plural = "dependencies"
        constraints = [
            models.CheckConstraint(
                name="dependency_state_is_a_known_word", condition=Q(state__in=words(Health))
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def stream(self) -> str:
        return f"{self.stream_prefix}{self.pk}"
