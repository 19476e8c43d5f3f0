"""The components of the pages, as tags with keyword-only arguments.

Each takes plain values and draws one template of `templates/components/`; a wrong argument fails when the
page is compiled. They look nothing up, decide nothing, and mark nothing safe: escaping is the templates'.
"""

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from django import template
from django.conf import settings
from django.forms import BaseForm, BoundField

from approvals.presentation import reveal, tree
from runs.views.timeline import released as released_words

register = template.Library()

TIERS = {"R0": "not gated", "R1": "low", "R2": "medium", "R3": "high", "R4": "critical"}

# What a word is called on a page, and the tone (shape and colour) it is drawn in.
STATUSES: dict[str, dict[str, tuple[str, str]]] = {
    "run": {
        "queued": ("Queued", "still"),
        "running": ("Running", "moving"),
        "suspended": ("Suspended", "waiting"),
        "succeeded": ("Succeeded", "good"),
        "failed": ("Failed", "bad"),
        "cancelled": ("Cancelled", "over"),
        "expired": ("Expired", "over"),
    },
    "request": {
        "open": ("Open", "waiting"),
        "needs_info": ("Waiting for the agent", "waiting"),
        "decided": ("Decided, can be undone", "moving"),
        "in_force": ("In force", "moving"),
        "consumed": ("Used", "good"),
        "rejected": ("Rejected", "bad"),
        "expired": ("Expired", "over"),
        "withdrawn": ("Withdrawn", "over"),
        "superseded": ("Superseded", "over"),
        "cancelled": ("Cancelled", "over"),
    },
    "step": {
        "proposed": ("Proposed", "still"),
        "held": ("Held", "waiting"),
        "dispatched": ("Under way", "moving"),
        "done": ("Done", "good"),
        "raised": ("Raised an error", "bad"),
        "rejected": ("Rejected", "over"),
        "expired": ("Expired", "over"),
        "denied": ("Not allowed", "over"),
    },
    "effect": {
        "dispatched": ("Dispatched", "moving"),
        "confirmed": ("Confirmed", "good"),
        "refused": ("Refused", "over"),
        "in_doubt": ("In doubt", "doubt"),
        "compensated": ("Compensated", "over"),
    },
    "decision": {
        "approve": ("Approved", "good"),
        "edit": ("Approved, edited", "good"),
        "reject": ("Rejected", "bad"),
        "respond": ("Answered", "good"),
    },
    "hold": {"open": ("Open", "waiting"), "released": ("Released", "over")},
}
GLYPHS = {"still": "○", "moving": "◐", "waiting": "‖", "good": "✓", "bad": "✕", "over": "–", "doubt": "?"}

NOS = {"Rejected": "rejected", "Expired": "expired", "Denied": "denied"}

FACT_STATES = {
    "same": ("Same", "="),
    "changed": ("Changed", "●"),
    "new": ("New", "+"),
    "gone": ("Gone", "−"),
    "unreadable": ("Couldn’t check", "?"),
}

CAUSES = {
    "person": "pause",
    "ancestor": "a run above",
    "allowance": "allowance",
    "dependency": "outside service",
    "in_doubt": "effect in doubt",
    "diverged": "difference from the record",
    "version": "version without a worker",
    "timer": "date",
    "child": "a run below",
}


# -- Badges -------------------------------------------------------------------


@register.inclusion_tag("components/tier_badge.html")
def tier_badge(*, tier: str, words: bool = True) -> dict[str, Any]:
    """Risk tier as shape, text and colour. `words=False` leaves the word to screen readers."""
    rank = int(tier[1:]) if tier in TIERS else 4
    return {
        "tier": tier,
        "rank": rank,
        "glyph": "◆" * rank or "◇",
        "word": TIERS.get(tier, ""),
        "words": words,
    }


@register.simple_tag
def tiers() -> list[tuple[str, str]]:
    """The tiers a request can have, for a filter."""
    return [(tier, word) for tier, word in TIERS.items() if tier != "R0"]


@register.inclusion_tag("components/status_pill.html")
def status_pill(*, status: str, kind: str = "run") -> dict[str, Any]:
    """Where a run, request, step, effect, decision or hold stands."""
    label, tone = STATUSES[kind].get(status, (status.replace("_", " "), "still"))
    return {"label": label, "tone": tone, "glyph": GLYPHS[tone]}


