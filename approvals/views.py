"""The reviewers' pages: each parses, calls one verb, answers.

Pages work without JavaScript; the same view serves htmx with a partial. GET changes nothing and asks nothing
outside. What one may not see and what does not exist are the same page.
"""

import json
import re
import secrets
import uuid
from collections.abc import Callable
from datetime import datetime
from functools import wraps
from typing import Any

from django.contrib.auth.models import User
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.cache import patch_vary_headers
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from approvals import decisions, looks, reviewers
from approvals.decisions import Choice
from approvals.exceptions import Closed, DigestMissing, NotEligible, NotVisible, Stale, Unfit
from approvals.forms import SchemaForm
from approvals.models import Decision, Request, Revision
from approvals.policies import Judgement
from approvals.presentation import digests, pages, shown
from approvals.presentation import history as past
from approvals.states import RequestKind, RequestState, Verb
from runs import clock, values

View = Callable[..., HttpResponse]
Waiting = tuple[Request, Revision, int]  # with how many have approved it
AT_ONCE = 200


def page(view: View) -> View:
    """A page with action data: signed in, not stored by anybody, fragments told apart from pages."""

    @wraps(view)
    def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            response = (
                view(request, *args, **kwargs)
                if request.user.is_authenticated
                else signed_out(request, **kwargs)
            )
        except NotVisible:
            response = render(request, "approvals/neutral.html", status=404)
        if response.status_code == 302:
            response.status_code = 303
        patch_vary_headers(response, ["HX-Request"])
        return response

    return never_cache(answer)


def signed_out(request: HttpRequest, *, ref: str = "", **kwargs: Any) -> HttpResponse:
    """To sign-in and back. A form or a script of an open page is answered where it is, so that nothing typed is
    lost: it did nothing, and sign-in never sends it again."""
    if request.method in ("GET", "HEAD") and not is_fragment(request):
        return redirect_to_login(request.get_full_path())
    names = {"note": "Your note", "edited": "Your edit"}
    posted = [
        (names.get(name, name.removeprefix("f-")), text)
        for name, text in request.POST.items()
        if text and (name in names or name.startswith("f-"))
    ]
    context = {"typed": posted, "next": reverse("request", args=[ref]) if ref else reverse("inbox")}
    return render(request, "approvals/signed_out.html", context, status=401)


def is_fragment(request: HttpRequest) -> bool:
    """Whether htmx wants a part of a page. What it restores from its history is a page."""
    return bool(request.htmx) and not request.htmx.history_restore_request  # type: ignore[attr-defined]


def person_of(request: HttpRequest) -> User:
    assert isinstance(request.user, User)
    return request.user


def find(request: HttpRequest, ref: str) -> Request:
    """The request of that ref, if this person may see it. Raises NotVisible."""
    rows = reviewers.visible_to(request.user).select_related("run", "step", "group", "hold")
    found = rows.filter(ref=ref).distinct().first() if ref.isalnum() else None
    if found is None:
        raise NotVisible("It doesn't exist, or isn't assigned to you.")
    return found


# -- Inbox -----------------------------------------------------------------------------


@page
@require_safe
def inbox(request: HttpRequest) -> HttpResponse:
    now = clock.now()
    mine, elsewhere, hidden = _waiting(request, now)
    waiting = [pages.inbox_row(row, revision, now, approvals) for row, revision, approvals in mine]
    search = {name: request.GET.get(name, "") for name in ("q", "tier", "agent")}
    found = [row for row in waiting if _matches(row, search)]
    context = {
        "now": now,
        "version": _inbox_version(mine),
        "lanes": pages.lanes(found),
        "waiting": len(waiting),
        "elsewhere": elsewhere,
        "hidden": hidden,
        "reviewer": request.user.groups.exists(),
        "search": search,
        "agents": sorted({row.agent for row in waiting}),
        "filtered": any(search.values()),
    }
    return render(request, "approvals/inbox.html", context)


