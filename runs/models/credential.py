"""A named right obtained at time of use from a provider. Only its name and its state are stored, never a value."""

from typing import Self

from django.db import models


class CredentialQuerySet(models.QuerySet["Credential"]):
    def standing(self) -> Self:
        """Those with which something is wrong, until its owner authorises it or a call gets through."""
        return self.exclude(problem="")


class Credential(models.Model):
    name = models.CharField(max_length=100, primary_key=True)
    version = models.BigIntegerField(default=0, help_text="Raised at every renewal.")
    renewing_until = models.DateTimeField(null=True, blank=True)
    needs_url = models.CharField(
        max_length=2000, blank=True, help_text="Where its owner authorises it again."
    )
    problem = models.CharField(max_length=500, blank=True)
    changed_at = models.DateTimeField(null=True, blank=True)
    seq = models.BigIntegerField(default=0)
    head = models.BinaryField(default=bytes)

    stream_prefix = "credential:"
    objects = CredentialQuerySet.as_manager()

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name

    @property
    def stream(self) -> str:
        return f"{self.stream_prefix}{self.pk}"
