"""What stands before every page: what is too large, unreadable or another site's is refused unread, and no
answer is kept.

Django bounds what it holds in memory of a form, and not the files that may come with it: nobody uploads any
here, so one limit stands for the whole body, before anything of it is read. No query of ours holds NUL, which
the database cannot even look for. A browser that says a form comes from another site is believed, whatever
token it brings. What nobody expected is answered here too (`failed`), without asking the database, which may be
what is away, and with what was typed. The API has limits and words of its own, and no cookies.
"""

import sys
from collections.abc import Callable

from django.conf import settings
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.views.csrf import csrf_failure
from django.views.defaults import bad_request

from approvals.views.page import typed

SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
Answer = Callable[[HttpRequest], HttpResponse]
#: What the database says of itself: gone, restarting, full, or two that wait for each other.
AWAY = (OperationalError, InterfaceError)
TRY_AGAIN_IN = 5  # seconds


def middleware(answer: Answer) -> Answer:
    def guarded(request: HttpRequest) -> HttpResponse:
        response = _refused(request) or answer(request)
        if not response.has_header("Cache-Control"):
            response["Cache-Control"] = "no-store"
        return response

    return guarded


def failed(request: HttpRequest) -> HttpResponse:
    """The page for an error that no view has an answer to (`handler500`): 503 where it is the database's."""
    away = isinstance(sys.exc_info()[1], AWAY)
    context = {"away": away, "typed": typed(request), "again": request.path if request.method in SAFE else ""}
    response = HttpResponse(render_to_string("500.html", context), status=503 if away else 500)
    if away:
        response["Retry-After"] = str(TRY_AGAIN_IN)
    return response


def _refused(request: HttpRequest) -> HttpResponse | None:
    if request.path_info.startswith("/api/"):
        return None
    if _is_large(request):
        return _unreadable(request, 413)
    if "%00" in request.META.get("QUERY_STRING", ""):
        return _unreadable(request, 400)
    if request.method not in SAFE and request.headers.get("Sec-Fetch-Site") == "cross-site":
        return csrf_failure(request, "another site sent this")
    return None


def _is_large(request: HttpRequest) -> bool:
    announced = str(request.META.get("CONTENT_LENGTH") or "0")
    return len(announced) > 9 or (
        announced.isdecimal() and int(announced) > settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    )


def _unreadable(request: HttpRequest, status: int) -> HttpResponse:
    response = bad_request(request, ValueError())
    response.status_code = status
    return response
