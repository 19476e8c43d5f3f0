"""What a run's page shows of a difference: both calls side by side, and what an operator may do about it."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from runs import divergence
from runs.models import Hold
from runs.states import Cause


@dataclass(frozen=True, slots=True)
class Row:
    """One thing that differs. `code`: its name is an argument's."""

    name: str
    was: Any
    now: Any
    change: str
    code: bool = True


@dataclass(frozen=True, slots=True)
class Difference:
    """`rows`: what differs, where both calls are known. `near`: the two texts around the first character that
    differs, where they are long. `why_not`: why it cannot be accepted."""

    index: int | None
    rows: list[Row]
    same: int
    near: dict[str, Any] | None
    why_not: str
    may_accept: bool
    may_look: bool


def show(standing: Iterable[Hold], *, operator: bool) -> None:
    """Gives each open `diverged` hold its `difference`."""
    for hold in standing:
        if hold.cause == Cause.DIVERGED:
            hold.difference = _difference(hold, operator)  # type: ignore[attr-defined]


def _difference(hold: Hold, operator: bool) -> Difference:
    detail, why_not = hold.detail, divergence.not_acceptable(hold)
    rows, same = _rows(detail.get("was"), detail.get("now"), detail)
    near = detail.get("near")
    long = near is not None and any(len(detail[side]["arguments"]) > LONG for side in ("was", "now"))
    may_accept = operator and not why_not
    return Difference(detail.get("index"), rows, same, near if long else None, why_not, may_accept, operator)


LONG = 400  # characters of arguments in which one looks for the difference


def _rows(
    was: dict[str, Any] | None, now: dict[str, Any] | None, detail: dict[str, Any]
) -> tuple[list[Row], int]:
    """The rows that differ, and how many arguments are the same."""
    if "index" not in detail:
        return [], 0
    if was is None or now is None:
        return [Row("Call", detail["recorded"], detail["asked"], "changed", code=False)], 0
    rows = (
        [] if was["tool"] == now["tool"] else [Row("Tool", was["tool"], now["tool"], "changed", code=False)]
    )
    then, here = _arguments(was), _arguments(now)
    if then is None or here is None:
        return [*rows, Row("Arguments", was["arguments"], now["arguments"], "changed", code=False)], 0
    names = [*then, *(name for name in here if name not in then)]
    found = [_row(name, then, here) for name in names if _text(name, then) != _text(name, here)]
    return [*rows, *found], len(names) - len(found)


def _arguments(side: dict[str, Any]) -> dict[str, Any] | None:
    """None: they were cut, or are not an object."""
    try:
        found = json.loads(side["arguments"])
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _text(name: str, arguments: dict[str, Any]) -> str | None:
    """As it is written: in Python 1, 1.0 and true are equal."""
    return json.dumps(arguments[name]) if name in arguments else None


def _row(name: str, then: dict[str, Any], here: dict[str, Any]) -> Row:
    change = "added" if name not in then else "removed" if name not in here else "changed"
    return Row(name, then.get(name), here.get(name), change)
