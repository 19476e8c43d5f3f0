"""What operators settle: the page of one doubt, all open doubts, and what ended runs still owe.

Whoever sees a run may see that it is in doubt; the page that settles it is operators'. A look asks nothing
outside: what is shown is what was kept. A verb that lost its race answers 409 with what stands.
"""

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from runs import callers, claims, clock, compensation, doubts, journal
from runs.callers import Caller
from runs.exceptions import BadValue, NotFound, RunsError, WrongState
from runs.models import Hold, Run, Step
from runs.states import Cause, ClaimState
from runs.tools import declared
from runs.views.pages import of_run

AT_ONCE = 200
ONLY_OPERATORS = "Operators settle what is in doubt and what is owed."
#: What came of a call, or what somebody said of it, where its word is not plain.
KINDS = {"compensate": "to be undone", "compensated": "undone"}
DONE = {
    "happened": "Settled: it happened.",
    "did_not_happen": "Settled: it did not happen. The call goes through the gate again.",
    "compensate": "A run that undoes it has been started.",
}


# -- One doubt -----------------------------------------------------------------------------


@require_http_methods(["GET", "HEAD", "POST"])
@of_run
def doubt(request: HttpRequest, caller: Caller, run: Run, index: int) -> HttpResponse:
    step = Step.objects.filter(run=run, index=index).exclude(effect="").first()
    if step is None:
        raise NotFound(f"step {index} of run {run.pk} has no effect")
    if not caller.operator:
        if request.method == "POST":
            _journal_refusal(run, caller, "settle", "forbidden")
        return render(request, "403.html", {"why": ONLY_OPERATORS}, status=403)
    return _settle(request, caller, run, step) if request.method == "POST" else _show(request, run, step)


def _settle(request: HttpRequest, caller: Caller, run: Run, step: Step) -> HttpResponse:
    typed = {name: _text(request, name) for name in ("answer", "reason", "result")}
    if typed["answer"] not in doubts.ANSWERS:
        place = [("answer-happened", "Say which of the answers it is.")]
        return _show(request, run, step, status=422, errors=place, typed=typed)
    happened = typed["answer"] == "happened"
    said = doubts.Said(typed["answer"], typed["reason"], typed["result"] if happened else None)
    try:
        doubts.settle(run.pk, step.index, said, actor=caller.actor, owner_id=caller.owner_id)
    except BadValue as misfit:
        return _show(request, run, step, status=422, errors=[_place(misfit)], typed=typed)
    except WrongState as lost:
        _journal_refusal(run, caller, "settle", lost.code)
        step.refresh_from_db()
        run.refresh_from_db()
        return _show(request, run, step, status=409, conflict=_sentence(lost), typed=typed)
    messages.success(request, DONE[typed["answer"]])
    return _to(run)


def _text(request: HttpRequest, name: str) -> str:
    """As it was typed; a line's end is one character."""
    return str(request.POST.get(name, "")).replace("\r\n", "\n")


def _place(misfit: BadValue) -> tuple[str, str]:
    field, _, inside = misfit.path.removeprefix("/").partition("/")
    where = f"/{inside}: " if inside else ""
    said = f"{where}{misfit.message}"
    return field, f"{said[:1].upper()}{said[1:]}".rstrip(".") + "."


def _show(
    request: HttpRequest,
    run: Run,
    step: Step,
    *,
    status: int = 200,
    conflict: str = "",
    errors: list[tuple[str, str]] | None = None,
    typed: dict[str, str] | None = None,
) -> HttpResponse:
    looks = Hold.objects.filter(step=step, cause=Cause.IN_DOUBT).order_by("-opened_at")
    tool = declared.get(step.tool)
    context = {
        "now": clock.now(),
        "run": run,
        "step": step,
        "sent": step.sent,
        "looks": looks[:50],
        "evidence": [_told(item) for item in reversed(step.evidence)],
        "answers": _answers(run, step),
        "settled": _stop(doubts.not_open(step)),
        "undo": compensation.part(step).call,
        "schema": _schema(tool.returns.schema()) if tool else "",
        "typed": typed or {"result": _skeleton(tool), "reason": "", "answer": ""},
        "conflict": conflict,
        "errors": errors or [],
    }
    return render(request, "runs/doubt.html", context, status=status)


