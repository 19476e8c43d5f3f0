"""What nobody needs any more: drafts and step-ups of requests that are over, and counters whose time is up.

The sweeper clears them, a bounded number at a time. What was opened and shown is in the journal and the decision.
"""

import uuid
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db import connection
from django.db.models import Q

from approvals.models import Draft, StepUp
from approvals.states import PENDING, RequestState
from runs.clock import Now

AT_ONCE = 200
#: A decision that is taken back leaves its request with the same revision, whose drafts go on.
NEEDED = frozenset({*PENDING, RequestState.DECIDED})
#: Long after it could last be used.
OLD = timedelta(days=1)

#: One statement, as every pass of the sweeper asks. Counters go by the clock that set them, which is the machine's.
_DUE = """
(SELECT 'request' AS kind, v.request_id::text AS what FROM approvals_draft d
  JOIN approvals_revision v ON v.id = d.revision_id JOIN approvals_request r ON r.id = v.request_id
  WHERE r.state <> ALL(%(needed)s) LIMIT %(most)s)
UNION
(SELECT 'request', s.request_id::text FROM approvals_stepup s JOIN approvals_request r ON r.id = s.request_id
  WHERE r.state <> ALL(%(needed)s) OR s.made_at < %(old)s LIMIT %(most)s)
UNION ALL
(SELECT 'counter', cache_key FROM approvals_counter WHERE expires < clock_timestamp() LIMIT %(most)s)
"""


class Leftover(NamedTuple):
    """`kind`: request (`what` is its id) or counter (its key)."""

    kind: str
    what: str


def due(now: datetime) -> list[Leftover]:
    asked: dict[str, Any] = {"needed": sorted(map(str, NEEDED)), "old": now - OLD, "most": AT_ONCE}
    with connection.cursor() as cursor:
        cursor.execute(_DUE, asked)
        return [Leftover(kind, what) for kind, what in cursor.fetchall()]


def clear(item: Leftover) -> bool:
    """False: it was gone, or is needed again."""
    return _forget(item.what) if item.kind == "counter" else _clear(uuid.UUID(item.what))


def _clear(request_id: uuid.UUID) -> bool:
    over = ~Q(revision__request__state__in=NEEDED)
    drafts, _ = Draft.objects.filter(over, revision__request=request_id).delete()
    unusable = ~Q(request__state__in=NEEDED) | Q(made_at__lt=Now() - OLD)
    step_ups, _ = StepUp.objects.filter(unusable, request=request_id).delete()
    return drafts + step_ups > 0


def _forget(key: str) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "DELETE FROM approvals_counter WHERE cache_key = %s AND expires < clock_timestamp()", [key]
        )
        return bool(cursor.rowcount > 0)
