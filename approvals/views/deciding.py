"""The form that decides, and every way it can be refused, with what was typed kept.

At R3 there are two steps on the way: the check page, reached only by a form, and showing again who one is
(`stepping`). What was typed lies in the draft meanwhile.
"""

import json
from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from approvals import decisions, drafts, looks
from approvals.decisions import Choice
from approvals.exceptions import Closed, DigestMissing, NotEligible, Stale, StepUpRequired, Unchecked, Unfit
from approvals.forms import SchemaForm
from approvals.models import Draft, Request
from approvals.origin import session_of
from approvals.presentation import pages, questions
from approvals.states import RequestKind, Verb
from approvals.views.checking import check_page
from approvals.views.editing import edit_again
from approvals.views.page import find, is_fragment, page, person_of
from approvals.views.request import show
from runs import clock

FIELDS = questions.FIELDS | {
    "csrfmiddlewaretoken",
    "decision",
    "view_digest",
    "form_nonce",
    "ack",
    "reason",
    "note",
    "edited",
}
CHECKED = f"basis-{questions.CHECK}"


@page
@require_http_methods(["GET", "HEAD", "POST"])
def decide(request: HttpRequest, ref: str) -> HttpResponse:
    found = find(request, ref)
    if request.method != "POST":  # where a sign-in in the middle of deciding leads back to
        return redirect("request", ref=ref)
    form = _answer_form(request, found)
    try:
        choice = _choice(request, found, form)
    except Unfit as error:
        return _unfit(request, find(request, ref), error, form)
    return settle(request, found, choice, form)


def settle(
    request: HttpRequest, found: Request, choice: Choice, form: SchemaForm | None = None
) -> HttpResponse:
    """Decides, and answers with the receipt or with what stands in the way."""
    ref, person = found.ref, person_of(request)
    try:
        decided = decisions.decide(ref, person=person, choice=choice)
    except Unchecked:
        _keep(request, find(request, ref), choice, open_section=questions.CHECK)
        return check_page(request, find(request, ref))
    except StepUpRequired:
        _keep(request, find(request, ref), choice)
        return _to_step_up(request, ref)
    except Unfit as error:
        return _unfit(request, find(request, ref), error, form, choice)
    except DigestMissing:
        return _refused(request, ref, Stale("The page did not say what it showed."), status=428)
    except (Closed, Stale, NotEligible) as error:
        return _refused(request, ref, error, status=error.status)
    if found.tier in questions.HIGH:
        drafts.forget(person, found)
    if decided.decision is None:
        return redirect("request", ref=ref)
    return redirect("receipt", decision_id=decided.decision.pk)


def _to_step_up(request: HttpRequest, ref: str) -> HttpResponse:
    """A script is told where to go, as it would not notice a redirect."""
    if not is_fragment(request):
        return redirect("step_up", ref=ref)
    return HttpResponse(status=403, headers={"HX-Redirect": reverse("step_up", args=[ref])})


def _answer_form(request: HttpRequest, found: Request) -> SchemaForm | None:
    if found.kind != RequestKind.QUESTION or request.POST.get("decision") != Verb.RESPOND:
        return None
    return SchemaForm(json.loads(found.revision.arguments)["form"], data=request.POST, titled=True)


def _choice(request: HttpRequest, found: Request, form: SchemaForm | None) -> Choice:
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
    if CHECKED in posted and posted["decision"] == Verb.APPROVE:
        if posted.get("edited"):
            raise Unfit({"": "The check page approves what it showed, and no edit of it."})
        return from_draft(request, drafts.of(person_of(request), found.revision), questions.sent(posted))
    return Choice(
        verb=posted["decision"],
        digest=posted.get("view_digest", ""),
        reason=_reason(posted.get("reason", ""), posted.get("note", "")),
        answer=form.value() if form is not None else None,
        edit=posted.get("edited") or None,
        seen=frozenset(posted.getlist("ack")),
        basis=questions.sent(posted),
        session=session_of(request),
        nonce=posted.get("form_nonce", ""),
    )


def from_draft(request: HttpRequest, draft: Draft, more: Mapping[str, str]) -> Choice:
    """The approval that was begun on the request's page and goes on here."""
    return Choice(
        verb=Verb.APPROVE,
        digest=request.POST.get("view_digest", ""),
        reason=draft.note,
        seen=frozenset(draft.seen),
        basis={**draft.basis, **more},
        session=session_of(request),
        nonce=request.POST.get("form_nonce", ""),
    )


def _keep(request: HttpRequest, found: Request, choice: Choice, open_section: str = "") -> None:
    typed = {"basis": dict(choice.basis), "seen": sorted(choice.seen)}
    typed |= {"note": choice.reason} if choice.reason else {}
    drafts.keep(person_of(request), found.revision, open_section=open_section, **typed)


def _reason(code: str, note: str) -> str:
    """The pressed button's reason and the note to the agent, as one text."""
    note = note.replace("\r\n", "\n").strip()
    return f"{code}: {note}" if code and note else code or note


def _unfit(
    request: HttpRequest,
    found: Request,
    error: Unfit,
    form: SchemaForm | None,
    choice: Choice | None = None,
) -> HttpResponse:
    """The page as it was filled, with the errors at their places."""
    if form is not None and form.is_valid():
        form.refuse(error.errors)
    if choice is not None and list(error.errors) == [f"basis-{questions.RETYPE}"]:
        return check_page(request, found, error=next(iter(error.errors.values())), typed=choice.basis)
    errors = [(_target(name, form), _said_of(name, text, form)) for name, text in error.errors.items()]
    if choice is not None and choice.edit and all(name.startswith("basis-") for name in error.errors):
        return edit_again(request, found, choice.edit, errors, choice.basis)
    return show(request, found, status=422, typed=_typed(request, choice), errors=errors, answer_form=form)


def _typed(request: HttpRequest, choice: Choice | None) -> dict[str, Any]:
    posted = request.POST
    if choice is not None and choice.verb == Verb.APPROVE:  # what was begun on another page lies in the draft
        return {"note": choice.reason, "ack": sorted(choice.seen), "basis": dict(choice.basis)}
    return {
        "note": posted.get("note", ""),
        "ack": posted.getlist("ack"),
        "decision": posted.get("decision", ""),
        "basis": questions.sent(posted),
    }


def _said_of(name: str, text: str, form: SchemaForm | None) -> str:
    """A complaint as the summary says it, away from its field: with the field's name."""
    return f"{form.fields[name].label}: {text}" if form is not None and name in form.fields else text


def _target(name: str, form: SchemaForm | None) -> str:
    """The element a complaint leads to."""
    if form is not None and name in form.fields:
        return form[name].id_for_label or f"id_f-{name}"
    if name.startswith(("basis-", "section-")):
        return name
    targets = {"reason": "reasons", "note": "note", "decision": "decide"}
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
