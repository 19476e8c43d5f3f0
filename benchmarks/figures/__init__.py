"""The figures, a room for one or a few that need the same: each gives lines of the table.

Rooms that need Django are imported when they are asked: it is set up for the sitting's own database.
"""

from importlib import import_module

from benchmarks.sitting import Sitting
from benchmarks.table import Line

#: By the number of the target, in the order of the table.
FIGURES = {
    "1": "steps",
    "2": "commits",
    "3": "suspending",
    "4": "deciding",
    "5": "waiting",
    "6": "holding",
    "7": "replaying",
    "8": "killed",
    "9": "inbox",
    "10": "sweeping",
    "fork": "forking",
}


def measure(figure: str, sitting: Sitting) -> list[Line]:
    room = import_module(f"benchmarks.figures.{FIGURES[figure]}")
    return list(room.measure(sitting))
