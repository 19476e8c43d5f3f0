"""The doorbell: tells a worker that a row wants looking at.

Carries ids and nothing else, on RQ's queue `default`, and only after commit. A ring may come twice, late or
never: the row decides, and the sweeper rings again. A Valkey that is away or hangs is therefore a line in the
log and never an error of the caller, nor a long wait: after a time-out nobody tries again for a second.
The only importer of django_rq.
"""

import json
import logging
import time
from functools import cache
from uuid import UUID

import django_rq
import redis
from django.db import transaction
from redis.backoff import NoBackoff
from redis.retry import Retry
from rq import Queue, worker_registration

from runs import points

NAME = "default"
ANSWER_WITHIN = 0.5  # seconds a caller's command may take
DEAF_FOR = 1.0  # seconds without further tries after a time-out
HAS = "has"  # the field of a worker's hash that says which versions it has
KEEP_FAILURES = 3600  # seconds a failed job is shown on the dashboard

logger = logging.getLogger(__name__)
_deaf_until = 0.0


def ring(run_id: UUID) -> None:
    """Once the current transaction has committed, some worker is told to drive this run."""
    enqueue("runs.jobs.drive", str(run_id))


def enqueue(function_path: str, *ids: str) -> None:
    """The same for any job: `function_path` is a function of ids in a `jobs` module. Never raises."""
    # A lambda: Django's log line for a robust callback that failed reads its __qualname__.
    transaction.on_commit(lambda: _push(function_path, ids), robust=True)


def length() -> int:
    """How many jobs wait to be taken; -1 when the queue does not answer, and then ringing is of no use."""
    if time.monotonic() < _deaf_until:
        return -1
    try:
        return _bell().count
    except redis.RedisError as error:
        _missed(error, "its length is unknown")
        return -1


def fleet() -> list[dict[str, str]] | None:
    """What each live worker has: the digest of the code by version (`agent@2`). None: nobody can say, because
    the queue does not answer, or a worker does not tell."""
    if time.monotonic() < _deaf_until:
        return None
    try:
        return _told(_bell())
    except redis.RedisError as error:
        _missed(error, "which versions the workers have is unknown")
        return None


def _told(bell: Queue) -> list[dict[str, str]] | None:
    keys = sorted(worker_registration.get_keys(queue=bell))
    with bell.connection.pipeline(transaction=False) as pipeline:
        for key in keys:
            pipeline.hmget(key, "birth", HAS)
        found = [(birth, has) for birth, has in pipeline.execute() if birth is not None]  # else it has died
    if any(has is None for _, has in found):
        return None
    return [json.loads(has) for _, has in found]


def connect(*, answer_within: float, retry: Retry) -> Queue:
    """The queue, over a connection of its own with these manners; the worker's differ from a caller's."""
    queue = django_rq.get_queue(NAME, commit_mode="auto")  # `on_db_commit` would be a second on_commit
    queue.connection.connection_pool.connection_kwargs["socket_timeout"] = answer_within  # and for connecting
    queue.connection.set_retry(retry)
    return queue


@cache
def _bell() -> Queue:
    # One retry at once: a pooled connection may be one that a restarted server has closed.
    return connect(answer_within=ANSWER_WITHIN, retry=Retry(NoBackoff(), 1))


def _push(function_path: str, ids: tuple[str, ...]) -> None:
    if time.monotonic() < _deaf_until:
        logger.warning(
            "The queue did not answer a moment ago: %s%s was not rung",
            function_path,
            ids,
        )
        return
    points.reach("before-ring")
    try:
        with _bell().connection.pipeline() as pipeline:
            _bell().enqueue_call(
                function_path,
                args=ids,
                timeout=-1,
                result_ttl=0,
                failure_ttl=KEEP_FAILURES,
                pipeline=pipeline,
            )
            pipeline.execute()
        points.reach("after-ring")
    except redis.RedisError as error:
        _missed(error, f"{function_path}{ids} was not rung")


def _missed(error: redis.RedisError, what: str) -> None:
    global _deaf_until
    if isinstance(error, redis.TimeoutError):
        _deaf_until = time.monotonic() + DEAF_FOR
    logger.warning("The queue does not answer (%s): %s", error, what)
