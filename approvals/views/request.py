"""One request: its page, its pulse, and asking for a look."""

import json
import secrets
from datetime import datetime
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from approvals import drafts, looks, reviewers
from approvals.forms import SchemaForm
from approvals.models import Request, Revision
from approvals.presentation import comparisons, pages, questions, quorum, sections, shown, talk
from approvals.states import RequestKind
from approvals.views.page import counted, find, is_fragment, page, person_of
from runs import clock


@page
@require_safe
def detail(request: HttpRequest, ref: str) -> HttpResponse:
    return show(request, find(request, ref))


def show(
    request: HttpRequest,
    found: Request,
    *,
    status: int = 200,
    typed: dict[str, Any] | None = None,
    errors: list[tuple[str, str]] | None = None,
    answer_form: SchemaForm | None = None,
    opening: str = "",
) -> HttpResponse:
    """`opening`: the section that was just opened in place."""
    now, revision = clock.now(), found.revision
    allowed = reviewers.eligibility(request.user, found)
    tool = shown.known(revision.tool, revision.tool_version)
    question = found.kind == RequestKind.QUESTION
    steps, hidden = pages.steps(found)
    facts = pages.facts(found, revision)
    asked = json.loads(revision.arguments) if question else {}
    can, blocks = (
        may(found, allowed, request.user, revision),
        [] if question else pages.blocks(found, revision),
    )
    standing = pages.standing(found, now)
    care = _care(request, found, revision, can["approve"] and not blocks and standing is None, typed)
    context = {
        "now": now,
        "version": f"{pages.version(found)}~{pages.facts_version(facts)}",
        "item": pages.item(found, revision, now),
        "question": asked.get("question"),
        "facts": facts,
        "checked_at": found.looked_at,
        "checking": found.look_wanted_at is not None,
        "can_check": bool(tool and tool.properties.facts) and found.is_pending,
        "too_old": found.is_pending and looks.too_old(found, now),
        "changes": pages.rows(revision.changes),
        "blocks": blocks,
        "earlier": pages.earlier(found, hidden=quorum.hides(found, revision, str(request.user.pk))),
        **_compared(found, revision, now),
        "steps": steps,
        "steps_hidden": hidden,
        "words": [],
        **care,
        "opening": opening,
        "quorum": quorum.of(found, revision, str(request.user.pk)),
        "talk": talk.of(found, revision, person_of(request), allowed, now, request.POST),
        "may": can,
        "reasons": pages.REASONS,
        "answer_form": answer_form or (SchemaForm(asked["form"], titled=True) if question else None),
        "standing": standing,
        "errors": errors or [],
        "view_digest": revision.digest,
        "form_nonce": secrets.token_urlsafe(24),
    }
    return render(request, "approvals/request.html", context, status=status)


def _compared(found: Request, revision: Revision, now: datetime) -> dict[str, Any]:
    """What is unusual about it, while somebody is to decide: afterwards others would have been approved."""
    if found.kind == RequestKind.QUESTION or not found.is_pending:
        return {}
    return {
        "outside": comparisons.outside(revision),
        "compared": comparisons.before(found, revision),
        "today": comparisons.today(found, revision, now),
    }


def _care(
    request: HttpRequest, found: Request, revision: Revision, approves: bool, typed: dict[str, Any] | None
) -> dict[str, Any]:
    """What approving takes at this tier, and how far this person has come with it."""
    high = approves and questions.tier(revision) in questions.HIGH
    draft = drafts.of(person_of(request), revision) if high else None
    if typed is None:
        typed = {"note": draft.note, "ack": draft.seen, "basis": draft.basis} if draft is not None else {}
    unopened = sections.unopened(revision, draft.opened) if draft is not None else []
    return {
        "questions": questions.of(revision, typed.get("basis")) if approves else [],
        "typed": typed,
        "unopened": {section.name for section in unopened},
        "lists": sections.lists(revision) if high else [],
    }


def may(found: Request, allowed: reviewers.Eligibility, user: Any, revision: Revision) -> dict[str, Any]:
    question, author = found.kind == RequestKind.QUESTION, reviewers.is_author(user, revision)
    editable = not question and shown.known(revision.tool, revision.tool_version) is not None
    said = revision.decisions.standing().filter(person_id=str(user.pk)).exists()
    why_not = allowed.why_not
    if not why_not and said:
        why_not = "You approved this. It needs somebody else's approval too."
    elif not why_not and author:
        why_not = "You edited this action, so somebody else approves it. You can still reject it."
    may = allowed.decides and not said
    return {
        "approve": may and not question and not author,
        "edit": may and editable and not author,
        "reject": may,
        "respond": may and question,
        "why_not": why_not,
    }


@page
@require_safe
def pulse(request: HttpRequest, ref: str) -> HttpResponse:
    """204 when nothing moved; else what moved, in place, or only the time of an equal look."""
    found = find(request, ref)
    seen, now = request.GET.get("v", ""), clock.now()
    moved = pages.standing(found, now)
    seen, _, facts_seen = seen.partition("~")
    if moved is None and seen == pages.version(found):
        return HttpResponse(status=204)
    if not is_fragment(request):
        return redirect("request", ref=ref)
    if moved is None and _revised_since(found, seen):
        revision = found.revision
        moved = pages.Panel("stale", at=revision.created_at, changes=tuple(pages.rows(revision.changes)))
    elif moved is None and facts_seen != pages.facts_version(pages.facts(found, found.revision)):
        moved = pages.Panel("looked", at=found.looked_at)
    context = {
        "now": now,
        "moved": moved,
        "checks": bool(found.revision.facts),
        "checked_at": found.looked_at,
        "checking": found.look_wanted_at is not None,
        "item": {"ref": ref},
    }
    return render(request, "approvals/request.html#pulse", context)


def _revised_since(found: Request, seen: str) -> bool:
    """Whether the version a page shows is of an older revision than the standing one."""
    return counted(seen) < found.number


@page
@require_POST
def look(request: HttpRequest, ref: str) -> HttpResponse:
    found = find(request, ref)
    if found.is_pending:
        looks.want(found)
    if is_fragment(request):
        return HttpResponse(status=204)
    return redirect("request", ref=ref)
