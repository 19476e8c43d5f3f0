"""The reviewers' pages, without JavaScript and with htmx: who sees what, what a form is answered, and what GET never does."""

import json
import re
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from html.parser import HTMLParser
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
from allauth.account.models import EmailAddress
from django.contrib.auth.models import User
from django.core import mail
from django.db import connection
from django.test import Client
from django.urls import reverse

from approvals.exceptions import Stale
from approvals.models import Decision, Request
from approvals.presentation import history
from runs import clock, endings, sweeper
from runs.actors import Actor
from runs.models import Step
from tests.approvals import desk
from tests.pages import POLICY, addresses, browser, directives, inline, text

pytestmark = [pytest.mark.django_db]
HTMX = {"HX-Request": "true"}


@pytest.fixture
def request_(people: SimpleNamespace) -> Request:
    return desk.opened(owner=people.cyd, on_behalf_of="maria@example.org")


class Form(HTMLParser):
    """The fields of one form of a page as a browser sends it untouched, those that name it by `form=` too."""

    def __init__(self, markup: str, name: str) -> None:
        super().__init__()
        self.fields: dict[str, str] = {}
        self.buttons: list[str] = []
        self._name, self._inside, self._area = name, False, ""
        self.feed(markup)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag == "form":
            self._inside = self._name in (found.get("id"), urlsplit(found.get("action") or "").path)
        if not (self._inside or found.get("form") == self._name):
            return
        name, kind = found.get("name"), found.get("type")
        if tag == "input" and name and (kind not in ("checkbox", "radio") or "checked" in found):
            self.fields[name] = found.get("value") or ""
        if tag == "textarea" and name:
            self._area, self.fields[name] = name, ""
        if tag == "button":
            self.buttons.append(found.get("value") or "")

    def handle_data(self, data: str) -> None:
        if self._area:
            self.fields[self._area] += data.removeprefix("\n") if not self.fields[self._area] else data

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside and tag != "form"
        self._area = "" if tag == "textarea" else self._area


def form(answer: Any, name: str) -> dict[str, str]:
    found = Form(answer.content.decode(), name)
    found.fields.pop("csrfmiddlewaretoken", None)
    return found.fields


def address(verb: str, request: Request) -> str:
    return reverse(verb, args=[request.ref])


def post(site: Client, request: Request, **fields: Any) -> Any:
    """A decision as a form sends it; on what stands unless the digest is given."""
    basis = {"basis-1": "yes"} if fields.get("decision") == "approve" else {}
    sent = {"view_digest": desk.fresh(request).revision.digest, "form_nonce": "n", **basis, **fields}
    return site.post(address("decide", request), {k: v for k, v in sent.items() if v is not None})


# -- Without JavaScript ----------------------------------------------------------------------


def test_approve_from_inbox_to_receipt(site: Client, request_: Request, whole: None) -> None:
    inbox = site.get("/")
    assert inbox.context["waiting"] == 1
    [row] = [row for lane in inbox.context["lanes"] for row in lane["rows"]]
    assert row.headline == "Give 240.00 EUR back to charge ch_1"
    shown = site.get(row.url)
    assert "240.00 EUR leaves our account for charge ch_1 at once." in text(shown)
    fields = form(shown, "approve")
    assert sorted(fields) == ["decision", "form_nonce", "view_digest"]
    receipt = site.post(address("decide", request_), {**fields, "basis-1": "yes"}, follow=True)
    made = Decision.objects.get()
    assert receipt.redirect_chain == [(f"/decisions/{made.pk}", 303)]
    assert "You approved" in text(receipt)
    assert made.nonce == fields["form_nonce"]
    assert site.get("/").context["waiting"] == 0
    assert desk.result(request_)["result"] == "given 240.00"
    assert [event["what"] for event in site.get(f"/decisions/{made.pk}").context["outcome"]][1:3] == [
        "The call was made.",
        "It succeeded.",
    ]


def test_edit_from_form_over_diff_to_receipt(site: Client, request_: Request, whole: None) -> None:
    edit = site.get(address("edit", request_))
    fields = form(edit, address("edit", request_))
    assert (fields["f-amount"], fields["f-charge"]) == ("240.00", "ch_1")
    diff = site.post(address("edit", request_), {**fields, "f-amount": "25.00"})
    assert [(row.name, row.was, row.now) for row in diff.context["rows"]] == [("amount", "240.00", "25.00")]
    assert "Give 25.00 EUR back to charge ch_1" in text(diff)
    sent = form(diff, "approve-edit")
    assert sorted(sent) == ["decision", "edited", "form_nonce", "note", "view_digest"]
    sent |= {"note": "one invoice only", "basis-1": "yes"}
    receipt = site.post(address("decide", request_), sent, follow=True)
    assert receipt.status_code == 200
    assert receipt.context["receipt"]["verb"] == "edit"
    said = desk.result(request_)
    assert (said["result"], said["decision"]) == ("given 25.00", ["edit", "Ana", "one invoice only"])


def test_edit_that_changes_nothing_says_so_and_writes_nothing(site: Client, request_: Request) -> None:
    fields = form(site.get(address("edit", request_)), address("edit", request_))
    answer = site.post(address("edit", request_), fields)
    assert answer.status_code == 422
    assert "Nothing is changed yet. Change a value, or discard the edit." in text(answer)
    assert desk.numbers(request_) == [(1, "")]


def test_edit_changed_again_shows_what_was_typed(site: Client, request_: Request) -> None:
    fields = form(site.get(address("edit", request_)), address("edit", request_))
    diff = site.post(address("edit", request_), {**fields, "f-amount": "25.00"})
    again = site.post(address("edit", request_), form(diff, address("edit", request_)))
    assert (again.status_code, again.context["form"]["amount"].value()) == (200, "25.00")


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("1.234,50", "“1.234,50” is not a number such as 1234.50, with a point and without spaces."),
        ("50000.00", "Policy does not allow the edited call"),
    ],
)
def test_edit_that_does_not_fit_shows_the_form_as_filled(
    site: Client, request_: Request, typed: str, said: str
) -> None:
    fields = form(site.get(address("edit", request_)), address("edit", request_))
    answer = site.post(
        address("edit", request_), {**fields, "f-amount": typed}, headers={"Accept-Language": "de"}
    )
    assert (answer.status_code, answer.context["form"]["amount"].value()) == (422, typed)
    assert said in text(answer)
    assert desk.numbers(request_) == [(1, "")]


