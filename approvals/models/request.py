"""What lies in the inbox, and each exact version of it.

A *request* hangs on one call of a run and lives through revisions; a *revision* is the digest of exactly what is
shown and will run. Revisions are never changed: an edit, drift or a stricter policy makes the next one.
"""

import secrets
import uuid
from datetime import datetime, timedelta
from typing import Any, Self

from django.contrib.auth.models import Group
from django.db import models
from django.db.models import Q
from django.urls import reverse

from approvals.states import PENDING, STANDING, RequestKind, RequestState
from runs.clock import Now
from runs.models import Hold, Run, Step
from runs.models.run import words

#: What has waited for three days counts as if its time were up eight hours later.
URGENT_AFTER = timedelta(days=3, hours=8)
#: Crockford's base 32: no letters that read as others.
ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def new_ref() -> str:
    """Ten characters, fifty bits: an address, not a key, and not to be guessed in passing."""
    return "".join(secrets.choice(ALPHABET) for _ in range(10))


class RequestQuerySet(models.QuerySet["Request"]):
    def pending(self) -> Self:
        return self.filter(state__in=PENDING)

    def open_at(self, now: datetime) -> Self:
        """Pending, and their time is not up, whatever the sweeper has got to."""
        return self.pending().filter(Q(decide_by__gt=now) | Q(decide_by__isnull=True))

    def standing(self) -> Self:
        return self.filter(state__in=STANDING)

    def looks_wanted(self) -> Self:
        return self.filter(look_wanted_at__isnull=False)


class Ends(models.Func):
    """The end of a request's time, also where it has none: a date that an index can keep in order."""

    template = "COALESCE(decide_by, '9999-12-31 00:00:00+00'::timestamptz)"
    output_field = models.DateTimeField()


class Due(models.Func):
    """When a request counts as urgent: its deadline, or eight hours after it has waited for three days."""

    template = "LEAST(decide_by, (opened_at AT TIME ZONE 'UTC' + interval '80:00:00') AT TIME ZONE 'UTC')"
    output_field = models.DateTimeField()


class Request(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    ref = models.CharField(max_length=12, unique=True, default=new_ref, editable=False)
    run = models.ForeignKey(Run, models.PROTECT, related_name="requests")
    step = models.OneToOneField(Step, models.PROTECT, related_name="request")
    hold = models.ForeignKey(Hold, models.PROTECT, related_name="+")
    kind = models.CharField(max_length=10, choices=RequestKind.choices)
    state = models.CharField(max_length=12, choices=RequestState.choices, default=RequestState.OPEN)
    number = models.IntegerField(default=1, help_text="The standing revision.")

    tier = models.CharField(max_length=2)
    group = models.ForeignKey(Group, models.SET_NULL, null=True, blank=True, related_name="+")
    quorum = models.IntegerField(default=1)
    opened_at = models.DateTimeField(db_default=Now())
    decide_by = models.DateTimeField(null=True, blank=True)
    decided_at = models.DateTimeField(null=True, blank=True)
    takes_effect_at = models.DateTimeField(null=True, blank=True, help_text="End of the undo window.")
    closed_at = models.DateTimeField(null=True, blank=True)
    closed_why = models.CharField(max_length=500, blank=True)
    look_wanted_at = models.DateTimeField(null=True, blank=True)
    looked_at = models.DateTimeField(null=True, blank=True)
    extensions = models.IntegerField(
        default=0, db_default=0, help_text="How often somebody asked for more time."
    )
    reserved_by_id = models.CharField(max_length=100, blank=True, default="", db_default="")
    reserved_by_name = models.CharField(max_length=200, blank=True, default="", db_default="")
    reserved_until = models.DateTimeField(null=True, blank=True)

    seq = models.BigIntegerField(default=0)
    head = models.BinaryField(default=bytes)

    stream_prefix = "request:"
    objects = RequestQuerySet.as_manager()

    class Meta:
        ordering = ("decide_by", "ref")
        constraints = [
            models.CheckConstraint(
                name="request_state_is_a_known_word", condition=Q(state__in=words(RequestState))
            ),
            models.CheckConstraint(
                name="request_kind_is_a_known_word", condition=Q(kind__in=words(RequestKind))
            ),
            models.CheckConstraint(name="request_quorum_at_least_one", condition=Q(quorum__gte=1)),
        ]
        indexes = [
            # An inbox in its order, a scan for each group and tier; and of those who see all.
            models.Index(
                models.F("group"),
                models.F("tier"),
                Ends(),
                models.F("ref"),
                name="request_pending_by_end",
                condition=Q(state__in=sorted(PENDING)),
            ),
            models.Index(
                models.F("group"),
                models.F("tier"),
                Due(),
                models.F("ref"),
                name="request_pending_by_due",
                condition=Q(state__in=sorted(PENDING)),
            ),
            models.Index(
                name="request_pending_by_time",
                fields=["decide_by", "ref"],
                condition=Q(state__in=sorted(PENDING)),
            ),
            models.Index(
                name="request_looks_wanted",
                fields=["look_wanted_at"],
                condition=Q(look_wanted_at__isnull=False),
            ),
            models.Index(
                name="request_taking_effect", fields=["takes_effect_at"], condition=Q(state="decided")
            ),
            models.Index(name="request_by_run", fields=["run", "state"]),
            models.Index(name="request_newest_first", fields=["-opened_at", "-ref"]),
        ]

    def __str__(self) -> str:
        return self.ref

    def get_absolute_url(self) -> str:
        return reverse("request", args=[self.ref])

    @property
    def stream(self) -> str:
        return f"{self.stream_prefix}{self.id}"

    @property
    def is_pending(self) -> bool:
        return self.state in PENDING

    @property
    def revision(self) -> "Revision":
        """The standing revision."""
        return self.revisions.get(number=self.number)


class Revision(models.Model):
    request = models.ForeignKey(Request, models.PROTECT, related_name="revisions")
    number = models.IntegerField()
    tool = models.CharField(max_length=100)
    tool_version = models.CharField(max_length=64)
    arguments = models.TextField()
    arguments_digest = models.CharField(max_length=64)
    facts = models.JSONField(default=list, help_text="What this revision is decided on: one object a fact.")
    changes = models.JSONField(default=list, help_text="What differs from the revision before.")
    judgement = models.JSONField(default=dict, help_text="What policy said, in full.")
    policy_version = models.IntegerField(default=0)
    digest = models.CharField(max_length=64, help_text="The view digest a decision must carry.")
    reason = models.CharField(max_length=20, blank=True, help_text="Why there is a new revision.")
    author_id = models.CharField(max_length=100, blank=True, help_text="The person who edited, if one did.")
    author_name = models.CharField(max_length=200, blank=True)
    note = models.TextField(blank=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ("request", "number")
        constraints = [
            models.UniqueConstraint(name="revision_number_once_a_request", fields=["request", "number"]),
        ]

    def __str__(self) -> str:
        return f"{self.request_id} revision {self.number}"

    @property
    def edited(self) -> bool:
        return bool(self.author_id)

    def fact_values(self) -> dict[str, str | None]:
        """Name → canonical JSON, or None where it was unreadable."""
        return {fact["name"]: fact["value"] for fact in self.facts}

    def as_json(self) -> dict[str, Any]:
        return {"number": self.number, "digest": self.digest, "arguments_digest": self.arguments_digest}