def _waiting(request: HttpRequest, now: datetime) -> tuple[list[Waiting], int, int]:
    """What waits for this person, how many wait for others although this person sees them, and how many more
    there are than are looked at: those with the most time left. No argument is read: every pulse asks."""
    person = person_of(request)
    found = reviewers.visible_to(person).open_at(now).distinct().order_by("decide_by", "ref")
    rows = list(found.select_related("run", "step", "group")[: AT_ONCE + 1])
    hidden = found.count() - AT_ONCE if len(rows) > AT_ONCE else 0
    rows = rows[:AT_ONCE]
    standing = {r.request_id: r for r in _standing(rows)}
    said = _said(list(standing.values()))
    mine = [
        row
        for row in rows
        if str(person.pk) not in said[standing[row.pk].pk] and reviewers.eligibility(person, row).decides
    ]
    told = [(row, standing[row.pk], len(said[standing[row.pk].pk])) for row in mine]
    return told, len(rows) - len(mine), hidden


def _standing(rows: list[Request]) -> list[Revision]:
    """The standing revisions of many requests, in one query."""
    found = Revision.objects.filter(request__in=rows).order_by("request_id", "-number").distinct("request_id")
    return list(found)


def _said(revisions: list[Revision]) -> dict[int, set[str]]:
    """Who has decided each of these revisions, in one query. What still waits was approved by them."""
    found: dict[int, set[str]] = {revision.pk: set() for revision in revisions}
    for revision, person in Decision.objects.filter(revision__in=found).values_list(
        "revision_id", "person_id"
    ):
        found[revision].add(person)
    return found


def _matches(row: pages.InboxRow, search: dict[str, str]) -> bool:
    text = search["q"].strip().casefold()
    said = f"{row.ref} {row.headline} {row.agent} {row.on_behalf_of}".casefold()
    return text in said and search["tier"] in ("", row.tier) and search["agent"] in ("", row.agent)


def _inbox_version(rows: list[Waiting]) -> str:
    """What is shown, short enough for an address: refs and revisions."""
    told = ",".join(sorted(f"{row.ref}{revision.number}" for row, revision, _ in rows))
    return f"{len(rows)}-{values.digest(told)[:16]}"


def _counted(text: str) -> int:
    """The number a version begins with; -1 where it begins with none."""
    digits = re.match(r"[0-9]{1,9}(?![0-9])", text)
    return int(digits[0]) if digits else -1


@page
@require_safe
def inbox_pulse(request: HttpRequest) -> HttpResponse:
    waiting, _, _ = _waiting(request, clock.now())
    seen = request.GET.get("v", "")
    if seen == _inbox_version(waiting):
        return HttpResponse(status=204)
    new = max(0, len(waiting) - max(0, _counted(seen)))
    changes: dict[str, Any] = {"new": new, "changed": 0 if new else 1, "settled": []}
    if not is_fragment(request):
        return redirect("inbox")
    return render(request, "approvals/inbox.html#pulse", {"changes": changes, "waiting": len(waiting)})


# -- One request -----------------------------------------------------------------------


@page
@require_safe
def detail(request: HttpRequest, ref: str) -> HttpResponse:
    return _detail(request, find(request, ref))


def _detail(
    request: HttpRequest,
    found: Request,
    *,
    status: int = 200,
    typed: dict[str, Any] | None = None,
    errors: list[tuple[str, str]] | None = None,
    answer_form: SchemaForm | None = None,
) -> HttpResponse:
    now, revision = clock.now(), found.revision
    allowed = reviewers.eligibility(request.user, found)
    tool = shown.known(revision.tool, revision.tool_version)
    question = found.kind == RequestKind.QUESTION
    steps, hidden = pages.steps(found)
    asked = json.loads(revision.arguments) if question else {}
    context = {
        "now": now,
        "version": pages.version(found),
        "item": pages.item(found, revision, now),
        "question": asked.get("question"),
        "facts": pages.facts(found, revision),
        "checked_at": found.looked_at,
        "checking": found.look_wanted_at is not None,
        "can_check": bool(tool and tool.properties.facts) and found.is_pending,
        "too_old": found.is_pending and looks.too_old(found, now),
        "changes": pages.rows(revision.changes),
        "blocks": [] if question else pages.blocks(found, revision),
        "earlier": pages.earlier(found),
        "steps": steps,
        "steps_hidden": hidden,
        "words": [],
        "questions": [],
        "may": _may(found, allowed, request.user, revision),
        "reasons": pages.REASONS,
        "answer_form": answer_form or (SchemaForm(asked["form"], titled=True) if question else None),
        "standing": pages.standing(found, now),
        "typed": typed or {},
        "errors": errors or [],
        "view_digest": revision.digest,
        "form_nonce": secrets.token_urlsafe(24),
    }
    return render(request, "approvals/request.html", context, status=status)


