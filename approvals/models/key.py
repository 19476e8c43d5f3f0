"""Keys of submitters: named, prefixed, hashed, expiring, revocable, shown once."""

from django.conf import settings
from django.db import models
from rest_framework_api_key.models import AbstractAPIKey


class ApiKey(AbstractAPIKey):
    """A submitter's key. Its owner is a requester of every run it starts, and reviews none of them."""

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, related_name="api_keys")

    class Meta(AbstractAPIKey.Meta):
        verbose_name = "API key"
        verbose_name_plural = "API keys"
