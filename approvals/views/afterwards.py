"""What was decided, and what came of it: receipts and history."""

import json
import uuid
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from approvals import decisions, reviewers
from approvals.exceptions import NotVisible
from approvals.models import Decision, Request
from approvals.presentation import digests, outcomes, pages, questions, quorum
from approvals.presentation import history as past
from approvals.states import RequestState, Verb
from approvals.views.page import find, is_fragment, page, person_of
from runs import clock

#: How somebody showed again who they are, as a receipt says it.
SIGNED = {"totp": "a code", "recovery_codes": "a recovery code", "webauthn": "a passkey"}


@page
@require_safe
def receipt(request: HttpRequest, decision_id: uuid.UUID) -> HttpResponse:
    """What was decided, and what came of it; at its own address, for whoever may see the request."""
    return show_receipt(request, decision_id)


def show_receipt(
    request: HttpRequest,
    decision_id: uuid.UUID,
    *,
    status: int = 200,
    errors: list[tuple[str, str]] | None = None,
) -> HttpResponse:
    decision = (
        Decision.objects.select_related("revision", "undone", "request__run", "request__step")
        .filter(pk=decision_id)
        .first()
    )
    if decision is None:
        raise NotVisible("It doesn't exist, or isn't assigned to you.")
    found, now, reader = find(request, decision.request.ref), clock.now(), str(person_of(request).pk)
    if decision.person_id != reader and quorum.hides(found, decision.revision, reader):
        raise NotVisible("It doesn't exist, or isn't assigned to you.")
    outcome, settled = outcomes.outcome(found, decision)
    version = f"{len(outcome)}.{found.state}.{found.run.status}.{int(outcomes.is_undone(decision))}"
    if is_fragment(request) and request.GET.get("v") == version:
        return HttpResponse(status=204)
    context = {
        "now": now,
        "receipt": _receipt(decision, found, person_of(request))
        | _undoing(decision, found, request.user, now),
        "errors": errors or [],
        "typed": request.POST.get("reason", ""),
        "outcome": outcome,
        "settled": settled,
        "awaited": outcomes.awaited(found),
        "run_url": found.run.get_absolute_url(),
        "run_short": found.run.short_id,
        "quorum": quorum.of(found, decision.revision, reader),
        "next_item": outcomes.next_item(request.user, found, now),
        "version": version,
    }
    return render(request, "approvals/receipt.html", context, status=status)


def _undoing(decision: Decision, found: Request, reader: Any, now: datetime) -> dict[str, Any]:
    """Whether and until when this reader may take it back or stop it; who did."""
    undone = decision.undone if outcomes.is_undone(decision) else None
    stands = undone is None and decision.revision.number == found.number
    if stands and found.state == RequestState.DECIDED:
        carrying = decisions.carrying(found)
        stands = carrying is not None and carrying.verb == decision.verb
    until = found.takes_effect_at if stands and found.state == RequestState.DECIDED else None
    mine = decision.person_id == str(reader.pk)
    may = mine or (until is not None and decisions.may_stop(reader, decision, found))
    had_window = bool(decision.revision.judgement.get("undo_window", 0))
    return {
        "id": decision.pk,
        "undone": undone,
        "undone_by": "You"
        if undone and undone.person_id == str(reader.pk)
        else undone and undone.person_name,
        "mine": mine,
        "by_id": decision.person_id,
        "reopened": found.is_pending,
        "in_force_at": until,
        "undo_until": until if may and until is not None and until > now else None,
        "too_late": stands
        and may
        and had_window
        and not found.is_pending
        and (until is None or until <= now),
    }


def _receipt(decision: Decision, found: Request, reader: User) -> dict[str, Any]:
    revision = decision.revision
    edited = revision.edited and decision.verb == Verb.APPROVE
    who = "You" if decision.person_id == str(reader.pk) else decision.person_name
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
        "reason": decision.reason,
        "basis": questions.answered(decision.basis),
        "signed": SIGNED.get(decision.step_up, decision.step_up),
        "edited_rows": pages.rows(revision.changes) if edited else [],
        "answer": json.loads(decision.answer) if decision.answer else None,
    }


@page
@require_safe
def history(request: HttpRequest) -> HttpResponse:
    """What was decided, newest first."""
    mine = request.GET.get("scope") == "mine"
    seen = Decision.objects.filter(request__in=reviewers.visible_to(request.user))
    rows = quorum.told(seen, str(person_of(request).pk))
    if mine:
        rows = rows.filter(person_id=str(person_of(request).pk))
    scope = "mine" if mine else "all"
    found = past.page(rows, request.GET, scope)
    context = {"now": clock.now(), "scope": scope, "rows": found.rows, "page": found}
    return render(request, "approvals/history.html", context)
