"""The pages' markup: hostile text stays text, nothing is inline, nothing is cut without a count.

Pages are drawn from plain values, without a database. The addresses here stand for the real ones, by name.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace as Row
from typing import Any

import pytest
from django import forms
from django.conf import settings
from django.contrib.auth.models import AnonymousUser, User
from django.http import HttpResponse
from django.template import Context, Template, TemplateSyntaxError
from django.template.loader import render_to_string
from django.test import RequestFactory, override_settings
from django.urls import get_resolver, include, path

NOW = datetime(2026, 3, 12, 14, 2, 10, tzinfo=UTC)
TEMPLATES = Path(settings.BASE_DIR) / "templates"
STATIC = Path(settings.BASE_DIR) / "static"
HOSTILE = (
    "<img src=x onerror=alert(1)><style>*{display:none}</style><form action=/x><base href=//e>"
    '</textarea></script>{{7*7}}" hx-get="/x" hx-trigger="load" data-hx-on:click="x'
)
HTMX_CONFIG = {
    "allowEval": False,
    "allowScriptTags": False,
    "selfRequestsOnly": True,
    "allowNestedOobSwaps": False,
    "includeIndicatorStyles": False,
    "historyCacheSize": 0,
    "refreshOnHistoryMiss": True,
    "timeout": 10000,
    "responseHandling": [
        {"code": "204", "swap": False},
        {"code": "[23]..", "swap": True},
        {"code": "403|404|409|410|422|428|429", "swap": True},
        {"code": "[45]..", "swap": False, "error": True},
    ],
}


def nowhere(request: Any, **kwargs: Any) -> HttpResponse:
    return HttpResponse(status=204)


VERBS = (
    "decide",
    "edit",
    "look",
    *("ask", "comment", "delegate", "snooze", "wake", "reserve", "let_go", "more_time"),
    *("open_section", "step_up"),
)
urlpatterns = [
    path("", nowhere, name="inbox"),
    path("inbox/pulse", nowhere, name="inbox_pulse"),
    path("inbox/keys", nowhere, name="inbox_keys"),
    path("inbox/together", nowhere, name="bulk"),
    path("inbox/together/do", nowhere, name="bulk_do"),
    path("requests/<ref>/row", nowhere, name="request_row"),
    path("runs/", nowhere, name="runs"),
    path("runs/<id>", nowhere, name="run"),
    path("runs/<id>/snapshots/<int:number>", nowhere, name="run_snapshot"),
    *(path(f"runs/<id>/{verb}", nowhere, name=f"run_{verb}") for verb in ("pause", "resume", "cancel")),
    path("history", nowhere, name="history"),
    path("requests/<ref>", nowhere, name="request"),
    *(path(f"requests/<ref>/{verb}", nowhere, name=verb) for verb in VERBS),
    path("requests/<ref>/pulse", nowhere, name="request_pulse"),
    path("requests/<ref>/receipt", nowhere, name="receipt"),
    path("decisions/<id>/undo", nowhere, name="undo"),
    path("accounts/", include("allauth.urls")),
]


class Page(HTMLParser):
    """The elements of a page with their attributes, and its text."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(markup)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(autouse=True)
def _addresses() -> Iterator[None]:
    with override_settings(ROOT_URLCONF=__name__):
        yield


def draw(template: str, user: Any = None, **context: Any) -> str:
    request = RequestFactory().get("/")
    request.user = user or User(username="ana", first_name="Ana", last_name="Ruiz", email="ana@example.org")
    return render_to_string(template, {"now": NOW, "inbox_count": 3, **context}, request=request)


def tag(source: str, **context: Any) -> str:
    return Template("{% load abeyance %}" + source).render(Context({"now": NOW, **context}))


def words(page: Page) -> str:
    return " ".join(page.text.split())


class AnswerForm(forms.Form):
    supplier = forms.ChoiceField(choices=[("a", HOSTILE)], widget=forms.RadioSelect, help_text="One of them.")
    ceiling = forms.CharField(label="Highest price")


