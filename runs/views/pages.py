"""The pages of runs: the list, one run with all that is known of it, one snapshot; pause, resume, cancel.

Each view parses, calls one verb, answers. Unknown and foreign runs are one page. A verb that lost its race
answers 409 with the run as it stands; what was refused is journalled. What people know of a run beyond its
record (headlines, requests, who decided) is told by whoever registered with `tell_with`.
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce, wraps
from operator import add
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db import transaction
from django.db.models import Case, F, Prefetch, Q, QuerySet, When
from django.db.models.functions import Coalesce, Length
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from runs import agents, callers, clock, endings, holds, journal
from runs.callers import Caller
from runs.exceptions import NotFound, RunEnded, RunsError, WrongState
from runs.models import Hold, JournalEntry, Run, Snapshot, Step
from runs.states import Cause, RunStatus

View = Callable[..., HttpResponse]
Teller = Callable[[HttpRequest, list[Step], list[Hold]], None]
PAGE = 50
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


# -- The list --------------------------------------------------------------------------


@never_cache
@login_required
@require_safe
def index(request: HttpRequest) -> HttpResponse:
    status, agent = request.GET.get("status", ""), request.GET.get("agent", "")
    found = callers.of(request).visible(Run.objects.all())
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
        "page": page,
    }
    return render(request, "runs/list.html", context)


def _page(found: QuerySet[Run], request: HttpRequest) -> tuple[list[Run], dict[str, str | None]]:
    """One page by keyset: `older` and `newer` name the run it begins after, in either direction."""
    standing = Prefetch("holds", Hold.objects.open(), to_attr="standing")
    found = found.defer("input", "result", "error").prefetch_related(standing)
    newer, older = (_mark(found, request.GET.get(word, "")) for word in ("newer", "older"))
    if newer:
        rows = list(_after(found, newer)[: PAGE + 1])[::-1]
        if len(rows) > PAGE:
            return rows[1:], {"previous": _to(request, newer=rows[1]), "next": _to(request, older=rows[-1])}
        older = None  # fewer than a page are newer: that is the first one
    rows = list(_before(found, older)[: PAGE + 1])
    following = _to(request, older=rows[PAGE - 1]) if len(rows) > PAGE else None
    rows = rows[:PAGE]
    return rows, {"previous": _to(request, newer=rows[0]) if older and rows else None, "next": following}


def _mark(found: QuerySet[Run], text: str) -> Run | None:
    try:
        return found.prefetch_related(None).filter(pk=uuid.UUID(text)).first() if text else None
    except ValueError:
        return None


def _before(found: QuerySet[Run], mark: Run | None) -> QuerySet[Run]:
    if mark is not None:
        at = mark.created_at
        found = found.filter(Q(created_at__lt=at) | Q(id__lt=mark.pk), created_at__lte=at)
    return found.order_by("-created_at", "-id")


def _after(found: QuerySet[Run], mark: Run) -> QuerySet[Run]:
    at = mark.created_at
    found = found.filter(Q(created_at__gt=at) | Q(id__gt=mark.pk), created_at__gte=at)
    return found.order_by("created_at", "id")


def _to(request: HttpRequest, **marks: Run) -> str:
    kept = {name: request.GET[name] for name in ("status", "agent") if request.GET.get(name)}
    return "?" + urlencode({**kept, **{word: str(run.pk) for word, run in marks.items()}})


def waits_for(standing: list[Hold]) -> str:
    """What open holds say, the one that binds the whole run first; empty where there is none."""
    if not standing:
        return ""
    first = min(standing, key=lambda hold: (hold.step_id is not None, hold.opened_at))
    more = f" (and {len(standing) - 1} more)" if len(standing) > 1 else ""
    return _said(first) + more


def _said(hold: Hold) -> str:
    if hold.cause == Cause.PERSON:
        said = f"Paused by {hold.opened_by_name or hold.opened_by_kind}"
        return f"{said}: {hold.why}" if hold.why else said
    return hold.why or hold.get_cause_display()


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
    return _show(request, caller, run)


def _show(
    request: HttpRequest,
    caller: Caller,
    run: Run,
    *,
    status: int = 200,
    conflict: str = "",
    errors: list[tuple[str, str]] | None = None,
    typed: dict[str, str] | None = None,
) -> HttpResponse:
    steps, earlier = _steps(request, run)
    standing = list(Hold.objects.open().filter(run=run).select_related("step"))
    released = Hold.objects.filter(run=run, released_at__isnull=False).select_related("step")
    held = [*standing, *released.order_by("-released_at")[:NEWEST]]
    _tell(request, steps, held)
    context = {
        "now": clock.now(),
        "run": run,
        "may": _may(caller, run, standing),
        "why": waits_for(standing),
        "steps": steps,
        "steps_total": Step.objects.filter(run=run).count(),
        "earlier_url": earlier,
        "gated": bool(request.GET.get("gated")),
        "alone": "step" in request.GET,
        "holds": held,
        "effects": list(Step.objects.effects().filter(run=run).order_by("-index")[:STEPS])[::-1],
        "snapshots": Snapshot.objects.filter(run=run).order_by("-number")[:NEWEST],
        "entries": JournalEntry.objects.of(run.stream).order_by("-seq")[:NEWEST],
        "entries_total": run.seq,
        "again_url": _again_url(caller, run),
        "conflict": conflict,
        "errors": errors or [],
        "typed": typed or {},
    }
    return render(request, "runs/detail.html", context, status=status)


def _steps(request: HttpRequest, run: Run) -> tuple[list[Step], str]:
    """The newest steps in order (or those before `before`), and the address of earlier ones; or one alone."""
    steps, kept = Step.objects.filter(run=run), {}
    if (alone := _number(request.GET.get("step", ""))) is not None:
        return _marked(list(steps.filter(index=alone)), run, alone=True), ""
    found = _lightly(steps)
    if request.GET.get("gated"):
        gated = Q(decision__isnull=False) | Q(holds__isnull=False)
        found, kept = found.filter(gated).distinct(), {"gated": "1"}
    if (before := _number(request.GET.get("before", ""))) is not None:
        found = found.filter(index__lt=before)
    rows = list(found.order_by("-index")[: STEPS + 1])
    earlier = "?" + urlencode({**kept, "before": rows[-2].index}) if len(rows) > STEPS else ""
    return _marked(rows[:STEPS][::-1], run), earlier


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


def _may(caller: Caller, run: Run, standing: list[Hold]) -> dict[str, bool]:
    paused = next((hold for hold in standing if hold.cause == Cause.PERSON), None)
    return {
        "pause": not run.ended and may_pause(caller, run) and (paused is None or _takes_over(caller, paused)),
        "resume": paused is not None
        and may_resume(caller, run, paused)
        and not holds.not_theirs(run, paused, caller.actor),
        "cancel": not run.ended and run.stop_requested is None and caller.may_control(run),
    }


def _takes_over(caller: Caller, paused: Hold) -> bool:
    return caller.operator and not paused.by_operator


def may_pause(caller: Caller, run: Run) -> bool:
    return caller.may_control(run) or caller.may_pause(run)


def may_resume(caller: Caller, run: Run, paused: Hold | None) -> bool:
    """Whoever controls the run, or placed this pause; whose it is to lift, the verb decides."""
    who = (caller.actor.kind, caller.actor.id)
    theirs = paused is not None and (paused.opened_by_kind, paused.opened_by_id) == who
    return caller.may_control(run) or theirs


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


# -- Pause, resume, cancel ---------------------------------------------------------------


class Reason(forms.Form):
    """Why somebody does this; browsers count a line's end as one character, and so do we."""

    reason = forms.CharField(required=False, max_length=4000)

    def __init__(self, data: Any) -> None:
        super().__init__({"reason": str(data.get("reason", "")).replace("\r\n", "\n")})


