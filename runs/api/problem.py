"""Every refusal under /api/ as `application/problem+json` (RFC 9457).

`code` is what programs read; `type`, `title` and the status follow from it. `errors` names the places.
Unknown and foreign things get the same answer. What nobody foresaw is logged, and answered without its text.
"""

import logging
import math
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from django.core.exceptions import PermissionDenied, SuspiciousOperation
from django.db import InterfaceError, OperationalError
from django.http import Http404
from rest_framework.exceptions import APIException, NotAuthenticated
from rest_framework.response import Response

from runs.exceptions import BadArguments, BadValue, KeyReused, RunsError, UnknownAgent
from runs.serializers import Place, Problem

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER = 2  # seconds, when the database is away

logger = logging.getLogger("django.request")

#: code → (status, title). A conflict that is not listed here is a 409.
KINDS: dict[str, tuple[int, str]] = {
    "bad_request": (400, "This request cannot be understood"),
    "not_authenticated": (401, "A valid API key is needed"),
    "forbidden": (403, "You may see this, but not do that"),
    "not_found": (404, "There is no such thing, or it is not yours"),
    "method_not_allowed": (405, "This address does not take that method"),
    "not_acceptable": (406, "Answers are application/json"),
    "conflict": (409, "It does not apply as things stand"),
    "run_ended": (409, "The run has ended"),
    "wrong_state": (409, "It does not apply as things stand"),
    "event_reused": (409, "The event's id belongs to another event"),
    "too_large": (413, "This is too large"),
    "unsupported_media_type": (415, "Bodies are application/json"),
    "bad_value": (422, "This is not JSON that can be kept"),
    "bad_body": (422, "The body does not fit"),
    "bad_arguments": (422, "The input does not fit the agent"),
    "bad_parameter": (422, "A query parameter or header does not fit"),
    "unknown_allowance": (422, "There is no shared allowance of that name"),
    "unknown_agent": (422, "There is no agent of that name"),
    "idempotency_key_reused": (422, "The idempotency key belongs to another body"),
    "too_many_requests": (429, "Too many requests"),
    "internal_error": (500, "Something went wrong here"),
    "unavailable": (503, "The database does not answer"),
}
_BY_STATUS = {
    401: "not_authenticated",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    406: "not_acceptable",
    413: "too_large",
    415: "unsupported_media_type",
    429: "too_many_requests",
}


class Refused(RunsError):
    """A door's own refusal. `more` are members of the answer beyond RFC 9457's."""

    def __init__(self, code: str, detail: str, *places: Place, **more: Any) -> None:
        super().__init__(detail)
        self.code = code
        self.places = list(places)
        self.more = more


@dataclass(frozen=True, slots=True)
class _Answer:
    code: str
    detail: str
    errors: list[Place] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)


def answer(error: Exception, context: dict[str, Any]) -> Response:
    """REST framework's EXCEPTION_HANDLER."""
    request = context["request"]
    said = _answer(error)
    status, title = KINDS.get(said.code, KINDS["conflict"])
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        logger.error("%s: %s", title, request.path, exc_info=error, extra={"status_code": status})
    body = Problem(
        type=f"/problems/{said.code.replace('_', '-')}",
        title=title,
        status=status,
        detail=said.detail,
        code=said.code,
        instance=request.path,
        errors=said.errors,
        **said.more,
    )
    shown = body.model_dump(mode="json", exclude_none=True)
    return Response(shown, status=status, headers=said.headers, content_type=MEDIA_TYPE)


def _answer(error: Exception) -> _Answer:
    if isinstance(error, Refused):
        return _Answer(error.code, str(error), error.places, more=error.more)
    if isinstance(error, RunsError):
        return _Answer(error.code, str(error), _places(error))
    if isinstance(error, APIException):
        return _framework(error)
    if isinstance(error, Http404):
        return _Answer("not_found", "there is nothing at this address")
    if isinstance(error, PermissionDenied):
        return _Answer("forbidden", str(error) or "you may not do that")
    if isinstance(error, SuspiciousOperation):
        return _Answer("bad_request", str(error))
    if isinstance(error, (OperationalError, InterfaceError)):
        headers = {"Retry-After": str(RETRY_AFTER)}
        return _Answer("unavailable", "send the same request again, with the same key", headers=headers)
    return _Answer("internal_error", "it is in the service's log; nothing more is known here")


def _places(error: RunsError) -> list[Place]:
    if isinstance(error, BadArguments):
        return [Place(pointer=f"/input{path}", detail=text) for path, text in error.errors]
    if isinstance(error, BadValue):
        return [Place(pointer=error.path, detail=error.message)]
    if isinstance(error, UnknownAgent):
        return [Place(pointer="/agent", detail=str(error))]
    if isinstance(error, KeyReused):
        return [Place(header="Idempotency-Key", detail="send the first body again, or a new key")]
    return []


def _framework(error: APIException) -> _Answer:
    """What REST framework itself refuses: no key, a method, a media type, too many requests."""
    headers: dict[str, str] = {}
    if challenge := getattr(error, "auth_header", None):
        headers["WWW-Authenticate"] = challenge
    if wait := getattr(error, "wait", None):
        headers["Retry-After"] = str(math.ceil(wait))
    code = _BY_STATUS.get(error.status_code, "bad_request" if error.status_code < 500 else "internal_error")
    keyless = isinstance(error, NotAuthenticated)
    detail = "send your key: `Authorization: Bearer KEY`" if keyless else str(error.detail)
    return _Answer(code, detail, headers=headers)


def too_large(what: str, limit: int, *places: Place) -> Refused:
    return Refused("too_large", f"{what} takes at most {limit:,} bytes", *places)


def misfit(code: str, detail: str, errors: list[tuple[str, str]]) -> Refused:
    """A body that does not fit: `errors` are (JSON pointer, sentence)."""
    return Refused(code, detail, *(Place(pointer=path, detail=text) for path, text in errors))