def item(**changed: Any) -> Row:
    values = {
        "ref": "7Q2F8M3K",
        "url": "/requests/7Q2F8M3K",
        "revision": 2,
        "tier": "R2",
        "state": "open",
        "kind": "approval",
        "headline": HOSTILE,
        "consequence": HOSTILE,
        "agent": "refund-desk",
        "agent_version": "2",
        "asked_by": HOSTILE,
        "on_behalf_of": HOSTILE,
        "proposed_at": NOW,
        "opened_at": NOW,
        "decide_by": NOW + timedelta(hours=2),
        "if_nobody": "Nothing is run.",
        "tool": "issue_refund",
        "tool_version": "9c41",
        "step": 3,
        "run_short": "5e1f0c2a",
        "run_url": "/runs/5e1f0c2a",
        "fingerprint": "amber-kettle",
        "approve_label": "Approve refund of 240.00",
        "arguments_json": json.dumps({"amount": "240.00", HOSTILE: {"deep": [HOSTILE]}}),
    }
    return Row(**{**values, **changed})


def fact(state: str, kind: str = "material") -> Row:
    return Row(
        name=f"fact_{state}",
        label=HOSTILE,
        then="0.00",
        now="240.00",
        state=state,
        kind=kind,
        source="pay",
        problem=HOSTILE,
    )


def step(**changed: Any) -> Row:
    values = {
        "index": 0,
        "tool": "read_ticket",
        "status": "done",
        "effect": "confirmed",
        "attempt": 1,
        "key": "k",
        "arguments": json.dumps({"ticket": HOSTILE}),
        "executed": None,
        "result": json.dumps(HOSTILE),
        "created_at": NOW,
        "dispatched_at": NOW,
        "settled_at": NOW,
        "headline": HOSTILE,
        "decided": HOSTILE,
        "current": False,
        "request_url": "/requests/x",
    }
    return Row(**{**values, **changed})


def request_context(**changed: Any) -> dict[str, Any]:
    values = {
        "version": "1",
        "item": item(),
        "facts": [fact("changed"), fact("unreadable"), fact("same", "blocking")],
        "checked_at": NOW,
        "checking": False,
        "can_check": True,
        "blocks": [],
        "standing": None,
        "errors": [],
        "changes": [Row(name=HOSTILE, was=HOSTILE, now=HOSTILE, change="changed")],
        "words": [(HOSTILE, HOSTILE)],
        "earlier": [Row(at=NOW, revision=1, who=HOSTILE, what="rejected", reason=HOSTILE)],
        "outside": {HOSTILE: HOSTILE},
        "compared": Row(count=3, notes=[Row(name=HOSTILE, says="is the largest")]),
        "today": Row(calls=2, rejected=1, is_more=False, field="amount", total="7.00", unread=1),
        "steps": [step(), step(index=1, status="held", current=True)],
        "questions": [Row(id="q1", text=HOSTILE, answer="yes")],
        "may": Row(approve=True, edit=True, reject=True, respond=False, why_not=""),
        "reasons": [("wrong_amount", "Wrong amount")],
        "answer_form": None,
        "typed": Row(note=HOSTILE, ack=["fact_changed"], decision="reject"),
        "view_digest": "d1",
        "form_nonce": "n1",
    }
    return {**values, **changed}


def closed(kind: str = "decided_other") -> Row:
    row = Row(name=HOSTILE, was=HOSTILE, now=HOSTILE, change="added")
    return Row(
        kind=kind,
        who=HOSTILE,
        at=NOW,
        outcome="rejected",
        verb="approval",
        reason=HOSTILE,
        why=HOSTILE,
        changes=[row],
    )


def a_run() -> Row:
    return Row(
        id="5e1f0c2a-88a1-4f0e-9a7d-20c44d1c9a11",
        short_id="5e1f0c2a",
        agent="refund-desk",
        agent_version="2",
        status="suspended",
        submitter_name=HOSTILE,
        on_behalf_of=HOSTILE,
        created_at=NOW,
        started_at=NOW,
        ended_at=None,
        ended=False,
        stop_requested=None,
        position=3,
        input=json.dumps({"ticket": HOSTILE}),
        labels={HOSTILE: HOSTILE},
        result=json.dumps(HOSTILE),
        error=json.dumps(HOSTILE),
        why=HOSTILE,
    )


def a_hold() -> Row:
    return Row(
        is_open=False,
        cause="approval",
        step=step(),
        request_url="/requests/x",
        why=HOSTILE,
        opened_by_name=HOSTILE,
        opened_by_kind="system",
        opened_through="worker",
        opened_at=NOW,
        expires_at=NOW,
        released_by_name=HOSTILE,
        released_by_kind="person",
        released_through="page",
        resolution="approved",
        released_at=NOW,
    )


