"""Bodies in: bounded, strict JSON, and fitted to a model; nothing is repaired.

A body is never read past its limit, whatever its headers say: one that announces too much is refused unread,
one that comes in chunks is read up to the limit and one byte.
"""

from typing import IO, Any, TypeVar

from django.http import HttpRequest
from pydantic import ValidationError
from rest_framework.parsers import BaseParser
from rest_framework.request import Request

from runs import values
from runs.api import problem
from runs.serializers import Body

B = TypeVar("B", bound=Body)


class StrictJSON(BaseParser):
    """The API's only parser."""

    media_type = "application/json"

    def parse(self, stream: IO[bytes], media_type: Any = None, parser_context: Any = None) -> Any:
        """The body's value. Raises BadValue, and Refused when it is too large."""
        if _announced(parser_context["request"]) > values.MAX_BODY:
            raise problem.too_large("a body", values.MAX_BODY)
        text = stream.read(values.MAX_BODY + 1)
        if len(text) > values.MAX_BODY:
            raise problem.too_large("a body", values.MAX_BODY)
        return values.parse(text)


def _announced(request: Request) -> int:
    try:
        return int(request.META.get("CONTENT_LENGTH") or 0)
    except ValueError:
        return 0


def unchunk(request: HttpRequest) -> None:
    """Makes a body that comes in chunks readable: Django reads none that has no length.

    The length is unknown, not nought; nothing is read here, so nothing for those who are not let in.
    """
    chunked = "chunked" in request.META.get("HTTP_TRANSFER_ENCODING", "").lower()
    if chunked and request.META.get("wsgi.input_terminated"):
        request.META["CONTENT_LENGTH"] = "-1"
        request._stream = request.META["wsgi.input"]


def read(request: Request, model: type[B]) -> B:
    """The body as `model`. Raises Refused, naming each key that does not fit and those it takes."""
    value = request.data
    takes = f"the body is a JSON object of {', '.join(model.model_fields)}"
    if not isinstance(value, dict):
        raise problem.misfit("bad_body", takes, [("", "this is not a JSON object")])
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise problem.misfit("bad_body", takes, values.problems(error)) from None
