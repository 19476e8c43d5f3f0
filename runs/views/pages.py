"""The page of one run with all that is known of it, its pulse, and the page of one snapshot.

Unknown and foreign runs are one page. What people know of a run beyond its record (headlines, requests, who may
decide) is told by whoever registered with `tell_with`. `state`, `events` and `may` are what the pulse renews.
"""

import uuid
from collections.abc import Callable
from datetime import datetime
from functools import reduce, wraps
from operator import add
from typing import Any
from urllib.parse import urlencode

from django.contrib.auth.decorators import login_required
from django.db.models import Case, F, Q, QuerySet, When
from django.db.models.functions import Coalesce, Length
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from runs import callers, clock, journal, stops
from runs.callers import Caller
from runs.exceptions import NotFound
from runs.models import Hold, JournalEntry, Run, Snapshot, Step
from runs.states import ClaimState, EffectState, RunStatus
from runs.views import credentials, diverged, family, rights, standing, timeline, usage

View = Callable[..., HttpResponse]
Teller = Callable[[HttpRequest, list[Step], list[Hold]], None]
STEPS = 200
WHOLE = 60_000  # characters of arguments and results that one page of steps shows, the newest first
NEWEST = 50  # of holds, snapshots and journal entries that a page shows


def _tell_nothing(request: HttpRequest, steps: list[Step], held: list[Hold]) -> None:
    """Without anybody who knows people, steps are told by their tools."""


_tell: Teller = _tell_nothing


def tell_with(teller: Teller) -> None:
    """Registers who adds `headline`, `decided` and `request_url` to steps, and `request_url` to holds."""
    global _tell
    _tell = teller


# -- One run ---------------------------------------------------------------------------


def of_run(view: View) -> View:
    """A page of one run: signed in, stored by nobody; unknown and foreign runs are the same page."""

    @wraps(view)
    def answer(request: HttpRequest, run_id: uuid.UUID, **kwargs: Any) -> HttpResponse:
        caller = callers.of(request)
        try:
            return view(request, caller, callers.find(caller, run_id), **kwargs)
        except NotFound:
            return render(request, "404.html", status=404)

    return never_cache(login_required(answer))


@require_safe
@of_run
def detail(request: HttpRequest, caller: Caller, run: Run) -> HttpResponse:
    return show(request, caller, run)


@require_safe
@of_run
def pulse(request: HttpRequest, caller: Caller, run: Run) -> HttpResponse:
    """204 when nothing moved; else the page, whose script renews the parts that are not in use."""
    if request.GET.get("v") == _version(run):
        return HttpResponse(status=204)
    if request.headers.get("HX-Request") != "true":
        return redirect(run)
    return show(request, caller, run)


def _version(run: Run) -> str:
    """Another one whenever the run moved, a call of it began, or somebody did something to it."""
    return f"{run.seq}.{run.position}.{run.changed_at.timestamp():.6f}"


def _live(request: HttpRequest, caller: Caller, run: Run) -> dict[str, Any]:
    """What moves while the run does."""
    steps, earlier, until = _steps(request, run)
    held = _held(run)
    open_now = [hold for hold in held if hold.is_open]
    _tell(request, steps, held)
    flying = [] if run.ended else stops.in_flight(run)
    entries = list(JournalEntry.objects.of(run.stream).order_by("-seq")[:NEWEST])
    if not caller.sees_all:
        entries = [journal.without_origin(entry) for entry in entries]
    alone = "step" in request.GET
    whole = not earlier and not alone
    return {
        "now": clock.now(),
        "run": run,
        "version": _version(run),
        "pulse_url": reverse("run_pulse", args=[run.pk]) + "?" + _kept(request, v=_version(run)),
        "may": rights.may(caller, run, open_now),
        "why": standing.waits_for(open_now),
        "state": standing.state(run, open_now, flying, entries, stands=_stands(run)),
        "steps": steps,
        "events": [timeline.alone(step) for step in steps]
        if alone
        else timeline.of(request, run, steps, held, first=whole, until=until),
        "steps_total": Step.objects.filter(run=run).count(),
        "earlier_url": earlier,
        "gated": bool(request.GET.get("gated")),
        "alone": alone,
        "holds": held,
        "open_holds": open_now,
        "past_holds": [hold for hold in held if not hold.is_open],
        "entries": entries,
        "entries_total": run.seq,
    }


def _stands(run: Run) -> list[int]:
    """The first steps of a run that was cut short whose effects stand: neither undone nor given back."""
    if not run.ended or run.status == RunStatus.SUCCEEDED:
        return []
    done = Step.objects.filter(run=run, effect=EffectState.CONFIRMED).exclude(claim=ClaimState.GIVEN_BACK)
    return list(done.order_by("index").values_list("index", flat=True)[: standing.NAMED + 1])


