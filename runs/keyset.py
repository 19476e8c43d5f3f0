"""Pages by keyset: the newest first, in either direction from a row, by a time and, where times are equal, the id.

The times are compared with `<=` as well, so that an index over (time, id) finds the place; what a page costs does
not grow with what lies before it.
"""

import uuid
from typing import TypeVar

from django.db.models import Model, Q, QuerySet

M = TypeVar("M", bound=Model)


def mark(found: QuerySet[M], text: str) -> M | None:
    """The row that a page begins after, if there (still) is one that may be seen."""
    try:
        return found.filter(pk=uuid.UUID(text)).first() if text else None
    except ValueError:
        return None


def before(found: QuerySet[M], row: M | None, time: str) -> QuerySet[M]:
    """Older than `row` (None: all), the newest first."""
    if row is not None:
        at = getattr(row, time)
        found = found.filter(Q(**{f"{time}__lt": at}) | Q(pk__lt=row.pk), **{f"{time}__lte": at})
    return found.order_by(f"-{time}", "-pk")


def after(found: QuerySet[M], row: M, time: str) -> QuerySet[M]:
    """Newer than `row`, the oldest first."""
    at = getattr(row, time)
    found = found.filter(Q(**{f"{time}__gt": at}) | Q(pk__gt=row.pk), **{f"{time}__gte": at})
    return found.order_by(time, "pk")