def test_edit_of_what_changed_meanwhile_says_what(site: Client, request_: Request) -> None:
    fields = form(site.get(address("edit", request_)), address("edit", request_))
    desk.look(request_, given=Decimal("5.00"))
    answer = site.post(address("edit", request_), {**fields, "f-amount": "25.00"})
    assert (answer.status_code, answer.context["form"]["amount"].value()) == (409, "25.00")
    assert [(row.name, row.was, row.now) for row in answer.context["standing"].changes] == [
        ("Given back so far", "0.00", "5.00")
    ]


def test_untouched_edit_form_of_odd_values_changes_nothing(site: Client, people: SimpleNamespace) -> None:
    """F26, over the whole way: page, form, post."""
    kept = {
        "account": 9007199254740993, "amount": "1234.50", "ratio": 1e21, "code": "00123",
        "letter": "Dear,\r\n\r\n<b>you</b>\n", "tree": {"n": -0.0, "big": 2**70, "ü": "☃ \u202e"}, "many": ["", " a"],
        "sure": False, "level": "high",
    }  # fmt: skip
    request = desk.opened("approvals-filler", values=kept)
    answer = site.get(address("edit", request), headers={"Accept-Language": "de"})
    sent = {
        name: v.replace("\r\n", "\n").replace("\n", "\r\n")
        for name, v in form(answer, address("edit", request)).items()
    }
    back = site.post(address("edit", request), sent, headers={"Accept-Language": "de"})
    assert "Nothing is changed yet." in text(back)


def test_reject_by_a_reason_button_with_a_note(site: Client, request_: Request) -> None:
    shown = site.get(address("request", request_))
    found = Form(shown.content.decode(), "reject")
    assert found.buttons[0] == "wrong amount"
    fields = {**form(shown, "reject"), "reason": "wrong amount", "note": "take 24\r\ninstead"}
    receipt = site.post(address("decide", request_), fields, follow=True)
    assert "You rejected" in text(receipt)
    assert desk.result(request_)["args"] == ["wrong amount: take 24\ninstead", "Ana"]


def test_reject_with_the_longest_note_the_page_takes(site: Client, request_: Request) -> None:
    longest = int(
        re.search(
            r'name="note"[^>]*maxlength="(\d+)"', site.get(address("request", request_)).content.decode()
        )[1]
    )  # type: ignore[index]
    answer = post(site, request_, decision="reject", reason="wrong recipient", note="x" * longest)
    assert answer.status_code == 303


def test_answer_a_question_from_its_page(site: Client, people: SimpleNamespace) -> None:
    question = desk.opened("approvals-asker", question="Which vendor,\nand how many?")
    shown = site.get(address("request", question))
    assert "A question from approvals-asker" in text(shown)
    fields = {**form(shown, "respond"), "f-vendor": "high", "f-number": "7", "f-note": ""}
    assert site.post(address("decide", question), fields, follow=True).status_code == 200
    assert desk.result(question) == {"vendor": "high", "number": 7, "note": ""}


def test_answer_that_does_not_fit_shows_the_form_as_filled(site: Client, people: SimpleNamespace) -> None:
    question = desk.opened("approvals-asker")
    fields = {
        **form(site.get(address("request", question)), "respond"),
        "f-vendor": "low",
        "f-number": "700",
        "f-note": "kept",
    }
    answer = site.post(address("decide", question), fields)
    assert answer.status_code == 422
    shown = answer.context["answer_form"]
    assert (shown["number"].value(), shown["note"].value(), list(shown.errors)) == ("700", "kept", ["number"])
    assert desk.counts(question) == ("open", 0, 0)


def test_tick_of_a_changed_fact_is_wanted_and_kept(site: Client, request_: Request) -> None:
    desk.look(request_, given=Decimal("5.00"))
    shown = site.get(address("request", request_))
    assert 'name="ack" value="given_back" form="approve"' in shown.content.decode()
    without = post(site, request_, decision="approve")
    assert without.status_code == 422
    assert "Tick that you have seen: Given back so far was 0.00 and is 5.00 now" in text(without)
    assert post(site, request_, decision="approve", ack="given_back").status_code == 303
    assert desk.counts(request_) == ("in_force", 1, 1)


def test_blocked_request_offers_no_approval_and_refuses_one(site: Client, request_: Request) -> None:
    desk.look(request_, status="disputed")
    shown = site.get(address("request", request_))
    assert form(shown, "approve") == {}
    assert "State of the charge was paid and is disputed now" in text(shown)
    answer = post(site, request_, decision="approve")
    assert answer.status_code == 409
    assert post(site, request_, decision="reject", reason="other").status_code == 303


# -- Answers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"decision": None},
        {"decision": ""},
        {"decision": "APPROVED"},
        {"decision": "true"},
        {"decision": "1"},
        {"decision": "[]"},
        {"decision": "{}"},
        {"decision": "null"},
        {"decision": "respond"},
        {"decision": "edit"},
        {"decision": "a\x00b"},
        {"decision": "Approve"},
        {"decision": " approve"},
        {"decision": []},
        {"decision": None, "approve": "approve"},
        {"decision": "approve", "decision[]": "approve"},
        {"decision": ["approve", "reject"]},
        {"decision": ["approve", "approve"]},
        {"decision": "approve", "tier": "R1"},
        {"decision": "approve", "f-amount": "1"},
        {"decision": "approve", "person_id": "1"},
        {"decision": "reject"},
        {"decision": "reject", "reason": "other", "note": "x" * 4001},
        {"decision": "reject", "reason": "a\x00b"},
        {"decision": "reject", "reason": "other", "edited": "{}"},
        {"decision": "approve", "edited": "{}"},
        {"decision": "approve", "edited": '{"charge":"ch_1","amount":"NaN"}'},
    ],
)
def test_decide_that_does_not_fit_is_422_and_changes_nothing(
    site: Client, request_: Request, fields: dict[str, Any]
) -> None:
    """F20, C-06."""
    answer = post(site, request_, **fields)
    assert desk.drive(request_).status == "suspended"
    assert desk.world.calls == []
    assert (answer.status_code, desk.counts(request_), desk.numbers(request_)) == (
        422,
        ("open", 0, 0),
        [(1, "")],
    )
    assert answer.context["errors"] != []


def test_answer_with_a_field_of_no_form_is_422(site: Client, people: SimpleNamespace) -> None:
    question = desk.opened("approvals-asker")
    answer = post(site, question, decision="respond", **{"f-vendor": "low", "f-number": "1", "f-admin": "1"})
    assert (answer.status_code, desk.counts(question)) == (422, ("open", 0, 0))


def test_decide_422_keeps_what_was_typed(site: Client, request_: Request) -> None:
    desk.look(request_, given=Decimal("5.00"))
    answer = post(site, request_, decision="reject", note="my <note>", ack="given_back", tier="R1")
    assert (answer.status_code, answer.context["typed"]) == (
        422,
        {"note": "my <note>", "ack": ["given_back"], "decision": "reject", "basis": {}},
    )


