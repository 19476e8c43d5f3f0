"""Pages by key, not by number: what a page costs is the page, and rows that arrive or move shift nothing.

A cursor is the key of the last row shown; it hides nothing and promises nothing but to be accepted again.
"""

import base64
import binascii
import uuid
from datetime import datetime

from django.db.models import Q, QuerySet
from rest_framework.request import Request

from runs.api.problem import Refused
from runs.models import Run, Step
from runs.serializers import Place


def runs(found: QuerySet[Run], cursor: str, limit: int) -> tuple[list[Run], str | None]:
    """Newest first, and the next page's cursor. Raises Refused for a cursor that is none of ours."""
    if cursor:
        at, row = _run_key(cursor)
        # The first condition bounds the index scan, the second settles equal times.
        found = found.filter(created_at__lte=at).filter(Q(created_at__lt=at) | Q(id__lt=row))
    rows = list(found.order_by("-created_at", "-id")[: limit + 1])
    more = len(rows) > limit
    last = rows[limit - 1] if more else None
    return rows[:limit], _write(f"{last.created_at.isoformat()} {last.id}") if last else None


def steps(found: QuerySet[Step], cursor: str, limit: int) -> tuple[list[Step], str | None]:
    """By index, and the next page's cursor. Raises Refused for a cursor that is none of ours."""
    if cursor:
        found = found.filter(index__gt=_step_key(cursor))
    rows = list(found.order_by("index")[: limit + 1])
    return rows[:limit], _write(str(rows[limit - 1].index)) if len(rows) > limit else None


def next_address(request: Request, cursor: str | None) -> str | None:
    """This request's address with another cursor."""
    if cursor is None:
        return None
    query = request.query_params.copy()
    query["cursor"] = cursor
    return f"{request.path}?{query.urlencode()}"


def _write(key: str) -> str:
    return base64.urlsafe_b64encode(key.encode()).decode().rstrip("=")


def _read(cursor: str) -> str:
    return base64.urlsafe_b64decode(cursor.encode() + b"=" * (-len(cursor) % 4)).decode()


def _run_key(cursor: str) -> tuple[datetime, uuid.UUID]:
    try:
        at, row = _read(cursor).split(" ")
        when = datetime.fromisoformat(at)
        if when.tzinfo is None:
            raise ValueError(at)
        return when, uuid.UUID(row)
    except (binascii.Error, ValueError):
        raise _refuse() from None


def _step_key(cursor: str) -> int:
    try:
        index = int(_read(cursor))
        if not 0 <= index < 2**31:
            raise ValueError(cursor)
        return index
    except (binascii.Error, ValueError):
        raise _refuse() from None


def _refuse() -> Refused:
    detail = "not a cursor of this list; take the address in a page's `next`"
    return Refused("bad_parameter", f"cursor: {detail}", Place(parameter="cursor", detail=detail))
