"""The outbox: one message to one person about one request, sent by the sweeper, kept as sent."""

from datetime import datetime
from typing import Self

from django.db import models

from approvals.models.request import Request
from runs.clock import Now


class NotificationQuerySet(models.QuerySet["Notification"]):
    def due(self, now: datetime) -> Self:
        return self.filter(sent_at__isnull=True, given_up=False, next_try_at__lte=now)


class Notification(models.Model):
    request = models.ForeignKey(Request, models.PROTECT, related_name="notifications")
    kind = models.CharField(max_length=20, help_text="opened, changed, …")
    number = models.IntegerField(help_text="The revision it tells of.")
    person_id = models.CharField(max_length=100)
    address = models.EmailField()
    subject = models.CharField(max_length=200, blank=True)
    created_at = models.DateTimeField(db_default=Now())
    next_try_at = models.DateTimeField(db_default=Now())
    attempts = models.IntegerField(default=0)
    sent_at = models.DateTimeField(null=True, blank=True)
    given_up = models.BooleanField(default=False)
    problem = models.CharField(max_length=500, blank=True)

    objects = NotificationQuerySet.as_manager()

    class Meta:
        ordering = ("id",)
        constraints = [
            models.UniqueConstraint(
                name="notification_once_a_person_kind_and_revision",
                fields=["request", "kind", "number", "person_id"],
            ),
        ]
        indexes = [
            models.Index(
                name="notification_due",
                fields=["next_try_at"],
                condition=models.Q(sent_at__isnull=True, given_up=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} to {self.address}"
