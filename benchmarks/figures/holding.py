"""Figure 6: what a run holds that waits for a person, after three steps of a hundred bytes.

Processes, threads, connections, keys and jobs are counted while so many wait, and again while as many more do: what
has grown is theirs. Bytes are of a run's rows as they lie there (`pg_column_size`, compressed where PostgreSQL
compresses), in every table that knows the run or its request; on disk is what tables and indexes grew by. Memory is
what the worker and its horse have to themselves.
"""

import os
from pathlib import Path
from typing import Any

import redis
from django.db import connection

from benchmarks.filling import OF_ITS_RUN, OF_RUN, WHOLE, tidy
from benchmarks.ours import PAUSE
from benchmarks.sitting import Sitting
from benchmarks.table import OURS, Bound, Line, Round, number

GROWS = ("processes", "threads", "connections", "keys", "jobs")


def measure(sitting: Sitting) -> list[Line]:
    import time

    many = sitting.amounts.held
    counts: list[Round] = []
    disk: list[Round] = []
    memory: list[Round] = []
    with sitting.ours.worker() as worker:
        sitting.ours.waiting(20, steps=3)  # warm: connections and caches are there
        time.sleep(1)
        before = held(sitting, worker.pid)
        for _ in range(min(3, sitting.amounts.rounds)):
            runs = sitting.ours.waiting(many, steps=3)
            time.sleep(1 + PAUSE)
            after = held(sitting, worker.pid)
            counts.append({OURS: sum(max(0, after[name] - before[name]) for name in GROWS)})
            disk.append({OURS: (after["disk"] - before["disk"]) / many})
            memory.append({OURS: (after["memory"] - before["memory"]) / many})
            before = after
    rows = bytes_of(runs[-1])
    return [
        Line("6", f"{', '.join(GROWS)} of {many} waiting", "", counts, (Bound(0),), (Bound(0),)),
        Line("6", "a waiting run's rows", "bytes", [{OURS: sum(rows.values())}], (Bound(6656),), (Bound(4096),),
             ", ".join(f"{name.partition('_')[2]} {number(size)}" for name, size in rows.items())),
        Line("6", "a waiting run on disk, indexes included", "bytes", disk),
        Line("6", "a waiting run in the worker's memory", "bytes", memory, (), (Bound(1024),),
             "one DBOS thread: 52 KB" if sitting.peers.python else ""),
    ]  # fmt: skip


def held(sitting: Sitting, worker: int) -> dict[str, float]:
    family = [worker, *below(worker)]
    with redis.Redis.from_url(os.environ["REDIS_URL"]) as valkey:
        keys, jobs = valkey.dbsize(), valkey.llen("rq:queue:default")
    tidy()
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
        connections = cursor.fetchone()[0]
        cursor.execute("SELECT pg_database_size(current_database())")
        disk = cursor.fetchone()[0]
    return {
        "processes": len(family),
        "threads": sum(int(_status(pid, "Threads")) for pid in family),
        "connections": connections,
        "keys": keys,
        "jobs": jobs,
        "disk": disk,
        "memory": sum(own_memory(pid) for pid in family),
    }


def below(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def own_memory(pid: int) -> int:
    """Bytes that nobody shares."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) * 1024


def _status(pid: int, name: str) -> str:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith(f"{name}:"))


def bytes_of(run: Any) -> dict[str, int]:
    """By table: what the rows of one run take, its request's included."""
    from approvals.models import Request

    request = Request.objects.get(run=run)
    known = {"run": str(run), "request": str(request.pk), "step": request.step_id, "alone": False}
    found = {}
    with connection.cursor() as cursor:
        for table in WHOLE:
            of = OF_RUN.get(table, OF_ITS_RUN)
            cursor.execute(f"SELECT coalesce(sum(pg_column_size(t.*)), 0) FROM {table} t WHERE {of}", known)
            found[table] = int(cursor.fetchone()[0])
    return found
