"""A job that says when its first line ran, and RQ's plain workers to run it in.

python -m benchmarks.jobs Worker|SimpleWorker
"""

import sys
import time

import rq

from benchmarks.ours import set_up_django


def note() -> None:
    now = time.monotonic_ns()
    from django.db import close_old_connections, connection

    from benchmarks.agents import say

    close_old_connections()
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    say("job", now)


def work(kind: str) -> None:
    """Until it is told to stop. Everything is imported before it forks."""
    set_up_django()
    import django_rq
    from django.db import connections

    connections.close_all()
    connection = django_rq.get_connection()
    getattr(rq, kind)([f"plain-{kind}"], connection=connection).work(logging_level="ERROR")


if __name__ == "__main__":
    work(sys.argv[1])