def a_snapshot() -> Row:
    return Row(
        number=1,
        taken_at=NOW,
        steps=3,
        attempted=4,
        effects=1,
        agent="refund-desk",
        agent_version="2",
        epoch=2,
        schema_version=1,
        effects_digest="ab",
        code_digest="cd",
        why=[{"cause": "approval", "why": HOSTILE}],
    )


def a_row(ref: str = "7Q2F8M3K", **more: Any) -> Row:
    return Row(
        **more,
        ref=ref,
        url=f"/requests/{ref}",
        headline=HOSTILE,
        tier="R3",
        kind="question",
        decide_by=NOW + timedelta(minutes=9),
        opened_at=NOW,
        agent="mailing",
        agent_version="1",
        on_behalf_of=HOSTILE,
        run_short="5e1f0c2a",
        flags=["changed"],
        approvals=1,
        quorum=2,
        why_here="Because.",
        at=NOW,
        decision="reject",
        by=HOSTILE,
        outcome=HOSTILE,
        edited=False,
    )


def a_receipt(**more: Any) -> Row:
    told: dict[str, Any] = {
        "id": "7",
        "mine": True,
        "by_id": "1",
        "reopened": True,
        "ref": "7Q2F8M3K",
        "url": "/requests/7Q2F8M3K",
        "said": "You approved",
        "headline": HOSTILE,
        "verb": "approve",
        "at": NOW,
        "by": "Ana",
        "tier": "R2",
        "state": "in_force",
        "fingerprint": "amber",
        "undo_until": NOW + timedelta(seconds=30),
        "reason": HOSTILE,
        "edited_rows": [Row(name=HOSTILE, was=HOSTILE, now=HOSTILE, change="removed")],
        "answer": {HOSTILE: HOSTILE},
    }
    return Row(**{**told, **more})


def a_talk() -> Row:
    inquiry = {"who": HOSTILE, "at": NOW, "text": HOSTILE, "revision": 1, "before": True}
    inquiry |= {"answer": HOSTILE, "by": HOSTILE, "answered_at": NOW}
    return Row(
        stop=Row(decision="7", mine=False, until=NOW + timedelta(seconds=30), by=HOSTILE),
        lies=Row(mine=True, to=HOSTILE, reason=HOSTILE, at=NOW, **{"from": HOSTILE}),
        on_it=Row(mine=True, who=HOSTILE, until=NOW),
        asleep=NOW + timedelta(minutes=5),
        inquiries=[Row(**inquiry, state=word) for word in ("answered", "waits", "lost")],
        comments=[Row(person_name=HOSTILE, number=1, made_at=NOW, text=HOSTILE)],
        may_comment=True,
        offered=True,
        may_ask=True,
        to=[(7, "Ben")],
        naps=[(1800, "half an hour")],
        more_time="1 hour",
        extensions=2,
        typed=Row(question=HOSTILE, comment=HOSTILE, reason=HOSTILE, to="7"),
    )


