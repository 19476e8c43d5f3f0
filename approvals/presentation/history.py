"""What was decided, newest first: pages by key, so that rows that arrive shift nothing and none is shown twice.

A page is named by the decision it begins after, in either direction.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.db.models import QuerySet
from django.urls import reverse

from approvals.models import Decision
from approvals.presentation import outcomes, pages
from approvals.states import Verb
from runs import keyset

PAGE = 50


@dataclass(frozen=True, slots=True)
class Page:
    """`previous` and `next` are addresses, or None."""

    rows: list[dict[str, Any]]
    previous: str | None
    next: str | None


def page(found: QuerySet[Decision], asked: Mapping[str, str], scope: str) -> Page:
    """The page that `asked` names (`older` or `newer`: a decision's id), the newest without one."""
    found = found.select_related("revision", "undone", "request__run", "request__step")
    newer, older = (keyset.mark(found, asked.get(word, "")) for word in ("newer", "older"))
    if newer is not None:
        rows = list(keyset.after(found, newer, "made_at")[: PAGE + 1])[::-1]
        if len(rows) > PAGE:
            return Page(
                [_row(each) for each in rows[1:]], _to(scope, newer=rows[1]), _to(scope, older=rows[-1])
            )
        older = None  # fewer than a page are newer: that is the first one
    rows = list(keyset.before(found, older, "made_at")[: PAGE + 1])
    following = _to(scope, older=rows[PAGE - 1]) if len(rows) > PAGE else None
    rows = rows[:PAGE]
    return Page(
        [_row(each) for each in rows], _to(scope, newer=rows[0]) if older and rows else None, following
    )


def _to(scope: str, **marks: Decision) -> str:
    return "?" + urlencode({"scope": scope, **{word: str(each.pk) for word, each in marks.items()}})


def _outcome(events: list[dict[str, Any]]) -> str:
    """What became of the action itself; a run that goes well afterwards says nothing of it."""
    settling = [event for event in events if event.get("settles")]
    return str((settling or events)[-1]["what"]) if events else ""


def _row(decision: Decision) -> dict[str, Any]:
    revision = decision.revision
    edited = revision.edited and decision.verb == Verb.APPROVE
    events, _ = outcomes.outcome(decision.request, decision)
    return {
        "at": decision.made_at,
        "ref": decision.request.ref,
        "url": reverse("receipt", args=[decision.pk]),
        "headline": pages.headline(decision.request, revision),
        "verb": decision.verb,
        "decision": "edit" if edited else decision.verb,
        "by": decision.person_name,
        "tier": revision.judgement.get("tier", decision.request.tier),
        "outcome": _outcome(events),
        "edited": edited,
    }
