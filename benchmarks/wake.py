"""How long from ringing to the first line of the job, in an idle worker: prints JSON, in milliseconds.

    python benchmarks/wake.py [--rounds 200] [--pause 0.02]

Starts one worker of its own on the queue that REDIS_URL names; no other should be working there.
`total` starts before the enqueue, `after_push` when it has returned; `first` is the very first one.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def note(address: str) -> None:
    """The job: its first line reads the clock, which all processes of a machine share."""
    now = time.monotonic_ns()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.sendto(str(now).encode(), address)


def measure(rounds: int, pause: float) -> dict[str, object]:
    from runs import queues

    total, after_push = [], []
    with (
        tempfile.TemporaryDirectory() as folder,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line,
    ):
        address = f"{folder}/wake"
        line.bind(address)
        line.settimeout(30)
        for _ in range(rounds + 1):
            start = time.monotonic_ns()
            queues.enqueue("benchmarks.wake.note", address)
            pushed = time.monotonic_ns()
            began = int(line.recv(64))
            total.append((began - start) / 1e6)
            after_push.append((began - pushed) / 1e6)
            time.sleep(pause)
    return {
        "rounds": rounds,
        "total": spread(total[1:]),
        "after_push": spread(after_push[1:]),
    }


def spread(values: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(values, n=20)
    return {
        "median": round(statistics.median(values), 2),
        "p95": round(cuts[-1], 2),
        "min": round(min(values), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--pause", type=float, default=0.02)
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    import django

    django.setup()
    worker = subprocess.Popen(
        [sys.executable, "manage.py", "work"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert worker.stdout
        worker.stdout.readline()  # its one line: it is ready
        print(json.dumps(measure(options.rounds, options.pause)))
    finally:
        worker.terminate()
        worker.wait()


if __name__ == "__main__":
    main()
