"""The list of runs, by status and agent, newest first; and for operators the verbs on all runs of one agent."""

from urllib.parse import urlencode

from django.contrib.auth.decorators import login_required
from django.db.models import Prefetch, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from runs import agents, bulk, callers, clock, keyset
from runs.models import Hold, Run
from runs.states import RunStatus
from runs.views.standing import waits_for

PAGE = 50


@never_cache
@login_required
@require_safe
def index(request: HttpRequest) -> HttpResponse:
    status, agent = request.GET.get("status", ""), request.GET.get("agent", "")
    caller = callers.of(request)
    found = caller.visible(Run.objects.all())
    if status in RunStatus.values:
        found = found.filter(status=status)
    if agent:
        found = found.filter(agent=agent)
    rows, page = _page(found, request)
    for run in rows:
        run.why = waits_for(run.standing)  # type: ignore[attr-defined]
    context = {
        "now": clock.now(),
        "runs": rows,
        "status": status,
        "agent": agent,
        "statuses": RunStatus.choices,
        "agents": sorted({made.name for made in agents.all_versions()} | ({agent} if agent else set())),
        "filtered": bool(status or agent),
        "sees_all": caller.sees_all,
        "all_of": agent if caller.operator and bulk.known(agent) else "",
        "page": page,
    }
    return render(request, "runs/list.html", context)


def _page(found: QuerySet[Run], request: HttpRequest) -> tuple[list[Run], dict[str, str | None]]:
    """One page by keyset: `older` and `newer` name the run it begins after, in either direction."""
    standing = Prefetch("holds", Hold.objects.open(), to_attr="standing")
    found = found.defer("input", "result", "error")
    newer, older = (keyset.mark(found, request.GET.get(word, "")) for word in ("newer", "older"))
    found = found.prefetch_related(standing)
    if newer:
        rows = list(keyset.after(found, newer, "created_at")[: PAGE + 1])[::-1]
        if len(rows) > PAGE:
            return rows[1:], {"previous": _to(request, newer=rows[1]), "next": _to(request, older=rows[-1])}
        older = None  # fewer than a page are newer: that is the first one
    rows = list(keyset.before(found, older, "created_at")[: PAGE + 1])
    following = _to(request, older=rows[PAGE - 1]) if len(rows) > PAGE else None
    rows = rows[:PAGE]
    return rows, {"previous": _to(request, newer=rows[0]) if older and rows else None, "next": following}


def _to(request: HttpRequest, **marks: Run) -> str:
    kept = {name: request.GET[name] for name in ("status", "agent") if request.GET.get(name)}
    return "?" + urlencode({**kept, **{word: str(run.pk) for word, run in marks.items()}})
