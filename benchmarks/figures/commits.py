"""Figure 2: synced commits, counted where they are made: the portable price, without noise.

Steps: what the worker's backend synced between two lines of the agent. Suspending: from a run's first line to the
first line of the next run in the same worker, whose taking is in it. Approving: what the verb synced in the backend
of whoever decides, and what the worker's did from there to the first line of the approved tool, and to the agent's
line after it.
"""

from benchmarks import synced
from benchmarks.ours import TEXT
from benchmarks.sitting import Sitting
from benchmarks.table import OURS, Bound, Line, Round

STEPS = {
    "repeatable": ("effectful step, verifiable or idempotent", 2, 1),
    "once": ("effectful step, neither", 2, 2),
    "pure": ("pure step", 1, 1),
}
OTHERS = {
    "suspend": ("suspend", 2, 1),
    "approve": ("approval to the first line of the approved tool", 3, 2),
    "line": ("approval to the agent's line after it", 0, 0),
}
COUNTED = 50


def measure(sitting: Sitting) -> list[Line]:
    rounds: dict[str, list[Round]] = {name: [] for name in (*STEPS, *OTHERS)}
    with sitting.ours.worker():
        idle(sitting)
        for _ in range(sitting.amounts.rounds):
            for kind in STEPS:
                rounds[kind].append({OURS: of_steps(sitting, kind)})
            for name, found in of_waiting(sitting).items():
                rounds[name].append({OURS: found})
    return [told(rounds[name], *said) for name, said in {**STEPS, **OTHERS}.items()]


def told(rounds: list[Round], what: str, floor: int, goal: int) -> Line:
    bounds = ((Bound(floor),), (Bound(goal),)) if floor else ()
    return Line("2", f"synced commits: {what}", "", rounds, *bounds)


def of_steps(sitting: Sitting, kind: str) -> float:
    run = sitting.ours.submit("counter", what=kind, steps=COUNTED, text=TEXT)
    found = sitting.ours.heard("synced") / COUNTED
    sitting.ours.until([run], "succeeded")
    return found


def of_waiting(sitting: Sitting) -> dict[str, float]:
    ours = sitting.ours
    run = ours.submit("counted", text=TEXT)
    first = ours.heard("synced")
    ours.until([run], "suspended")
    parked, again = idle(sitting), idle(sitting)
    ended = again + (again - parked)  # what the second one's end synced is what the first one's did
    before = synced.of_django()
    ours.decide(run)
    deciding = synced.of_django() - before
    tool, line = ours.heard("tool_synced") - ended, ours.heard("line_synced") - ended
    ours.until([run], "succeeded")
    return {"suspend": parked - first, "approve": deciding + tool, "line": deciding + line}


def idle(sitting: Sitting) -> float:
    """A run that does nothing: what the worker's backend has synced until its first line."""
    run = sitting.ours.submit("idle")
    found = sitting.ours.heard("synced")
    sitting.ours.until([run], "succeeded")
    return found
