"""Showing again who one is before a decision of high risk, and going on with it. The draft says what was begun."""

import secrets

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from approvals import drafts, reviewers, step_ups
from approvals.models import Draft, Request
from approvals.presentation import pages, questions
from approvals.states import Verb
from approvals.views.deciding import from_draft, settle
from approvals.views.page import find, page, person_of
from approvals.views.request import may
from runs import clock

#: In the session: the request that waits while somebody sets up a second factor.
BACK = "step_up_back"


@page
@require_http_methods(["GET", "HEAD", "POST"])
def step_up(request: HttpRequest, ref: str) -> HttpResponse:
    found = find(request, ref)
    draft = drafts.of(person_of(request), found.revision)
    if not _is_begun(request, found, draft):
        return redirect("request", ref=ref)
    if request.method != "POST":
        return _page(request, found)
    digest = request.POST.get("view_digest", "")
    if digest == found.revision.digest:  # else there is nothing to sign for: deciding says what changed
        try:
            step_ups.prove(request, person_of(request), found, digest=digest, verb=Verb.APPROVE)
        except step_ups.Refused as refused:
            return _page(request, found, str(refused), refused.status)
        request.session.pop(BACK, None)
    return settle(request, found, from_draft(request, draft, {}))


def _is_begun(request: HttpRequest, found: Request, draft: Draft) -> bool:
    """Whether this person has come from the check page, and may go on."""
    revision = found.revision
    allowed = may(found, reviewers.eligibility(request.user, found), request.user, revision)
    pending = pages.standing(found, clock.now()) is None
    return bool(pending and allowed["approve"] and draft.basis.get(questions.CHECK))


def _page(request: HttpRequest, found: Request, error: str = "", status: int = 200) -> HttpResponse:
    person, revision, now = person_of(request), found.revision, clock.now()
    known = step_ups.methods(person)
    if not known:
        request.session[BACK] = found.ref
    context = {
        "now": now,
        "item": pages.item(found, revision, now),
        "matters": pages.matters(revision),
        "has_code": bool(known - {"webauthn"}),
        "passkey": step_ups.passkey_options(person) if "webauthn" in known else None,
        "demo": settings.DEMO and person.username.endswith("@example.com"),
        "who": person.username.partition("@")[0],
        "errors": [("code", error)] if error else [],
        "view_digest": revision.digest,
        "form_nonce": secrets.token_urlsafe(24),
    }
    return render(request, "approvals/step_up.html", context, status=status)