def pages() -> dict[str, tuple[str, dict[str, Any]]]:
    """Every page in every shape that draws something of its own."""
    respond = Row(approve=False, edit=False, reject=True, respond=True, why_not="")
    lane = Row(
        key="now", title="Decide now", rows=[a_row(expands=True)], count=9, rest=8, next="?lane=now&after=x"
    )
    aside = Row(key="others", title="Waiting on others", rows=[a_row(ref="B")], count=2, rest=1)
    entry = Row(
        seq=1, verb="parked", actor_name=HOSTILE, door="worker", at=NOW, detail=json.dumps({"why": HOSTILE})
    )
    filled = AnswerForm({"ceiling": ""})
    common = {"item": item(), "view_digest": "d1", "form_nonce": "n1"}
    inbox = {
        "version": "1",
        "lanes": [lane],
        "aside": [aside],
        "waiting": 1,
        "elsewhere": 2,
        "reviewer": True,
        "search": {"q": HOSTILE},
        "agents": [HOSTILE],
        "tools": [HOSTILE],
    }
    columns = (Row(name=HOSTILE, amount=False), Row(name="n", amount=True))
    table_row = Row(
        ref="A",
        url="/x",
        headline=HOSTILE,
        digest="d",
        cells=tuple(zip(columns, (HOSTILE, "1"), strict=True)),
        unusual=HOSTILE,
    )
    together = {
        "verb": "approve",
        "word": "Approve",
        "tool": HOSTILE,
        "table": Row(columns=columns, lines=[table_row], totals=[HOSTILE], hidden=1),
        "reasons": [("x", HOSTILE)],
        "typed": Row(note=HOSTILE),
        "errors": [("note", HOSTILE)],
        "looking": 1,
        "refresh": 3,
    }
    question = request_context(item=item(kind="question"), question=HOSTILE, may=respond, answer_form=filled)
    moved = {"moved": closed("stale"), "item": item()}
    run = {
        "run": a_run(),
        "steps": [step(executed="{}")],
        "holds": [a_hold()],
        "effects": [step(effect="in_doubt")],
        "snapshots": [a_snapshot()],
        "entries": [entry],
        "entries_total": 9,
        "may": Row(pause=True, resume=True, cancel=True),
        "why": HOSTILE,
    }
    signing = {
        "item": item(),
        "matters": [(HOSTILE, HOSTILE)],
        "opened": [HOSTILE],
        "answered": [(HOSTILE, "Yes")],
        "retype": Row(what="the number of people"),
        "retyped": HOSTILE,
        "view_digest": "d1",
        "form_nonce": "n1",
    }
    lists = [
        {"name": "list-x", "title": HOSTILE, "count": 1200, "domains": [(HOSTILE, 3)], "sample": [HOSTILE]}
    ]
    quorum = {
        "needed": 2,
        "count": 1,
        "missing": 1,
        "hidden": False,
        "given": [{"who": HOSTILE, "at": NOW}],
        "by": HOSTILE,
        "edited_by": HOSTILE,
    }
    edited = {
        **common,
        "questions": [Row(id="1", text=HOSTILE, answer="no")],
        "errors": [("basis-1", HOSTILE)],
        "note": HOSTILE,
        "headline": HOSTILE,
        "consequence": HOSTILE,
        "rows": [Row(name=HOSTILE, was=1, now=HOSTILE, change="changed")],
        "tier": "R2",
        "tier_before": "R2",
        "policy_says": "",
        "edit_id": "e1",
        "fields": [("amount", HOSTILE)],
        "fingerprint": "x",
    }
    return {
        "check": ("approvals/check.html", signing),
        "check again": ("approvals/check.html", {**signing, "errors": [("basis-retype", HOSTILE)]}),
        "step up": ("approvals/step_up.html", {**signing, "has_code": True, "errors": [("code", HOSTILE)]}),
        "step up by passkey": ("approvals/step_up.html", {**signing, "passkey": json.dumps({"x": HOSTILE})}),
        "step up without a factor": ("approvals/step_up.html", {**signing, "demo": True, "who": HOSTILE}),
        "request closed": (
            "approvals/request.html",
            request_context(unopened={"run", "facts", "list-x"}, lists=lists),
        ),
        "request opened": (
            "approvals/request.html",
            request_context(opening="run", lists=lists, quorum=quorum),
        ),
        "request blind": (
            "approvals/request.html",
            request_context(quorum={**quorum, "hidden": True, "given": []}),
        ),
        "inbox": ("approvals/inbox.html", inbox),
        "inbox empty": ("approvals/inbox.html", {**inbox, "lanes": [], "waiting": 0}),
        "inbox rows": ("approvals/inbox.html#rows", inbox),
        "inbox keys": ("approvals/inbox.html", {**inbox, "keys": True, "one_lane": True, "searched": 9}),
        "inbox full": ("approvals/inbox.html#full", {"item": item()}),
        "bulk": ("approvals/bulk.html", together),
        "bulk delegate": (
            "approvals/bulk.html",
            {**together, "verb": "delegate", "people": [User(pk=1, username=HOSTILE)]},
        ),
        "bulk snooze": ("approvals/bulk.html", {**together, "verb": "snooze", "hours": (1, 24)}),
        "bulk problems": (
            "approvals/bulk.html",
            {**together, "problems": [HOSTILE], "table": None, "gone": 2},
        ),
        "bulk done": (
            "approvals/bulk_done.html",
            {
                "word": "Approve",
                "summed": "1 approved",
                "done": [
                    Row(
                        made=Row(ref=HOSTILE, word=HOSTILE, ok=True, why=HOSTILE, decision=None), headline=""
                    ),
                    Row(made=Row(ref="A", word="x", ok=False, why="", decision="1"), headline=HOSTILE),
                ],
            },
        ),
        "inbox pulse": (
            "approvals/inbox.html#pulse",
            {**inbox, "changes": Row(new=2, changed=1, settled=[Row(ref="A", outcome=HOSTILE)])},
        ),
        "request": ("approvals/request.html", request_context()),
        "request errors": ("approvals/request.html", request_context(errors=[("basis-1", HOSTILE)])),
        "request blocked": ("approvals/request.html", request_context(blocks=[HOSTILE])),
        "request question": ("approvals/request.html", question),
        "request talk": ("approvals/request.html", request_context(talk=a_talk())),
        "request standing": (
            "approvals/request.html",
            request_context(item=item(state="consumed"), standing=closed("standing")),
        ),
        "request pulse": ("approvals/request.html#pulse", moved),
        "edit": ("approvals/edit.html", {**common, "form": filled, "standing": closed("stale")}),
        "edit diff": ("approvals/edit_diff.html", edited),
        "receipt": (
            "approvals/receipt.html",
            {
                "receipt": a_receipt(),
                "outcome": [Row(at=NOW, what=HOSTILE, tone="good")],
                "run_url": "/x",
                "next_item": a_row(),
            },
        ),
        "receipt undone": (
            "approvals/receipt.html",
            {
                "receipt": a_receipt(
                    undone=Row(person_id="2", made_at=NOW, reason=HOSTILE), undone_by=HOSTILE, state="open"
                )
            },
        ),
        "closed": (
            "approvals/closed.html",
            {"item": item(), "closed": closed(), "typed": [(HOSTILE, HOSTILE)], "again": True, "refresh": 3},
        ),
        "neutral": ("approvals/neutral.html", {}),
        "history": (
            "approvals/history.html",
            {"rows": [a_row()], "scope": "all", "page": Row(previous="/a", next="/b")},
        ),
        "runs": (
            "runs/list.html",
            {
                "runs": [a_run()],
                "agents": [HOSTILE],
                "statuses": [("queued", "Queued")],
                "page": Row(previous="", next=""),
            },
        ),
        "run": ("runs/detail.html", run),
        "snapshot": ("runs/snapshot.html", {"run": a_run(), "snapshot": a_snapshot(), "record": "ef"}),
        "403": ("403.html", {"why": HOSTILE}),
        **{name: (f"{name}.html", {}) for name in ("400", "404", "500", "403_csrf")},
    }


