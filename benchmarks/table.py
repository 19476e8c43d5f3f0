"""Lines of the table, and the judging: is a floor or a goal met.

A line holds its rounds: in each, a value a column. What is compared is compared inside a round; the median of the
rounds' ratios is what counts, and the median of the rounds is what is shown. A bound says what is still good;
one whose column was not measured is not judged, which is neither met nor missed.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

OURS, RAW = "ours", "raw commit"
DBOS, GRAPH = "DBOS", "LangGraph"
FEW = "ours, few"  # with less of what the line has much of
SIMPLE, FORKS = "RQ simple", "RQ fork"  # RQ's own workers; what runs in them the line says
COLUMNS = (OURS, FEW, RAW, DBOS, GRAPH, SIMPLE, FORKS)

Round = dict[str, float]
TITLE, CELL = 68, 11


@dataclass(frozen=True, slots=True)
class Bound:
    """`limit` × the column `against`, or just `limit`. `least`: it must be reached, not kept under."""

    limit: float
    against: str = ""
    least: bool = False

    def __str__(self) -> str:
        sign = "≥" if self.least else "≤"
        return f"{sign} {number(self.limit)}" + (f" × {self.against}" if self.against else "")


@dataclass(frozen=True, slots=True)
class Judged:
    """`value` None: it was not measured, and `met` says nothing."""

    bound: Bound
    value: float | None
    met: bool

    def __str__(self) -> str:
        if self.value is None:
            return f"{self.bound}: not measured"
        return f"{self.bound}: {number(self.value)} {'met' if self.met else 'NOT MET'}"


@dataclass(frozen=True, slots=True)
class Line:
    """One measured thing of one figure of the targets."""

    figure: str
    what: str
    unit: str
    rounds: Sequence[Round]
    floor: Sequence[Bound] = ()
    goal: Sequence[Bound] = ()
    note: str = ""
    floors: list[Judged] = field(init=False)
    goals: list[Judged] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "floors", [judge(self.rounds, bound) for bound in self.floor])
        object.__setattr__(self, "goals", [judge(self.rounds, bound) for bound in self.goal])

    def shown(self) -> dict[str, float]:
        """The median of the rounds, by column."""
        return {name: median for name in COLUMNS if (median := _median(self.rounds, name)) is not None}

    def as_json(self) -> dict[str, Any]:
        return {
            "figure": self.figure,
            "what": self.what,
            "unit": self.unit,
            "medians": self.shown(),
            "floor": [_as_json(one) for one in self.floors],
            "goal": [_as_json(one) for one in self.goals],
            "note": self.note,
            "rounds": list(self.rounds),
        }


def judge(rounds: Sequence[Round], bound: Bound) -> Judged:
    """The median over the rounds of ours, or of its ratio to the column of the same round; and is that good."""
    needed = {OURS, bound.against or OURS}
    whole = [one for one in rounds if needed <= one.keys()]
    if not whole:
        return Judged(bound, None, False)
    ratios = [one[OURS] / (one[bound.against] if bound.against else 1) for one in whole]
    value = statistics.median(ratios)
    return Judged(bound, value, value >= bound.limit if bound.least else value <= bound.limit)


def printed(lines: Sequence[Line]) -> str:
    """Plain text: a line of medians each, and below it what was judged."""
    head = f"{'#':>4}  {'':{TITLE}}" + "".join(f"{name:>{CELL}}" for name in COLUMNS)
    rule = "─" * len(head)
    return "\n".join([head, rule, *(text for line in lines for text in _told(line)), rule, summed_up(lines)])


def _told(line: Line) -> list[str]:
    shown = line.shown()
    cells = "".join(f"{number(shown[name]) if name in shown else '':>{CELL}}" for name in COLUMNS)
    title = f"{line.what}, {line.unit}" if line.unit else line.what
    first = f"{line.figure:>4}  {title:{TITLE}}{cells}".rstrip()
    judged = [("floor", one) for one in line.floors] + [("goal", one) for one in line.goals]
    notes = [f"{'':6}  {line.note}"] if line.note else []
    return [first, *(f"{'':6}  {name:5}  {one}" for name, one in judged), *notes]


def summed_up(lines: Sequence[Line]) -> str:
    """How many bounds are met, missed and not measured."""
    said = []
    for name, all_of in (
        ("floors", [line.floors for line in lines]),
        ("goals", [line.goals for line in lines]),
    ):
        judged = [one for of_line in all_of for one in of_line]
        met = sum(one.met for one in judged)
        unknown = sum(one.value is None for one in judged)
        missed = len(judged) - met - unknown
        said.append(f"{name}: {met} met, {missed} not met, {unknown} not measured")
    return "; ".join(said)


def number(value: float) -> str:
    """Three digits that count; large numbers whole, with thousands set apart."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _median(rounds: Sequence[Round], name: str) -> float | None:
    values = [one[name] for one in rounds if name in one]
    return statistics.median(values) if values else None


def _as_json(one: Judged) -> dict[str, Any]:
    return {"bound": str(one.bound), "value": one.value, "met": None if one.value is None else one.met}
