"""Immutable, numbered account of a run at the moment it stopped; constant in size.

Heads and counts, not lists: those come from the record, the ledger and the journal.
"""

from django.db import models

from runs.clock import Now
from runs.models.run import Run

SCHEMA_VERSION = 2
#: So many holds, allowances and credentials at most are named: a snapshot's size does not grow with its run.
NAMED = 20


class Snapshot(models.Model):
    run = models.ForeignKey(Run, models.PROTECT, related_name="snapshots")
    number = models.IntegerField()
    schema_version = models.IntegerField(default=SCHEMA_VERSION)
    taken_at = models.DateTimeField(db_default=Now())
    epoch = models.BigIntegerField()
    steps = models.IntegerField(help_text="Steps settled.")
    record = models.BinaryField(help_text="Chained SHA-256 over the settled steps.")
    attempted = models.IntegerField(help_text="Steps asked for, settled or not.")
    effects = models.IntegerField(help_text="Effects confirmed.")
    effects_digest = models.CharField(max_length=64, help_text="SHA-256 over keys and states of the ledger.")
    agent = models.CharField(max_length=100)
    agent_version = models.CharField(max_length=40)
    code_digest = models.CharField(max_length=64, blank=True)
    claims = models.IntegerField(db_default=0, help_text="What the run had reserved outside.")
    used = models.JSONField(
        db_default=[], help_text="The allowances it draws on: name, unit, used and reserved by then."
    )
    credentials = models.JSONField(db_default=[], help_text="Names, never values.")
    open_holds = models.IntegerField(db_default=0, help_text="How many held it or a call of it.")
    why = models.JSONField(default=list, help_text="The first open holds: cause, step index, sentence.")

    class Meta:
        ordering = ("run", "number")
        constraints = [
            models.UniqueConstraint(name="snapshot_number_once_a_run", fields=["run", "number"]),
        ]

    def __str__(self) -> str:
        return f"snapshot {self.number} of {self.run_id}"
