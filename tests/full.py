"""A database that has no room: whatever would add a row of ours is refused with the server's own error for it.

A full disk needs a disk that may be filled. What a process sees of one is SQLSTATE 53100 at the statement, and
that is what the server says here; who connects and reads notices nothing, as with a full disk.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

REFUSE = """
CREATE OR REPLACE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full';
END $$
"""
#: Statements of theirs insert rows or change them; a change needs room as well.
EACH = "CREATE TRIGGER no_room BEFORE {} ON {} FOR EACH STATEMENT EXECUTE FUNCTION no_room()"
TABLES = """
SELECT quote_ident(tablename) FROM pg_tables
WHERE schemaname = 'public' AND (tablename LIKE 'runs\\_%' OR tablename LIKE 'approvals\\_%')
"""


@contextmanager
def database_full(server: "psycopg.Connection[Any]") -> Iterator[None]:
    """While it lasts. `server` commits each statement."""
    tables = [name for (name,) in server.execute(TABLES)]
    server.execute(REFUSE)
    for table in tables:
        server.execute(EACH.format("INSERT OR UPDATE", table).encode())
    try:
        yield
    finally:
        for table in tables:
            server.execute(f"DROP TRIGGER no_room ON {table}".encode())
