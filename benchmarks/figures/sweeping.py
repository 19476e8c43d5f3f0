"""Figure 10: one pass of the sweeper among many suspended runs, with a hundred timers due, and with nothing due.

The runs that are due went to sleep in a worker; their date is then moved here. What each verb takes to *find* what is
due is measured by itself; the slowest are named.
"""

import time
from typing import Any

from benchmarks.ours import TEXT
from benchmarks.sitting import Sitting
from benchmarks.table import OURS, Bound, Line, Round, number

DUE, DAY = 100, 86400


def measure(sitting: Sitting) -> list[Line]:
    from runs import sweeper

    rounds = min(3, sitting.amounts.rounds)
    with sitting.ours.worker():
        asleep = [made_asleep(sitting) for _ in range(rounds)]
        sitting.filling.fill(sitting.amounts.rows)
        time.sleep(3)
    forget_mails()
    sweeper.sweep()  # what earlier figures left behind
    idle = [{OURS: milliseconds(sweeper.sweep)} for _ in range(rounds)]
    passes = [one_pass(sitting, runs) for runs in asleep]
    slowest = sorted(finding().items(), key=lambda found: -found[1])[:5]
    among = f"among {number(sitting.amounts.rows)} suspended"
    note = "finding takes longest: " + ", ".join(f"{name} {number(took)} ms" for name, took in slowest)
    return [
        Line("10", f"a pass of the sweeper {among}, {DUE} due", "ms", passes, (Bound(1000),), (Bound(100),)),
        Line("10", f"a pass {among}, nothing due", "ms", idle, note=note),
    ]


def forget_mails() -> None:
    """Those of the runs that waited in other figures are none of a pass's business."""
    from approvals.models import Notification
    from runs import clock

    Notification.objects.filter(sent_at=None).update(sent_at=clock.now())


def made_asleep(sitting: Sitting) -> list[Any]:
    made = [sitting.ours.submit("sleeper", seconds=DAY, text=TEXT) for _ in range(DUE)]
    sitting.ours.until(made, "suspended")
    return made


def one_pass(sitting: Sitting, runs: list[Any]) -> Round:
    """Ends when all are released; the worker that lets them end is there only afterwards."""
    from runs import clock, sweeper
    from runs.models import Hold

    Hold.objects.open().filter(run__in=runs).update(expires_at=clock.now())
    found = {OURS: milliseconds(sweeper.sweep)}
    assert not Hold.objects.open().filter(run__in=runs).exists(), "not all were found"
    with sitting.ours.worker():
        sitting.ours.until(runs, "succeeded")
    return found


def finding() -> dict[str, float]:
    """What each verb takes to find what is due, in ms."""
    from runs import clock, sweeper

    now = clock.now()
    return {
        name: milliseconds(lambda verb=verb: list(verb.find(now))) for name, verb in sweeper._verbs.items()
    }  # type: ignore[misc]


def milliseconds(act: Any) -> float:
    began = time.perf_counter()
    act()
    return (time.perf_counter() - began) * 1e3