def test_decide_without_a_digest_is_428(site: Client, request_: Request) -> None:
    for fields in ({"view_digest": None}, {"view_digest": ""}):
        answer = post(site, request_, decision="approve", **fields)
        assert (answer.status_code, desk.counts(request_)) == (428, ("open", 0, 0))
    assert answer.context["again"] is True


def test_decide_with_an_old_digest_is_409_and_shows_then_and_now(site: Client, request_: Request) -> None:
    """C-05, F75."""
    old = request_.revision.digest
    desk.look(request_, given=Decimal("40.00"))
    answer = post(site, request_, decision="approve", view_digest=old)
    panel = answer.context["closed"]
    assert (answer.status_code, panel.kind) == (409, "stale")
    assert [(row.name, row.was, row.now) for row in panel.changes] == [("Given back so far", "0.00", "40.00")]
    assert "Your approval was not recorded." in text(answer)
    assert desk.counts(request_) == ("open", 0, 0)


def test_decide_on_old_facts_is_409_checking_and_asks_for_a_look(site: Client, request_: Request) -> None:
    desk.later(61)
    answer = post(site, request_, decision="approve")
    assert (answer.status_code, answer.context["closed"].kind, answer.context["refresh"]) == (
        409,
        "checking",
        3,
    )
    assert desk.fresh(request_).look_wanted_at is not None
    assert f'content="3;url={address("request", request_)}"' in answer.content.decode()


@pytest.mark.parametrize(
    ("verb", "kind", "said"),
    [
        ("approve", "decided_same", "Ben already approved this"),
        ("reject", "decided_other", "Your rejection was not recorded."),
    ],
)
def test_decide_second_is_409_with_who_was_first(
    site: Client, request_: Request, ben: User, verb: str, kind: str, said: str
) -> None:
    desk.decide(request_, ben)
    answer = post(site, request_, decision=verb, reason="other", note="a long thought")
    assert (answer.status_code, answer.context["closed"].kind) == (409, kind)
    assert said in text(answer)
    assert answer.context["typed"] == [("Your note", "a long thought")]
    assert desk.counts(request_) == ("in_force", 1, 1)


def test_decide_rejected_by_another_shows_the_reason(site: Client, request_: Request, ben: User) -> None:
    desk.decide(request_, ben, "reject", reason="wrong <amount>")
    answer = post(site, request_, decision="approve")
    assert (answer.context["closed"].reason, answer.context["closed"].who) == ("wrong <amount>", "Ben")


def test_decide_again_leads_to_the_same_receipt(site: Client, request_: Request) -> None:
    """F74, C-07."""
    digest = request_.revision.digest
    answers = [
        post(site, request_, decision="approve", view_digest=digest, form_nonce=n) for n in ("a", "a", "b")
    ]
    assert {(answer.status_code, answer["Location"]) for answer in answers} == {
        (303, f"/decisions/{Decision.objects.get().pk}")
    }


def test_decide_by_who_may_only_see_is_403(people: SimpleNamespace, request_: Request) -> None:
    answer = post(browser(people.dot), request_, decision="approve")
    assert (answer.status_code, answer.context["closed"].kind) == (403, "not_yours")
    assert desk.refusals(request_) == [("Dot", "not_eligible")]


def test_requester_sees_no_control_and_is_403(people: SimpleNamespace) -> None:
    """C-23: what the server refuses is not offered."""
    request = desk.opened(owner=people.ana)
    site = browser(people.ana)
    shown = site.get(address("request", request))
    assert [form(shown, name) for name in ("approve", "reject", "respond")] == [{}, {}, {}]
    assert "You started this run, so somebody else decides." in text(shown)
    assert site.get("/").context["waiting"] == 0
    assert site.get(address("edit", request)).status_code == 303
    assert post(site, request, decision="approve").status_code == 403


def test_decide_after_the_run_was_cancelled_is_409(site: Client, request_: Request) -> None:
    """F57: by whom and why; it leaves the inbox and its count, and what was said of it stays to be read."""
    fields = form(site.get(address("request", request_)), "approve")
    assert site.get("/").context["waiting"] == 1
    endings.cancel(request_.run_id, actor=Actor("key", "k1", "cyd's key", "api"), why="the customer called")
    answer = site.post(address("decide", request_), {**fields, "decision": "approve", "note": "hm"})
    closed = answer.context["closed"]
    assert (answer.status_code, closed.kind, closed.who) == (409, "cancelled", "cyd's key")
    assert "The run was cancelled" in text(answer)
    assert "Cancelled by cyd's key. Nothing was run. the customer called" in text(answer)
    inbox = site.get("/")
    assert (inbox.context["waiting"], request_.ref in text(inbox)) == (0, False)
    kept = site.get(address("request", request_))
    assert (kept.status_code, kept.context["standing"].who) == (200, "cyd's key")
    assert [form(kept, name) for name in ("approve", "reject")] == [{}, {}]


def test_decide_after_the_run_ended_by_itself_does_not_say_cancelled(site: Client, request_: Request) -> None:
    """F57: expired and failed are not cancelled, and nobody did it."""
    desk.later(100)
    assert endings.expire(request_.run_id, 50.0)
    answer = post(site, request_, decision="approve")
    assert (answer.status_code, answer.context["closed"].kind, answer.context["closed"].who) == (
        409,
        "cancelled",
        "",
    )
    assert "The run expired" in text(answer)
    assert "ancelled" not in text(answer)
    assert site.get("/").context["waiting"] == 0


def test_decide_after_the_run_has_finished_is_409_with_who_and_when(
    site: Client, request_: Request, ben: User
) -> None:
    """F08: and the form of who decided it, sent again, has its first answer."""
    browser_of_ben = browser(ben)
    fields = {
        "decision": "approve",
        "view_digest": request_.revision.digest,
        "form_nonce": "x",
        "basis-1": "yes",
    }
    first = site.post(address("decide", request_), fields)
    desk.drive(request_)
    late = post(browser_of_ben, request_, decision="reject", reason="other")
    again = site.post(address("decide", request_), fields)
    closed, made = late.context["closed"], Decision.objects.get()
    assert (late.status_code, closed.kind, closed.who, closed.at) == (
        409,
        "decided_other",
        "Ana",
        made.made_at,
    )
    assert "Ana approved this" in text(late)
    assert "Your rejection was not recorded." in text(late)
    assert {(each.status_code, each["Location"]) for each in (first, again)} == {
        (303, f"/decisions/{made.pk}")
    }


# -- 404 ---------------------------------------------------------------------------------------------


