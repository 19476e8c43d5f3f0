"""What reviewers leave beside their decisions: drafts, comments, questions to the agent, who looks after what.

None of it decides. People are kept as id and name, as in decisions.
"""

from datetime import datetime
from typing import Self

from django.db import models
from django.db.models import Q

from approvals.models.request import Request, Revision
from runs.clock import Now

#: How often a request is passed on from one reviewer to another.
HOPS = 3


class Draft(models.Model):
    """What one person has typed, ticked and opened of one revision, so that nothing of it is lost."""

    revision = models.ForeignKey(Revision, models.CASCADE, related_name="drafts")
    person_id = models.CharField(max_length=100)
    opened = models.JSONField(default=list, help_text="Names of the sections that were opened.")
    basis = models.JSONField(default=dict, help_text="Answers to the basis questions, by their id.")
    seen = models.JSONField(default=list, help_text="Names of the changed facts that were ticked.")
    note = models.TextField(blank=True)
    edited = models.TextField(null=True, help_text="Canonical JSON of the arguments as edited.")
    changed_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(name="draft_one_a_person_and_revision", fields=["revision", "person_id"]),
        ]

    def __str__(self) -> str:
        return f"draft of {self.person_id} for {self.revision_id}"


class Comment(models.Model):
    """Said by one reviewer to the others; the agent never reads it."""

    request = models.ForeignKey(Request, models.PROTECT, related_name="comments")
    number = models.IntegerField(help_text="The revision that stood.")
    person_id = models.CharField(max_length=100)
    person_name = models.CharField(max_length=200)
    text = models.TextField()
    made_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ("made_at", "id")

    def __str__(self) -> str:
        return f"{self.person_name} on {self.request_id}"


class Inquiry(models.Model):
    """A reviewer's question to who asks (the agent's side), and the answer: testimony, no evidence."""

    request = models.ForeignKey(Request, models.PROTECT, related_name="inquiries")
    number = models.IntegerField(help_text="The revision it is about.")
    person_id = models.CharField(max_length=100)
    person_name = models.CharField(max_length=200)
    text = models.TextField()
    made_at = models.DateTimeField(db_default=Now())
    answer = models.TextField(blank=True)
    answered_by = models.CharField(max_length=200, blank=True)
    answered_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("made_at", "id")
        constraints = [
            models.UniqueConstraint(
                name="inquiry_one_open_a_request", fields=["request"], condition=Q(answered_at__isnull=True)
            ),
        ]

    def __str__(self) -> str:
        return f"{self.person_name} asks about {self.request_id}"


class SnoozeQuerySet(models.QuerySet["Snooze"]):
    def asleep(self, now: datetime) -> Self:
        return self.filter(until__gt=now)


class Snooze(models.Model):
    """One person does not want to see a request until then; others still do."""

    request = models.ForeignKey(Request, models.CASCADE, related_name="snoozes")
    person_id = models.CharField(max_length=100)
    until = models.DateTimeField()

    objects = SnoozeQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(name="snooze_one_a_person_and_request", fields=["request", "person_id"]),
        ]
        indexes = [models.Index(name="snooze_of_person", fields=["person_id", "until"])]

    def __str__(self) -> str:
        return f"{self.person_id} until {self.until}"


class Delegation(models.Model):
    """A reviewer asked another, who may decide it anyway, to do so. It gives no right."""

    request = models.ForeignKey(Request, models.PROTECT, related_name="delegations")
    hop = models.IntegerField()
    from_id = models.CharField(max_length=100)
    from_name = models.CharField(max_length=200)
    to_id = models.CharField(max_length=100)
    to_name = models.CharField(max_length=200)
    reason = models.TextField(blank=True)
    made_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ("hop",)
        constraints = [
            models.UniqueConstraint(name="delegation_hop_once_a_request", fields=["request", "hop"]),
            models.CheckConstraint(name="delegation_at_most_three_hops", condition=Q(hop__range=(1, HOPS))),
        ]
        indexes = [models.Index(name="delegation_by_from", fields=["from_id", "request"])]

    def __str__(self) -> str:
        return f"{self.from_name} → {self.to_name}"


class StepUp(models.Model):
    """A person has just shown again who they are, for one decision on one digest in one session; used once."""

    request = models.ForeignKey(Request, models.CASCADE, related_name="step_ups")
    person_id = models.CharField(max_length=100)
    session = models.CharField(max_length=64, help_text="SHA-256 of the session's key.")
    digest = models.CharField(max_length=64)
    verb = models.CharField(max_length=10)
    method = models.CharField(max_length=20, help_text="totp, webauthn, recovery_codes")
    made_at = models.DateTimeField(db_default=Now())
    used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("made_at",)
        indexes = [models.Index(name="step_up_of_person", fields=["person_id", "request"])]

    def __str__(self) -> str:
        return f"{self.person_id} by {self.method}"
