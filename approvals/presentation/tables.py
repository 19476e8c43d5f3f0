"""Several requests of one tool side by side: a row each, an argument a column, and what they come to together."""

import json
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from approvals.models import Request, Revision
from approvals.presentation import pages, shown

MOST_COLUMNS = 6
UNUSUAL = 2  # so many times the median of them


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    amount: bool


@dataclass(frozen=True, slots=True)
class Line:
    """`cells`: each with its column; `unusual` says why it is ticked by hand, or nothing."""

    ref: str
    url: str
    headline: str
    digest: str
    cells: tuple[tuple[Column, str], ...]
    unusual: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """`hidden`: how many arguments are no column; `totals`: sentences."""

    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    totals: tuple[str, ...]
    hidden: int = 0


def table(rows: Sequence[tuple[Request, Revision]]) -> Table:
    values = [json.loads(revision.arguments, parse_float=str) for _, revision in rows]
    kinds = pages.kinds(rows[0][1])
    names = list(dict.fromkeys(name for one in values for name in one))
    columns = tuple(Column(name, kinds.get(name) == "decimal") for name in names[:MOST_COLUMNS])
    odd = _unusual(columns, values)
    lines = tuple(
        Line(
            request.ref,
            request.get_absolute_url(),
            pages.headline(request, revision),
            revision.digest,
            tuple((column, _cell(one.get(column.name))) for column in columns),
            odd.get(place, ""),
        )
        for place, ((request, revision), one) in enumerate(zip(rows, values, strict=True))
    )
    return Table(columns, lines, tuple(_totals(columns, values)), max(0, len(names) - len(columns)))


def _cell(value: Any) -> str:
    return "–" if value is None else str(value) if isinstance(value, str | int) else shown.in_short(value)


def _amounts(column: Column, values: Sequence[dict[str, Any]]) -> list[Decimal | None]:
    return [_amount(one.get(column.name)) for one in values]


def _amount(value: Any) -> Decimal | None:
    try:
        found = Decimal(str(value))
    except InvalidOperation:
        return None
    return found if found.is_finite() else None


def _unusual(columns: Sequence[Column], values: Sequence[dict[str, Any]]) -> dict[int, str]:
    """Amounts that stand out among these."""
    found = {}
    for column in columns:
        amounts = _amounts(column, values) if column.amount else []
        known = [amount for amount in amounts if amount is not None]
        limit = UNUSUAL * statistics.median(known) if len(known) > 2 else None
        for place, amount in enumerate(amounts):
            if limit is not None and amount is not None and amount > limit:
                found[place] = f"{amount} is more than twice what is usual among these"
    return found


def _totals(columns: Sequence[Column], values: Sequence[dict[str, Any]]) -> list[str]:
    """What they come to: the sum and the largest of each amount; of what else is named, how many different ones."""
    said = []
    for column in columns:
        if column.amount:
            known = [amount for amount in _amounts(column, values) if amount is not None]
            if known:
                said.append(f"{column.name}: {sum(known):,} in all, {max(known):,} at most")
            continue
        counts = Counter(_cell(one.get(column.name)) for one in values)
        twice = [f"{text} {count} times" for text, count in counts.most_common() if count > 1]
        more = f", {', '.join(twice[:3])}" if twice else ""
        said.append(f"{column.name}: {len(counts)} different{more}")
    return said
