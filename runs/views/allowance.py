"""Topping up an allowance from the page of a run that draws on it. Operators only."""

from decimal import Decimal

from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST

from runs import allowance, journal
from runs.callers import Caller
from runs.exceptions import BadValue, KeyReused, NotFound, WrongState
from runs.models import Allowance, Run
from runs.views import pages


@require_POST
@pages.of_run
def top_up(request: HttpRequest, caller: Caller, run: Run, allowance_id: int) -> HttpResponse:
    """303 to the run, 403, 404, 409 with the run as it stands, or 422 as it was filled."""
    row = run.allowances.filter(pk=allowance_id).first()
    if row is None:
        raise NotFound(f"run {run.pk} draws on no allowance {allowance_id}")
    if not caller.operator:
        _refused(run, caller, "forbidden")
        return render(request, "403.html", {"why": "Operators top up allowances."}, status=403)
    typed, name = request.POST.get("by", "").strip(), f"top-up-{row.pk}"
    try:
        raised = _raise(request, caller, row, typed)
    except BadValue as bad:
        errors, filled = [(name, f"{bad.message}.")], {"top_up": name, "by": typed}
        return pages.show(request, caller, run, status=422, errors=errors, typed=filled)
    except (WrongState, KeyReused) as lost:
        _refused(run, caller, lost.code)
        return pages.show(request, caller, run, status=409, conflict=f"{str(lost).capitalize()}.")
    limit = allowance.worded(raised.limit or Decimal(0), row.unit)
    messages.success(request, f"The limit is {limit} now. Calls that fit go on.")
    response = redirect(run)
    response.status_code = 303
    return response


def _raise(request: HttpRequest, caller: Caller, row: Allowance, typed: str) -> Allowance:
    by = allowance.amount(typed)
    if not by:
        raise BadValue("", "0 adds nothing to the limit")
    once = request.POST.get("once", "")[:100].replace("\x00", "")
    return allowance.top_up(row.pk, by, actor=caller.actor, once=once)


def _refused(run: Run, caller: Caller, code: str) -> None:
    with transaction.atomic():
        journal.write(run, caller.actor, "refused", asked="top_up", code=code)
