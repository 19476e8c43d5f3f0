"""What was decided, and what came of it: receipts and history."""

import json
import uuid
from typing import Any

from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from approvals import reviewers
from approvals.exceptions import NotVisible
from approvals.models import Decision, Request
from approvals.presentation import digests, outcomes, pages
from approvals.presentation import history as past
from approvals.states import RequestState, Verb
from approvals.views.page import find, is_fragment, page, person_of
from runs import clock


@page
@require_safe
def receipt(request: HttpRequest, decision_id: uuid.UUID) -> HttpResponse:
    """What was decided, and what came of it; at its own address, for whoever may see the request."""
    decision = (
        Decision.objects.select_related("revision", "request__run", "request__step")
        .filter(pk=decision_id)
        .first()
    )
    if decision is None:
        raise NotVisible("It doesn't exist, or isn't assigned to you.")
    found, now = find(request, decision.request.ref), clock.now()
    outcome, settled = outcomes.outcome(found, decision)
    version = f"{len(outcome)}.{found.state}.{found.run.status}"
    if is_fragment(request) and request.GET.get("v") == version:
        return HttpResponse(status=204)
    context = {
        "now": now,
        "receipt": _receipt(decision, found, person_of(request)),
        "outcome": outcome,
        "settled": settled,
        "awaited": outcomes.awaited(found),
        "run_url": found.run.get_absolute_url(),
        "run_short": found.run.short_id,
        "next_item": outcomes.next_item(request.user, found, now),
        "version": version,
    }
    return render(request, "approvals/receipt.html", context)


def _receipt(decision: Decision, found: Request, reader: User) -> dict[str, Any]:
    revision = decision.revision
    edited = revision.edited and decision.verb == Verb.APPROVE
    who = "You" if decision.person_id == str(reader.pk) else decision.person_name
    until = found.takes_effect_at if found.state == RequestState.DECIDED else None
    return {
        "ref": found.ref,
        "url": found.get_absolute_url(),
        "said": f"{who} {pages.OUTCOMES[Verb(decision.verb)]}",
        "headline": pages.headline(found, revision),
        "verb": "edit" if edited else decision.verb,
        "at": decision.made_at,
        "by": decision.person_name,
        "tier": found.tier,
        "state": found.state,
        "fingerprint": digests.fingerprint(found.ref, revision.number, revision.arguments_digest),
        "undo_until": None,
        "in_force_at": until,
        "reason": decision.reason,
        "edited_rows": pages.rows(revision.changes) if edited else [],
        "answer": json.loads(decision.answer) if decision.answer else None,
    }


@page
@require_safe
def history(request: HttpRequest) -> HttpResponse:
    """What was decided, newest first."""
    mine = request.GET.get("scope") == "mine"
    rows = Decision.objects.filter(request__in=reviewers.visible_to(request.user))
    if mine:
        rows = rows.filter(person_id=str(person_of(request).pk))
    scope = "mine" if mine else "all"
    found = past.page(rows, request.GET, scope)
    context = {"now": clock.now(), "scope": scope, "rows": found.rows, "page": found}
    return render(request, "approvals/history.html", context)
