"""The same two things many times, unsteered: each round one of the two starts a little later than the other."""

from collections.abc import Iterator
from typing import Any

from tests.threads import Work, together

ROUNDS = 30
_LATE = (0.0, 0.0005, 0.001, 0.002, 0.004)  # seconds


def rounds() -> Iterator[int]:
    return iter(range(ROUNDS))


def clash(number: int, one: Work, other: Work) -> tuple[Any, Any]:
    """What came of both in round `number`."""
    late = _LATE[number // 2 % len(_LATE)]
    found = together(one, other, late=number % 2, by=late)
    return found[0], found[1]
