"""Figure 9: the inbox, its pulse and deciding, with few pending, ten thousand and a million.

Fifty reviewers in ten groups; one of them asks for the pages, in this process, through all that a request passes
(middleware, session, view, template); the pulse is that of the page. Few: a hundred for each group, so that a page
is as full as with more. All of it is judged, and its statements are beside it. The decided run really waits.
"""

import re
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from django.db import connection
from django.test import Client
from django.urls import reverse

from benchmarks.filling import GROUPS, Filling
from benchmarks.sitting import Sitting
from benchmarks.table import FEW, OURS, Bound, Line, Round, number

FLOOR, GOAL = (Bound(3, FEW),), (Bound(1.3, FEW),)
FIRST, SECOND = 100 * GROUPS, 10_000
JUDGED = {"inbox": 1, "pulse": 1, "decide": 1}  # 0: the statements, 1: all of it


def measure(sitting: Sitting) -> list[Line]:
    filling = sitting.filling
    levels = [level for level in (FIRST, SECOND) if level < sitting.amounts.rows] + [sitting.amounts.rows]
    if filling.copies:
        filling.empty()
    found: dict[int, list[dict[str, tuple[float, float]]]] = {}
    with sitting.ours.worker():
        each = sitting.amounts.rounds * len(levels)
        runs = iter(sitting.ours.waiting(each * 2))
    for level in levels:
        filling.fill(level)
        desk = Desk(filling)
        found[level] = [desk.asked(sitting, [next(runs), next(runs)]) for _ in range(sitting.amounts.rounds)]
    return [line for level in levels[1:] for line in told(found[FIRST], found[level], level)]


def told(few: list[Any], many: list[Any], level: int) -> list[Line]:
    lines = []
    for name in JUDGED:
        for place, what in enumerate(("its statements", "all of it")):
            rounds: list[Round] = [
                {OURS: after[name][place], FEW: before[name][place]}
                for after, before in zip(many, few, strict=True)
            ]
            bounds = (FLOOR, GOAL) if place == JUDGED[name] else ()
            lines.append(
                Line(
                    "9",
                    f"{name} with {number(level)} pending (few: 100 a group), {what}",
                    "ms",
                    rounds,
                    *bounds,
                )
            )
    return lines


class Desk:
    """A reviewer at a browser."""

    def __init__(self, filling: Filling) -> None:
        self.client = Client(headers={"host": "localhost"})
        self.client.force_login(filling.reviewer(), backend="django.contrib.auth.backends.ModelBackend")
        self.inbox, self.pulse = reverse("inbox"), reverse("inbox_pulse")

    def asked(self, sitting: Sitting, runs: list[Any]) -> dict[str, tuple[float, float]]:
        """Each asked for a few times: ms in statements, ms in all; medians."""
        page = self.client.get(self.inbox).content.decode()
        address = re.findall(rf'hx-get="({self.pulse}[^"]*)"', page)[0]
        pages = {"inbox": lambda: self.get(self.inbox), "pulse": lambda: self.get(address)}
        found = {name: medians([timed(page) for _ in range(3)]) for name, page in pages.items()}
        found["decide"] = medians([timed(lambda run=run: sitting.ours.decide(run)) for run in runs])  # type: ignore[misc]
        return found

    def get(self, address: str) -> None:
        answer = self.client.get(address, headers={"hx-request": "true"} if "pulse" in address else None)
        assert answer.status_code in (200, 204), f"{address}: {answer.status_code}"


def timed(act: Callable[[], object]) -> tuple[float, float]:
    """Milliseconds in statements, and in all."""
    spent = [0.0]

    def measured(execute: Any, *args: Any) -> Any:
        began = time.perf_counter()
        try:
            return execute(*args)
        finally:
            spent[0] += time.perf_counter() - began

    with ExitStack() as stack:
        stack.enter_context(connection.execute_wrapper(measured))
        began = time.perf_counter()
        act()
        took = time.perf_counter() - began
    return spent[0] * 1e3, took * 1e3


def medians(times: list[tuple[float, float]]) -> tuple[float, float]:
    return statistics.median(one for one, _ in times), statistics.median(all_of for _, all_of in times)
