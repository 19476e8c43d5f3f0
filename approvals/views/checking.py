"""The check page of what is high risk: what matters once more, in short, before it is approved.

It has no address of its own: it is an answer to the form that decides. And the sections that are opened by a form.
"""

import secrets
from collections.abc import Mapping

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST
from django_htmx.http import reselect, reswap, retarget

from approvals import drafts
from approvals.exceptions import Unfit
from approvals.models import Request
from approvals.presentation import pages, questions, sections
from approvals.views.page import find, is_fragment, page, person_of
from approvals.views.request import show
from runs import clock


def check_page(
    request: HttpRequest, found: Request, *, error: str = "", typed: Mapping[str, str] | None = None
) -> HttpResponse:
    revision, now = found.revision, clock.now()
    draft = drafts.of(person_of(request), revision)
    retype = questions.retype(revision)
    context = {
        "now": now,
        "item": pages.item(found, revision, now),
        "matters": pages.matters(revision),
        "undo_window": revision.judgement.get("undo_window", 0),
        "opened": [section.title for section in sections.material(revision)],
        "answered": [
            (q.text, questions.ANSWERS.get(q.answer, "")) for q in questions.of(revision, draft.basis)
        ],
        "retype": retype,
        "retyped": (typed or {}).get(questions.RETYPE, ""),
        "errors": [(f"basis-{questions.RETYPE}", error)] if error else [],
        "view_digest": revision.digest,
        "form_nonce": request.POST.get("form_nonce") or secrets.token_urlsafe(24),
    }
    return render(request, "approvals/check.html", context, status=422 if error else 200)


@page
@require_POST
def open_section(request: HttpRequest, ref: str) -> HttpResponse:
    """A section is opened, which the server keeps, with what was typed so far. On a page that is too old, nothing
    is: it is shown as it stands now, whole."""
    found = find(request, ref)
    revision, posted = found.revision, request.POST
    name = posted.get("section", "")
    known = {section.name for section in sections.material(revision)}
    current = posted.get("view_digest") == revision.digest and found.is_pending
    if current and name in known:
        typed = {
            "basis": questions.sent(posted),
            "seen": posted.getlist("ack"),
            "note": posted.get("note", ""),
        }
        try:
            drafts.keep(person_of(request), revision, open_section=name, **typed)
        except Unfit as error:
            errors = [("note", text) for text in error.errors.values()]
            return show(
                request, found, status=error.status, errors=errors, typed={**typed, "ack": typed["seen"]}
            )
    if is_fragment(request) and not current:
        whole = reswap(show(request, found), "outerHTML")
        return retarget(reselect(whole, "#main"), "#main")
    if is_fragment(request):
        return show(request, found, opening=name)
    return redirect(f"{reverse('request', args=[ref])}#section-{name if name in known else 'run'}")
