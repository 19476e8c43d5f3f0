"""Figure 8: many runs in flight, every worker killed: seconds until all have gone on.

In flight is taken: each run is taken by the verb that workers take runs with, in this process, which then does
nothing more; all leases are made to run from the same moment, that of the kill, and the queue is emptied, as the
workers had taken the jobs out of it. Then a worker and a sweeper start. A run has gone on when it has settled a step;
one that never does would be lost.
"""

import os
import time
from datetime import timedelta

import redis
from django.conf import settings

from benchmarks.ours import TEXT, until
from benchmarks.sitting import Sitting
from benchmarks.table import OURS, Bound, Line, Round

AFTER_LEASE = 5.0
SECOND = timedelta(seconds=1)


def measure(sitting: Sitting) -> list[Line]:
    count = sitting.amounts.killed
    rounds = [one_round(sitting, count) for _ in range(min(2, sitting.amounts.rounds))]
    goal = (Bound(settings.LEASE + AFTER_LEASE),)
    what = f"{count:,} in flight, every worker killed → all have gone on"
    return [
        Line("8", what, "s", [one for one, _ in rounds], (Bound(60),), goal, f"lease {settings.LEASE:g} s"),
        Line("8", "of them lost", "", [lost for _, lost in rounds], (Bound(0),), (Bound(0),)),
    ]


def one_round(sitting: Sitting, count: int) -> tuple[Round, Round]:
    from runs import clock, lifecycle
    from runs.models import Run

    ours = sitting.ours
    made = [ours.submit("walker", text=TEXT) for _ in range(count)]
    for run in made:
        assert lifecycle.take(run, "killed")
    with redis.Redis.from_url(os.environ["REDIS_URL"]) as valkey:
        valkey.flushdb()
    Run.objects.filter(pk__in=made).update(lease_until=clock.now() + settings.LEASE * SECOND)
    killed = time.monotonic()
    with ours.worker(ready=False), ours.worker("sweep", ready=False):
        still = Run.objects.filter(pk__in=made, position=0)
        until(lambda: not still.exists(), "all have gone on", within=180)
        took = time.monotonic() - killed
        ours.until(made, "succeeded")
    return {OURS: took}, {OURS: float(Run.objects.filter(pk__in=made).exclude(status="succeeded").count())}