def _answers(run: Run, step: Step) -> list[tuple[str, str]]:
    """Each answer with why it cannot be given now."""
    forbidden = [(answer, doubts.forbids(run, step, answer)) for answer in doubts.ANSWERS]
    return [(answer, _stop(why)) for answer, why in forbidden]


def _stop(text: str) -> str:
    """A sentence, if there is one."""
    return f"{_capital(text).rstrip('.')}." if text else ""


def _told(item: dict[str, Any]) -> dict[str, Any]:
    """One item of evidence, as the page tells it."""
    kind = item.get("answer") or item["kind"]
    return {
        **item,
        "at": datetime.fromisoformat(item["at"]),
        "kind": KINDS.get(kind, kind.replace("_", " ")),
        "text": item.get("text", ""),
    }


def _schema(schema: dict[str, Any]) -> str:
    return json.dumps(schema, ensure_ascii=False)


def _skeleton(tool: Any) -> str:
    return json.dumps(doubts.skeleton(tool.returns.schema()), ensure_ascii=False, indent=2) if tool else ""


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def _sentence(error: RunsError) -> str:
    return _stop(str(error))


def _journal_refusal(run: Run, caller: Caller, verb: str, code: str) -> None:
    with transaction.atomic():
        journal.write(run, caller.actor, "refused", asked=verb, code=code)


def _to(run: Run) -> HttpResponse:
    response = redirect(run)
    response.status_code = 303
    return response


# -- All of them ------------------------------------------------------------------------------


@never_cache
@login_required
@require_GET
def open_doubts(request: HttpRequest) -> HttpResponse:
    """What is in doubt and what is owed, over all runs; the oldest first."""
    caller = callers.of(request)
    if not caller.sees_all:
        return render(request, "403.html", {"why": ONLY_OPERATORS}, status=403)
    found = Step.objects.in_doubt().select_related("run", "compensated_by").order_by("dispatched_at", "id")
    owed = Step.objects.claims().exclude(claim=ClaimState.HELD).select_related("run")
    context = {
        "now": clock.now(),
        "doubts": found[:AT_ONCE],
        "owed": owed.order_by("dispatched_at", "id")[:AT_ONCE],
        "settles": caller.operator,
        "at_once": AT_ONCE,
    }
    return render(request, "runs/doubts.html", context)


# -- What is owed -------------------------------------------------------------------------------


def _on_claim(name: str, verb: Callable[..., object], done: str) -> Callable[..., HttpResponse]:
    """The view of a verb on a claim, with a reason: 303 to the list, 403, 409, 422."""

    def view(request: HttpRequest, caller: Caller, run: Run, index: int) -> HttpResponse:
        if not caller.operator:
            _journal_refusal(run, caller, name, "forbidden")
            return render(request, "403.html", {"why": ONLY_OPERATORS}, status=403)
        why = _text(request, "reason")
        if not why.strip() or len(why) > doubts.MAX_REASON or "\x00" in why:
            said = f"Say why, in at most {doubts.MAX_REASON:,} characters: it is kept with what is done."
            return render(request, "runs/claim_refused.html", {"run": run, "why": said}, status=422)
        try:
            verb(run.pk, index, actor=caller.actor, why=why)
        except WrongState as lost:
            _journal_refusal(run, caller, name, lost.code)
            refused = {"run": run, "why": _sentence(lost)}
            return render(request, "runs/claim_refused.html", refused, status=409)
        messages.success(request, done)
        response = redirect("runs_doubts")
        response.status_code = 303
        return response

    posted: Callable[..., HttpResponse] = require_POST(of_run(view))
    return posted


count_given_back = _on_claim("count_as_given_back", claims.count_as_given_back, "Counted as given back.")
try_again = _on_claim("try_claim_again", claims.try_again, "It is tried again now.")
