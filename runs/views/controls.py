"""The verbs on a run: pause, stop now, resume, cancel, and what operators do about a difference; and those on all
runs of an agent.

Each view parses, calls one verb, answers. A verb that lost its race answers 409 with the run as it stands; what
was refused is journalled.
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from runs import bulk, callers, divergence, endings, holds, journal, stops
from runs.callers import Caller
from runs.exceptions import HoldClosed, RunEnded, RunsError, WrongState
from runs.models import Hold, JournalEntry, Run
from runs.states import Cause, RunStatus
from runs.views import pages, rights, standing


class Reason(forms.Form):
    """Why somebody does this; browsers count a line's end as one character, and so do we."""

    reason = forms.CharField(required=False, max_length=4000)

    def __init__(self, data: Any, *, asks_why: str = "") -> None:
        super().__init__({"reason": str(data.get("reason", "")).replace("\r\n", "\n")})
        if asks_why:
            self.fields["reason"] = forms.CharField(max_length=4000, error_messages={"required": asks_why})


@dataclass(frozen=True, slots=True)
class Verb:
    """`forbids` says why this caller may not do it ("" they may); `do` does it and says what was done, and is
    given what the address names beyond the run. `asks_why` is said where a reason is needed and none is given."""

    name: str
    forbids: Callable[[Caller, Run], str]
    do: Callable[..., str]
    asks_why: str = ""


def _posted(verb: Verb) -> pages.View:
    """The view of a verb: 303 to the run, 403, 409 with the run as it stands, or 422 as it was filled."""

    def view(request: HttpRequest, caller: Caller, run: Run, **named: Any) -> HttpResponse:
        if why_not := verb.forbids(caller, run):
            _journal_refusal(run, caller, verb, "forbidden")
            return render(request, "403.html", {"why": why_not}, status=403)
        form = Reason(request.POST, asks_why=verb.asks_why)
        if not form.is_valid():
            typed = {verb.name: form.data["reason"]}
            errors = [(f"{verb.name}-reason", str(text)) for text in form.errors["reason"]]
            return pages.show(request, caller, run, status=422, errors=errors, typed=typed)
        try:
            messages.success(request, verb.do(caller, run, form.cleaned_data["reason"], **named))
        except (HoldClosed, RunEnded, WrongState) as lost:
            _journal_refusal(run, caller, verb, lost.code)
            run.refresh_from_db()
            return pages.show(request, caller, run, status=409, conflict=_standing(run, lost))
        response = redirect(run)
        response.status_code = 303
        return response

    return require_POST(pages.of_run(view))


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
    return (
        ""
        if rights.may_pause(caller, run)
        else "Its submitter, its reviewers and operators may pause this run."
    )


def _forbids_resume(caller: Caller, run: Run) -> str:
    paused = Hold.objects.open().filter(run=run, cause=Cause.PERSON).first()
    return (
        "" if rights.may_resume(caller, run, paused) else "Who paused this run may resume it, or an operator."
    )


def _forbids_stop(caller: Caller, run: Run) -> str:
    return "" if caller.may_control(run) else "Its submitter and operators may stop this run."


def _forbids_cancel(caller: Caller, run: Run) -> str:
    return "" if caller.may_control(run) else "Its submitter and operators may cancel this run."


def _pause(caller: Caller, run: Run, why: str) -> str:
    held = holds.pause(run.pk, actor=caller.actor, why=why)
    if (held.opened_by_kind, held.opened_by_id) != (caller.actor.kind, caller.actor.id):
        after = " From now on only an operator resumes it." if caller.operator else ""
        return f"It was paused already, by {held.opened_by_name}.{after}"
    return _stands(run, "paused")


def _stop(caller: Caller, run: Run, why: str) -> str:
    stops.stop_now(run.pk, actor=caller.actor, why=why)
    return _stands(run, "stopped")


def _stands(run: Run, word: str) -> str:
    """What becomes of a run that was paused or stopped: it may have calls under way."""
    run.refresh_from_db()
    busy = [step.index for step in stops.in_flight(run)]
    if run.status == RunStatus.RUNNING:
        return (
            f"Finishing {standing.steps(busy)}, then {word}."
            if busy
            else f"Nothing new starts; {word} before its next step."
        )
    left = f" What {standing.steps(busy)} brings is kept when it comes." if busy else ""
    return f"{word.capitalize()}. Nothing new starts.{left}"


def _resume(caller: Caller, run: Run, why: str) -> str:
    resumed = holds.unpause(run.pk, actor=caller.actor, why=why)
    still = resumed.status == RunStatus.SUSPENDED
    return "The pause is over. Something else still holds this run." if still else "Resumed."


def _cancel(caller: Caller, run: Run, why: str) -> str:
    ended = endings.cancel(run.pk, actor=caller.actor, why=why)
    return "Cancelled." if ended.ended else "Nothing new starts; the run ends with the call under way."


pause = _posted(Verb("pause", _forbids_pause, _pause))
stop = _posted(Verb("stop", _forbids_stop, _stop))
resume = _posted(Verb("resume", _forbids_resume, _resume))
cancel = _posted(Verb("cancel", _forbids_cancel, _cancel))


# -- Diverged: look again, accept -----------------------------------------------------------


def _forbids_diverged(caller: Caller, run: Run) -> str:
    return "" if caller.operator else "Operators decide what comes of a run that differs from its record."


def _look_again(caller: Caller, run: Run, why: str, *, hold_id: uuid.UUID) -> str:
    divergence.look_again(run.pk, actor=caller.actor, why=why, hold_id=hold_id)
    return "It is compared again. A difference that is still there stops it again."


def _accept(caller: Caller, run: Run, why: str, *, hold_id: uuid.UUID) -> str:
    divergence.accept(run.pk, actor=caller.actor, why=why, hold_id=hold_id)
    return "The difference is accepted; nothing of it is called again."


look_again = _posted(Verb("look_again", _forbids_diverged, _look_again))
accept = _posted(
    Verb("accept", _forbids_diverged, _accept, asks_why="Say why this difference does not matter.")
)


# -- All runs of an agent --------------------------------------------------------------------

SWEPT = {
    "pause": "Paused {changed} of {runs} live runs. What was under way is finished first.",
    "stop": "Stopped {changed} of {runs} live runs.",
    "cancel": "Cancelled {changed} of {runs} live runs, or asked them to end with the call under way.",
    "resume": "Lifted {changed} pauses that were placed on all; {runs} runs are live.",
}


@require_POST
@never_cache
@login_required
def sweep(request: HttpRequest, agent: str, verb: str) -> HttpResponse:
    """A verb on all live runs of an agent, for operators: 303 to their list, 403 or 404."""
    caller = callers.of(request)
    if not caller.operator:
        why = "Operators may do this to all runs of an agent."
        return render(request, "403.html", {"why": why}, status=403)
    form = Reason(request.POST)
    if verb not in bulk.VERBS or "\x00" in agent or not bulk.known(agent):
        return render(request, "404.html", status=404)
    back = f"{reverse('runs')}?{urlencode({'agent': agent})}"
    if form.is_valid():
        swept = bulk.sweep(verb, agent, actor=caller.actor, why=form.cleaned_data["reason"])
        messages.success(request, SWEPT[verb].format(runs=swept.runs, changed=swept.changed))
    else:
        messages.error(request, f"Nothing was done: {form.errors['reason'][0]}")
    response = redirect(back)
    response.status_code = 303
    return response
