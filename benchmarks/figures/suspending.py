"""Figure 3: from the start in a worker until the run waits durably, after one step; and how many a second.

Everybody suspends one after the other, without a pause. Ours: the runs are submitted before the worker is there, and
the first few warm it; from the database's clock when it takes a run until the loop has parked it, request and mail in
the outbox included. All that a worker does between two runs is in the rate. DBOS: from starting the workflow until it
has published that it waits. LangGraph: the call that ends in the interrupt.
"""

import statistics

from benchmarks.ours import TEXT
from benchmarks.sitting import Sitting
from benchmarks.table import DBOS, GRAPH, OURS, RAW, Bound, Line, Round

WARM = 5


def measure(sitting: Sitting) -> list[Line]:
    times: list[Round] = []
    rates: list[Round] = []
    with sitting.peers.dbos() as dbos, sitting.peers.graph() as graph:
        for number in range(sitting.amounts.rounds + 1):
            took, rate = {RAW: sitting.raw_commit(100)}, {}
            few, many = sitting.amounts.suspends, sitting.amounts.burst
            arguments = {"count": 1, "text": TEXT}
            if dbos and graph:
                took[DBOS] = median(dbos.worker.ask("suspend", names=sitting.names(few), **arguments))
                took[GRAPH] = median(graph.ask("suspend", names=sitting.names(few), **arguments))
                rate[DBOS] = (
                    many / dbos.worker.ask("start", names=sitting.names(many), **arguments)["seconds"]
                )
                rate[GRAPH] = many / graph.ask("suspend", names=sitting.names(many), **arguments)["seconds"]
            took[OURS], rate[OURS] = in_a_row(sitting, many)
            if number > 0:
                times.append(took)
                rates.append(rate)
    goal = (Bound(0.3, DBOS), Bound(0.5, GRAPH))
    return [
        Line("3", "start in a worker → durably waiting", "ms", times, (Bound(0.6, DBOS),), goal),
        Line("3", "suspends a second", "", rates, (), (Bound(4, DBOS, least=True),)),
    ]


def median(said: dict[str, list[float]]) -> float:
    return statistics.median(said["ms"])


def in_a_row(sitting: Sitting, count: int) -> tuple[float, float]:
    """The median in ms, and suspends a second, of runs that one worker finds waiting."""
    ours = sitting.ours
    runs = [ours.submit("waiter", steps=1, text=TEXT) for _ in range(count + WARM)]
    ours.forget_said()
    with ours.worker():
        parked = [ours.heard("parked") for _ in runs]
    taken = sorted(ours.taken_at(run) for run in runs)
    took = [(to - at) / 1e6 for at, to in zip(taken, parked, strict=True)]
    return statistics.median(took[WARM:]), count / ((parked[-1] - parked[WARM - 1]) / 1e9)
