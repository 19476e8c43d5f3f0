"""The inbox and its pulse."""

from datetime import datetime
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_safe

from approvals import reviewers
from approvals.models import Decision, Request, Revision
from approvals.presentation import lanes
from approvals.views.page import counted, is_fragment, page, person_of
from runs import children, clock, values

Waiting = tuple[Request, Revision, int]  # with how many have approved it
AT_ONCE = 200


@page
@require_safe
def inbox(request: HttpRequest) -> HttpResponse:
    now = clock.now()
    mine, elsewhere, hidden = _waiting(request, now)
    waiting = [lanes.inbox_row(row, revision, now, approvals) for row, revision, approvals in mine]
    search = {name: request.GET.get(name, "") for name in ("q", "tier", "agent")}
    found = [row for row in waiting if _matches(row, search)]
    context = {
        "now": now,
        "version": _inbox_version(mine),
        "lanes": lanes.lanes(found),
        "waiting": len(waiting),
        "elsewhere": elsewhere,
        "hidden": hidden,
        "reviewer": request.user.groups.exists(),
        "search": search,
        "agents": sorted({row.agent for row in waiting}),
        "filtered": any(search.values()),
    }
    return render(request, "approvals/inbox.html", context)


def _waiting(request: HttpRequest, now: datetime) -> tuple[list[Waiting], int, int]:
    """What waits for this person, how many wait for others although this person sees them, and how many more
    there are than are looked at: those with the most time left. No argument is read: every pulse asks."""
    person = person_of(request)
    found = reviewers.visible_to(person).open_at(now).distinct().order_by("decide_by", "ref")
    rows = list(found.select_related("run", "step", "group")[: AT_ONCE + 1])
    hidden = found.count() - AT_ONCE if len(rows) > AT_ONCE else 0
    rows = rows[:AT_ONCE]
    children.know_chains([row.run for row in rows])
    standing = {r.request_id: r for r in _standing(rows)}
    said = _said(list(standing.values()))
    mine = [
        row
        for row in rows
        if str(person.pk) not in said[standing[row.pk].pk] and reviewers.eligibility(person, row).decides
    ]
    told = [(row, standing[row.pk], len(said[standing[row.pk].pk])) for row in mine]
    return told, len(rows) - len(mine), hidden


def _standing(rows: list[Request]) -> list[Revision]:
    """The standing revisions of many requests, in one query."""
    found = Revision.objects.filter(request__in=rows).order_by("request_id", "-number").distinct("request_id")
    return list(found)


def _said(revisions: list[Revision]) -> dict[int, set[str]]:
    """Who has decided each of these revisions, in one query. What still waits was approved by them."""
    found: dict[int, set[str]] = {revision.pk: set() for revision in revisions}
    for revision, person in Decision.objects.filter(revision__in=found).values_list(
        "revision_id", "person_id"
    ):
        found[revision].add(person)
    return found


def _matches(row: lanes.InboxRow, search: dict[str, str]) -> bool:
    text = search["q"].strip().casefold()
    said = f"{row.ref} {row.headline} {row.agent} {row.on_behalf_of}".casefold()
    return text in said and search["tier"] in ("", row.tier) and search["agent"] in ("", row.agent)


def _inbox_version(rows: list[Waiting]) -> str:
    """What is shown, short enough for an address: refs and revisions."""
    told = ",".join(sorted(f"{row.ref}{revision.number}" for row, revision, _ in rows))
    return f"{len(rows)}-{values.digest(told)[:16]}"


@page
@require_safe
def inbox_pulse(request: HttpRequest) -> HttpResponse:
    waiting, _, _ = _waiting(request, clock.now())
    seen = request.GET.get("v", "")
    if seen == _inbox_version(waiting):
        return HttpResponse(status=204)
    new = max(0, len(waiting) - max(0, counted(seen)))
    changes: dict[str, Any] = {"new": new, "changed": 0 if new else 1, "settled": []}
    if not is_fragment(request):
        return redirect("inbox")
    return render(request, "approvals/inbox.html#pulse", {"changes": changes, "waiting": len(waiting)})
