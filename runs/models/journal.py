"""The append-only, hash-chained account of who did what, through which door, when, why."""

from typing import Self

from django.db import models


class JournalQuerySet(models.QuerySet["JournalEntry"]):
    def of(self, stream: str) -> Self:
        return self.filter(stream=stream).order_by("seq")


class JournalEntry(models.Model):
    stream = models.CharField(max_length=60)
    seq = models.BigIntegerField()
    at = models.DateTimeField()
    actor_kind = models.CharField(max_length=20)
    actor_id = models.CharField(max_length=100, blank=True)
    actor_name = models.CharField(max_length=200, blank=True)
    door = models.CharField(max_length=20, blank=True)
    verb = models.CharField(max_length=40)
    detail = models.TextField(default="{}", help_text="Canonical JSON.")
    hash = models.BinaryField()

    objects = JournalQuerySet.as_manager()

    class Meta:
        ordering = ("id",)
        verbose_name_plural = "journal entries"
        constraints = [models.UniqueConstraint(name="journal_seq_once_a_stream", fields=["stream", "seq"])]

    def __str__(self) -> str:
        return f"{self.stream} #{self.seq} {self.verb}"
