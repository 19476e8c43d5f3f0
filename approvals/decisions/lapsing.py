"""Approvals that nobody used in time: behind a pause, a budget, a dependency.

The call would find out at the gate; people hear of it when it happens, so that they have decided again by the time
the other hold is gone.
"""

from typing import Any

from django.db import transaction

from approvals import requests
from approvals.models import Permit, Request
from approvals.policies import Judgement
from approvals.states import RequestState
from runs import holds, lifecycle
from runs.actors import SYSTEM
from runs.clock import now
from runs.holds import Terms
from runs.models import Run, Step
from runs.states import Cause, StepStatus

WHY = "The approval was not used in time."


def lapse(permit_id: Any) -> bool:
    """Asks again for what an approval covered whose time to be used is up. False: used, void, or not due."""
    with transaction.atomic():
        run_id = Permit.objects.filter(pk=permit_id).values_list("request__run_id", flat=True).get()
        run = lifecycle.lock(run_id)
        due = Permit.objects.in_force().filter(pk=permit_id, consume_by__lte=now())
        request = Request.objects.select_for_update(of=("self",)).get(permits=permit_id)
        if not due.exists() or request.state != RequestState.IN_FORCE:
            return False
        request.run = run
        return _ask_again(request, run)


def _ask_again(request: Request, run: Run) -> bool:
    step: Step = request.step
    if run.ended or step.settled is not None or step.status == StepStatus.DISPATCHED:
        return False
    standing = request.revision
    judgement = Judgement.from_json(standing.judgement)
    terms = Terms(expires_in=judgement.decide_within)
    hold = holds.place(run, cause=Cause.APPROVAL, actor=SYSTEM, step=step, why=WHY, terms=terms)
    Request.objects.filter(pk=request.pk).update(hold=hold, decide_by=hold.expires_at)
    request.refresh_from_db()
    author = (standing.author_id, standing.author_name)
    requests.revise(
        request,
        arguments=standing.arguments,
        facts=standing.facts,
        judgement=judgement,
        reason="lapsed",
        author=author,
        note=standing.note,
    )
    return True