def paths(ref: str) -> list[tuple[str, str]]:
    return [
        ("get", f"/requests/{ref}"),
        ("get", f"/requests/{ref}/pulse"),
        ("get", f"/requests/{ref}/edit"),
        ("post", f"/requests/{ref}/edit"),
        ("post", f"/requests/{ref}/look"),
        ("post", f"/requests/{ref}/decide"),
    ]


def test_unknown_and_foreign_are_one_page(people: SimpleNamespace, request_: Request) -> None:
    """C-16, F69: same status, same body."""
    dee, bodies = browser(people.dee), set()
    desk.decide(request_, people.ana)
    receipt = [
        ("get", f"/decisions/{Decision.objects.get().pk}"),
        ("get", f"/decisions/{'0' * 8}-0000-4000-8000-{'0' * 12}"),
    ]
    known = [*paths(request_.ref), *paths("0000000000"), *paths("%00"), *paths("a b"), *receipt]
    for method, path in known:
        answer = getattr(dee, method)(path)
        assert (answer.status_code, answer["Cache-Control"]) == (
            404,
            "max-age=0, no-cache, no-store, must-revalidate, private",
        )
        bodies.add(
            re.sub(
                r'name="csrfmiddlewaretoken" value="\w+"| aria-current="page"', "", answer.content.decode()
            )
        )
    assert len(bodies) == 1
    assert request_.ref not in bodies.pop()


def test_role_lost_with_the_page_open_is_the_same_page(site: Client, request_: Request, ana: User) -> None:
    """F63 (a)."""
    ana.groups.clear()
    assert [getattr(site, method)(path).status_code for method, path in paths(request_.ref)] == [404] * 6
    assert site.get("/").context["waiting"] == 0
    assert "You aren’t a reviewer for any tool." in text(site.get("/"))


def test_superuser_without_a_group_sees_nothing(people: SimpleNamespace, request_: Request) -> None:
    """C-17."""
    root = browser(people.root)
    assert [getattr(root, method)(path).status_code for method, path in paths(request_.ref)] == [404] * 6


# -- Sign-in -------------------------------------------------------------------------------------------


def test_page_without_a_session_leads_to_sign_in_and_back(client: Client, request_: Request) -> None:
    for path in ("/", "/history", f"/requests/{request_.ref}", f"/requests/{request_.ref}/edit"):
        answer = client.get(path)
        assert (answer.status_code, answer["Location"]) == (303, f"/accounts/login/?next={path}")
        assert answer.content == b""
        assert "no-store" in answer["Cache-Control"]


def test_form_without_a_session_does_nothing_and_keeps_what_was_typed(
    client: Client, request_: Request
) -> None:
    """F76, C-02."""
    for path in (address("decide", request_), address("edit", request_), address("look", request_)):
        answer = client.post(
            f"{path}?decision=approve&token=x", {"decision": "approve", "note": "my thought"}
        )
        assert (answer.status_code, answer.context["typed"]) == (401, [("Your note", "my thought")])
        assert f"/accounts/login/?next=/requests/{request_.ref}" in answer.content.decode()
    assert (desk.counts(request_), desk.fresh(request_).look_wanted_at) == (("open", 0, 0), None)


def test_fragment_without_a_session_is_401_and_no_form(client: Client, request_: Request) -> None:
    for path in ("/inbox/pulse", address("request_pulse", request_)):
        answer = client.get(path, headers=HTMX)
        assert answer.status_code == 401
        assert b"<input" not in answer.content


def test_disabled_person_has_no_session(site: Client, request_: Request, ana: User) -> None:
    User.objects.filter(pk=ana.pk).update(is_active=False)
    assert site.get("/").status_code == 303
    assert post(site, request_, decision="approve").status_code == 401


@pytest.mark.parametrize("verb", ["decide", "edit", "look"])
def test_form_without_its_token_is_403(ana: User, request_: Request, verb: str) -> None:
    """C-04."""
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(ana)
    strict.get(address("request", request_))
    fields = {"decision": "approve", "view_digest": request_.revision.digest}
    assert strict.post(address(verb, request_), fields).status_code == 403
    assert (desk.counts(request_), desk.fresh(request_).look_wanted_at) == (("open", 0, 0), None)


def test_form_from_another_origin_is_403_with_its_token_too(ana: User, request_: Request) -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(ana)
    shown = strict.get(address("request", request_)).content.decode()
    token = re.search(r'csrfmiddlewaretoken" value="(\w+)"', shown)[1]  # type: ignore[index]
    fields = {"decision": "approve", "view_digest": request_.revision.digest, "csrfmiddlewaretoken": token}
    fields["basis-1"] = "yes"
    evil = strict.post(address("decide", request_), fields, headers={"Origin": "https://evil.example"})
    assert (evil.status_code, desk.counts(request_)) == (403, ("open", 0, 0))
    assert strict.post(address("decide", request_), fields).status_code == 303


# -- Expiry (F38) ----------------------------------------------------------------------------------------


def test_expired_shows_as_expired_though_no_sweeper_came(site: Client, request_: Request) -> None:
    """F38: computed at every door; closed once when the sweeper is back, at the time it was to end; no mail of it."""
    sweeper.sweep()
    mails = len(mail.outbox)
    fields = form(site.get(address("request", request_)), "approve")
    desk.later(3601)
    shown = site.get(address("request", request_))
    assert (shown.context["item"]["state"], shown.context["standing"].kind) == ("expired", "expired")
    assert [form(shown, name) for name in ("approve", "reject")] == [{}, {}]
    assert site.get("/").context["waiting"] == 0
    assert site.get(address("edit", request_)).status_code == 303
    answer = site.post(address("decide", request_), {**fields, "decision": "approve"})
    assert (answer.status_code, answer.context["closed"].kind) == (409, "expired")
    assert desk.counts(request_) == ("open", 0, 0)
    assert [sweeper.sweep().get("expire_holds", 0) for _ in range(3)] == [1, 0, 0]
    assert desk.counts(request_) == ("expired", 0, 0)
    assert desk.told(request_).count("expired") == 1
    assert site.get(address("request", request_)).context["standing"].at == request_.decide_by
    assert len(mail.outbox) == mails


# -- htmx ---------------------------------------------------------------------------------------------------


def test_pulse_of_what_did_not_move_is_204(site: Client, request_: Request) -> None:
    version = site.get(address("request", request_)).context["version"]
    answer = site.get(address("request_pulse", request_), {"v": version}, headers=HTMX)
    assert (answer.status_code, answer.content) == (204, b"")


def test_pulse_of_what_changed_is_a_part_that_says_what(site: Client, request_: Request) -> None:
    version = site.get(address("request", request_)).context["version"]
    desk.look(request_, given=Decimal("5.00"))
    answer = site.get(address("request_pulse", request_), {"v": version}, headers=HTMX)
    assert answer.status_code == 200
    assert b"<html" not in answer.content
    assert "This changed while you were reading" in text(answer)


