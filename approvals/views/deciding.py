"""The form that decides, and every way it can be refused, with what was typed kept."""

import json

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from approvals import decisions, looks
from approvals.decisions import Choice
from approvals.exceptions import Closed, DigestMissing, NotEligible, Stale, Unfit
from approvals.forms import SchemaForm
from approvals.models import Request
from approvals.presentation import pages
from approvals.states import RequestKind, Verb
from approvals.views.page import find, page, person_of
from approvals.views.request import show
from runs import clock

FIELDS = {"csrfmiddlewaretoken", "decision", "view_digest", "form_nonce", "ack", "reason", "note", "edited"}


@page
@require_http_methods(["GET", "HEAD", "POST"])
def decide(request: HttpRequest, ref: str) -> HttpResponse:
    found = find(request, ref)
    if request.method != "POST":  # where a sign-in in the middle of deciding leads back to
        return redirect("request", ref=ref)
    form = _answer_form(request, found)
    try:
        decided = decisions.decide(ref, person=person_of(request), choice=_choice(request, form))
    except Unfit as error:
        return _unfit(request, find(request, ref), error, form)
    except DigestMissing:
        return _refused(request, ref, Stale("The page did not say what it showed."), status=428)
    except (Closed, Stale, NotEligible) as error:
        return _refused(request, ref, error, status=error.status)
    if decided.decision is None:
        return redirect("request", ref=ref)
    return redirect("receipt", decision_id=decided.decision.pk)


def _answer_form(request: HttpRequest, found: Request) -> SchemaForm | None:
    if found.kind != RequestKind.QUESTION or request.POST.get("decision") != Verb.RESPOND:
        return None
    return SchemaForm(json.loads(found.revision.arguments)["form"], data=request.POST, titled=True)


def _choice(request: HttpRequest, form: SchemaForm | None) -> Choice:
    """What was posted, and nothing that is not on the list. Raises Unfit."""
    posted = request.POST
    fields = FIELDS | {form.add_prefix(name) for name in form.fields} if form is not None else FIELDS
    extra = [name for name in posted if name not in fields]
    if extra:
        raise Unfit({"": f"Unknown fields: {', '.join(sorted(extra))}"})
    if twice := [name for name in posted if name != "ack" and len(posted.getlist(name)) > 1]:
        raise Unfit({"": f"Sent more than once: {', '.join(sorted(twice))}"})
    if len(posted.getlist("decision")) != 1:
        raise Unfit({"decision": "Exactly one decision is needed: approve, reject or respond."})
    if form is not None and not form.is_valid():
        raise Unfit({name: str(errors[0]) for name, errors in form.errors.items()})
    return Choice(
        verb=posted["decision"],
        digest=posted.get("view_digest", ""),
        reason=_reason(posted.get("reason", ""), posted.get("note", "")),
        answer=form.value() if form is not None else None,
        edit=posted.get("edited") or None,
        seen=frozenset(posted.getlist("ack")),
        nonce=posted.get("form_nonce", ""),
    )


def _reason(code: str, note: str) -> str:
    """The pressed button's reason and the note to the agent, as one text."""
    note = note.replace("\r\n", "\n").strip()
    return f"{code}: {note}" if code and note else code or note


def _unfit(request: HttpRequest, found: Request, error: Unfit, form: SchemaForm | None) -> HttpResponse:
    """The page as it was filled, with the errors at their places."""
    if form is not None and form.is_valid():
        form.refuse(error.errors)
    posted = request.POST
    typed = {
        "note": posted.get("note", ""),
        "ack": posted.getlist("ack"),
        "decision": posted.get("decision", ""),
    }
    targets = {"reason": "reasons", "note": "note", "decision": "decide"}
    errors = [
        (_target(name, targets, form), _said_of(name, text, form)) for name, text in error.errors.items()
    ]
    return show(request, found, status=422, typed=typed, errors=errors, answer_form=form)


def _said_of(name: str, text: str, form: SchemaForm | None) -> str:
    """A complaint as the summary says it, away from its field: with the field's name."""
    return f"{form.fields[name].label}: {text}" if form is not None and name in form.fields else text


def _target(name: str, targets: dict[str, str], form: SchemaForm | None) -> str:
    if form is not None and name in form.fields:
        return form[name].id_for_label or f"id_f-{name}"
    return "facts-title" if name.startswith("ack-") else targets.get(name, "decide")


def _refused(
    request: HttpRequest, ref: str, error: Closed | Stale | NotEligible, *, status: int
) -> HttpResponse:
    """Why the decision was not taken, with what was typed kept."""
    found = find(request, ref)
    checking = isinstance(error, Stale) and error.checking
    if checking:
        looks.want(found)
    verb = request.POST.get("decision", "")
    typed = [("Your note", request.POST.get("note", "")), ("Your edit", request.POST.get("edited", ""))]
    context = {
        "now": clock.now(),
        "item": pages.item(found, found.revision, clock.now()),
        "closed": pages.refusal(found, verb, error),
        "typed": [(label, text) for label, text in typed if text],
        "again": isinstance(error, Stale) and found.is_pending,
        "refresh": 3 if checking else None,
        "run_url": found.run.get_absolute_url(),
        "run_short": found.run.short_id,
    }
    return render(request, "approvals/closed.html", context, status=status)
