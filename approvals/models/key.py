"""Keys of submitters: named, prefixed, hashed, expiring, revocable, shown once."""

from django.conf import settings
from django.db import models
from rest_framework_api_key.models import AbstractAPIKey


class ApiKey(AbstractAPIKey):
    """A submitter's key. Its owner and who issued it are requesters of every run it starts, and review none."""

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, related_name="api_keys")
    issuer_id = models.CharField(max_length=100, blank=True, help_text="Who issued it, and saw it.")

    class Meta(AbstractAPIKey.Meta):
        verbose_name = "API key"
        verbose_name_plural = "API keys"