def test_pulse_after_somebody_was_refused_is_204(site: Client, request_: Request, ben: User) -> None:
    """What was not decided changes nothing of what is shown."""
    version = site.get(address("request", request_)).context["version"]
    with pytest.raises(Stale):
        desk.decide(request_, ben, digest="0" * 64)
    assert site.get(address("request_pulse", request_), {"v": version}, headers=HTMX).status_code == 204


def test_pulse_of_an_equal_look_only_tells_the_time(site: Client, request_: Request) -> None:
    version = site.get(address("request", request_)).context["version"]
    desk.look(request_)
    answer = site.get(address("request_pulse", request_), {"v": version}, headers=HTMX)
    assert answer.status_code == 200
    assert re.findall(r"<(\w+)", answer.content.decode()) == ["span", "span", "time", "span"]


def test_pulse_of_what_was_decided_says_by_whom(site: Client, request_: Request, ben: User) -> None:
    version = site.get(address("request", request_)).context["version"]
    desk.decide(request_, ben)
    answer = site.get(address("request_pulse", request_), {"v": version}, headers=HTMX)
    assert answer.status_code == 200
    assert "Ben approved this" in text(answer)


def test_inbox_pulse_says_what_is_new(site: Client, request_: Request) -> None:
    version = site.get("/").context["version"]
    assert site.get("/inbox/pulse", {"v": version}, headers=HTMX).status_code == 204
    desk.opened()
    answer = site.get("/inbox/pulse", {"v": version}, headers=HTMX)
    assert (answer.status_code, text(answer)) == (200, "1 new Show")
    assert b"<html" not in answer.content


@pytest.mark.parametrize("headers", [{}, {"HX-Request": "true", "HX-History-Restore-Request": "true"}])
def test_address_of_a_part_opened_as_a_page_is_the_page(
    site: Client, request_: Request, headers: dict[str, str]
) -> None:
    """F78, C-67."""
    one = site.get(address("request_pulse", request_), {"v": "x"}, headers=headers)
    assert (one.status_code, one["Location"]) == (303, address("request", request_))
    other = site.get("/inbox/pulse", {"v": "x"}, headers=headers)
    assert (other.status_code, other["Location"]) == (303, "/")


@pytest.mark.parametrize("headers", [HTMX, {"HX-Request": "true", "HX-History-Restore-Request": "true"}])
def test_page_asked_for_by_htmx_is_whole(site: Client, request_: Request, headers: dict[str, str]) -> None:
    for path in ("/", "/history", address("request", request_), address("edit", request_)):
        assert site.get(path, headers=headers).content.startswith(b"<!doctype html>")


def test_look_by_htmx_is_204_and_by_a_form_goes_back(site: Client, request_: Request) -> None:
    assert site.post(address("look", request_), headers=HTMX).status_code == 204
    assert desk.fresh(request_).look_wanted_at is not None
    answer = site.post(address("look", request_))
    assert (answer.status_code, answer["Location"]) == (303, address("request", request_))


def test_look_at_a_closed_request_wants_none(site: Client, request_: Request, ana: User) -> None:
    desk.decide(request_, ana, "reject")
    site.post(address("look", request_))
    assert desk.fresh(request_).look_wanted_at is None


# -- Headers ---------------------------------------------------------------------------------------------


def test_every_answer_has_its_headers(site: Client, request_: Request, ben: User) -> None:
    """C-60, C-63, C-64, C-67."""
    desk.decide(request_, ben)
    other = desk.opened()
    answers = [
        site.get("/"), site.get("/inbox/pulse", headers=HTMX), site.get("/history"), site.get(address("request", other)),
        site.get(address("request_pulse", other), headers=HTMX), site.get(address("edit", other)),
        post(site, other, decision="maybe"), post(site, request_, decision="reject", reason="x"),
        site.get(f"/decisions/{Decision.objects.get().pk}"), site.get("/requests/0000000000"),
        site.put(address("decide", other)), site.get(address("look", other)), post(site, other, decision="approve"),
    ]  # fmt: skip
    assert [answer.status_code for answer in answers] == [
        200,
        200,
        200,
        200,
        200,
        200,
        422,
        409,
        200,
        404,
        405,
        405,
        303,
    ]
    for answer in answers:
        assert "no-store" in answer["Cache-Control"]
        assert "HX-Request" in answer["Vary"]
        assert directives(answer) == POLICY
        assert (answer["X-Content-Type-Options"], answer["Referrer-Policy"]) == ("nosniff", "same-origin")
        assert answer["Cross-Origin-Opener-Policy"] == "same-origin"
        assert inline(answer) == []


@pytest.mark.parametrize("method", ["get", "head", "options"])
def test_deciding_needs_a_post(site: Client, request_: Request, method: str) -> None:
    """C-11: an address never decides, whatever stands in it."""
    digest = request_.revision.digest
    for verb, statuses in (("decide", (303, 405)), ("look", (405,))):  # to decide leads to the page
        answer = getattr(site, method)(f"{address(verb, request_)}?decision=approve&view_digest={digest}")
        assert answer.status_code in statuses
    assert (desk.counts(request_), desk.fresh(request_).look_wanted_at) == (("open", 0, 0), None)


@pytest.mark.parametrize(
    "path", ["/", "/history", "/requests/{ref}", "/requests/{ref}/pulse", "/requests/{ref}/edit"]
)
def test_head_is_answered_like_get(site: Client, request_: Request, path: str) -> None:
    """F68: mail scanners and link checkers ask so."""
    path = path.format(ref=request_.ref)
    one, other = site.head(path), site.get(path)
    assert (one.status_code, one.content) == (other.status_code, b"")


# -- C-01: reading changes nothing -----------------------------------------------------------------------


def everything() -> dict[str, str]:
    """A fingerprint of every table but sessions and what counts tries, as the page to sign in with a passkey does: an
    UPDATE that changes nothing shows too."""
    but = {"django_session", "approvals_counter"}
    with connection.cursor() as cursor:
        names = [n for n in connection.introspection.table_names(cursor) if n not in but]
        found = {}
        for name in names:
            cursor.execute(
                f"SELECT md5(coalesce(string_agg(t.xmin::text || t.ctid::text || t::text, ''), '')) FROM \"{name}\" t"
            )
            found[name] = cursor.fetchone()[0]
    return found