each_page = pytest.mark.parametrize("name", sorted(pages()))
each_whole_page = pytest.mark.parametrize("name", sorted(n for n, (t, _) in pages().items() if "#" not in t))
each_page_from_outside = pytest.mark.parametrize(
    "name", sorted(n for n, p in pages().items() if HOSTILE in repr(p))
)


@cache
def drawn(name: str) -> str:
    template, context = pages()[name]
    return draw(template, **context)


@cache
def read(name: str) -> Page:
    return Page(drawn(name))


# -- Every page ---------------------------------------------------------------


@each_page
def test_page_hostile_text_stays_text(name: str) -> None:
    page = read(name)
    assert [a for a in page.all("img") if "static" not in str(a.get("src"))] == []
    assert page.all("style") == []
    assert page.all("base") == []
    assert [f for f in page.all("form") if f.get("action") == "/x"] == []
    assert [a for _, a in page.elements if a.get("hx-get") == "/x" or any("hx-on" in key for key in a)] == []


@each_page_from_outside
def test_page_shows_all_of_the_hostile_text_it_was_given(name: str) -> None:
    page = read(name)
    values = [str(a.get("value")) for _, a in page.elements]
    assert HOSTILE in page.text or HOSTILE in values


@each_page
def test_page_has_nothing_inline(name: str) -> None:
    page = read(name)
    assert [a for a in page.all("script") if not a.get("src")] == []
    assert [key for _, a in page.elements for key in a if key == "style" or key.startswith("on")] == []