@dataclass(frozen=True, slots=True)
class Verb:
    """`forbids` says why this caller may not do it ("" they may); `do` does it and says what was done."""

    name: str
    forbids: Callable[[Caller, Run], str]
    do: Callable[[Caller, Run, str], str]


def _posted(verb: Verb) -> View:
    """The view of a verb: 303 to the run, 403, 409 with the run as it stands, or 422 as it was filled."""

    def view(request: HttpRequest, caller: Caller, run: Run) -> HttpResponse:
        if why_not := verb.forbids(caller, run):
            _journal_refusal(run, caller, verb, "forbidden")
            return render(request, "403.html", {"why": why_not}, status=403)
        form = Reason(request.POST)
        if not form.is_valid():
            typed = {verb.name: form.data["reason"]}
            errors = [(f"{verb.name}-reason", str(text)) for text in form.errors["reason"]]
            return _show(request, caller, run, status=422, errors=errors, typed=typed)
        try:
            messages.success(request, verb.do(caller, run, form.cleaned_data["reason"]))
        except (RunEnded, WrongState) as lost:
            _journal_refusal(run, caller, verb, lost.code)
            run.refresh_from_db()
            return _show(request, caller, run, status=409, conflict=_standing(run, lost))
        response = redirect(run)
        response.status_code = 303
        return response

    return require_POST(of_run(view))


