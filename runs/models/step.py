"""One call of a run and what came of it; for a tool with an effect also its ledger entry.

A held call has its row at once, so that its request, its facts and the gate hang on (run, index). `arguments`
is what the agent proposed and what replay compares; `executed` is what was sent where a person edited it.
`settled` is the place in the record: steps settle in that order, whatever their index.
"""

from datetime import datetime
from typing import Self

from django.db import models
from django.db.models import Q

from runs.clock import Now
from runs.models.run import Run, words
from runs.states import EXCEPTIONAL, ClaimState, EffectState, StepStatus


class StepQuerySet(models.QuerySet["Step"]):
    def settled(self) -> Self:
        return self.filter(settled__isnull=False)

    def pending(self) -> Self:
        return self.filter(settled__isnull=True)

    def effects(self) -> Self:
        """The ledger: every step that went, or may have gone, outside."""
        return self.exclude(effect="")

    def in_flight(self) -> Self:
        """Being called: an intent and no receipt. One in doubt is not awaited any more."""
        return self.filter(status=StepStatus.DISPATCHED, effect=EffectState.DISPATCHED)

    def in_doubt(self) -> Self:
        return self.filter(effect=EffectState.IN_DOUBT)

    def claims(self) -> Self:
        """What runs have reserved outside and not given back."""
        return self.exclude(claim="").exclude(claim=ClaimState.GIVEN_BACK)

    def claims_due(self, now: datetime) -> Self:
        """Owed, or given back by a worker that did not say in time what came of it; not while a run undoes them."""
        due = self.filter(claim__in=[ClaimState.OWED, ClaimState.GIVING], claim_due_at__lte=now)
        return due.filter(compensated_by__isnull=True)


class Step(models.Model):
    run = models.ForeignKey(Run, models.PROTECT, related_name="steps")
    index = models.IntegerField()
    tool = models.CharField(max_length=100)
    tool_version = models.CharField(max_length=64)
    arguments = models.TextField()
    arguments_digest = models.CharField(max_length=64)
    status = models.CharField(max_length=20, choices=StepStatus.choices)
    result = models.TextField(null=True, help_text="Canonical JSON of the value, or of the recorded error.")
    settled = models.IntegerField(null=True)
    open_holds = models.IntegerField(default=0)
    decision = models.JSONField(null=True, help_text="What a person decided about this call.")

    effect = models.CharField(max_length=20, choices=EffectState.choices, blank=True)
    key = models.CharField(max_length=64, blank=True)
    attempt = models.IntegerField(default=0)
    may_act_until = models.DateTimeField(null=True)
    executed = models.TextField(
        null=True, help_text="Arguments as sent, where they differ from those proposed."
    )
    executed_digest = models.CharField(max_length=64, blank=True)
    permit = models.CharField(max_length=40, blank=True)
    evidence = models.JSONField(default=list, blank=True)
    accepted_digest = models.CharField(
        max_length=64,
        blank=True,
        db_default="",
        help_text="Other arguments that an operator accepted as this call's.",
    )
    compensated_by = models.ForeignKey(
        Run,
        models.PROTECT,
        null=True,
        blank=True,
        related_name="compensates",
        help_text="The run that undoes it.",
    )

    claim = models.CharField(max_length=12, choices=ClaimState.choices, blank=True, db_default="")
    claim_tries = models.IntegerField(db_default=0)
    claim_due_at = models.DateTimeField(null=True, blank=True)
    claim_problem = models.CharField(max_length=500, blank=True, db_default="")

    created_at = models.DateTimeField(db_default=Now())
    dispatched_at = models.DateTimeField(null=True)
    settled_at = models.DateTimeField(null=True)

    objects = StepQuerySet.as_manager()

    class Meta:
        ordering = ("run", "index")
        constraints = [
            models.UniqueConstraint(name="step_index_once_a_run", fields=["run", "index"]),
            models.CheckConstraint(
                name="step_status_is_a_known_word", condition=Q(status__in=words(StepStatus))
            ),
            models.CheckConstraint(
                name="step_effect_is_a_known_word", condition=Q(effect__in=["", *words(EffectState)])
            ),
            models.CheckConstraint(
                name="step_settled_has_result",
                condition=Q(status__in=["done", "raised"], settled__isnull=False, result__isnull=False)
                | (~Q(status__in=["done", "raised"]) & Q(settled__isnull=True, result__isnull=True)),
            ),
            models.CheckConstraint(
                name="step_dispatched_effect_has_key_and_limit",
                condition=Q(effect="") | (~Q(key="") & Q(may_act_until__isnull=False, attempt__gte=1)),
            ),
            models.CheckConstraint(
                name="step_dispatched_has_no_open_hold",
                condition=~Q(status__in=["dispatched", "done", "raised"])
                | Q(open_holds=0)
                | Q(effect="in_doubt"),
            ),
            models.CheckConstraint(name="step_open_holds_not_negative", condition=Q(open_holds__gte=0)),
            models.CheckConstraint(
                name="step_claim_is_a_known_word", condition=Q(claim__in=["", *words(ClaimState)])
            ),
        ]
        indexes = [
            models.Index(
                name="step_exceptional_effects",
                fields=["may_act_until"],
                condition=Q(effect__in=sorted(EXCEPTIONAL)),
            ),
            models.Index(
                name="step_claims",
                fields=["claim_due_at"],
                condition=Q(claim__in=["held", "owed", "giving", "stuck"]),
            ),
            models.Index(
                name="step_effects_by_tool", fields=["tool", "dispatched_at"], condition=~Q(effect="")
            ),
        ]

    def __str__(self) -> str:
        return f"step {self.index}: {self.tool}"

    @property
    def sent(self) -> str:
        """The arguments that were or would be sent."""
        return self.executed if self.executed is not None else self.arguments
