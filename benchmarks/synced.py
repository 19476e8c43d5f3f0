"""How often a backend has flushed the log of changes to disk: the portable price of a step.

PostgreSQL 18 counts by backend; before that there is one count for the whole server, which is right as long as
nobody else writes. Counts are handed on with a delay unless the backend is told to do it now.
"""

import psycopg

NEW = 180000
OF_BACKEND = (
    "SELECT coalesce(sum(fsyncs), 0) FROM pg_stat_get_backend_io(pg_backend_pid()) WHERE object = 'wal'"
)
OF_SERVER = "SELECT wal_sync FROM pg_stat_wal"


def of(connection: psycopg.Connection[tuple[int, ...]]) -> int:
    """So far, of this connection's backend. The connection must not be in a transaction."""
    with psycopg.Cursor(connection) as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
        cursor.execute(OF_BACKEND if connection.info.server_version >= NEW else OF_SERVER)
        row = cursor.fetchone()
    assert row is not None
    return int(row[0])


def of_django() -> int:
    """Of the backend that this process's Django speaks to."""
    from django.db import connection

    connection.ensure_connection()
    return of(connection.connection)