def _journal_refusal(run: Run, caller: Caller, verb: Verb, code: str) -> None:
    with transaction.atomic():
        journal.write(run, caller.actor, "refused", asked=verb.name, code=code)


def _standing(run: Run, lost: RunsError) -> str:
    """What stands instead, with who and when where the run has ended."""
    if not run.ended:
        said = str(lost).replace(f"run {run.pk}", "this run")
        return f"{said[:1].upper()}{said[1:]}."
    last = JournalEntry.objects.of(run.stream).filter(verb=run.status).last()
    by = f" by {last.actor_name}" if last is not None and last.actor_kind == "person" else ""
    return f"This run has ended: {run.status}{by}, {run.ended_at:%-d %B %Y, %H:%M} UTC."


def _forbids_pause(caller: Caller, run: Run) -> str:
    return "" if may_pause(caller, run) else "Its submitter, its reviewers and operators may pause this run."


def _forbids_resume(caller: Caller, run: Run) -> str:
    paused = Hold.objects.open().filter(run=run, cause=Cause.PERSON).first()
    return "" if may_resume(caller, run, paused) else "Who paused this run may resume it, or an operator."


def _forbids_cancel(caller: Caller, run: Run) -> str:
    return "" if caller.may_control(run) else "Its submitter and operators may cancel this run."


def _pause(caller: Caller, run: Run, why: str) -> str:
    held = holds.pause(run.pk, actor=caller.actor, why=why)
    if (held.opened_by_kind, held.opened_by_id) != (caller.actor.kind, caller.actor.id):
        after = " From now on only an operator resumes it." if caller.operator else ""
        return f"It was paused already, by {held.opened_by_name}.{after}"
    busy = Step.objects.filter(run=run, status="dispatched").order_by("index").first()
    return f"Finishing step {busy.index}, then paused." if busy else "Paused. Nothing new starts."


def _resume(caller: Caller, run: Run, why: str) -> str:
    resumed = holds.unpause(run.pk, actor=caller.actor, why=why)
    still = resumed.status == RunStatus.SUSPENDED
    return "The pause is over. Something else still holds this run." if still else "Resumed."


def _cancel(caller: Caller, run: Run, why: str) -> str:
    ended = endings.cancel(run.pk, actor=caller.actor, why=why)
    return "Cancelled." if ended.ended else "Nothing new starts; the run ends with the call under way."


pause = _posted(Verb("pause", _forbids_pause, _pause))
resume = _posted(Verb("resume", _forbids_resume, _resume))
cancel = _posted(Verb("cancel", _forbids_cancel, _cancel))
