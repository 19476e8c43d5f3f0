"""The inbox: a row a request, in lanes by risk and time left, by rules a person can follow."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from approvals import inbox
from approvals.inbox.statements import DAY, SOON
from approvals.models import Request, Revision
from approvals.models.request import URGENT_AFTER
from approvals.presentation import oddities, pages
from approvals.presentation.pages import headline
from approvals.states import RequestState

LANES = (
    ("now", "Decide now", "15 minutes or less are left."),
    ("high", "High risk", "Its tier is R3 or R4."),
    ("today", "Today", "It ends within eight hours, or has waited for three days."),
    ("later", "Later", "More than eight hours are left."),
)
ASIDE = (
    ("others", "Waiting on others", "You approved it or passed it on; somebody else decides now."),
    ("snoozed", "Put off by you", "You put it off. It comes back by itself."),
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
    tool: str = ""
    expands: bool = False
    lies_with: str = ""
    passed_to_me: bool = False


def inbox_row(
    request: Request,
    revision: Revision,
    now: datetime,
    approvals: int = 0,
    *,
    aside: str = "",
    lies_with: str = "",
    passed_to_me: bool = False,
) -> InboxRow:
    key, _, why = next(one for one in ASIDE if one[0] == aside) if aside else lane(request, now)
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
        flags=flags(request, revision),
        approvals=approvals,
        quorum=request.quorum,
        why_here=why,
        lane=key,
        tool=revision.tool,
        expands=request.tier == "R1" and request.kind == "approval",
        lies_with=lies_with,
        passed_to_me=passed_to_me,
    )


def flags(request: Request, revision: Revision) -> tuple[str, ...]:
    """What a row is marked with: that it is not what was first proposed, and what is odd about it."""
    marks = ["changed"] if revision.reason == "drift" else []
    marks += ["edited"] if revision.edited else []
    marks += ["a question is open"] if request.state == RequestState.NEEDS_INFO else []
    return (*marks, *oddities.marks(revision))


def lane(request: Request, now: datetime) -> tuple[str, str, str]:
    """Risk and time left decide, by rules a person can follow; the statements of `inbox` say the same in SQL."""
    ends = request.decide_by or datetime.max.replace(tzinfo=UTC)
    due = min(ends, request.opened_at + URGENT_AFTER)
    if ends <= now + SOON:
        return LANES[0]
    if request.tier in ("R3", "R4"):
        return LANES[1]
    return LANES[2] if due <= now + DAY else LANES[3]


def lanes(found: inbox.Found, filters: inbox.Filters, now: datetime) -> list[dict[str, Any]]:
    """The lanes that are not empty, each in its order."""
    told = [
        _lane(key, title, found.lanes[key], filters, now) for key, title, _ in LANES if key in found.lanes
    ]
    return [one for one in told if one["rows"] or one["count"] or one["next"] or one["previous"]]


def aside(found: inbox.Found, now: datetime) -> list[dict[str, Any]]:
    """What is put aside and still waits."""
    parts = {"others": found.others, "snoozed": found.snoozed}
    return [_lane(key, title, parts[key], None, now) for key, title, _ in ASIDE if parts[key].count]


def _lane(
    key: str, title: str, part: inbox.Part, filters: inbox.Filters | None, now: datetime
) -> dict[str, Any]:
    rows = [
        inbox_row(
            w.request,
            w.revision,
            now,
            w.approvals,
            aside="" if filters is not None else key,
            lies_with=w.lies_with,
            passed_to_me=w.passed_to_me,
        )
        for w in part.rows
    ]
    more = part.count - len(rows)
    return {
        "key": key,
        "title": title,
        "rows": rows,
        "count": part.count,
        "more": part.more,
        "rest": max(0, more),
        "next": filters.address(lane=key, after=mark(part.after))
        if filters is not None and part.after
        else "",
        "previous": filters.address(lane=key, before=mark(part.before))
        if filters is not None and part.before
        else "",
    }


def mark(place: Any) -> str:
    """A place in a lane, for an address."""
    return f"{place.tier}~{place.key.isoformat()}~{place.ref}"


def outcome(gone: inbox.Gone, now: datetime) -> str:
    """What a row says that has left: who decided, or what else became of it."""
    if gone.snoozed and pages.state(gone.request, now) in (RequestState.OPEN, RequestState.NEEDS_INFO):
        return "Put off by you"
    panel = pages.standing(gone.request, now)
    if panel is None:
        return "It waits for others now"
    if panel.kind == "standing":
        return f"Decided by {panel.who}: {panel.outcome}"
    who = f" by {panel.who}" if panel.who else ""
    return f"{str(panel.kind).capitalize()}{who}"
