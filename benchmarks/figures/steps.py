"""Figure 1: milliseconds of a durable step, one worker, one run of many steps, timed inside it."""

from benchmarks.ours import TEXT
from benchmarks.sitting import Sitting
from benchmarks.table import DBOS, GRAPH, OURS, RAW, Bound, Line, Round

WHAT = {
    "repeatable": "durable effectful step, one worker, verifiable or idempotent",
    "once": "the same, neither",
    "pure": "a pure step",
}
FLOOR = (Bound(0.8, DBOS),)
GOAL = (Bound(0.3, DBOS), Bound(0.6, GRAPH), Bound(3, RAW))


def measure(sitting: Sitting) -> list[Line]:
    rounds: dict[str, list[Round]] = {kind: [] for kind in WHAT}
    with sitting.peers.dbos() as dbos, sitting.peers.graph() as graph, sitting.ours.worker():
        for number in range(sitting.amounts.rounds + 1):
            beside = {RAW: sitting.raw_commit(sitting.amounts.steps)}
            arguments = {"count": sitting.amounts.steps, "text": TEXT}
            if dbos and graph:
                beside[DBOS] = dbos.worker.ask("steps", **arguments)["ms"]
                beside[GRAPH] = graph.ask("steps", name=sitting.names(1)[0], **arguments)["ms"]
            for kind, found in rounds.items():
                ours = {OURS: of_ours(sitting, kind)}
                if number > 0:  # the first one warms everybody
                    found.append({**beside, **ours})
    return [
        Line("1", what, "ms", rounds[kind], *((FLOOR, GOAL) if kind == "repeatable" else ()))
        for kind, what in WHAT.items()
    ]


def of_ours(sitting: Sitting, kind: str) -> float:
    ours, steps = sitting.ours, sitting.amounts.steps
    run = ours.submit("stepper", what=kind, steps=steps, text=TEXT)
    began = ours.heard("begin")
    took = (ours.heard("end") - began) / 1e6 / steps
    ours.until([run], "succeeded")
    return took
