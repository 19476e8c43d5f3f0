"""Several rows of the inbox at once: what would be done, said for all of them, and what became of each.

The first page changes nothing. The second is the answer to a form; sent twice it says the same, since every item
carries its own digest and nonce.
"""

import secrets
from collections.abc import Callable
from datetime import timedelta

from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from approvals import batches, reviewers
from approvals.batches import Done, Item
from approvals.decisions import MAX_REASON
from approvals.exceptions import Unfit
from approvals.presentation import pages, tables
from approvals.states import Verb
from approvals.views.page import page, person_of
from runs import clock

VERBS = {"approve": "Approve", "reject": "Reject", "delegate": "Pass on", "snooze": "Put off"}
HOURS = (1, 4, 24, 72)
LONGEST_REF = 12


@page
@require_safe
def bulk(request: HttpRequest) -> HttpResponse:
    """What is ticked, with what the verb asks for."""
    verb = request.GET.get("act", "")
    if verb not in VERBS:
        return redirect("inbox")
    return _asked(request, verb, _refs(request.GET.getlist("ref")))


def _refs(sent: list[str]) -> list[str]:
    """What can be a reference, each once."""
    return [ref for ref in dict.fromkeys(sent) if ref.isascii() and ref.isalnum() and len(ref) <= LONGEST_REF]


def _asked(
    request: HttpRequest, verb: str, refs: list[str], errors: list[tuple[str, str]] | None = None
) -> HttpResponse:
    now, person = clock.now(), person_of(request)
    items = batches.chosen(person, refs, now)
    problems = batches.problems(person, verb, items)
    looking = batches.want_looks(items) if verb == Verb.APPROVE and not problems else 0
    context = {
        "now": now,
        "verb": verb,
        "word": VERBS[verb],
        "problems": problems,
        "gone": len(dict.fromkeys(refs)) - len(items),
        "looking": looking,
        "refresh": 3 if looking else None,
        "table": tables.table([(i.request, i.revision) for i in items]) if items and not problems else None,
        "tool": items[0].revision.tool if items else "",
        "nonce": secrets.token_urlsafe(18),
        "reasons": pages.REASONS,
        "people": _takers(person, items) if verb == "delegate" else [],
        "hours": HOURS,
        "typed": request.POST,
        "errors": errors or [],
    }
    return render(request, "approvals/bulk.html", context, status=422 if errors or problems else 200)


def _takers(person: User, items: list[Item]) -> list[User]:
    """Who reviews all of them; whether one may take each is asked of each."""
    of = [{one.pk: one for one in reviewers.members(group)} for group in {i.request.group_id for i in items}]
    both = set.intersection(*(set(people) for people in of)) - {person.pk} if of else set()
    return [of[0][pk] for pk in sorted(both)]


@page
@require_http_methods(["GET", "HEAD", "POST"])
def bulk_do(request: HttpRequest) -> HttpResponse:
    """One record an item, and its outcome."""
    verb, refs = request.POST.get("act", ""), _refs(request.POST.getlist("ref"))[: batches.MOST]
    if request.method != "POST" or verb not in VERBS:
        return redirect("inbox")
    if not refs:
        return _asked(request, verb, _refs(request.POST.getlist("all")), [("lines", "Tick at least one.")])
    if verb == Verb.APPROVE and not _may_approve(request, refs):
        return _asked(request, verb, refs)
    try:
        done = VIEWS[verb](request, refs)
    except Unfit as error:
        return _asked(request, verb, refs, list(error.errors.items()))
    told = [
        {"made": one, "headline": text} for one, text in zip(done, _headlines(request, done), strict=True)
    ]
    context = {"now": clock.now(), "word": VERBS[verb], "summed": batches.summed(done), "done": told}
    return render(request, "approvals/bulk_done.html", context)


def _may_approve(request: HttpRequest, refs: list[str]) -> bool:
    """Whether what stands as its row showed it may be approved together now. What does not is refused by its own
    digest, and keeps no other from it."""
    sent = _sent(request, refs)
    items = batches.chosen(person_of(request), refs, clock.now())
    same = [item for item in items if item.revision.digest == sent[item.request.ref][0]]
    if len(refs) > batches.MOST_APPROVED:
        return False
    return not same or not (
        batches.problems(person_of(request), Verb.APPROVE, same) or any(item.looks for item in same)
    )


def _sent(request: HttpRequest, refs: list[str]) -> dict[str, tuple[str, str]]:
    """What each row carried: its digest, and the form's nonce."""
    nonce = request.POST.get("form_nonce", "")
    return {
        ref: (request.POST.get(f"digest-{ref}", "") or "none", nonce and f"{nonce}-{ref}") for ref in refs
    }


def _reason(request: HttpRequest) -> str:
    """The chosen reason and the note, as one text. Raises Unfit."""
    code, note = request.POST.get("reason", ""), request.POST.get("note", "").replace("\r\n", "\n").strip()
    reason = f"{code}: {note}" if code and note else code or note
    if not reason:
        raise Unfit({"note": "Say why: it is kept with each."})
    if len(reason) > MAX_REASON:
        raise Unfit({"note": f"{len(reason):,} characters; at most {MAX_REASON:,}."})
    return reason


def _approve(request: HttpRequest, refs: list[str]) -> list[Done]:
    return batches.decide(person_of(request), Verb.APPROVE, _sent(request, refs))


def _reject(request: HttpRequest, refs: list[str]) -> list[Done]:
    return batches.decide(person_of(request), Verb.REJECT, _sent(request, refs), _reason(request))


def _delegate(request: HttpRequest, refs: list[str]) -> list[Done]:
    chosen = request.POST.get("to", "")
    to = User.objects.filter(pk=int(chosen)).first() if chosen.isdecimal() and len(chosen) < 10 else None
    if to is None:
        raise Unfit({"to": "Choose who should look at them."})
    return batches.delegate(person_of(request), refs, to, _reason(request))


def _snooze(request: HttpRequest, refs: list[str]) -> list[Done]:
    hours = request.POST.get("hours", "")
    if hours not in map(str, HOURS):
        raise Unfit({"hours": "Choose for how long."})
    return batches.snooze(person_of(request), refs, clock.now() + timedelta(hours=int(hours)))


VIEWS: dict[str, Callable[[HttpRequest, list[str]], list[Done]]] = {
    "approve": _approve,
    "reject": _reject,
    "delegate": _delegate,
    "snooze": _snooze,
}


def _headlines(request: HttpRequest, done: list[Done]) -> list[str]:
    """Of what this person sees; of what they do not, the reference they sent."""
    found = reviewers.visible_to(person_of(request)).filter(ref__in=[one.ref for one in done])
    items = batches.standing(list(found.select_related("run", "step", "group")))
    told = {item.request.ref: pages.headline(item.request, item.revision) for item in items}
    return [told.get(one.ref, "") for one in done]
