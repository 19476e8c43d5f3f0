"""The pages of a high-risk approval: sections that open, the check page, and showing again who one is."""

import re
import time
from types import SimpleNamespace
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from allauth.mfa.totp.internal import auth as totp
from allauth.mfa.utils import encrypt
from django.contrib.auth.models import User
from django.core.cache import cache
from django.test import Client
from django.urls import reverse

from approvals.models import Decision, Draft, Request, StepUp
from tests.approvals import desk
from tests.pages import browser, inline, text

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("whole")]
HTMX = {"HX-Request": "true"}


@pytest.fixture(autouse=True)
def nothing_remembered() -> None:
    """Used codes and failed tries are kept in the cache, which outlives a test."""
    cache.clear()


@pytest.fixture
def large(people: SimpleNamespace) -> Request:
    return desk.opened(amount="2000.00")


def code_of(who: User) -> str:
    """A code of an authenticator app that is set up for it, so that none is used twice."""
    secret = totp.generate_totp_secret()
    Authenticator.objects.update_or_create(
        user=who, type="totp", defaults={"data": {"secret": encrypt(secret)}}
    )
    return totp.format_hotp_value(totp.hotp_value(secret, int(time.time()) // 30))


def at(verb: str, request: Request) -> str:
    return reverse(verb, args=[request.ref])


def post(site: Client, verb: str, request: Request, *, headers: Any = None, **fields: Any) -> Any:
    sent = {
        "view_digest": desk.fresh(request).revision.digest,
        **{k.replace("_", "-") if k.startswith("basis") else k: v for k, v in fields.items()},
    }
    return site.post(at(verb, request), sent, headers=headers)


def open_all(site: Client, request: Request) -> None:
    for name in ("run", "facts"):
        assert post(site, "open_section", request, section=name).status_code == 303


def at_check(site: Client, request: Request, **fields: Any) -> Any:
    open_all(site, request)
    return post(site, "decide", request, **{"decision": "approve", "basis_1": "yes", **fields})


def to_step_up(site: Client, request: Request, **options: Any) -> Any:
    at_check(site, request)
    sent = {"decision": "approve", "basis_check": "yes", "basis_retype": "2000"}
    return post(site, "decide", request, **sent, **options)


# -- Sections ------------------------------------------------------------------------------------


def test_sections_are_closed_until_they_are_opened(site: Client, large: Request) -> None:
    shown = site.get(at("request", large))
    assert shown.context["unopened"] == {"run", "facts"}
    assert "with exactly these arguments" not in text(shown)
    assert "Given back so far" not in text(shown)
    opened = post(site, "open_section", large, section="run", basis_1="yes", note="hm")
    assert (opened.status_code, opened["Location"]) == (303, f"{at('request', large)}#section-run")
    shown = site.get(at("request", large))
    assert shown.context["unopened"] == {"facts"}
    assert "with exactly these arguments" in text(shown)
    assert [each.answer for each in shown.context["questions"]] == ["yes"]
    assert shown.context["typed"]["note"] == "hm"


def test_section_opened_by_htmx_is_the_page_to_take_it_from(site: Client, large: Request) -> None:
    opened = post(site, "open_section", large, section="run", headers=HTMX)
    assert opened.status_code == 200
    assert 'id="run-title" tabindex="-1" autofocus' in opened.content.decode()
    assert Draft.objects.get().opened == ["run"]


@pytest.mark.parametrize(
    "sent", [{"section": "check"}, {"section": "x"}, {}, {"section": "run", "view_digest": "0" * 64}]
)
def test_section_that_is_none_opens_nothing(site: Client, large: Request, sent: dict[str, str]) -> None:
    """Also the check page's mark, which only the server sets."""
    assert post(site, "open_section", large, **sent).status_code == 303
    assert Draft.objects.count() == 0


def test_section_is_not_opened_by_get_nor_by_who_may_not_see_it(
    people: SimpleNamespace, site: Client, large: Request
) -> None:
    assert site.get(at("open_section", large), {"section": "run"}).status_code == 405
    assert post(browser(people.cyd), "open_section", large, section="run").status_code == 404
    assert Draft.objects.count() == 0


def test_who_cannot_approve_reads_everything(people: SimpleNamespace, large: Request) -> None:
    shown = browser(people.dot).get(at("request", large))
    assert (shown.context["unopened"], shown.context["questions"]) == (set(), [])
    assert "with exactly these arguments" in text(shown)


def test_approve_pressed_early_links_to_all_that_is_missing(site: Client, large: Request) -> None:
    answer = post(site, "decide", large, decision="approve")
    assert answer.status_code == 422
    assert [place for place, _ in answer.context["errors"]] == ["section-run", "section-facts", "basis-1"]
    markup = answer.content.decode()
    assert all(f'id="{place}"' in markup for place, _ in answer.context["errors"])
    assert desk.counts(large) == ("open", 0, 0)


# -- The check page ----------------------------------------------------------------------------------


def test_check_page_is_an_answer_to_the_form(site: Client, large: Request) -> None:
    answer = at_check(site, large)
    said = text(answer)
    assert answer.status_code == 200
    assert "Give 2000.00 EUR back to charge ch_1" in said
    assert "2000.00 EUR leaves our account for charge ch_1 at once." in said
    assert "Does this fit what was asked for? Yes" in said
    assert "Type the amount" in said
    assert inline(answer) == []
    assert desk.counts(large) == ("open", 0, 0)


def test_check_page_has_no_address(site: Client, large: Request) -> None:
    """C-11."""
    open_all(site, large)
    query = {"decision": "approve", "basis-check": "yes", "basis-1": "yes"}
    assert site.get(at("decide", large), query)["Location"] == at("request", large)
    assert Draft.objects.get().opened == ["run", "facts"]


def test_wrong_number_shows_the_check_page_again(site: Client, large: Request) -> None:
    at_check(site, large)
    answer = post(site, "decide", large, decision="approve", basis_check="yes", basis_retype="200")
    assert (answer.status_code, answer.context["retyped"]) == (422, "200")
    assert "Type the amount as you read it." in text(answer)
    assert Decision.objects.count() == 0


def test_what_moved_meanwhile_is_shown_instead(site: Client, large: Request) -> None:
    at_check(site, large)
    old = large.revision.digest
    desk.look(large, given="5.00")
    sent = {"decision": "approve", "basis_check": "yes", "basis_retype": "2000", "view_digest": old}
    assert post(site, "decide", large, **sent).status_code == 409


# -- Showing again who one is ----------------------------------------------------------------------


def test_step_up_by_form_and_by_script(site: Client, large: Request) -> None:
    assert to_step_up(site, large)["Location"] == at("step_up", large)
    told = to_step_up(site, large, headers=HTMX)
    assert (told.status_code, told["HX-Redirect"]) == (403, at("step_up", large))


def test_step_up_with_a_code_is_the_decision(site: Client, ana: User, large: Request) -> None:
    """C-30: and the session has another id."""
    to_step_up(site, large)
    shown = site.get(at("step_up", large))
    before, code = site.cookies["sessionid"].value, code_of(ana)
    shown = site.get(at("step_up", large))
    assert "Give 2000.00 EUR back" in text(shown)
    assert shown.context["item"]["fingerprint"] in text(shown)
    receipt = post(site, "step_up", large, code=code)
    made = Decision.objects.get()
    assert (receipt.status_code, receipt["Location"]) == (303, f"/decisions/{made.pk}")
    assert (made.step_up, made.door, Draft.objects.count()) == ("totp", "page", 0)
    assert site.cookies["sessionid"].value != before
    assert StepUp.objects.get().session != ""
    told = text(site.get(receipt["Location"]))
    said = ("signed for with a code", "Does this fit what was asked for?", "Typed: the amount")
    assert [part for part in said if part not in told] == []
    assert site.get(at("request", large)).status_code == 200
    assert desk.result(large)["result"] == "given 2000.00"


def test_step_up_with_a_recovery_code_counts_once(site: Client, ana: User, large: Request) -> None:
    code_of(ana)
    [code, *_] = RecoveryCodes.activate(ana).generate_codes()
    to_step_up(site, large)
    assert post(site, "step_up", large, code=code).status_code == 303
    assert Decision.objects.get().step_up == "recovery_codes"
    other = desk.opened(amount="2000.00")
    to_step_up(site, other)
    assert post(site, "step_up", other, code=code).status_code == 422


def test_code_counts_once(site: Client, ana: User, large: Request) -> None:
    """C-28."""
    code, other = code_of(ana), desk.opened(amount="2000.00")
    to_step_up(site, large)
    assert post(site, "step_up", large, code=code).status_code == 303
    to_step_up(site, other)
    again = post(site, "step_up", other, code=code)
    assert (again.status_code, desk.counts(other)) == (422, ("open", 0, 0))
    assert "not right, or it was used before" in text(again)


@pytest.mark.parametrize("code", ["", "000000x", "é", "1" * 500])
def test_wrong_code_decides_nothing_and_keeps_what_was_typed(
    site: Client, ana: User, large: Request, code: str
) -> None:
    code_of(ana)
    to_step_up(site, large)
    answer = post(site, "step_up", large, code=code)
    assert (answer.status_code, Decision.objects.count(), StepUp.objects.count()) == (422, 0, 0)
    assert Draft.objects.get().basis == {"1": "yes", "check": "yes", "retype": "2000"}


def test_tries_are_limited_and_only_in_their_own_session(site: Client, ana: User, large: Request) -> None:
    """C-33: who tries codes in another session does not keep her from deciding in hers."""
    code = code_of(ana)
    thief = browser(ana)
    to_step_up(thief, large)
    said = [post(thief, "step_up", large, code="000000x").status_code for _ in range(6)]
    assert said == [422, 422, 422, 422, 422, 429]
    assert post(thief, "step_up", large, code=code).status_code == 429
    assert post(site, "step_up", large, code=code).status_code == 303


def test_step_up_in_another_session_does_not_count_here(site: Client, ana: User, large: Request) -> None:
    """C-28: what one session has shown, another cannot use."""
    to_step_up(site, large)
    StepUp.objects.create(
        request=large,
        person_id=str(ana.pk),
        session="0" * 64,
        digest=large.revision.digest,
        verb="approve",
        method="totp",
    )
    assert to_step_up(site, large)["Location"] == at("step_up", large)
    assert Decision.objects.count() == 0


def test_who_has_no_second_factor_is_led_to_one_and_back(site: Client, ana: User, large: Request) -> None:
    to_step_up(site, large)
    shown = site.get(at("step_up", large))
    assert reverse("mfa_activate_totp") in shown.content.decode()
    assert "You have no second factor yet." in text(shown)
    assert f"Back to {large.ref}" in text(site.get(reverse("mfa_index")))
    assert post(site, "step_up", large, code="123456").status_code == 422
    code = code_of(ana)
    assert post(site, "step_up", large, code=code).status_code == 303
    assert f"Back to {large.ref}" not in text(site.get(reverse("mfa_index")))


def test_step_up_of_what_was_not_begun_leads_to_the_request(
    site: Client, people: SimpleNamespace, large: Request
) -> None:
    """C-11, and what is small, decided, or somebody else's."""
    medium = desk.opened("approvals-wirer")
    assert site.get(at("step_up", large))["Location"] == at("request", large)
    assert site.get(at("step_up", medium))["Location"] == at("request", medium)
    to_step_up(site, large)
    assert browser(people.ben).get(at("step_up", large))["Location"] == at("request", large)
    assert browser(people.cyd).get(at("step_up", large)).status_code == 404
    desk.decide(large, people.ben)
    assert site.get(at("step_up", large))["Location"] == at("request", large)


def test_step_up_for_what_changed_says_so(site: Client, ana: User, large: Request) -> None:
    """The draft was of the older revision: nothing is signed for."""
    to_step_up(site, large)
    code, old = code_of(ana), large.revision.digest
    desk.look(large, given="5.00")
    answer = post(site, "step_up", large, code=code, view_digest=old)
    assert (answer.status_code, answer["Location"]) == (303, at("request", large))
    assert StepUp.objects.count() == 0


def test_back_from_the_step_up_finds_everything_as_it_was(site: Client, large: Request) -> None:
    to_step_up(site, large)
    shown = site.get(at("request", large))
    assert shown.context["unopened"] == set()
    assert [each.answer for each in shown.context["questions"]] == ["yes"]


def test_rejecting_clears_the_draft(site: Client, large: Request) -> None:
    to_step_up(site, large)
    assert post(site, "decide", large, decision="reject", reason="duplicate").status_code == 303
    assert Draft.objects.count() == 0


@pytest.mark.parametrize(
    "name", ["basis-4", "basis-0", "basis-", "basis-check2", "step_up", "session", "opened", "tier"]
)
def test_fields_beyond_the_list_are_refused(site: Client, large: Request, name: str) -> None:
    """C-06."""
    answer = site.post(
        at("decide", large), {"view_digest": large.revision.digest, "decision": "approve", name: "yes"}
    )
    assert (answer.status_code, "Unknown fields" in text(answer)) == (422, True)


# -- R2: on the page, and after an edit -----------------------------------------------------------------


def test_medium_one_without_an_answer_links_to_the_question(site: Client, people: SimpleNamespace) -> None:
    medium = desk.opened()
    answer = post(site, "decide", medium, decision="approve")
    assert (answer.status_code, answer.context["errors"]) == (
        422,
        [("basis-1", "Answer ‘Does this fit what was asked for?’")],
    )
    kept = post(site, "decide", medium, decision="approve", basis_1="no")
    assert [each.answer for each in kept.context["questions"]] == ["no"]
    assert re.search(r'name="basis-1" value="no" checked', kept.content.decode())


def test_edit_without_an_answer_is_shown_again_as_it_was(site: Client, people: SimpleNamespace) -> None:
    medium = desk.opened()
    edited = desk.edited(medium, amount="25.00")
    answer = post(site, "decide", medium, decision="approve", edited=edited, note="half of it")
    assert (answer.status_code, answer.context["note"]) == (422, "half of it")
    assert [(row.name, row.now) for row in answer.context["rows"]] == [("amount", "25.00")]
    assert ("f-amount", "25.00") in answer.context["fields"]
    assert desk.numbers(medium) == [(1, "")]
    done = post(site, "decide", medium, decision="approve", edited=edited, note="half of it", basis_1="yes")
    assert done.status_code == 303
    assert desk.result(medium)["result"] == "given 25.00"


# -- Quorum on the page ----------------------------------------------------------------------------------


@pytest.mark.parametrize("blind", [False, True])
def test_quorum_on_page_and_receipt(site: Client, people: SimpleNamespace, blind: bool) -> None:
    desk.change_rule("desk", quorum=2, blind=blind)
    request = desk.opened("approvals-wirer")
    made = desk.decide(request, people.ben).decision
    shown = text(site.get(at("request", request)))
    assert "Approvals 1 of 2 · needs one more from refunds" in shown
    assert ("Ben approved" in shown) is not blind
    assert made is not None
    assert site.get(reverse("receipt", args=[made.pk])).status_code == (404 if blind else 200)
    assert ("Ben" in text(site.get("/history"))) is not blind
    receipt = site.post(
        at("decide", request),
        {"decision": "approve", "view_digest": request.revision.digest, "basis-1": "yes"},
        follow=True,
    )
    assert "Approvals 2 of 2" in text(receipt)
    assert "Ben approved" in text(receipt)


# -- What cannot be kept -----------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["note", "ack", "basis_1", "basis_check", "basis_retype"])
def test_section_opened_with_what_cannot_be_kept_is_no_failure(
    site: Client, large: Request, field: str
) -> None:
    answer = post(site, "open_section", large, section="run", **{field: "a\x00b"})
    assert answer.status_code == (422 if field == "note" else 303)
    assert Draft.objects.filter(note="", seen=[], basis={}).count() == (0 if field == "note" else 1)


@pytest.mark.parametrize("field", ["ack", "basis_retype", "form_nonce", "reason", "edited"])
def test_decision_with_what_cannot_be_kept_is_no_failure(site: Client, large: Request, field: str) -> None:
    sent = {"decision": "approve", "basis_1": "yes", field: "a\x00b"}
    open_all(site, large)
    assert post(site, "decide", large, **sent).status_code in (200, 422)
    assert desk.counts(large) == ("open", 0, 0)


def test_ticks_are_kept_only_of_what_there_is(site: Client, large: Request) -> None:
    """However many are sent."""
    post(site, "open_section", large, section="run", ack=["given_back", "x" * 10_000, "y"])
    assert Draft.objects.get().seen == ["given_back"]


@pytest.mark.parametrize("seconds", ["0000000001" + "9" * 20, "9" * 5000, "\x00", "-1", "1e3", "٣" * 9])
def test_snooze_for_no_time_there_is(site: Client, large: Request, seconds: str) -> None:
    assert site.post(at("snooze", large), {"for": seconds}).status_code == 422


def test_edit_sent_with_the_check_page_is_refused(
    site: Client, people: SimpleNamespace, large: Request
) -> None:
    """Not dropped: what would be approved was another thing than what was sent."""
    at_check(site, large)
    sent = {"decision": "approve", "basis_check": "yes", "basis_retype": "2000"}
    answer = post(site, "decide", large, **sent, edited=desk.edited(large, amount="20.00"))
    assert (answer.status_code, desk.counts(large)) == (422, ("open", 0, 0))


@pytest.mark.parametrize("sent", ["[" * 15_000, "[" * 500_000, "{}", "null", "\x00", '{"id": 1e999}'])
def test_passkey_that_is_none_is_refused(site: Client, ana: User, large: Request, sent: str) -> None:
    code_of(ana)
    to_step_up(site, large)
    assert post(site, "step_up", large, credential=sent).status_code == 422
    assert desk.counts(large) == ("open", 0, 0)
