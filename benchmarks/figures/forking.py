"""What a fork costs: from ringing to a job's first line, in an idle worker, with Django set up and one query made.

Three workers on queues of their own take turns: ours, which keeps one child warm and feeds it; RQ's own, which forks
for each job; and RQ's SimpleWorker, which does not fork and so cannot end a job that hangs.
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.ours import PAUSE, ROOT
from benchmarks.sitting import Sitting
from benchmarks.table import FORKS, OURS, SIMPLE, Line, Round

PLAIN = {"Worker": FORKS, "SimpleWorker": SIMPLE}
JOB = "benchmarks.jobs.note"


def measure(sitting: Sitting) -> list[Line]:
    from runs import queues

    rounds: list[Round] = []
    with ExitStack() as stack:
        stack.enter_context(sitting.ours.worker())
        for kind in PLAIN:
            stack.enter_context(plain_worker(kind, sitting.engines.home / "workers.log"))
        for number in range(sitting.amounts.rounds + 1):
            found = {OURS: first_line(sitting, lambda: queues.enqueue(JOB))}
            for kind, column in PLAIN.items():
                found[column] = first_line(sitting, lambda kind=kind: plain_queue(kind).enqueue(JOB))  # type: ignore[misc]
            if number > 0:
                rounds.append(found)
    return [Line("–", "ringing → a job's first line: warm horse (ours), a fork a job, none", "ms", rounds)]


def first_line(sitting: Sitting, ring: Any) -> float:
    found = []
    for _ in range(sitting.amounts.wakes):
        began = time.monotonic_ns()
        ring()
        found.append((sitting.ours.heard("job") - began) / 1e6)
        time.sleep(PAUSE)
    return statistics.median(found)


def plain_queue(kind: str) -> Any:
    import django_rq
    import rq

    return rq.Queue(f"plain-{kind}", connection=django_rq.get_connection())


@contextmanager
def plain_worker(kind: str, log: Path) -> Iterator[None]:
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.jobs", kind],
            cwd=ROOT,
            env=os.environ,
            stdout=output,
            stderr=output,
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait()
