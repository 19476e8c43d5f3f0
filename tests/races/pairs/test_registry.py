"""The races that are shown in both orders and free, and that each of them is.

`@pytest.mark.race("approve", "expire")` marks a test (or one case of it) in which both have read what they read
first, approving gets the row first and expiry second. With `free=True` nobody steers: ROUNDS times, and each time
one legal outcome. A pair of the same twice has both orders as two cases.

| pair | its file |
| --- | --- |
| approve × approve, expire, cancel, edit; release × park | `test_decisions` |
| pause × finish, look; stop-now × receipt; resume × resume | `test_stops` |
| take × recover | `test_workers` |
| event × wait, child's end × parent's cancel | `test_children` |
| top-up × top-up | `test_allowance` |
| undo × taking effect | `test_undo` |
"""

import importlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PAIRS = (
    ("approve", "approve"),
    ("approve", "expire"),
    ("approve", "cancel"),
    ("approve", "edit"),
    ("pause", "finish"),
    ("pause", "look"),
    ("stop-now", "receipt"),
    ("resume", "resume"),
    ("top-up", "top-up"),
    ("event", "wait"),
    ("release", "park"),
    ("take", "recover"),
    ("child's end", "parent's cancel"),
    ("undo", "effect"),
)


def marked() -> Counter[tuple[str, str, bool]]:
    """How many tests, or cases of one, are marked with each order of each pair."""
    found: Counter[tuple[str, str, bool]] = Counter()
    for file in sorted(Path(__file__).parent.glob("test_*.py")):
        module = importlib.import_module(f"tests.races.pairs.{file.stem}")
        tests = [thing for name, thing in vars(module).items() if name.startswith("test_")]
        for race in (race for test in tests for race in _races(test)):
            first, second = race.args
            found[first, second, bool(race.kwargs.get("free"))] += 1
    return found


def _races(test: Any) -> Iterator[Any]:
    """The marks of a test and of its cases."""
    for mark in getattr(test, "pytestmark", []):
        if mark.name == "race":
            yield mark
        elif mark.name == "parametrize":
            cases = [case for case in mark.args[1] if hasattr(case, "marks")]
            yield from (each for case in cases for each in case.marks if each.name == "race")


@pytest.mark.parametrize(("one", "other"), PAIRS, ids=lambda word: word)
def test_pair_is_shown_in_both_orders_and_free(one: str, other: str) -> None:
    found = marked()
    orders = [found[one, other, False], found[other, one, False]]
    assert min(orders) >= (2 if one == other else 1)
    assert found[one, other, True] >= 1


def test_nothing_is_marked_that_is_no_pair() -> None:
    known = {(*pair, free) for pair in PAIRS for free in (False, True)}
    known |= {(other, one, False) for one, other in PAIRS}
    assert set(marked()) <= known
