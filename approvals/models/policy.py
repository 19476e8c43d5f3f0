"""The rules as people edit them, and every version of the whole set that was ever in force.

`Rule` rows are the working copy. `policies.publish` freezes all of them into one `PolicyVersion`, which is
never changed again and is the only thing calls are judged by; `Policy` is the one row that says which version
is in force and carries the journal chain of the stream `policy:1`.
"""

from django.contrib.auth.models import Group
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q

from runs.clock import Now

DAY = 86400
MAX_EXPRESSION = 2000
LONGEST = 30 * DAY


class Kind(models.TextChoices):
    TIER = "tier", "tier rule"
    VERDICT = "verdict", "verdict rule"


class Outcome(models.TextChoices):
    """R4 is not among them: it needs a passkey over the digest, which does not exist yet."""

    R0 = "R0", "R0: not gated"
    R1 = "R1", "R1: low"
    R2 = "R2", "R2: medium"
    R3 = "R3", "R3: high"
    ALLOW = "allow", "allow"
    HOLD = "hold", "hold for a decision"
    DENY = "deny", "deny"


TIER_OUTCOMES = ("R0", "R1", "R2", "R3")
VERDICT_OUTCOMES = ("allow", "hold", "deny")


def _seconds(default: int, longest: int, least: int, text: str) -> "models.PositiveIntegerField[int, int]":
    limits = [MinValueValidator(least), MaxValueValidator(longest)]
    return models.PositiveIntegerField(default=default, validators=limits, help_text=text)


class RuleQuerySet(models.QuerySet["Rule"]):
    def in_order(self) -> "RuleQuerySet":
        return self.select_related("reviewers").order_by("kind", "order", "id")


class Rule(models.Model):
    kind = models.CharField(max_length=10, choices=Kind.choices)
    order = models.IntegerField(default=100, help_text="Verdict rules: the first that matches decides.")
    name = models.CharField(max_length=100)
    tool = models.CharField(max_length=200, default="*", help_text="A tool's name; * and ? match anything.")
    expression = models.TextField(default="true", help_text="CEL, up to 2,000 characters; only true matches.")
    outcome = models.CharField(max_length=5, choices=Outcome.choices)
    enabled = models.BooleanField(default=True)

    reviewers = models.ForeignKey(
        Group, models.PROTECT, null=True, blank=True, related_name="+", help_text="Who decides what is held."
    )
    quorum = models.PositiveSmallIntegerField(
        default=1, validators=[MinValueValidator(1), MaxValueValidator(10)], help_text="How many must agree."
    )
    decide_within = _seconds(3 * DAY, LONGEST, 1, "Seconds in which a decision can be made.")
    consume_within = _seconds(DAY, LONGEST, 1, "Seconds in which an approval can be used.")
    undo_window = _seconds(0, DAY, 0, "Seconds in which a decision can be taken back.")
    blind = models.BooleanField(
        default=False, db_default=False, help_text="Reviewers see each other's answers after their own."
    )
    bulk_ok = models.BooleanField(
        default=False, db_default=False, help_text="Small ones (R1) may be approved together."
    )
    fixed_because = models.CharField(
        max_length=200,
        blank=True,
        default="",
        db_default="",
        help_text="Why nobody can ask for more time; empty: they can.",
    )

    objects = RuleQuerySet.as_manager()

    class Meta:
        ordering = ("kind", "order", "id")
        constraints = [
            models.UniqueConstraint(name="rule_name_once_a_kind", fields=["kind", "name"]),
            models.CheckConstraint(
                name="rule_outcome_fits_kind",
                condition=Q(kind="tier", outcome__in=TIER_OUTCOMES)
                | Q(kind="verdict", outcome__in=VERDICT_OUTCOMES),
            ),
            models.CheckConstraint(
                name="rule_reviewers_only_where_held", condition=Q(reviewers=None) | Q(outcome="hold")
            ),
            models.CheckConstraint(name="rule_quorum_at_least_one", condition=Q(quorum__gte=1)),
            models.CheckConstraint(
                name="rule_clocks_in_range",
                condition=Q(decide_within__range=(1, LONGEST), consume_within__range=(1, LONGEST))
                & Q(undo_window__range=(0, DAY)),
            ),
        ]

    def __str__(self) -> str:
        return self.name


class Policy(models.Model):
    """One row, id 1. `number` is the version in force, 0 before the first."""

    number = models.PositiveIntegerField(default=0)
    seq = models.BigIntegerField(default=0)
    head = models.BinaryField(default=bytes)

    stream_prefix = "policy:"

    class Meta:
        verbose_name_plural = "policies"
        constraints = [models.CheckConstraint(name="policy_is_one_row", condition=Q(id=1))]

    def __str__(self) -> str:
        return f"policy, version {self.number}"

    @property
    def stream(self) -> str:
        return f"{self.stream_prefix}{self.pk}"


class PolicyVersion(models.Model):
    """The complete rules at one time, never changed. `rules` is canonical JSON, `digest` its SHA-256."""

    number = models.PositiveIntegerField(unique=True)
    rules = models.TextField()
    digest = models.CharField(max_length=64)
    why = models.TextField(blank=True)
    by_kind = models.CharField(max_length=20)
    by_id = models.CharField(max_length=100, blank=True)
    by_name = models.CharField(max_length=200, blank=True)
    door = models.CharField(max_length=20, blank=True)
    at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ("-number",)

    def __str__(self) -> str:
        return f"version {self.number}"
