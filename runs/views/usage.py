"""What a run's page says of its allowances: limit, used, reserved, left, and who may raise it."""

import uuid
from dataclasses import dataclass
from decimal import Decimal

from runs import allowance
from runs.callers import Caller
from runs.models import Allowance, Run


@dataclass(frozen=True, slots=True)
class Meter:
    """One allowance. Of money, `unit` is its currency. Amounts are text, `limit` and `left` empty where there is no
    limit; `percent` is what is used and reserved of the limit, 100 at most. `once` makes a top-up that is sent
    twice one."""

    id: int
    unit: str
    shared: str
    limit: str
    used: str
    reserved: str
    left: str
    percent: int
    low: bool
    may_top_up: bool
    once: str

    @property
    def field(self) -> str:
        return f"top-up-{self.id}"


def meters(run: Run, caller: Caller) -> list[Meter]:
    """Its own allowances first, then shared ones. None for a run without."""
    if not run.metered:
        return []
    rows = sorted(run.allowances.all(), key=lambda row: (row.shared, row.name, row.unit))
    return [_meter(row, may=caller.operator and not run.ended) for row in rows]


def _figure(value: Decimal | None, unit: str) -> str:
    return "" if value is None else allowance.figure(value, unit)


def _meter(row: Allowance, *, may: bool) -> Meter:
    taken = row.used + row.reserved
    percent = 0 if row.limit is None else 100 if not row.limit else min(100, int(taken * 100 / row.limit))
    return Meter(
        id=row.pk,
        unit=row.unit.removeprefix(allowance.MONEY),
        shared=row.name if row.shared else "",
        limit=_figure(row.limit, row.unit),
        used=_figure(row.used, row.unit),
        reserved=_figure(row.reserved, row.unit) if row.reserved else "",
        left=_figure(row.remaining, row.unit),
        percent=percent,
        low=row.soft_told_at is not None or percent == 100,
        may_top_up=may and row.limit is not None,
        once=str(uuid.uuid4()),
    )
