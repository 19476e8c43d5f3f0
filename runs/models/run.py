"""One execution of one agent version, from submission to end.

`lifecycle` is the only writer of `status`; the columns guards need are here, so that a guard is one UPDATE
without a subquery: `epoch` and `token` (the fence), `open_holds` (those that bind the whole run), `wakes`
(raised at every release), `stop_requested`. `record` is the chained hash over settled steps, `head` and `seq`
the journal chain of the stream `run:ID`.
"""

import uuid
from datetime import datetime
from typing import Self

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.urls import reverse

from runs.clock import Now
from runs.states import ENDED, LIVE, RunStatus


def words(choices: type[models.TextChoices]) -> list[str]:
    """The stored words of a set of choices, for a constraint."""
    return [str(value) for value in choices.values]


class RunQuerySet(models.QuerySet["Run"]):
    def live(self) -> Self:
        return self.filter(status__in=sorted(LIVE))

    def submitted_by(self, owner_id: str) -> Self:
        return self.filter(owner_id=owner_id)

    def unrung(self, before: datetime) -> Self:
        """Queued, and nobody has taken them since they were rung before that time."""
        return self.filter(status=RunStatus.QUEUED, rung_at__lt=before)

    def lapsed(self, now: datetime) -> Self:
        """Running under a lease that ran out."""
        return self.filter(status=RunStatus.RUNNING, lease_until__lt=now)

    def orphaned(self) -> Self:
        """Live below a run that has ended or is to stop."""
        above = Q(parent__status__in=sorted(ENDED)) | Q(parent__stop_requested__isnull=False)
        return self.live().filter(above, parent__isnull=False)


class Run(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    agent = models.CharField(max_length=100)
    agent_version = models.CharField(max_length=40)
    code_digest = models.CharField(max_length=64, blank=True)
    input = models.TextField()
    result = models.TextField(null=True)
    error = models.TextField(null=True)
    labels = models.JSONField(default=dict, blank=True)

    submitter_kind = models.CharField(max_length=20)
    submitter_id = models.CharField(max_length=100)
    submitter_name = models.CharField(max_length=200)
    owner_id = models.CharField(
        max_length=100, blank=True, help_text="Account of the submitting key's owner."
    )
    on_behalf_of = models.CharField(max_length=200, blank=True)
    idempotency_key = models.CharField(max_length=200, null=True, blank=True)
    submission_digest = models.CharField(max_length=64, blank=True)
    again_of = models.ForeignKey("self", models.PROTECT, null=True, blank=True, related_name="again")

    parent = models.ForeignKey("self", models.PROTECT, null=True, blank=True, related_name="children")
    ancestors = ArrayField(
        models.UUIDField(), default=list, blank=True, help_text="The root first, the parent last."
    )
    metered = models.BooleanField(default=False, help_text="It draws on an allowance.")

    status = models.CharField(max_length=20, choices=RunStatus.choices, default=RunStatus.QUEUED)
    epoch = models.BigIntegerField(default=0)
    token = models.UUIDField(null=True)
    taken_by = models.CharField(max_length=100, blank=True)
    lease_until = models.DateTimeField(null=True)
    wakes = models.BigIntegerField(default=0)
    open_holds = models.IntegerField(default=0)
    stop_requested = models.JSONField(null=True)

    position = models.IntegerField(default=0, help_text="How many steps have settled.")
    record = models.BinaryField(default=bytes)
    snapshots_taken = models.IntegerField(default=0)
    seq = models.BigIntegerField(default=0)
    head = models.BinaryField(default=bytes)

    created_at = models.DateTimeField(db_default=Now())
    started_at = models.DateTimeField(null=True)
    suspended_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    changed_at = models.DateTimeField(db_default=Now())
    rung_at = models.DateTimeField(null=True, db_default=Now())
    rings = models.IntegerField(default=0)
    recoveries = models.IntegerField(default=0, help_text="Workers lost in a row without a step settled.")

    stream_prefix = "run:"
    objects = RunQuerySet.as_manager()

    class Meta:
        ordering = ("-created_at", "-id")
        constraints = [
            models.CheckConstraint(
                name="run_status_is_a_known_word", condition=Q(status__in=words(RunStatus))
            ),
            models.CheckConstraint(
                name="run_running_has_lease_and_token",
                condition=Q(status="running", lease_until__isnull=False, token__isnull=False)
                | (~Q(status="running") & Q(lease_until__isnull=True, token__isnull=True)),
            ),
            models.CheckConstraint(
                name="run_ended_has_time",
                condition=Q(status__in=sorted(ENDED), ended_at__isnull=False)
                | (~Q(status__in=sorted(ENDED)) & Q(ended_at__isnull=True)),
            ),
            models.CheckConstraint(
                name="run_ended_has_no_open_hold", condition=~Q(status__in=sorted(ENDED)) | Q(open_holds=0)
            ),
            models.CheckConstraint(name="run_open_holds_not_negative", condition=Q(open_holds__gte=0)),
            models.UniqueConstraint(
                name="run_idempotency_key_once_a_submitter",
                fields=["submitter_kind", "submitter_id", "idempotency_key"],
            ),
        ]
        indexes = [
            models.Index(name="run_newest_first", fields=["-created_at", "-id"]),
            models.Index(name="run_owner_newest_first", fields=["owner_id", "-created_at", "-id"]),
            models.Index(name="run_children", fields=["parent"], condition=Q(parent__isnull=False)),
            models.Index(
                name="run_live_below",
                fields=["parent"],
                condition=Q(parent__isnull=False, status__in=sorted(LIVE)),
            ),
            models.Index(name="run_queued", fields=["rung_at"], condition=Q(status="queued")),
            models.Index(name="run_leased", fields=["lease_until"], condition=Q(status="running")),
            models.Index(name="run_suspended", fields=["suspended_at"], condition=Q(status="suspended")),
        ]

    def __str__(self) -> str:
        return f"{self.agent} {self.short_id}"

    def get_absolute_url(self) -> str:
        return reverse("run", args=[self.id])

    @property
    def short_id(self) -> str:
        return str(self.id)[:8]

    @property
    def ended(self) -> bool:
        return self.status in ENDED

    @property
    def stream(self) -> str:
        return f"{self.stream_prefix}{self.id}"