@pytest.mark.parametrize("who", ["ana", "olu", "dot", "nobody"])
def test_reading_changes_nothing_and_rings_nobody(
    people: SimpleNamespace,
    request_: Request,
    who: str,
    django_capture_on_commit_callbacks: Callable[..., Any],
) -> None:
    """C-01, F68: GET, HEAD and OPTIONS on every address, with what each person may see."""
    User.objects.filter(username__in=["olu", "dot"]).update(is_staff=True)
    for each in User.objects.all():  # as an invitation makes it
        EmailAddress.objects.create(user=each, email=each.email, verified=True, primary=True)
    desk.later(61)  # the facts are too old to decide on, and reading asks for no look
    other = desk.opened()
    desk.decide(other, people.ben)
    made = Decision.objects.get()
    known = {
        "ref": request_.ref,
        "decision_id": str(made.pk),
        "run_id": str(request_.run_id),
        "object_id": str(request_.pk),
        "queue_index": "0",
    }
    reader = Client(raise_request_exception=False) if who == "nobody" else browser(getattr(people, who))
    reader.raise_request_exception = False
    found = sorted(set(addresses(known)))
    assert {
        "/",
        f"/requests/{request_.ref}",
        f"/decisions/{made.pk}",
        f"/runs/{request_.run_id}/",
        "/healthz",
    } <= set(found)
    before, statuses = everything(), {}
    with django_capture_on_commit_callbacks() as rung:
        for path in found:
            for method in ("get", "head", "options"):
                statuses[method, path] = getattr(reader, method)(path).status_code
    assert everything() == before
    assert rung == []
    # readyz says 503 without a sweeper; django-rq's dashboard fails on a job that is not there.
    failed = [path for (_, path), status in statuses.items() if status >= 500]
    assert [path for path in failed if path != "/readyz" and not path.startswith("/admin/rq/")] == []
    if who != "nobody":
        assert statuses["get", f"/requests/{request_.ref}"] == 200


def test_reading_with_prefetch_headers_changes_nothing(site: Client, request_: Request) -> None:
    """C-12."""
    before = everything()
    site.get(address("request", request_), headers={"Sec-Purpose": "prefetch"})
    assert everything() == before


# -- Hostile text (C-48) -----------------------------------------------------------------------------------

HOSTILE = [
    "<img src=x onerror=alert(1)><style>*{display:none}</style>{{7*7}}{% load x %}",
    '"><form action=//e><input>" hx-get="/x" hx-trigger="load" data-hx-on:click="x',
    "'><base href=//e></textarea></script></title><script>alert(1)</script><!--><svg/onload=a>",
]


class Skeleton(HTMLParser):
    """A page without its words: elements with the names of their attributes, and what scripts and links go by."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, tuple[str, ...]]] = []
        self.attributes: list[str] = []
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, tuple(sorted(name for name, _ in attrs))))
        self.attributes += [value for name, value in attrs if name not in ("value", "title") and value]

    def handle_comment(self, data: str) -> None:
        self.elements.append(("comment", ()))


def visits(people: SimpleNamespace, said: str) -> list[tuple[str, Any]]:
    """Every kind of page with `said` in every text that comes from outside."""
    User.objects.filter(username="ben").update(first_name=said[:150])
    ben = User.objects.get(username="ben")
    desk.world.reset()
    desk.world.facts.update(status=said, given=Decimal("0.00"))
    words = {"on_behalf_of": f"{said}0", "labels": {said: said}}
    wired = desk.opened("approvals-wirer", to=said, **words)
    rejected = desk.opened("approvals-wirer", to=said, **words)
    given = desk.opened(charge=said, **words)
    odd = desk.opened("approvals-filler", values=_filled(said), **words)
    question = desk.opened("approvals-asker", question=said, **words)
    answered = desk.opened("approvals-asker", question=said, **words)
    desk.decide(wired, ben, edit=desk.edited(wired, to=f"{said}2"), reason=said)
    desk.decide(rejected, ben, "reject", reason=said)
    desk.decide(answered, ben, "respond", answer={"vendor": "low", "number": 1, "note": said})
    for request in (wired, rejected, answered):
        desk.drive(request)
    desk.look(given, status=f"{said}3", given=ValueError(said))
    ana = browser(people.ana)
    olu = browser(people.olu)
    told = [
        ("inbox", ana.get("/")),
        ("search", ana.get("/", {"q": said})),
        ("pulse", ana.get("/inbox/pulse", {"v": "0-x"}, headers=HTMX)),
        ("history", ana.get("/history")),
        ("runs", olu.get("/runs/")),
    ]
    for request in (wired, rejected, given, odd, question, answered):
        told += [
            (f"request {request.step.tool}", ana.get(address("request", request))),
            (
                f"pulse {request.step.tool}",
                ana.get(address("request_pulse", request), {"v": "x"}, headers=HTMX),
            ),
            (f"run {request.step.tool}", olu.get(request.run.get_absolute_url())),
            ("late", post(ana, request, decision="approve", note=said, view_digest="0" * 64)),
            ("unfit", post(ana, request, decision=said, note=said)),
        ]
    told += [
        ("receipt", ana.get(f"/decisions/{pk}"))
        for pk in Decision.objects.order_by("made_at").values_list("pk", flat=True)
    ]
    for request in (given, odd):
        edit = ana.get(address("edit", request))
        fields = form(edit, address("edit", request))
        first = "f-charge" if request is given else "f-code"
        told += [
            ("edit", edit),
            ("diff", ana.post(address("edit", request), {**fields, first: f"{said}4"})),
            ("misfit", ana.post(address("edit", request), {**fields, "f-amount": said})),
        ]
    return told


def _filled(said: str) -> dict[str, Any]:
    return {
        "account": 1, "amount": "1.00", "ratio": 0.5, "code": said, "letter": said, "tree": {said: {said: [said]}},
        "many": [said], "sure": True, "level": "low", "memo": said, "tag": said,
    }  # fmt: skip


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_text_is_text_on_every_page(people: SimpleNamespace, hostile: str) -> None:
    """Each page is, but for its words, the page that harmless text of the same length makes."""
    harmless = re.sub(r"[^\s]", "x", hostile)
    pages = visits(people, hostile)
    for name, answer in pages:
        assert answer.status_code < 500, name
        assert inline(answer) == [], name
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        for table in ("decision", "permit", "notification", "revision", "request"):
            cursor.execute(f"DELETE FROM approvals_{table}")
        for table in ("journalentry", "factreading", "snapshot", "hold", "step", "run"):
            cursor.execute(f"DELETE FROM runs_{table}")
        cursor.execute("SET LOCAL session_replication_role = DEFAULT")
    plain = visits(people, harmless)
    assert len(pages) == len(plain)
    for (name, one), (_, other) in zip(pages, plain, strict=True):
        found, expected = Skeleton(one.content.decode()), Skeleton(other.content.decode())
        assert (name, one.status_code, found.elements) == (name, other.status_code, expected.elements)
        assert [value for value in found.attributes if hostile[:12] in value] == [], name


class Words(HTMLParser):
    """What a page says outside fields to type in."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.said: list[str] = []
        self._typing = False
        self.feed(markup)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._typing = tag == "textarea"

    def handle_endtag(self, tag: str) -> None:
        self._typing = False

    def handle_data(self, data: str) -> None:
        if not self._typing:
            self.said.append(data)