@register.filter
def step_word(step: Any) -> str:
    """A step's status; a no, or nobody's answer, is no error, although the agent is told by one.

    Reads no result that was left in the database: there `word` says it, where somebody knows.
    """
    if step.status != "raised":
        return str(step.status)
    if (getattr(step, "decision", None) or {}).get("verb") == "reject":
        return "rejected"
    kind = json.loads(vars(step).get("result") or "{}").get("type", "")
    return NOS.get(kind, getattr(step, "word", "raised"))


@register.simple_tag
def cause(*, word: str) -> str:
    """A hold's cause in words, the same while it is open and afterwards."""
    return CAUSES.get(word, word.replace("_", " "))


@register.filter
def released_as(resolution: str) -> str:
    """What released a hold, in words."""
    said = released_words(resolution)
    return f"{said[:1].lower()}{said[1:]}"


@register.simple_tag
def version() -> str:
    """The version in `pyproject.toml`."""
    return _version(Path(settings.BASE_DIR) / "pyproject.toml")


@cache
def _version(path: Path) -> str:
    return str(tomllib.loads(path.read_text())["project"]["version"])


# -- Time ---------------------------------------------------------------------


@register.inclusion_tag("components/time_at.html")
def time_at(*, at: datetime | None, now: datetime | None = None, short: bool = False) -> dict[str, Any]:
    """A moment in UTC, which the page's script adds the reader's zone to, and how far away it is."""
    if at is None:
        return {"at": None}
    moment = at.astimezone(UTC)
    today = now is not None and now.astimezone(UTC).date() == moment.date()
    relative = _relative(moment, now) if now and not short else ""
    return {"at": moment, "today": today, "relative": relative, "short": short}


@register.inclusion_tag("components/time_left.html")
def time_left(*, until: datetime | None, now: datetime, opened: datetime | None = None) -> dict[str, Any]:
    """The time left until a deadline; the script counts on from the server's clock."""
    if until is None:
        return {"until": None}
    left = until - now
    return {
        "until": until.astimezone(UTC),
        "total": int((until - opened).total_seconds()) if opened else 0,
        "text": "expired" if left <= timedelta(0) else f"{in_words(left)} left",
        "mood": _mood(left, until - opened if opened else None),
    }


def in_words(span: timedelta) -> str:
    """`3 d 4 h`, `1 h 38 min`, `9 min`, `45 s`: two units at most, rounded down."""
    seconds = max(0, int(span.total_seconds()))
    for unit, size, small, part in (("d", 86400, "h", 3600), ("h", 3600, "min", 60)):
        if seconds >= size:
            rest = seconds % size // part
            return f"{seconds // size} {unit} {rest} {small}" if rest else f"{seconds // size} {unit}"
    return f"{seconds // 60} min" if seconds >= 60 else f"{seconds} s"


@register.filter
def sentence_case(text: str) -> str:
    """A title of the sign-in pages as ours are written: "Add Security Key" is "Add security key"."""
    words = " ".join(_plain_case(word) for word in str(text).split())
    return words[:1].upper() + words[1:]


def _plain_case(word: str) -> str:
    """But for a word that is not written like that in a title alone: QR, I, iPhone."""
    return word.lower() if word.istitle() and len(word) > 1 else word


@register.filter
def span(seconds: float | None) -> str:
    """Seconds in words."""
    return "" if seconds is None else in_words(timedelta(seconds=seconds))


def _relative(moment: datetime, now: datetime) -> str:
    ahead = moment - now
    if abs(ahead) < timedelta(seconds=5):
        return "just now"
    return f"in {in_words(ahead)}" if ahead > timedelta(0) else f"{in_words(-ahead)} ago"


def _mood(left: timedelta, total: timedelta | None) -> str:
    if left <= timedelta(0):
        return "over"
    if left <= timedelta(minutes=10):
        return "near"
    return "soon" if total and left <= total / 4 else "calm"


# -- Text and values ----------------------------------------------------------


@register.inclusion_tag("components/revealed.html")
def revealed(*, text: Any, prose: bool = True) -> dict[str, Any]:
    """A text from outside with what is hidden in it made visible. Identifiers keep left to right."""
    said = "" if text is None else str(text)
    return {"segments": reveal.drawn(said), "prose": prose}


@register.inclusion_tag("components/text_flags.html")
def text_flags(*, text: str) -> dict[str, Any]:
    """What a second look should go to, in words; nothing when there is nothing."""
    noticed = reveal.flags(text)
    return {"labels": noticed.labels, "plain": noticed.plain}


