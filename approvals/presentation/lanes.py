"""The inbox: a row a request, in lanes by risk and time left, by rules a person can follow."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from approvals.models import Request, Revision
from approvals.presentation import oddities
from approvals.presentation.pages import headline

LANES = (
    ("now", "Decide now", "15 minutes or less are left."),
    ("high", "High risk", "Its tier is R3 or R4."),
    ("today", "Today", "It ends within eight hours, or has waited for three days."),
    ("later", "Later", "More than eight hours are left."),
)


@dataclass(frozen=True, slots=True)
class InboxRow:
    ref: str
    url: str
    headline: str
    tier: str
    kind: str
    decide_by: datetime | None
    opened_at: datetime
    agent: str
    agent_version: str
    on_behalf_of: str
    run_short: str
    flags: tuple[str, ...]
    approvals: int
    quorum: int
    why_here: str
    lane: str


def inbox_row(request: Request, revision: Revision, now: datetime, approvals: int = 0) -> InboxRow:
    key, _, why = lane(request, now)
    marks = (["changed"] if revision.reason == "drift" else []) + (["edited"] if revision.edited else [])
    marks += oddities.marks(revision)
    return InboxRow(
        ref=request.ref,
        url=request.get_absolute_url(),
        headline=headline(request, revision),
        tier=request.tier,
        kind=request.kind,
        decide_by=request.decide_by,
        opened_at=revision.created_at,
        agent=request.run.agent,
        agent_version=request.run.agent_version,
        on_behalf_of=request.run.on_behalf_of,
        run_short=request.run.short_id,
        flags=tuple(marks),
        approvals=approvals,
        quorum=request.quorum,
        why_here=why,
        lane=key,
    )


def lane(request: Request, now: datetime) -> tuple[str, str, str]:
    """Risk and time left decide, by rules a person can follow."""
    left = request.decide_by - now if request.decide_by else timedelta.max
    waited = now - request.opened_at
    if left <= timedelta(minutes=15):
        return LANES[0]
    if request.tier in ("R3", "R4"):
        return LANES[1]
    return LANES[2] if left <= timedelta(hours=8) or waited >= timedelta(days=3) else LANES[3]


def lanes(found: list[InboxRow]) -> list[dict[str, Any]]:
    """The lanes that are not empty; in one, the higher tier first, then who has less time."""
    latest = datetime.max.replace(tzinfo=UTC)
    ordered = sorted(found, key=lambda row: (-int(row.tier[1:]), row.decide_by or latest, row.ref))
    told = [
        {"key": key, "title": title, "rows": [r for r in ordered if r.lane == key]} for key, title, _ in LANES
    ]
    return [one for one in told if one["rows"]]