def test_hidden_characters_are_marks_on_every_page(people: SimpleNamespace) -> None:
    """C-49: in arguments, their names, facts, questions, notes and names of people; raw only where one types."""
    hidden = "pay\u202eEMCA\u200b\U000e0041"
    raw = [
        (name, said.strip())
        for name, answer in visits(people, hidden)
        for said in Words(answer.content.decode()).said
        if any(char in said for char in "\u202e\u200b\U000e0041")
    ]
    assert raw == []


# -- Lists ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("many", [1, 3])
def test_inbox_costs_the_same_with_one_row_and_three(
    site: Client, people: SimpleNamespace, many: int, django_assert_num_queries: Callable[..., Any]
) -> None:
    for _ in range(many):
        desk.opened()
    site.get("/")
    with django_assert_num_queries(13):
        answer = site.get("/")
    assert answer.context["waiting"] == many


@pytest.mark.parametrize("many", [1, 3])
def test_history_costs_the_same_with_one_row_and_three(
    site: Client, people: SimpleNamespace, many: int, django_assert_num_queries: Callable[..., Any]
) -> None:
    for _ in range(many):
        desk.decide(desk.opened("approvals-wirer"), people.ana)
    site.get("/history")
    with django_assert_num_queries(5):
        answer = site.get("/history")
    assert len(answer.context["rows"]) == many


@pytest.mark.parametrize(("many", "queries"), [(1, 25), (3, 26), (5, 26)])
def test_request_costs_the_same_with_three_revisions_and_five(
    site: Client, request_: Request, many: int, queries: int, django_assert_num_queries: Callable[..., Any]
) -> None:
    for given in range(1, many):
        desk.look(request_, given=Decimal(given))
    site.get(address("request", request_))
    with django_assert_num_queries(queries):
        site.get(address("request", request_))


def test_inbox_shows_what_waits_for_me_in_lanes(site: Client, people: SimpleNamespace) -> None:
    low, high = desk.opened(amount="20.00"), desk.opened(amount="2000.00")
    soon = desk.opened(amount="30.00")
    later = desk.opened(amount="40.00")
    Request.objects.filter(pk=soon.pk).update(decide_by=clock.now() + timedelta(minutes=9))
    Request.objects.filter(pk=later.pk).update(decide_by=clock.now() + timedelta(hours=20))
    lanes = [(lane["key"], [row.ref for row in lane["rows"]]) for lane in site.get("/").context["lanes"]]
    assert lanes == [("now", [soon.ref]), ("high", [high.ref]), ("today", [low.ref]), ("later", [later.ref])]


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({"tier": "R3"}, ["2000.00"]),
        ({"q": "2000"}, ["2000.00"]),
        ({"q": " GIVE 20.00 "}, ["20.00"]),
        ({"agent": "approvals-wirer"}, []),
        ({"agent": "approvals-desk"}, ["20.00", "2000.00"]),
        ({"tier": "R9", "q": "%"}, []),
    ],
)
def test_inbox_filters(
    site: Client, people: SimpleNamespace, asked: dict[str, str], found: list[str]
) -> None:
    refs = {amount: desk.opened(amount=amount).ref for amount in ("20.00", "2000.00")}
    rows = [row.ref for lane in site.get("/", asked).context["lanes"] for row in lane["rows"]]
    assert sorted(rows) == sorted(refs[amount] for amount in found)


def test_approved_by_me_and_waiting_for_another_is_not_mine_any_more(people: SimpleNamespace) -> None:
    desk.change_rule("desk", quorum=2)
    request = desk.opened()
    ana, ben = browser(people.ana), browser(people.ben)
    answer = post(ana, request, decision="approve")
    assert (answer.status_code, answer["Location"]) == (303, f"/decisions/{Decision.objects.get().pk}")
    mine, other = ana.get("/"), ben.get("/")
    assert (mine.context["waiting"], mine.context["elsewhere"], other.context["waiting"]) == (0, 1, 1)
    [row] = [row for lane in other.context["lanes"] for row in lane["rows"]]
    assert (row.approvals, row.quorum) == (1, 2)
    shown = ana.get(address("request", request))
    assert [form(shown, name) for name in ("approve", "reject")] == [{}, {}]
    assert "You approved this. It needs somebody else's approval too." in text(shown)
    assert ana.get(address("edit", request)).status_code == 303


def history_of(site: Client, path: str) -> tuple[list[str], Any]:
    answer = site.get(f"/history{path}")
    return [row["url"] for row in answer.context["rows"]], answer.context["page"]


