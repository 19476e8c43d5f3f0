"""Figure 4: from the call that approves to the next line, in another process that can be killed.

Ours: from calling `decide` to the first line of the approved tool in a worker, and to the agent's line after it.
DBOS: from `send` in another process to the first line of the next step, in the thread that was kept. LangGraph: a
direct call, and from enqueueing a job for RQ to the next node's first line in its worker. Pauses of 30 ms between
two, for a worker to be back at its queue.
"""

import statistics
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.ours import PAUSE, TEXT
from benchmarks.peers.process import Peer
from benchmarks.peers.sides import Workflows
from benchmarks.sitting import Sitting
from benchmarks.table import DBOS, FORKS, GRAPH, OURS, SIMPLE, Bound, Line, Round

KINDS = {"SimpleWorker": SIMPLE, "Worker": FORKS}
FLOOR = (Bound(1.25, SIMPLE),)
BEHIND = "RQ simple, RQ fork: LangGraph in a job of RQ's, as one would build it"
GOAL = (Bound(1.0, SIMPLE), Bound(1.3, DBOS))


def measure(sitting: Sitting) -> list[Line]:
    found: dict[str, list[Round]] = {"p50": [], "p95": [], "decide": [], "line": []}
    ours, count = sitting.ours, sitting.amounts.decisions
    with sitting.peers.dbos() as dbos, sitting.peers.graph(*KINDS) as graph, ours.worker():
        for number in range(sitting.amounts.rounds + 1):
            beside = of_peers(sitting, dbos, graph, count) if dbos and graph else {}
            times = decided(sitting, count)
            if number == 0:  # it warms everybody
                continue
            beside[OURS] = [one["tool"] for one in times]
            found["p50"].append({name: statistics.median(each) for name, each in beside.items()})
            found["p95"].append({name: p95(each) for name, each in beside.items()})
            found["decide"].append({OURS: statistics.median(one["decide"] for one in times)})
            found["line"].append({OURS: statistics.median(one["line"] for one in times)})
    return [
        Line("4", "`decide` called → next line in a worker, p50", "ms", found["p50"], FLOOR, GOAL, BEHIND),
        Line("4", "the same, p95", "ms", found["p95"]),
        Line("4", "of it, the verb `decide` itself", "ms", found["decide"]),
        Line("4", "`decide` called → the agent's line after the approved call", "ms", found["line"]),
    ]


def of_peers(sitting: Sitting, dbos: Workflows, graph: Peer, count: int) -> dict[str, list[float]]:
    found = {DBOS: of_dbos(sitting, dbos, count)}
    names = waiting_graphs(sitting, graph, count)
    found[GRAPH] = graph.ask("resume", names=names, pause=PAUSE)["ms"]
    for kind, column in KINDS.items():
        names = waiting_graphs(sitting, graph, count)
        found[column] = graph.ask("resume_behind_rq", names=names, worker=kind, pause=PAUSE)["ms"]
    return found


def of_dbos(sitting: Sitting, dbos: Workflows, count: int) -> list[float]:
    names = sitting.names(count)
    dbos.worker.ask("start", names=names, count=1, text=TEXT)
    asked = dbos.client.ask("approve", names=names, pause=PAUSE)["asked"]
    marks = dbos.worker.ask("went_on", names=names)["marks"]
    return [(marks[name] - asked[name]) * 1e3 for name in names]


def waiting_graphs(sitting: Sitting, graph: Peer, count: int) -> list[str]:
    names = sitting.names(count)
    graph.ask("suspend", names=names, count=1, text=TEXT)
    return names


def decided(sitting: Sitting, count: int, *, runs: Sequence[Any] = ()) -> list[dict[str, float]]:
    """Each in ms from calling the verb: its return, the approved tool's first line, the agent's line after it."""
    ours, found = sitting.ours, []
    for run in runs or ours.waiting(count):
        time.sleep(PAUSE)
        ours.forget_said()
        asked, answered = ours.decide(run)
        said = {"decide": float(answered), "tool": ours.heard("tool"), "line": ours.heard("line")}
        found.append({name: (at - asked) / 1e6 for name, at in said.items()})
        ours.until([run], "succeeded")
    return found


def p95(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=20)[-1]
