"""The inbox, its pulse, one of its rows in full; and whether keys work in it."""

from datetime import UTC
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.dateparse import parse_datetime
from django.views.decorators.http import require_POST, require_safe

from approvals import inbox as waiting
from approvals.models.request import ALPHABET
from approvals.policies.judgement import TIERS
from approvals.presentation import lanes, pages
from approvals.views.page import find, is_fragment, page, person_of
from runs import agents, clock, tools

KEYS = "shortcuts"  # in the session: this person wants shortcuts


@page
@require_safe
def inbox(request: HttpRequest) -> HttpResponse:
    now, person, filters = clock.now(), person_of(request), waiting.Filters.read(request.GET)
    lane, mark = request.GET.get("lane", ""), _mark(request)
    one = mark is not None and lane in waiting.LANES
    found = (
        waiting.one_lane(person, filters, now, lane, mark)
        if one and mark is not None
        else waiting.find(person, filters, now)
    )
    shown = lanes.lanes(found, filters, now)
    context = {
        "now": now,
        "version": str(waiting.Shown.of(found, now)),
        "lanes": shown,
        "small": any(row.expands for lane in shown for row in lane["rows"]),
        "aside": lanes.aside(found, now),
        "waiting": found.mine,
        "at_least": found.more,
        "others": found.others.count,
        "elsewhere": found.others.count + found.elsewhere,
        "elsewhere_more": found.elsewhere_more,
        "snoozed": found.snoozed.count,
        "searched": waiting.SEARCHED if found.cut else 0,
        "reviewer": bool(person._group_names),  # type: ignore[attr-defined]
        "one_lane": one,
        "keys": bool(request.session.get(KEYS)),
        **_search(filters),
    }
    return render(request, "approvals/inbox.html", context)


def _search(filters: waiting.Filters) -> dict[str, Any]:
    """The form that narrows it down, as it was filled."""
    return {
        "search": filters.as_dict(),
        "filters": filters.address(),
        "filtered": bool(filters),
        "agents": sorted({made.name for made in agents.all_versions()} | {filters.agent} - {""}),
        "tools": sorted(
            {name for name, tool in tools.known().items() if _asks(tool)} | {filters.tool} - {""}
        ),
    }


def _asks(tool: Any) -> bool:
    """Whether a call of it may be held for a decision."""
    return bool(tool.properties.effect) or tool.name == "abeyance.ask"


def _mark(request: HttpRequest) -> waiting.Mark | None:
    """The place in a lane that an address names; None: there is no such place."""
    back = "before" in request.GET
    tier, _, rest = request.GET.get("before" if back else "after", "").partition("~")
    key, _, ref = rest.rpartition("~")
    try:
        at = parse_datetime(key)
    except ValueError:
        at = None
    if tier not in TIERS or at is None or not ref or len(ref) > 12 or set(ref) - set(ALPHABET):
        return None
    return waiting.Mark(tier, at if at.tzinfo else at.replace(tzinfo=UTC), ref, back)


@page
@require_safe
def inbox_pulse(request: HttpRequest) -> HttpResponse:
    """204 when nothing changed; else how much did, and what became of rows that left."""
    if not is_fragment(request):
        return redirect("inbox")
    now, filters = clock.now(), waiting.Filters.read(request.GET)
    shown = waiting.Shown.read(request.GET.get("v", ""))
    found = waiting.changes(person_of(request), filters, shown, now)
    if not found:
        return HttpResponse(status=204)
    gone = [{"ref": one.request.ref, "outcome": lanes.outcome(one, now)} for one in found.gone]
    context = {
        "changes": {"new": found.new, "changed": found.changed, "settled": gone},
        "waiting": found.mine,
        "at_least": found.more,
        "filters": filters.address(),
    }
    return render(request, "approvals/inbox.html#pulse", context)


@page
@require_safe
def row(request: HttpRequest, ref: str) -> HttpResponse:
    """An R1 row in full, in its place; anything else, and without a script, is its page."""
    found = find(request, ref)
    if not is_fragment(request) or found.tier != "R1" or found.kind != "approval":
        return redirect("request", ref=ref)
    revision = found.revision
    context = {"item": pages.item(found, revision, clock.now()), "more": True}
    return render(request, "approvals/inbox.html#full", context)


@page
@require_POST
def keys(request: HttpRequest) -> HttpResponse:
    """Turns shortcuts on or off, until this person signs out."""
    request.session[KEYS] = request.POST.get("keys") == "on"
    return redirect("inbox")
