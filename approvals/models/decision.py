"""What one reviewer said of one revision, and the permit that comes of it.

Decisions are never changed or deleted (a trigger refuses): a decision counts while its revision stands. People
are kept as id and name, not as foreign keys, so that deleting an account erases no history.
"""

import uuid
from typing import Self

from django.db import models
from django.db.models import ExpressionWrapper, Q

from approvals.models.request import Request, Revision
from approvals.states import Verb
from runs.clock import Now
from runs.models.run import words


class DecisionQuerySet(models.QuerySet["Decision"]):
    def standing(self) -> Self:
        """Those that nobody took back."""
        return self.filter(undone__isnull=True)

    def with_undone(self) -> Self:
        """With `taken_back` on each."""
        return self.annotate(taken_back=ExpressionWrapper(Q(undone__isnull=False), models.BooleanField()))


class Decision(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    request = models.ForeignKey(Request, models.PROTECT, related_name="decisions")
    revision = models.ForeignKey(Revision, models.PROTECT, related_name="decisions")
    person_id = models.CharField(max_length=100)
    person_name = models.CharField(max_length=200)
    verb = models.CharField(max_length=10, choices=Verb.choices)
    reason = models.TextField(blank=True)
    answer = models.TextField(null=True, help_text="Canonical JSON of an answered question.")
    digest = models.CharField(max_length=64)
    nonce = models.CharField(max_length=64, blank=True)
    door = models.CharField(max_length=20)
    basis = models.JSONField(default=list, help_text="The questions that were asked, each with its answer.")
    step_up = models.CharField(
        max_length=20, blank=True, default="", db_default="", help_text="How they showed again who they are."
    )
    nth = models.IntegerField(
        default=0, db_default=0, help_text="How many of theirs on this revision were undone before."
    )
    made_at = models.DateTimeField(db_default=Now())

    objects = DecisionQuerySet.as_manager()

    class Meta:
        ordering = ("made_at", "id")
        constraints = [
            models.CheckConstraint(name="decision_verb_is_a_known_word", condition=Q(verb__in=words(Verb))),
            models.UniqueConstraint(
                name="decision_once_a_person_and_revision", fields=["revision", "person_id", "nth"]
            ),
        ]
        indexes = [models.Index(name="decision_of_person", fields=["person_id", "-made_at"])]

    def __str__(self) -> str:
        return f"{self.person_name}: {self.verb}"


class Undo(models.Model):
    """A decision taken back before it was in force, by who made it or by another who may stop it."""

    decision = models.OneToOneField(Decision, models.PROTECT, related_name="undone")
    person_id = models.CharField(max_length=100)
    person_name = models.CharField(max_length=200)
    reason = models.TextField(blank=True)
    door = models.CharField(max_length=20)
    made_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ("made_at", "id")

    def __str__(self) -> str:
        return f"{self.person_name} took back {self.decision_id}"


class PermitQuerySet(models.QuerySet["Permit"]):
    def in_force(self) -> Self:
        return self.filter(consumed_at__isnull=True, voided_at__isnull=True)


class Permit(models.Model):
    """An approval in force; consumed by exactly one call, until `consume_by`."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    request = models.ForeignKey(Request, models.PROTECT, related_name="permits")
    revision = models.OneToOneField(Revision, models.PROTECT, related_name="permit")
    granted_at = models.DateTimeField(db_default=Now())
    consume_by = models.DateTimeField(null=True, blank=True)
    consumed_at = models.DateTimeField(null=True, blank=True)
    voided_at = models.DateTimeField(null=True, blank=True)
    void_why = models.CharField(max_length=200, blank=True)

    objects = PermitQuerySet.as_manager()

    class Meta:
        ordering = ("granted_at",)
        constraints = [
            models.CheckConstraint(
                name="permit_consumed_or_void",
                condition=Q(consumed_at__isnull=True) | Q(voided_at__isnull=True),
            ),
            models.UniqueConstraint(
                name="permit_one_in_force_a_request",
                fields=["request"],
                condition=Q(consumed_at__isnull=True, voided_at__isnull=True),
            ),
        ]

    def __str__(self) -> str:
        return f"permit for {self.request_id}"