@each_page
def test_page_loads_only_its_own(name: str) -> None:
    addresses = [
        a.get(key) for _, a in read(name).elements for key in ("src", "href", "action") if a.get(key)
    ]
    assert [one for one in addresses if not str(one).startswith(("/", "#", "?"))] == []


@each_page
def test_page_ids_are_unique(name: str) -> None:
    ids = Counter(a["id"] for _, a in read(name).elements if a.get("id"))
    assert [one for one, count in ids.items() if count > 1] == []


@each_page
def test_page_every_label_and_reference_has_its_target(name: str) -> None:
    page = read(name)
    ids = {a.get("id") for _, a in page.elements}
    wanted = [a["for"] for a in page.all("label") if a.get("for")]
    for key in ("aria-labelledby", "aria-describedby", "form"):
        wanted += [one for _, a in page.elements if a.get(key) for one in str(a[key]).split()]
    assert [one for one in wanted if one not in ids] == []


@each_page
def test_page_every_field_has_a_name_for_people(name: str) -> None:
    page = read(name)
    labelled = {a.get("for") for a in page.all("label")}
    fields = [a for tag_name in ("input", "select", "textarea") for a in page.all(tag_name)]
    nameless = [
        a
        for a in fields
        if a.get("type") != "hidden"
        and a.get("id") not in labelled
        and a.get("type") not in ("radio", "checkbox")
    ]
    assert nameless == []


@each_page
def test_page_every_post_form_carries_its_token(name: str) -> None:
    markup = drawn(name)
    posts = sum(1 for f in Page(markup).all("form") if f.get("method") == "post")
    assert markup.count('name="csrfmiddlewaretoken"') == posts


@each_whole_page
def test_page_has_one_main_heading(name: str) -> None:
    assert len(read(name).all("h1")) == 1


@each_page
def test_page_title_carries_no_text_from_outside(name: str) -> None:
    title = re.search(r"<title>(.*?)</title>", drawn(name), re.S)
    assert title is None or "onerror" not in title[1]


# -- The frame ----------------------------------------------------------------


def test_base_configures_htmx_as_the_pages_need() -> None:
    config = [a["content"] for a in Page(drawn("neutral")).all("meta") if a.get("name") == "htmx-config"]
    assert [json.loads(str(one)) for one in config] == [HTMX_CONFIG]


def test_base_loads_the_vendored_htmx_2() -> None:
    scripts = [str(a["src"]).rpartition("/")[2] for a in Page(drawn("neutral")).all("script")]
    assert scripts == ["htmx-2.min.js", "abeyance.js"]


def test_base_signed_out_says_nothing_of_what_is_inside() -> None:
    page = Page(draw("base.html", user=AnonymousUser()))
    assert page.all("nav") == []
    assert page.all("form") == []


def test_base_has_one_polite_live_region_and_a_way_past_the_bar() -> None:
    page = Page(drawn("inbox"))
    assert len([a for _, a in page.elements if a.get("aria-live") == "polite"]) == 1
    assert page.all("a")[0]["href"] == "#main"


# -- Deciding -----------------------------------------------------------------


def test_request_every_decision_carries_digest_and_nonce() -> None:
    page = Page(drawn("request"))
    deciding = [f for f in page.all("form") if f.get("action") == "/requests/7Q2F8M3K/decide"]
    digests = [a for a in page.all("input") if a.get("name") == "view_digest" and a.get("value") == "d1"]
    nonces = [a for a in page.all("input") if a.get("name") == "form_nonce" and a.get("value") == "n1"]
    assert (len(deciding), len(digests), len(nonces)) == (2, 2, 2)


def test_request_only_changed_material_facts_want_a_tick() -> None:
    ticks = [
        (a["value"], "checked" in a, a["form"])
        for a in Page(drawn("request")).all("input")
        if a.get("name") == "ack"
    ]
    assert ticks == [("fact_changed", True, "approve"), ("fact_unreadable", False, "approve")]


def test_request_blocked_has_no_way_to_approve_and_the_others_stay() -> None:
    page = Page(drawn("request blocked"))
    assert [a for a in page.all("input") if a.get("value") == "approve"] == []
    assert [a["value"] for a in page.all("input") if a.get("name") == "decision"] == ["reject"]
    assert [a for a in page.all("a") if a.get("href") == "/requests/7Q2F8M3K/edit"] != []


