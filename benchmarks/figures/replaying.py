"""Figure 7: going on after many recorded steps, and what a step takes in the tables.

Ours: from calling `decide` to the first line of the approved tool in a worker that has never seen the run, wake-up
included; a fresh worker each round, warmed by another run. DBOS: after `kill -9`, from the workflow's first line in
the new process to where it waits again; the start of the process is not counted.
"""

import statistics
import time

from benchmarks.figures.deciding import decided
from benchmarks.figures.holding import bytes_of
from benchmarks.ours import TEXT
from benchmarks.sitting import Sitting
from benchmarks.table import DBOS, FEW, OURS, Bound, Line, Round

MANY, SOME, AT_ONCE = 1000, 10, 2


def measure(sitting: Sitting) -> list[Line]:
    times: list[Round] = []
    with sitting.peers.dbos() as dbos:
        for _ in range(sitting.amounts.rounds):
            found = of_ours(sitting)
            if dbos:
                names = sitting.names(AT_ONCE)
                dbos.worker.ask("start", names=names, count=MANY, text=TEXT)
                sitting.peers.dbos_again(dbos)
                found[DBOS] = statistics.median(dbos.worker.ask("recovered", names=names)["ms"])
                dbos.client.ask("approve", names=names, pause=0)
                dbos.worker.ask("went_on", names=names)
            times.append(found)
    what = f"going on after {MANY:,} recorded steps of 100 bytes (few: after 1)"
    grown = f"bytes a recorded step at {MANY:,} (few: at {SOME})"
    return [
        Line("7", what, "ms", times, (Bound(0.1, DBOS),), (Bound(0.02, DBOS),)),
        Line("7", grown, "", bytes_a_step(sitting), (), (Bound(1.1, FEW),)),
    ]  # fmt: skip


def of_ours(sitting: Sitting) -> Round:
    ours = sitting.ours
    with ours.worker():
        # One after the other: a slice ends when others are due, and the short ones would cut up the long.
        long, short = ([ours.waiting(1, steps=n)[0] for _ in range(AT_ONCE)] for n in (MANY, 1))
    with ours.worker():
        decided(sitting, 2)  # warm
        time.sleep(1)
        medians = [
            statistics.median(one["tool"] for one in decided(sitting, len(runs), runs=runs))
            for runs in (long, short)
        ]
    return {OURS: medians[0], FEW: medians[1]}


def bytes_a_step(sitting: Sitting) -> list[Round]:
    """All that a run's rows grow by with its steps, journal included, by step."""
    with sitting.ours.worker():
        [none], [some], [many] = (sitting.ours.waiting(1, steps=steps) for steps in (0, SOME, MANY))
    base, few, all_of = (sum(bytes_of(run).values()) for run in (none, some, many))
    return [{OURS: (all_of - base) / MANY, FEW: (few - base) / SOME}]