def test_history_pages_show_each_decision_once_in_both_directions(
    site: Client, people: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F86: equal times at the border of pages, and rows that arrive while paging."""
    monkeypatch.setattr(history, "PAGE", 3)
    desk.change_rule("desk", quorum=9)
    request = desk.opened("approvals-wirer")
    at, revision = clock.now(), request.revision

    def decided(many: int, moment: Any) -> list[str]:
        made = [
            Decision(request=request, revision=revision, person_id=f"p{moment}{i}", person_name="P", verb="approve",
                     digest=revision.digest, door="page", made_at=moment)
            for i in range(many)
        ]  # fmt: skip
        return [f"/decisions/{each.pk}" for each in Decision.objects.bulk_create(made)]

    standing = decided(8, at)
    seen, path, turns = [], "", []
    while path is not None:
        urls, around = history_of(site, path)
        turns.append(urls)
        seen += urls
        path = around.next
        decided(2, at + timedelta(seconds=len(turns)))
    assert sorted(seen) == sorted(standing)
    assert [len(each) for each in turns] == [3, 3, 2]
    back, before = [turns[-1]], around.previous
    while before is not None:
        urls, around = history_of(site, before)
        back.append(urls)
        before = around.previous
    assert back[1] == turns[1]
    assert back[2] == turns[0]
    assert len({url for each in back for url in each}) == len([url for each in back for url in each])


@pytest.mark.parametrize(
    "query",
    ["?older=x", "?newer=%2500", f"?older={'0' * 8}-0000-4000-8000-{'0' * 12}", "?scope=x&before=1e400"],
)
def test_history_with_a_mark_that_is_none_shows_the_newest(
    site: Client, request_: Request, ana: User, query: str
) -> None:
    desk.decide(request_, ana)
    assert len(history_of(site, query)[0]) == 1


def test_history_shows_what_i_may_see(people: SimpleNamespace) -> None:
    """Mine, my groups', and to auditors all; after a role is lost, nothing of it."""
    one, other = desk.opened("approvals-wirer"), desk.opened("approvals-wirer", amount="6000.00")
    desk.decide(one, people.ana)
    desk.decide(other, people.dee)
    seen = {
        name: len(history_of(browser(getattr(people, name)), "")[0])
        for name in ("ana", "ben", "dee", "dot", "cyd")
    }
    assert seen == {"ana": 1, "ben": 1, "dee": 1, "dot": 2, "cyd": 0}
    assert len(history_of(browser(people.ben), "?scope=mine")[0]) == 0
    people.ana.groups.clear()
    assert history_of(browser(people.ana), "?scope=mine")[0] == []


def test_history_keeps_the_name_of_who_was_deleted(site: Client, request_: Request, ben: User) -> None:
    """F66."""
    desk.decide(request_, ben, "reject", reason="wrong amount")
    receipt = f"/decisions/{Decision.objects.get().pk}"
    ben.delete()
    assert [row["by"] for row in site.get("/history").context["rows"]] == ["Ben"]
    assert "Ben rejected" in text(site.get(receipt))


# -- Receipts and panels ----------------------------------------------------------------------------------------


def test_receipt_is_told_to_others_with_the_name(site: Client, request_: Request, ben: User) -> None:
    desk.decide(request_, ben)
    answer = site.get(f"/decisions/{Decision.objects.get().pk}")
    assert answer.context["receipt"]["said"] == "Ben approved"


def test_receipt_and_page_show_one_fingerprint(site: Client, request_: Request) -> None:
    """C-42."""
    shown = site.get(address("request", request_)).context["item"]["fingerprint"]
    fields = form(site.get(address("request", request_)), "approve") | {"basis-1": "yes"}
    receipt = site.post(address("decide", request_), fields, follow=True)
    assert receipt.context["receipt"]["fingerprint"] == shown


def test_receipt_leads_to_what_waits_next(site: Client, people: SimpleNamespace) -> None:
    first, low, high = desk.opened(), desk.opened(), desk.opened(amount="2000.00")
    desk.opened(owner=people.ana, amount="3000.00")
    assert post(site, first, decision="approve").status_code == 303
    answer = site.get(f"/decisions/{Decision.objects.get().pk}")
    assert answer.context["next_item"]["url"] == address("request", high)
    assert low.state == "open"


def test_decided_page_shows_how_it_stands_and_no_buttons(site: Client, request_: Request, ben: User) -> None:
    """F78: going back shows the decided state."""
    desk.decide(request_, ben, "reject", reason="wrong amount")
    shown = site.get(address("request", request_))
    standing = shown.context["standing"]
    assert (standing.who, standing.outcome, standing.reason) == ("Ben", "rejected", "wrong amount")
    assert [form(shown, name) for name in ("approve", "reject", "respond")] == [{}, {}, {}]


def test_superseded_page_says_so_and_not_that_it_was_approved(
    site: Client, request_: Request, ana: User
) -> None:
    desk.decide(request_, ana)
    desk.change_rule("too large", expression="true")
    desk.drive(request_)
    standing = site.get(address("request", request_)).context["standing"]
    assert (standing.kind, standing.why) == ("superseded", "The rule “too large” does not allow it.")


def test_reopened_page_tells_what_came_before(site: Client, request_: Request, ana: User) -> None:
    desk.decide(request_, ana)
    desk.world.facts["given"] = Decimal("240.00")
    desk.drive(request_)
    shown = site.get(address("request", request_))
    assert [(event["who"], event["what"]) for event in shown.context["earlier"]] == [
        ("Ana", "approved, which no longer counts:"),
        ("Abeyance", "found changed facts and opened"),
    ]
    assert [(row.name, row.was, row.now) for row in shown.context["changes"]] == [
        ("Given back so far", "0.00", "240.00")
    ]
    assert shown.context["item"]["state"] == "open"


def test_request_of_a_tool_that_is_gone_is_shown_raw(site: Client, people: SimpleNamespace) -> None:
    """C-44: never summarised."""
    request = desk.opened("approvals-wirer")
    kept = desk.declared._registry.pop("wire")
    try:
        shown = site.get(address("request", request))
        inbox = site.get("/")
    finally:
        desk.declared._registry["wire"] = kept
    assert shown.context["item"]["headline"] == "wire"
    assert "not decoded" in text(shown)
    assert inbox.status_code == 200


def test_long_and_padded_arguments_are_whole_on_the_page(site: Client, people: SimpleNamespace) -> None:
    """F81, C-51, C-52: the tail is there, the padding is counted, and what is hidden is named."""
    tail = "&& rm -rf /"
    hidden = "ACME\u200b\u202e"
    request = desk.opened(
        "approvals-filler", values={**_filled(hidden), "letter": "x" * 5000 + "\n" * 500 + tail}
    )
    said = text(site.get(address("request", request)))
    assert tail in said
    assert "x" * 5000 in said
    assert "U+200B" in said
    assert "\u202e" not in said
    assert "U+202E" in said
    assert any("hidden text" in row.flags for lane in site.get("/").context["lanes"] for row in lane["rows"])


def test_page_titles_hold_nothing_of_the_agents(site: Client, people: SimpleNamespace) -> None:
    """C-65."""
    request = desk.opened("approvals-wirer", to="EVIL-TITLE", on_behalf_of="EVIL-TITLE")
    desk.decide(request, people.ben, "reject", reason="EVIL-TITLE")
    for path in ("/", "/history", address("request", request), f"/decisions/{Decision.objects.get().pk}"):
        title = re.search(r"<title>(.*?)</title>", site.get(path).content.decode(), re.DOTALL)[1]  # type: ignore[index]
        assert "EVIL" not in title


def test_decide_never_trusts_the_query(site: Client, request_: Request) -> None:
    answer = site.post(
        f"{address('decide', request_)}?decision=approve&view_digest={request_.revision.digest}", {}
    )
    assert (answer.status_code, desk.counts(request_)) == (422, ("open", 0, 0))


def test_step_of_the_run_is_marked_on_the_page(site: Client, request_: Request) -> None:
    shown = site.get(address("request", request_))
    assert [(step.index, step.current) for step in shown.context["steps"]] == [(0, True)]
    assert Step.objects.get(pk=request_.step_id).status == "held"
    assert json.loads(shown.context["item"]["arguments_json"]) == {"amount": "240.00", "charge": "ch_1"}
