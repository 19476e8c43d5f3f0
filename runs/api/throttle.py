"""How many runs a key may start: counted in the web process's own memory, so that nobody waits for Valkey.

With several web processes each counts for itself; the limit is a fuse, not a quota.
"""

from django.conf import settings
from django.core.cache import caches
from rest_framework.request import Request
from rest_framework.throttling import SimpleRateThrottle
from rest_framework.views import APIView

from runs import callers


class Submissions(SimpleRateThrottle):
    """`SUBMIT_RATE` POSTs of a run a caller."""

    scope = "submit"
    cache = caches["process"]

    def get_rate(self) -> str:
        return str(settings.SUBMIT_RATE)

    def allow_request(self, request: Request, view: APIView) -> bool:
        return request.method != "POST" or super().allow_request(request, view)

    def get_cache_key(self, request: Request, view: APIView) -> str:
        actor = callers.of(request).actor
        return f"submit:{actor.kind}:{actor.id}"
