"""The page door of the submitter's side: answering what a reviewer asked about a run of theirs."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST

from approvals import desk
from approvals.exceptions import Closed, NotVisible, Taken, Unfit
from runs.callers import Caller
from runs.models import Run
from runs.views import pages


@require_POST
@pages.of_run
def answer(request: HttpRequest, caller: Caller, run: Run, inquiry_id: int) -> HttpResponse:
    """303 to the run; 403 for who does not own it, 409 with the run as it stands, 422 as it was filled."""
    if not caller.own(run):
        return render(request, "403.html", {"why": "Only the run’s owner answers for it."}, status=403)
    text = request.POST.get("answer", "")
    try:
        desk.answer(run.pk, inquiry_id, text=text, actor=caller.actor)
    except Unfit as error:
        errors = [("answer-text", said) for said in error.errors.values()]
        return pages.show(request, caller, run, status=422, errors=errors, typed={"answer": text})
    except NotVisible:
        return render(request, "404.html", status=404)
    except (Closed, Taken) as late:
        return pages.show(request, caller, run, status=409, conflict=str(late), typed={"answer": text})
    messages.success(request, "Your answer was passed on to the reviewers.")
    response = redirect(run)
    response.status_code = 303
    return response
