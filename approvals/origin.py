"""Where people come from, kept with everything they do: the session, by a hash that gives nothing away, and the
address, as the proxies that are trusted tell it.

It goes into the journal for who has to find out, later, whose browser it was (`runs.journal` knows neither).
"""

import hashlib
from collections.abc import Callable

from allauth.core.internal.httpkit import get_client_ip
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.http import HttpRequest, HttpResponse

from runs import journal


def middleware(answer: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    def noted(request: HttpRequest) -> HttpResponse:
        with journal.coming_from(lambda: of(request)):
            return answer(request)

    return noted


def of(request: HttpRequest) -> dict[str, str]:
    return {"session": session_of(request), "address": _address(request)}


def session_of(request: HttpRequest) -> str:
    """Names a session without giving it away; empty where there is none."""
    key = request.session.session_key
    return hashlib.sha256(key.encode()).hexdigest() if key else ""


def _address(request: HttpRequest) -> str:
    """Empty where nobody knows it: what a person does is kept all the same."""
    try:
        return get_client_ip(request) or ""
    except (ImproperlyConfigured, PermissionDenied, ValueError):
        return ""