def _may(found: Request, allowed: reviewers.Eligibility, user: Any, revision: Revision) -> dict[str, Any]:
    question, author = found.kind == RequestKind.QUESTION, reviewers.is_author(user, revision)
    editable = not question and shown.known(revision.tool, revision.tool_version) is not None
    said = revision.decisions.filter(person_id=str(user.pk)).exists()
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
    if moved is None and seen == pages.version(found):
        return HttpResponse(status=204)
    if not is_fragment(request):
        return redirect("request", ref=ref)
    if moved is None and _revised_since(found, seen):
        revision = found.revision
        moved = pages.Panel("stale", at=revision.created_at, changes=tuple(pages.rows(revision.changes)))
    context = {
        "now": now,
        "moved": moved,
        "checked_at": found.looked_at,
        "checking": found.look_wanted_at is not None,
        "item": {"ref": ref},
    }
    return render(request, "approvals/request.html#pulse", context)


def _revised_since(found: Request, seen: str) -> bool:
    """Whether the version a page shows is of an older revision than the standing one."""
    return _counted(seen) < found.number


@page
@require_POST
def look(request: HttpRequest, ref: str) -> HttpResponse:
    found = find(request, ref)
    if found.is_pending:
        looks.want(found)
    if is_fragment(request):
        return HttpResponse(status=204)
    return redirect("request", ref=ref)


# -- Deciding --------------------------------------------------------------------------

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
    errors = [(_target(name, targets, form), _said_of(name, text, form)) for name, text in error.errors.items()]
    return _detail(request, found, status=422, typed=typed, errors=errors, answer_form=form)


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


# -- Editing -----------------------------------------------------------------------------


@page
@require_http_methods(["GET", "HEAD", "POST"])
def edit(request: HttpRequest, ref: str) -> HttpResponse:
    """The form from the tool's schema; a POST shows what it would change. Nothing is written here."""
    found = find(request, ref)
    revision = found.revision
    may = _may(found, reviewers.eligibility(request.user, found), request.user, revision)
    if pages.standing(found, clock.now()) is not None or not may["edit"]:
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


def _edit_diff(
    request: HttpRequest, found: Request, revision: Revision, text: str, judgement: Judgement
) -> HttpResponse:
    changes = decisions.argument_changes(revision.arguments, text)
    told = pages.item(found, revision, clock.now())
    context = {
        "now": clock.now(),
        "item": {**told, "approve_label": shown.approve_label(revision.tool, text)},
        "headline": shown.headline(revision.tool, text),
        "consequence": shown.consequence(revision.tool, text),
        "rows": pages.rows(changes),
        "tier": judgement.tier,
        "tier_before": found.tier,
        "policy_says": _others_needed(found, judgement),
        "edited": text,
        "view_digest": revision.digest,
        "form_nonce": request.POST.get("form_nonce", ""),
        "fields": [(name, request.POST[name]) for name in request.POST if name.startswith("f-")],
        "fingerprint": digests.fingerprint(found.ref, found.number + 1, values.digest(text)),
    }
    return render(request, "approvals/edit_diff.html", context)


def _others_needed(found: Request, judgement: Judgement) -> str:
    """Who else has to approve the edited call; empty when this person's approval is enough."""
    group = judgement.reviewers
    if group is not None and (found.group is None or group.id != found.group.pk):
        return f"The edited call is decided by {group.name}. It is proposed to them."
    if judgement.tier in reviewers.AUTHORS_EXCLUDED:
        return "You become an author of this action, so somebody else approves it."
    return ""


# -- Afterwards ----------------------------------------------------------------------------


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
    outcome, settled = pages.outcome(found, decision)
    version = f"{len(outcome)}.{found.state}.{found.run.status}"
    if is_fragment(request) and request.GET.get("v") == version:
        return HttpResponse(status=204)
    context = {
        "now": now,
        "receipt": _receipt(decision, found, person_of(request)),
        "outcome": outcome,
        "settled": settled,
        "awaited": pages.awaited(found),
        "run_url": found.run.get_absolute_url(),
        "run_short": found.run.short_id,
        "next_item": pages.next_item(request.user, found, now),
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
