"""What changed since a page was made, told exactly: the page says which rows it has, and when it was made."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from django.contrib.auth.models import User

from approvals import reviewers
from approvals.inbox import finding, statements
from approvals.inbox.filters import Filters
from approvals.inbox.finding import Desk, Found
from approvals.inbox.statements import COUNTED, LANES
from approvals.models import Request
from runs.models import Run

MOST = 4 * finding.PAGE
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_VERSION = re.compile(r"([0-9]{1,16})\.([01])\.([0-9A-Z]{1,12}-[0-9]{1,6}(?:~[0-9A-Z]{1,12}-[0-9]{1,6})*)?")


@dataclass(frozen=True, slots=True)
class Shown:
    """What a page says of itself: when it was made, whether it has every request of its reader, and its rows, each
    with its revision."""

    at: datetime
    complete: bool
    rows: dict[str, int]

    @classmethod
    def of(cls, found: Found, at: datetime) -> Self:
        rows = [row for part in found.lanes.values() for row in part.rows]
        return cls(at, found.complete, {row.request.ref: row.request.number for row in rows})

    @classmethod
    def read(cls, text: str) -> Self:
        """What is no such text is a page that shows nothing and began with time."""
        told = _VERSION.fullmatch(text)
        if told is None:
            return cls(_EPOCH, True, {})
        rows = [one.rpartition("-") for one in (told[3] or "").split("~")[:MOST] if one]
        at = _EPOCH + timedelta(microseconds=min(int(told[1]), 10**16 - 1))
        return cls(at, told[2] == "1", {ref: int(number) for ref, _, number in rows})

    def __str__(self) -> str:
        at = (self.at - _EPOCH) // timedelta(microseconds=1)
        return f"{at}.{int(self.complete)}." + "~".join(f"{ref}-{n}" for ref, n in self.rows.items())


@dataclass(frozen=True, slots=True)
class Gone:
    """A row that is no longer this person's to decide, as it stands."""

    request: Request
    snoozed: bool


@dataclass(frozen=True, slots=True)
class Changes:
    new: int
    changed: int
    gone: tuple[Gone, ...]
    mine: int
    more: bool

    def __bool__(self) -> bool:
        return bool(self.new or self.changed or self.gone)


@finding.in_order()
def changes(person: User, filters: Filters, shown: Shown, now: datetime) -> Changes:
    """Since the page was made: how many are new, how many of its rows changed, which of them are gone."""
    desk = Desk(person, filters, now)
    counts = desk.counted(list(LANES)).values()
    mine = sum(min(own, COUNTED) for own, _ in counts)
    more = any(own + asked > COUNTED for own, asked in counts)
    rows = _rows(desk, shown)
    still = [row for row in rows if row.mine]  # type: ignore[attr-defined]
    gone = [row for row in rows if not row.mine]  # type: ignore[attr-defined]
    new = mine - len(still) if shown.complete and not more else _arrived(desk, shown)
    return Changes(
        new=max(0, new),
        changed=sum(row.number != shown.rows[row.ref] for row in still),
        gone=tuple(Gone(row, row.asleep) for row in gone),  # type: ignore[attr-defined]
        mine=mine,
        more=more,
    )


def _rows(desk: Desk, shown: Shown) -> list[Request]:
    """The page's rows as they stand, each with whether it is still this person's."""
    if not shown.rows:
        return []
    found = reviewers.visible_to(desk.person).filter(ref__in=shown.rows).select_related("run")
    rows = list(found.order_by("ref"))
    away = {pk for ids in desk.aside.values() for pk in ids}
    for row in rows:
        row.mine = row.pk not in away and _is_open(row, desk.now)  # type: ignore[attr-defined]
        row.asleep = row.pk in desk.aside["snoozed"]  # type: ignore[attr-defined]
    return rows


def _is_open(row: Request, now: datetime) -> bool:
    return row.is_pending and (row.decide_by is None or row.decide_by > now)


def _arrived(desk: Desk, shown: Shown) -> int:
    """How many were opened after the page was made, of those it does not have."""
    where, given = desk.filters.conditions()
    tiers = desk.filters.tiers(("R4", "R3", "R2", "R1", "R0"))
    sql = statements.ARRIVED.format(filtered=where)
    rows = [
        row
        for row in desk.ask_for_mine(sql, {**given, "since": shown.at, "tiers": tiers})
        if row[1] not in shown.rows
    ]
    runs = {run.pk: run for run in finding.with_chains(_runs(row[2] for row in rows))}
    return sum(1 for row in rows if not reviewers.requester_of(desk.person, runs[row[2]]))


def _runs(ids: Iterable[Any]) -> list[Run]:
    wanted = set(ids)
    return list(Run.objects.defer("input", "result", "error").filter(pk__in=wanted)) if wanted else []
