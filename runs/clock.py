"""The one clock: the database's.

Guards call `abeyance_now()` in their own SQL, after the lock. Everything else takes `now()` once per
operation and hands it down. Tests move time by replacing the SQL function (`shift`), which every process
sees at once; nothing else may.
"""

from collections.abc import Callable
from datetime import datetime, timedelta

from django.db import connection
from django.db.models import DateTimeField, Func

from runs import prepared

CREATE = """
CREATE OR REPLACE FUNCTION abeyance_now() RETURNS timestamptz LANGUAGE sql VOLATILE
AS 'SELECT clock_timestamp() + interval ''{seconds} seconds'''
"""


class Now(Func):
    """`abeyance_now()` as an expression, evaluated when the row is written."""

    function = "abeyance_now"
    template = "%(function)s()"
    output_field = DateTimeField()


def now() -> datetime:
    """The database's time, aware, in UTC."""
    found = prepared.row("SELECT abeyance_now()", ())
    assert found is not None
    value: datetime = found[0]
    return value


def asked(batch: prepared.Batch) -> Callable[[], datetime]:
    """The same, asked in a batch after what stands before it there: a lock."""
    found = batch.row("SELECT abeyance_now()", ())
    return lambda: found.one()[0]


def shift(by: timedelta) -> None:
    """For tests only: from now on the clock runs `by` ahead of the machine's."""
    with connection.cursor() as cursor:
        cursor.execute(CREATE.format(seconds=by.total_seconds()))
