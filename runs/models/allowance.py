"""What runs may use and have used: one row a name and unit, and a row for each call that draws on it.

An allowance belongs to one run (`run:ID`, which its children draw on too) or is shared by name over many. Amounts
are exact decimals; money is the unit `money:EUR`. `limit` null is no limit, 0 is nothing.
"""

from decimal import Decimal
from typing import Self

from django.db import models
from django.db.models import Q

from runs.clock import Now
from runs.models.run import Run

DIGITS, PLACES = 30, 9
OWN = "run:"


class AllowanceQuerySet(models.QuerySet["Allowance"]):
    def shared(self) -> Self:
        """Those that many runs draw on by name."""
        return self.exclude(name__startswith=OWN)


class Allowance(models.Model):
    name = models.CharField(max_length=100)
    unit = models.CharField(max_length=40)
    limit = models.DecimalField(max_digits=DIGITS, decimal_places=PLACES, null=True, blank=True)
    soft = models.DecimalField(
        max_digits=DIGITS,
        decimal_places=PLACES,
        null=True,
        blank=True,
        help_text="Operators are told when so much is used.",
    )
    soft_told_at = models.DateTimeField(null=True, blank=True)
    used = models.DecimalField(max_digits=DIGITS, decimal_places=PLACES, default=Decimal(0))
    reserved = models.DecimalField(max_digits=DIGITS, decimal_places=PLACES, default=Decimal(0))
    runs = models.ManyToManyField(Run, related_name="allowances", blank=True)
    created_at = models.DateTimeField(db_default=Now())
    seq = models.BigIntegerField(default=0)
    head = models.BinaryField(default=bytes)

    stream_prefix = "allowance:"
    objects = AllowanceQuerySet.as_manager()

    class Meta:
        ordering = ("name", "unit")
        constraints = [
            models.UniqueConstraint(name="allowance_unit_once_a_name", fields=["name", "unit"]),
            models.CheckConstraint(
                name="allowance_amounts_not_negative",
                condition=Q(used__gte=0, reserved__gte=0) & (Q(limit__isnull=True) | Q(limit__gte=0)),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name}: {self.unit}"

    @property
    def stream(self) -> str:
        return f"{self.stream_prefix}{self.pk}"

    @property
    def shared(self) -> bool:
        return not self.name.startswith(OWN)

    @property
    def remaining(self) -> Decimal | None:
        """What may still be reserved, never below 0; None: no limit."""
        return None if self.limit is None else max(Decimal(0), self.limit - self.used - self.reserved)


class DrawQuerySet(models.QuerySet["Draw"]):
    def open(self) -> Self:
        """Reserved, and nobody knows yet what was used."""
        return self.filter(settled_at__isnull=True)


class Draw(models.Model):
    """What one call reserved, and what it used; `attempt` counts its reservations, from 1."""

    allowance = models.ForeignKey(Allowance, models.PROTECT, related_name="draws")
    run = models.ForeignKey(Run, models.PROTECT, related_name="draws")
    index = models.IntegerField()
    attempt = models.IntegerField()
    estimate = models.DecimalField(max_digits=DIGITS, decimal_places=PLACES)
    used = models.DecimalField(max_digits=DIGITS, decimal_places=PLACES, null=True)
    reserved_at = models.DateTimeField(db_default=Now())
    settled_at = models.DateTimeField(null=True)

    objects = DrawQuerySet.as_manager()

    class Meta:
        ordering = ("id",)
        indexes = [
            models.Index(name="draw_open", fields=["run", "index"], condition=Q(settled_at__isnull=True))
        ]
        constraints = [
            models.UniqueConstraint(
                name="draw_once_an_attempt", fields=["run", "index", "attempt", "allowance"]
            ),
            models.CheckConstraint(
                name="draw_settled_says_how_much",
                condition=Q(settled_at__isnull=True, used__isnull=True)
                | Q(settled_at__isnull=False, used__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"step {self.index}: {self.used if self.used is not None else self.estimate}"