def _held(run: Run) -> list[Hold]:
    """Its open holds, and the newest of those released."""
    released = Hold.objects.filter(run=run, released_at__isnull=False).select_related("step")
    open_now = list(Hold.objects.open().filter(run=run).select_related("step"))
    return [*open_now, *released.order_by("-released_at")[:NEWEST]]


def _kept(request: HttpRequest, **more: str) -> str:
    """The query of this page once more: which steps it shows."""
    shown = {name: request.GET[name] for name in ("before", "gated", "step") if request.GET.get(name)}
    return urlencode({**shown, **more})


def show(
    request: HttpRequest,
    caller: Caller,
    run: Run,
    *,
    status: int = 200,
    conflict: str = "",
    errors: list[tuple[str, str]] | None = None,
    typed: dict[str, str] | None = None,
) -> HttpResponse:
    live = _live(request, caller, run)
    diverged.show(live["open_holds"], operator=caller.operator)
    credentials.show(live["open_holds"], caller)
    context = {
        **live,
        "may_settle": caller.operator,
        "effects": list(Step.objects.effects().filter(run=run).order_by("-index")[:STEPS])[::-1],
        "snapshots": Snapshot.objects.filter(run=run).order_by("-number")[:NEWEST],
        "again_url": _again_url(caller, run),
        "family": family.of(caller, run),
        "meters": usage.meters(run, caller),
        "conflict": conflict,
        "errors": errors or [],
        "typed": typed or {},
    }
    return render(request, "runs/detail.html", context, status=status)


def _steps(request: HttpRequest, run: Run) -> tuple[list[Step], str, datetime | None]:
    """The newest steps in order (or those before `before`), the address of earlier ones, and when the first
    later one began; or one alone."""
    steps, until = Step.objects.filter(run=run), None
    if (alone := _number(request.GET.get("step", ""))) is not None:
        return _marked(list(steps.filter(index=alone)), run, alone=True), "", None
    found, kept = _lightly(steps), {}
    if request.GET.get("gated"):
        gated = Q(decision__isnull=False) | Q(holds__isnull=False)
        found, kept = found.filter(gated).distinct(), {"gated": "1"}
    if (before := _number(request.GET.get("before", ""))) is not None:
        found = found.filter(index__lt=before)
        until = steps.filter(index=before).values_list("created_at", flat=True).first()
    rows = list(found.order_by("-index")[: STEPS + 1])
    earlier = "?" + urlencode({**kept, "before": rows[-2].index}) if len(rows) > STEPS else ""
    return _marked(rows[:STEPS][::-1], run), earlier, until


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) < 10 else None


def _lightly(steps: QuerySet[Step]) -> QuerySet[Step]:
    """Steps with how long their values are, and only those results that a page of them could show."""
    sizes = (Coalesce(Length(name), 0) for name in ("arguments", "executed", "result"))
    steps = steps.annotate(size=reduce(add, sizes), result_size=Length("result"))
    short = Case(When(result_size__lte=WHOLE, then=F("result")))
    return steps.annotate(short_result=short).defer("result", "evidence")


def _marked(steps: list[Step], run: Run, *, alone: bool = False) -> list[Step]:
    """Which is under way, and whose values are shown here: a page bears so much; each step alone is whole."""
    left = WHOLE
    for step in reversed(steps):
        step.current = step.settled is None and not run.ended  # type: ignore[attr-defined]
        step.whole = alone or step.size <= left  # type: ignore[attr-defined]
        if not alone:
            left -= step.size if step.whole else 0  # type: ignore[attr-defined]
            step.result = step.short_result  # type: ignore[attr-defined]
    return steps


def _again_url(caller: Caller, run: Run) -> str:
    if run.again_of_id is None or not caller.visible(Run.objects.all()).filter(pk=run.again_of_id).exists():
        return ""
    return reverse("run", args=[run.again_of_id])


@require_safe
@of_run
def snapshot(request: HttpRequest, caller: Caller, run: Run, number: int) -> HttpResponse:
    found = Snapshot.objects.filter(run=run, number=number).first()
    if found is None:
        raise NotFound(f"run {run.pk} has no snapshot {number}")
    context = {
        "now": clock.now(),
        "run": run,
        "snapshot": found,
        "record": bytes(found.record).hex(),
        "older_url": _snapshot_url(run, number - 1) if number > 1 else "",
        "newer_url": _snapshot_url(run, number + 1) if number < run.snapshots_taken else "",
    }
    return render(request, "runs/snapshot.html", context)


def _snapshot_url(run: Run, number: int) -> str:
    return reverse("run_snapshot", args=[run.pk, number])
