"""C-73: what people do at the desk is in the journal with who, how, from which session and address, and about what."""

import hashlib
import json
from types import SimpleNamespace
from typing import Any

import pytest
from django.conf import LazySettings
from django.core.cache import cache
from django.test import Client
from django.urls import reverse

from approvals.models import Decision, Request
from runs.models import JournalEntry
from tests.approvals import desk
from tests.approvals.test_stepping import code_of, post, to_step_up
from tests.pages import browser

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("whole")]
ADDRESS = "203.0.113.9"


@pytest.fixture
def away(people: SimpleNamespace) -> Client:
    """Ana's browser, from another machine."""
    cache.clear()
    site = browser(people.ana)
    site.defaults["REMOTE_ADDR"] = ADDRESS
    return site


def session(site: Client) -> str:
    return hashlib.sha256(site.cookies["sessionid"].value.encode()).hexdigest()


def entries(request: Request, verb: str) -> list[dict[str, Any]]:
    """What people did to it, as the journal tells it."""
    rows = JournalEntry.objects.of(request.stream).filter(verb=verb, actor_kind="person")
    return [{"who": row.actor_name, "door": row.door, **json.loads(row.detail)} for row in rows]


def only(request: Request, verb: str, site: Client) -> dict[str, Any]:
    """The one entry, of Ana, from here."""
    [found] = entries(request, verb)
    assert found["who"] == "Ana"
    assert found["origin"] == {"session": session(site), "address": ADDRESS}
    return found


def send(site: Client, request: Request, verb: str, **fields: str) -> int:
    status: int = site.post(reverse(verb, args=[request.ref]), fields).status_code
    return status


def test_decision_and_undo_say_from_where(people: SimpleNamespace, away: Client) -> None:
    desk.change_rule("desk", undo_window=60)
    request = desk.opened("approvals-wirer")
    assert post(away, "decide", request, decision="approve", basis_1="yes").status_code == 303
    made = Decision.objects.get()
    assert only(request, "decided", away)["digest"] == made.digest
    assert away.post(reverse("undo", args=[made.pk])).status_code == 303
    undone = only(request, "undone", away)
    assert (undone["digest"], undone["door"]) == (made.digest, "page")


def test_refusal_says_from_where(people: SimpleNamespace, away: Client) -> None:
    request = desk.opened("approvals-wirer")
    assert post(away, "decide", request, decision="approve", view_digest="0" * 64).status_code == 409
    refused = only(request, "refused", away)
    assert (refused["code"], refused["digest"], refused["verb"]) == ("stale", "0" * 64, "approve")


def test_sections_and_step_up_are_journalled(people: SimpleNamespace, away: Client) -> None:
    request = desk.opened(amount="2000.00")
    digest, code = request.revision.digest, code_of(people.ana)
    to_step_up(away, request)
    to_step_up(away, request)
    opened = entries(request, "section_opened")
    assert [each["section"] for each in opened] == ["run", "facts", "check"]
    assert {(each["digest"], each["origin"]["session"]) for each in opened} == {(digest, session(away))}
    assert entries(request, "refused")[0]["code"] == "step_up_required"
    before = session(away)
    assert post(away, "step_up", request, code="000000x").status_code == 422
    refused = entries(request, "refused")[-1]
    told = {"verb": "step_up", "code": "not_accepted", "about": "approve", "digest": digest}
    assert (refused["origin"]["session"], {name: refused[name] for name in told}) == (before, told)
    assert post(away, "step_up", request, code=code).status_code == 303
    shown = only(request, "stepped_up", away)
    assert (shown["method"], shown["digest"], shown["about"]) == ("totp", digest, "approve")
    assert session(away) != before
    assert only(request, "decided", away)["step_up"] == "totp"


def test_too_many_tries_are_journalled(people: SimpleNamespace, away: Client) -> None:
    request = desk.opened(amount="2000.00")
    code_of(people.ana)
    to_step_up(away, request)
    for _ in range(6):
        post(away, "step_up", request, code="000000x")
    tried = [each["code"] for each in entries(request, "refused") if each["verb"] == "step_up"]
    assert tried == ["not_accepted"] * 5 + ["too_many_tries"]


@pytest.mark.parametrize(
    ("verb", "sent", "told"),
    [
        ("ask", {"question": "Which invoice?"}, "asked"),
        ("comment", {"comment": "Hm."}, "commented"),
        ("snooze", {"for": "600"}, "snoozed"),
        ("reserve", {}, "reserved"),
        ("more_time", {"seen": "0"}, "more_time"),
    ],
)
def test_verbs_beside_the_decision_say_from_where(
    people: SimpleNamespace, away: Client, verb: str, sent: dict[str, str], told: str
) -> None:
    request = desk.opened()
    assert send(away, request, verb, **sent) == 303
    assert only(request, told, away)["digest"] == request.revision.digest


def test_passing_on_says_from_where_also_refused(people: SimpleNamespace, away: Client) -> None:
    request = desk.opened()
    assert send(away, request, "delegate", to=str(people.dee.pk), reason="hers") == 422
    refused = only(request, "refused", away)
    assert (refused["verb"], refused["digest"]) == ("delegate", request.revision.digest)
    assert send(away, request, "delegate", to=str(people.ben.pk), reason="his") == 303
    assert only(request, "delegated", away)["digest"] == request.revision.digest


def test_several_at_once_say_from_where(people: SimpleNamespace, away: Client) -> None:
    request = desk.opened()
    sent = {"act": "reject", "ref": request.ref, f"digest-{request.ref}": request.revision.digest}
    assert away.post(reverse("bulk_do"), {**sent, "reason": "duplicate"}).status_code == 200
    assert only(request, "decided", away)["door"] == "bulk"


@pytest.mark.parametrize(
    ("sent", "kept"),
    [("198.51.100.7, 203.0.113.5", "203.0.113.5"), ("", ADDRESS), ("nonsense", ""), ("\x00, ;--", "")],
)
def test_address_is_what_the_trusted_proxy_tells(
    people: SimpleNamespace, away: Client, settings: LazySettings, sent: str, kept: str
) -> None:
    """One proxy: what a browser puts before it is no word of the proxy's. Nonsense keeps nobody from deciding."""
    settings.ALLAUTH_TRUSTED_PROXY_COUNT = 1
    request = desk.opened()
    away.post(reverse("comment", args=[request.ref]), {"comment": "x"}, headers={"X-Forwarded-For": sent})
    [found] = entries(request, "commented")
    assert found["origin"]["address"] == kept


def test_what_came_of_itself_comes_from_nowhere(people: SimpleNamespace, away: Client) -> None:
    """Neither the system's entries nor what is done outside a page have an origin, and none is left over."""
    request = desk.opened("approvals-wirer")
    assert send(away, request, "comment", comment="x") == 303
    desk.decide(request, people.ana)
    told = [json.loads(row.detail) for row in JournalEntry.objects.of(request.stream)]
    assert ["origin" in each for each in told] == [False, True, False, False]


def test_origin_is_on_no_page_of_the_run(people: SimpleNamespace, away: Client) -> None:
    """Who started the run reads its history, and not where its reviewers sit."""
    run = desk.submitted("approvals-wirer", owner=people.cyd)
    desk.execution.drive(run.pk)
    request = Request.objects.get(run=run)
    assert post(away, "decide", request, decision="approve", basis_1="yes").status_code == 303
    for who in (people.cyd, people.ben):
        page = browser(who).get(run.get_absolute_url()).content.decode()
        assert [text for text in (ADDRESS, session(away)) if text in page] == []
