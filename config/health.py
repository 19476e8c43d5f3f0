"""Is it well? Two addresses for machines, open to all, telling nothing but yes or no.

`/healthz`: this web process serves and reaches the database. `/readyz`: the whole is ready for work:
migrations applied, Valkey answering, a worker alive; it names what is missing. Neither writes.
"""

from collections.abc import Callable

from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry
from rq import Worker

from runs import queues


@require_safe
@never_cache
def healthz(request: HttpRequest) -> JsonResponse:
    return _answer({"database": _database()})


@require_safe
@never_cache
def readyz(request: HttpRequest) -> JsonResponse:
    return _answer(
        {"database": _database(), "migrations": _migrations(), "queue": _queue(), "workers": _workers()}
    )


def _answer(parts: dict[str, bool]) -> JsonResponse:
    well = all(parts.values())
    return JsonResponse({"ok": well, **parts}, status=200 if well else 503)


def _well(look: Callable[[], bool]) -> bool:
    try:
        return look()
    except (DatabaseError, RedisError, OSError):
        return False


def _database() -> bool:
    def look() -> bool:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        return True

    return _well(look)


def _migrations() -> bool:
    def look() -> bool:
        executor = MigrationExecutor(connection)
        return not executor.migration_plan(executor.loader.graph.leaf_nodes())

    return _well(look)


def _queue() -> bool:
    return queues.length() >= 0


def _workers() -> bool:
    def look() -> bool:
        queue = queues.connect(answer_within=1.0, retry=Retry(NoBackoff(), 1))
        return Worker.count(connection=queue.connection) > 0

    return _well(look)
