"""Who holds a submitter's key: `Authorization: Bearer KEY`, or `Api-Key KEY`.

A key works until it expires, is revoked, or its owner's account is disabled; every other one gets the same
401. Only hashes are stored, so a key is looked up by its prefix and compared in constant time. Looking
writes nothing.
"""

import re
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Q
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from approvals.models import ApiKey
from runs.clock import Now

SCHEMES = frozenset({"bearer", "api-key"})
_KEY = re.compile(r"[A-Za-z0-9]{8}\.[A-Za-z0-9]{16,100}")


class KeyAuthentication(BaseAuthentication):
    """For REST framework: `request.user` is the key's owner, `request.auth` the key."""

    def authenticate(self, request: Request) -> tuple[User, ApiKey] | None:
        scheme, _, given = get_authorization_header(request).decode("latin-1").partition(" ")
        if scheme.lower() not in SCHEMES:
            return None
        key = find(given.strip())
        if key is None:
            raise AuthenticationFailed(
                "this key is unknown, expired or revoked, or its owner may not sign in"
            )
        return key.owner, key

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="Abeyance"'


def find(given: str) -> ApiKey | None:
    """The usable key of that text, with its owner."""
    if not _KEY.fullmatch(given):
        return None
    unexpired = Q(expiry_date__isnull=True) | Q(expiry_date__gt=Now())
    usable = ApiKey.objects.get_usable_keys().filter(unexpired, owner__is_active=True).select_related("owner")
    key: ApiKey | None = usable.filter(prefix=given.partition(".")[0]).first()
    # Not `key.is_valid`: it may store a new hash, and a GET writes nothing.
    return key if key and ApiKey.objects.key_generator.verify(given, key.hashed_key) else None


class KeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """How the API's description names it."""

    target_class = KeyAuthentication
    name = "key"

    def get_security_definition(self, auto_schema: Any) -> dict[str, Any]:
        return {
            "type": "http",
            "scheme": "bearer",
            "description": "Issued by an operator, shown once. `Authorization: Api-Key KEY` is the same.",
        }