@register.inclusion_tag("components/value_tree.html")
def value_tree(  # in it `json` is a text
    *, value: Any = None, json: str | None = None, kinds: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """A value (or the value of a canonical JSON text) as nested groups."""
    return {"node": tree.build(tree.load(json) if json is not None else value, kinds=kinds)}


@register.inclusion_tag("components/facts_table.html")
def facts_table(
    *,
    facts: Iterable[Any],
    proposed_at: datetime | None = None,
    checked_at: datetime | None = None,
    now: datetime,
    acks: Sequence[str] | None = None,
    form: str = "",
) -> dict[str, Any]:
    """Facts then and now. With `form`, changed material facts carry a tick box of that form."""
    rows = [_fact_row(fact, ticked=acks or (), form=form) for fact in facts]
    return {"rows": rows, "proposed_at": proposed_at, "checked_at": checked_at, "now": now, "form": form}


def _fact_row(fact: Any, *, ticked: Sequence[str], form: str) -> dict[str, Any]:
    label, glyph = FACT_STATES[fact.state]
    return {
        "fact": fact,
        "then": None if fact.state == "new" else tree.build(fact.then),
        "now": None if fact.state in ("gone", "unreadable") else tree.build(fact.now),
        "label": label,
        "glyph": glyph,
        "wants_tick": bool(form) and fact.kind == "material" and fact.state != "same",
        "ticked": fact.name in ticked,
    }


@register.inclusion_tag("components/diff_rows.html")
def diff_rows(*, rows: Iterable[Any], was: str = "Was", now: str = "Now", caption: str) -> dict[str, Any]:
    """Was and now side by side, readable without colour. A row has `name`, `was`, `now`, `change`, and `code` if
    its name is an argument's, not a fact's title."""
    built = [
        {
            "name": row.name,
            "code": getattr(row, "code", True),
            "change": row.change,
            "was": None if row.change == "added" else tree.build(row.was),
            "now": None if row.change == "removed" else tree.build(row.now),
        }
        for row in rows
    ]
    return {"rows": built, "was": was, "now": now, "caption": caption}


# -- Pages' furniture ---------------------------------------------------------


@register.inclusion_tag("components/empty_state.html")
def empty_state(*, title: str, text: str = "", url: str = "", link: str = "") -> dict[str, Any]:
    """What a list says when it has nothing."""
    return {"title": title, "text": text, "url": url, "link": link}


@register.inclusion_tag("components/error_summary.html")
def error_summary(
    *, errors: Iterable[tuple[str, str]] | None = None, form: BaseForm | None = None
) -> dict[str, Any]:
    """What went wrong, each with a link to its place: pairs of an element's id and a sentence."""
    return {"errors": [*(errors or ()), *_form_errors(form)]}


def _form_errors(form: BaseForm | None) -> list[tuple[str, str]]:
    if form is None or not form.errors:
        return []
    places = {name: field.id_for_label or field.auto_id for name, field in _fields(form)}
    labels = {name: f"{field.label}: " for name, field in _fields(form)}
    return [
        (str(places.get(name, "")), f"{labels.get(name, '')}{sentence}")
        for name, sentences in form.errors.items()
        for sentence in sentences
    ]


def _fields(form: BaseForm) -> list[tuple[str, BoundField]]:
    return [(name, form[name]) for name in form.fields]


@register.inclusion_tag("components/form_field.html")
def form_field(*, field: BoundField, code: bool = False) -> dict[str, Any]:
    """Label, hint, error, input. `code` shows the label as the key it is."""
    widget = field.field.widget
    return {
        "field": field,
        "code": code,
        "group": bool(field.use_fieldset),
        "tick": getattr(widget, "input_type", "") == "checkbox" and not field.use_fieldset,
        "below": getattr(widget, "input_type", "")
        == "password",  # its hint may be a link: not between two inputs
        "optional": not getattr(field.field, "wanted", field.field.required),
    }


@register.inclusion_tag("components/timeline.html")
def timeline(*, steps: Iterable[Any], now: datetime, brief: bool = False) -> dict[str, Any]:
    """A run's steps in order. `brief` leaves arguments and results to the run's page."""
    return {"steps": list(steps), "now": now, "brief": brief}


@register.inclusion_tag("components/closed_panel.html")
def closed_panel(*, closed: Any, now: datetime, level: int = 2) -> dict[str, Any]:
    """Why nothing can be decided here (any more)."""
    return {"closed": closed, "now": now, "level": level}
