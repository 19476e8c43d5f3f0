"""LangGraph: the process that starts graphs, and goes on with them by a direct call or by a job for RQ.

    python langgraph_side.py DATABASE_URL REDIS_URL

It has no worker of its own: whoever calls `invoke` runs the graph. Behind RQ is what one would build by hand.
"""

import sys
import time
from typing import Any

import graph
import redis
from rq import Queue
from saying import serve

address, queue_address = sys.argv[1:3]
queue = redis.Redis.from_url(queue_address)
app = graph.compiled(address)
ending = graph.compiled(address, waits=False)


def do_steps(name: str, count: int, text: str) -> dict[str, Any]:
    graph.marks.pop("first_step", None)
    graph.start(ending, name, count + 1, text)
    return {"ms": (graph.marks["last_step"] - graph.marks["first_step"]) * 1e3 / count}


def do_suspend(names: list[str], count: int, text: str) -> dict[str, Any]:
    found = []
    for name in names:
        began = time.monotonic()
        graph.start(app, name, count, text)
        found.append((time.monotonic() - began) * 1e3)
    return {"ms": found, "seconds": sum(found) / 1e3}


def do_resume(names: list[str], pause: float) -> dict[str, Any]:
    """In this process, by a direct call; ms to the line after the approval."""
    found = []
    for name in names:
        asked = time.monotonic()
        found.append((graph.resume(app, name) - asked) * 1e3)
        time.sleep(pause)
    return {"ms": found}


def do_resume_behind_rq(names: list[str], worker: str, pause: float) -> dict[str, Any]:
    """In a worker of RQ's, the queue of which has the worker's name."""
    jobs = Queue(worker, connection=queue)
    found = []
    for name in names:
        asked = time.monotonic()
        jobs.enqueue("rq_job.resume", name)
        said = queue.blpop([f"next:{name}"], timeout=60)
        assert said, "no answer from RQ's worker"
        found.append((float(said[1]) - asked) * 1e3)
        time.sleep(pause)
    return {"ms": found}


if __name__ == "__main__":
    serve(
        {
            "steps": do_steps,
            "suspend": do_suspend,
            "resume": do_resume,
            "resume_behind_rq": do_resume_behind_rq,
        }
    )
