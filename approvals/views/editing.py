"""Edit, then approve: the form from the tool's schema, and what an edit would change. Nothing is written."""

import json
import secrets
from collections.abc import Mapping, Sequence

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from approvals import decisions, looks, reviewers
from approvals.exceptions import Unfit
from approvals.forms import SchemaForm
from approvals.models import Request, Revision
from approvals.policies import Judgement
from approvals.presentation import digests, pages, questions, shown
from approvals.views.page import find, page
from approvals.views.request import may
from runs import clock, values


@page
@require_http_methods(["GET", "HEAD", "POST"])
def edit(request: HttpRequest, ref: str) -> HttpResponse:
    """The form from the tool's schema; a POST shows what it would change. Nothing is written here."""
    found = find(request, ref)
    revision = found.revision
    allowed = may(found, reviewers.eligibility(request.user, found), request.user, revision)
    if pages.standing(found, clock.now()) is not None or not allowed["edit"]:
        return redirect("request", ref=ref)
    tool = shown.known(revision.tool, revision.tool_version)
    assert tool is not None
    was = json.loads(revision.arguments)
    data = request.POST if request.method == "POST" else None
    form = SchemaForm(tool.signature.schema(), initial=was, data=data)
    if data is None or data.get("back"):
        return _edit_page(request, found, revision, form, 200)
    _look_if_old(found)
    if data.get("view_digest") != revision.digest:
        moved = pages.Panel("stale", verb="edit", changes=tuple(pages.rows(revision.changes)))
        return _edit_page(request, found, revision, form, 409, moved)
    if form.is_valid():
        try:
            text, judgement = decisions.check_edit(found, revision, json.dumps(form.value()))
            if decisions.argument_changes(revision.arguments, text):
                return _edit_diff(request, found, revision, text, judgement)
            form.refuse({"": "Nothing is changed yet. Change a value, or discard the edit."})
        except Unfit as error:
            form.refuse(error.errors)
    return _edit_page(request, found, revision, form, 422)


def _look_if_old(found: Request) -> None:
    """So that the facts are fresh by the time the edit has been checked and is decided on."""
    if found.is_pending and looks.too_old(found, clock.now()):
        looks.want(found)


def _edit_page(
    request: HttpRequest,
    found: Request,
    revision: Revision,
    form: SchemaForm,
    status: int,
    standing: pages.Panel | None = None,
) -> HttpResponse:
    context = {
        "now": clock.now(),
        "item": pages.item(found, revision, clock.now()),
        "form": form,
        "view_digest": revision.digest,
        "form_nonce": secrets.token_urlsafe(24),
        "standing": standing,
    }
    return render(request, "approvals/edit.html", context, status=status)


def edit_again(
    request: HttpRequest, found: Request, edited: str, errors: list[tuple[str, str]], basis: Mapping[str, str]
) -> HttpResponse:
    """What an edit changes once more, with what is missing to approve it."""
    revision = found.revision
    text, judgement = decisions.check_edit(found, revision, edited)
    return _edit_diff(request, found, revision, text, judgement, errors=errors, basis=basis)


def _edit_diff(
    request: HttpRequest,
    found: Request,
    revision: Revision,
    text: str,
    judgement: Judgement,
    *,
    errors: Sequence[tuple[str, str]] = (),
    basis: Mapping[str, str] | None = None,
) -> HttpResponse:
    changes = decisions.argument_changes(revision.arguments, text)
    others = _others_needed(found, judgement)
    asked = questions.asked(revision.tool, text, dict(basis or {}))
    told = pages.item(found, revision, clock.now())
    context = {
        "now": clock.now(),
        "item": {**told, "approve_label": shown.approve_label(revision.tool, text)},
        "headline": shown.headline(revision.tool, text),
        "consequence": shown.consequence(revision.tool, text),
        "rows": pages.rows(changes),
        "tier": judgement.tier,
        "tier_before": found.tier,
        "policy_says": others,
        "questions": asked if judgement.tier in questions.ASKED and not others else [],
        "errors": errors,
        "note": request.POST.get("note", ""),
        "edited": text,
        "view_digest": revision.digest,
        "form_nonce": request.POST.get("form_nonce", ""),
        "fields": _fields(request, revision, text),
        "fingerprint": digests.fingerprint(found.ref, found.number + 1, values.digest(text)),
    }
    return render(request, "approvals/edit_diff.html", context, status=422 if errors else 200)


def _fields(request: HttpRequest, revision: Revision, text: str) -> list[tuple[str, str]]:
    """The edit as its form has it: as it was typed, or made again from what came of it."""
    if typed := [(name, request.POST[name]) for name in request.POST if name.startswith("f-")]:
        return [(name, str(value)) for name, value in typed]
    tool = shown.known(revision.tool, revision.tool_version)
    form = SchemaForm(tool.signature.schema() if tool else {}, initial=json.loads(text))
    return [(field.html_name, str(field.value() or "")) for field in form]


def _others_needed(found: Request, judgement: Judgement) -> str:
    """Who else has to approve the edited call; empty when this person's approval is enough."""
    group = judgement.reviewers
    if group is not None and (found.group is None or group.id != found.group.pk):
        return f"The edited call is decided by {group.name}. It is proposed to them."
    if judgement.tier in reviewers.AUTHORS_EXCLUDED:
        return "You become an author of this action, so somebody else approves it."
    return ""
