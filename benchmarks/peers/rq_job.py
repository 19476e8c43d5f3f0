"""What RQ's worker does to go on with a graph: the job. The graph is made once a process, as one would."""

import os
from typing import Any

import graph
import redis

_made: dict[int, Any] = {}


def resume(name: str) -> None:
    pid = os.getpid()
    if pid not in _made:  # a forked horse must not use its parent's connection
        _made[pid] = graph.compiled(os.environ["BENCH_GRAPHS"])
    at = graph.resume(_made[pid], name)
    with redis.Redis.from_url(os.environ["BENCH_QUEUE"]) as queue:
        queue.rpush(f"next:{name}", str(at))