def test_request_without_consequence_says_to_treat_it_as_irreversible() -> None:
    page = Page(draw("approvals/request.html", **request_context(item=item(consequence=""))))
    assert "Abeyance doesn’t know what this action does. Treat it as irreversible." in page.text


def test_request_that_stands_decided_offers_no_decision() -> None:
    page = Page(drawn("request standing"))
    assert [f for f in page.all("form") if str(f.get("action")).endswith("/decide")] == []


def test_request_nothing_is_ticked_or_focused_beforehand() -> None:
    page = Page(draw("approvals/request.html", **request_context(typed=Row(note="", ack=[]), questions=[])))
    assert [a for a in page.all("input") if "checked" in a] == []
    assert [a for _, a in page.elements if "autofocus" in a] == []


def test_closed_keeps_what_was_typed() -> None:
    assert HOSTILE in Page(drawn("closed")).text


def test_mail_minimal_has_no_word_from_outside() -> None:
    context = {
        "item": item(headline=HOSTILE),
        "url": "https://abeyance.example/requests/7Q2F8M3K",
        "others": 2,
        "tier_word": "medium",
    }
    body = render_to_string("emails/request_opened.txt", context)
    subject = render_to_string("emails/request_opened_subject.txt", context).strip()
    assert subject == "Approval needed (medium) · by 12 Mar 16:02 UTC · 7Q2F8M3K"
    assert "https://abeyance.example/requests/7Q2F8M3K" in body
    assert [word for word in ("onerror", "240.00", "refund") if word in body + subject] == []


# -- Components ---------------------------------------------------------------


def test_component_with_a_wrong_argument_fails_when_compiled() -> None:
    with pytest.raises(TemplateSyntaxError):
        Template("{% load abeyance %}{% tier_badge grade='R2' %}")
    with pytest.raises(TemplateSyntaxError):
        Template("{% load abeyance %}{% tier_badge 'R2' %}")


def test_tier_badge_says_it_in_shape_and_words() -> None:
    page = Page(tag("{% tier_badge tier='R3' %}"))
    assert page.text == "◆◆◆ R3 high"


def test_revealed_draws_chips_and_adds_no_space() -> None:
    page = Page(tag("{% revealed text=text %}", text="a\u200b.b" + "\n" * 9 + "c"))
    assert page.text == "a⟦U+200B ZERO WIDTH SPACE⟧.b⟦8 blank lines⟧\nc"
    assert page.elements[0] == ("bdi", {"class": "said", "dir": "auto", "hx-disable": None})


def test_revealed_identifier_keeps_left_to_right() -> None:
    assert Page(tag("{% revealed text='ch_881' prose=False %}")).elements[0][1]["dir"] == "ltr"


def test_value_tree_tells_null_empty_and_text_apart() -> None:
    page = Page(
        tag("{% value_tree value=value %}", value={"a": None, "b": "", "c": "null", "d": True, "e": []})
    )
    assert words(page) == 'anull nothing b"" empty text cnull text dtrue yes or no e[ ] empty list'


def test_value_tree_keeps_every_digit() -> None:
    text = '{"big":123456789012345678901234567890,"fraction":0.10000000000000000000001,"amount":"240.00"}'
    page = Page(tag("{% value_tree json=text kinds=kinds %}", text=text, kinds={"amount": "decimal"}))
    assert words(page) == (
        "big123456789012345678901234567890 number fraction0.10000000000000000000001 number "
        "amount240.00 decimal"
    )


def test_value_tree_long_list_counts_what_stands_open_and_has_all_inside() -> None:
    page = Page(
        tag("{% value_tree value=value %}", value={"recipients": [f"r{n}@x.org" for n in range(1200)]})
    )
    shown, everything = page.text.split("Show all 1,200 items")
    assert "1,200 items" in shown
    assert "1,190 more in between" in shown
    assert re.findall(r"r\d+@", shown) == [f"r{n}@" for n in [*range(5), *range(1195, 1200)]]
    assert re.findall(r"r\d+@", everything) == [f"r{n}@" for n in range(1200)]


def test_value_tree_list_of_twenty_stands_in_full() -> None:
    page = Page(tag("{% value_tree value=value %}", value=list(range(20))))
    assert "Show all" not in page.text
    assert "20 items" in page.text


