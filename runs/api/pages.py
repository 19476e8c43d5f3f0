"""Pages by key, not by number: what a page costs is the page, and rows that arrive or move shift nothing.

A cursor is the key of the last row shown; it hides nothing and promises nothing but to be accepted again.
"""

import base64
import binascii
import uuid
from datetime import datetime
from functools import reduce
from operator import add

from django.db.models import Q, QuerySet
from django.db.models.functions import Coalesce, Length
from rest_framework.request import Request

from runs.api.problem import Refused
from runs.models import Run, Step
from runs.serializers import Place

MOST = 4 * 1024 * 1024  # characters of a page of steps


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
    """By index, and the next page's cursor. Raises Refused for a cursor that is none of ours.

    A page ends early when its values are many: what one answer holds in memory is bounded.
    """
    if cursor:
        found = found.filter(index__gt=_step_key(cursor))
    size = reduce(add, (Coalesce(Length(name), 0) for name in ("arguments", "executed", "result")))
    sizes = list(found.order_by("index").values_list("index", size)[: limit + 1])
    last = _last_that_fits(sizes[:limit])
    rows = list(found.filter(index__lte=last).order_by("index")) if sizes else []
    return rows, _write(str(last)) if sizes and last < sizes[-1][0] else None


def _last_that_fits(sizes: list[tuple[int, int]]) -> int:
    """The index of the last step whose values still fit a page; the first always does."""
    total, last = 0, -1
    for index, size in sizes:
        total += size
        if last >= 0 and total > MOST:
            break
        last = index
    return last


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
