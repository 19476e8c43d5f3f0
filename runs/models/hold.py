"""One reason why a run, or one call of it, may not go on; open until released, kept for ever."""

import uuid
from datetime import datetime
from typing import Self

from django.db import models
from django.db.models import BooleanField, Exists, F, Func, OuterRef, Q

from runs.clock import Now
from runs.models.run import Run, words
from runs.models.step import Step
from runs.states import ENDED, WAITING, Cause, Scope, Then


class _Among(Func):
    """`value = ANY (array)`."""

    template = "%(expressions)s)"
    arg_joiner = " = ANY ("
    output_field = BooleanField()


class HoldQuerySet(models.QuerySet["Hold"]):
    def open(self) -> Self:
        return self.filter(released_at__isnull=True)

    def expired(self, now: datetime) -> Self:
        """Their time is up, and nobody acted on it yet."""
        return self.open().filter(expires_at__lte=now, overdue_at__isnull=True)

    def waiting_for(self, cause: Cause, subject: str) -> Self:
        return self.open().filter(cause=cause, subject=subject)

    def outlasting(self) -> Self:
        """Open ones that never expire their run: they wait for as long as it takes, or for an event that has a
        time of its own."""
        timed = Q(cause=Cause.EVENT, expires_at__isnull=False)
        return self.open().filter(Q(cause__in=sorted(WAITING)) | timed)

    def free_above(self) -> Self:
        """Open `ancestor` holds of runs above which nothing is held, is to stop or has ended any more."""
        stands = Q(open_holds__gt=0) | Q(stop_requested__isnull=False) | Q(status__in=sorted(ENDED))
        above = Run.objects.annotate(above=_Among(F("pk"), OuterRef("run__ancestors"))).filter(
            stands, above=True
        )
        return self.open().filter(~Exists(above), cause=Cause.ANCESTOR)

    def to_look_at(self, now: datetime) -> Self:
        return self.open().filter(look_again_at__lte=now)


class Hold(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    run = models.ForeignKey(Run, models.PROTECT, related_name="holds")
    step = models.ForeignKey(Step, models.PROTECT, null=True, blank=True, related_name="holds")
    cause = models.CharField(max_length=20, choices=Cause.choices)
    scope = models.CharField(max_length=4, choices=Scope.choices)
    why = models.TextField(blank=True)
    detail = models.JSONField(default=dict, blank=True)
    subject = models.CharField(
        max_length=100, blank=True, help_text="The dependency, credential, allowance or event it waits for."
    )
    child = models.ForeignKey(Run, models.PROTECT, null=True, blank=True, related_name="awaited_by")

    opened_at = models.DateTimeField(db_default=Now())
    opened_by_kind = models.CharField(max_length=20)
    opened_by_id = models.CharField(max_length=100, blank=True)
    opened_by_name = models.CharField(max_length=200, blank=True)
    opened_through = models.CharField(max_length=20, blank=True)
    by_operator = models.BooleanField(default=False)
    expires_at = models.DateTimeField(null=True, blank=True)
    on_expiry = models.CharField(max_length=10, choices=Then.choices, blank=True)
    overdue_at = models.DateTimeField(null=True, blank=True, help_text="When operators were told.")
    look_again_at = models.DateTimeField(null=True, blank=True)

    released_at = models.DateTimeField(null=True, blank=True)
    released_by_kind = models.CharField(max_length=20, blank=True)
    released_by_id = models.CharField(max_length=100, blank=True)
    released_by_name = models.CharField(max_length=200, blank=True)
    released_through = models.CharField(max_length=20, blank=True)
    resolution = models.CharField(max_length=20, blank=True)
    answer = models.TextField(null=True, blank=True)

    objects = HoldQuerySet.as_manager()

    class Meta:
        ordering = ("opened_at", "id")
        constraints = [
            models.CheckConstraint(name="hold_cause_is_a_known_word", condition=Q(cause__in=words(Cause))),
            models.CheckConstraint(
                name="hold_scope_fits_step",
                condition=Q(scope=Scope.CALL, step__isnull=False) | Q(scope=Scope.RUN, step__isnull=True),
            ),
            models.CheckConstraint(
                name="hold_expiry_says_what_then", condition=Q(on_expiry__in=["", *words(Then)])
            ),
            models.CheckConstraint(
                name="hold_released_says_how",
                condition=Q(released_at__isnull=True, resolution="")
                | (Q(released_at__isnull=False) & ~Q(resolution="")),
            ),
            models.UniqueConstraint(
                name="hold_one_open_a_call_and_cause",
                fields=["step", "cause"],
                condition=Q(released_at__isnull=True, step__isnull=False),
            ),
            models.UniqueConstraint(
                name="hold_one_open_a_run_and_cause",
                fields=["run", "cause"],
                condition=Q(released_at__isnull=True, step__isnull=True),
            ),
        ]
        indexes = [
            models.Index(name="hold_open", fields=["run"], condition=Q(released_at__isnull=True)),
            models.Index(
                name="hold_expiring",
                fields=["expires_at"],
                condition=Q(released_at__isnull=True, overdue_at__isnull=True),
            ),
            models.Index(
                name="hold_subject", fields=["cause", "subject"], condition=Q(released_at__isnull=True)
            ),
            models.Index(
                name="hold_looking", fields=["look_again_at"], condition=Q(released_at__isnull=True)
            ),
        ]

    def __str__(self) -> str:
        return f"{self.cause} hold"

    @property
    def is_open(self) -> bool:
        return self.released_at is None