def test_value_tree_opens_to_depth_two() -> None:
    page = Page(tag("{% value_tree value=value %}", value={"a": {"b": {"c": {"d": 1}}}}))
    assert ["open" in a for a in page.all("details")] == [True, False, False]


def test_value_tree_long_text_is_whole_and_measured() -> None:
    page = Page(tag("{% value_tree value=value %}", value="x\n" * 100 + "y"))
    assert page.text.rstrip() == "x\n" * 100 + "y 201 characters, 101 lines"


def test_diff_rows_read_without_colour() -> None:
    rows = [
        Row(name="amount", was="240.00", now="120.00", change="changed"),
        Row(name="memo", was=None, now="x", change="added"),
    ]
    page = Page(tag("{% diff_rows rows=rows caption='Edit' %}", rows=rows))
    assert words(page) == "Edit WhatWasNow amount removed: 240.00 added: 120.00 memo not there added: x"


@pytest.mark.parametrize(
    ("left", "text", "mood"),
    [
        (timedelta(hours=1, minutes=38), "1 h 38 min left", "calm"),
        (timedelta(minutes=29), "29 min left", "soon"),
        (timedelta(minutes=9, seconds=59), "9 min left", "near"),
        (timedelta(seconds=45), "45 s left", "near"),
        (timedelta(0), "expired", "over"),
    ],
)
def test_time_left_says_how_long_and_how_pressing(left: timedelta, text: str, mood: str) -> None:
    markup = tag(
        "{% time_left until=until now=now opened=opened %}",
        until=NOW + left,
        opened=NOW + left - timedelta(hours=2),
    )
    page = Page(markup)
    assert (page.text, page.elements[0][1]["class"]) == (text, f"left left-{mood}")


def test_time_at_names_its_zone() -> None:
    assert tag("{% time_at at=at now=now %}", at=NOW - timedelta(minutes=21)).count("13:41 UTC") == 1
    assert "11 Mar 2026, 14:02 UTC" in tag("{% time_at at=at now=now %}", at=NOW - timedelta(days=1))


def test_error_summary_links_to_each_place() -> None:
    form = AnswerForm({"ceiling": ""})
    links = [a["href"] for a in Page(tag("{% error_summary form=form %}", form=form)).all("a")]
    assert links == ["#id_supplier", "#id_ceiling"]


# -- The files ----------------------------------------------------------------


def test_template_addresses_are_the_projects() -> None:
    """The addresses above stand for real ones."""
    pattern = re.compile(r"{% url '([\w-]+)'(?! as)(?!.*? as )")
    wanted = {name for source in TEMPLATES.rglob("*.html") for name in pattern.findall(source.read_text())}
    known = get_resolver("config.urls").reverse_dict
    assert {name for name in wanted if name not in known} == set()


def sources() -> list[Path]:
    return sorted(TEMPLATES.rglob("*.html"))


@pytest.mark.parametrize("source", sources(), ids=lambda p: str(p.relative_to(TEMPLATES)))
def test_template_source_marks_nothing_safe_and_has_nothing_inline(source: Path) -> None:
    text = source.read_text()
    assert (
        re.findall(
            r"\|\s*safe|autoescape off|\sstyle=|\son\w+=|<style|<script(?![^>]*\ssrc=)|javascript:", text
        )
        == []
    )


def test_static_files_name_no_outside_address() -> None:
    texts = [p.read_text() for p in STATIC.rglob("*") if p.suffix in {".css", ".js"}]
    assert [
        one
        for text in texts
        for one in re.findall(r"https?://|@import|eval\(|localStorage|sessionStorage|\.innerHTML", text)
    ] == []


@pytest.mark.parametrize(
    ("title", "said"),
    [
        ("\n  Add Security Key\n", "Add security key"),
        ("Two-Factor Authentication", "Two-factor authentication"),
        ("Scan the QR Code", "Scan the QR code"),
        ("Am I Sure?", "Am I sure?"),
        ("<b>&lt;Key&gt;</b> of Ana", "<b>&lt;Key&gt;</b> of ana"),
        ("", ""),
    ],
)
def test_titles_of_sign_in_pages_are_written_like_ours(title: str, said: str) -> None:
    template = "{% load abeyance %}{% filter sentence_case %}{{ title|safe }}{% endfilter %}"
    assert Template(template).render(Context({"title": title})) == said
