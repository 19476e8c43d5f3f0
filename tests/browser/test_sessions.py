"""Sessions that end in the middle, people who may not look, and going back in the browser's history."""

import pytest
from django.contrib.auth.models import Group, User
from django.contrib.sessions.models import Session
from playwright.sync_api import Route

from approvals.models import Decision, Request
from tests.visitors import ANA, BEN, DOT, ELI, Rest, Ticket, Visit, Visitor, asked


def sign_out_on_the_server() -> None:
    """Every session ends, as after half a day; browsers still hold their cookies."""
    Session.objects.all().delete()


def decided(ref: str) -> int:
    return Decision.objects.filter(request__ref=ref).count()


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no_scripts"])
def test_session_ended_before_approving(rest: Rest, visit: Visit, ticket: Ticket, scripts: bool) -> None:
    """Sign-in, back on the request, nothing decided by itself; then it works."""
    _, ref = asked(rest, "refund-desk", ticket=ticket.number)
    ana = visit(ANA, java_script_enabled=scripts)
    ana.expects(401)
    ana.open(ref)
    sign_out_on_the_server()
    ana.approve_button().click()  # nothing is answered yet, so nothing would be lost
    if not scripts:
        ana.page.get_by_role("link", name="Sign in").click()
    ana.page.wait_for_url("**/accounts/login/**")
    ana.sign_in(ANA)
    ana.page.wait_for_url(f"**/requests/{ref}")
    assert decided(ref) == 0
    ana.approve()
    assert ana.receipt().startswith("You approved: ")


def test_session_ended_with_a_note_typed(rest: Rest, ana: Visitor, ticket: Ticket) -> None:
    """The note stays where it is; after signing in elsewhere the same page goes on with it."""
    run_id, ref = asked(rest, "refund-desk", ticket=ticket.number)
    ana.expects(401)
    ana.open(ref)
    sign_out_on_the_server()
    ana.reject("Duplicate", "refunded in May")
    ana.page.get_by_role("heading", name="You’re signed out").wait_for()
    assert ana.page.locator("#note").input_value() == "refunded in May"
    assert decided(ref) == 0
    with ana.context.expect_page() as opened:
        ana.page.locator("#trouble").get_by_role("link", name="Sign in").click()
    reading, ana.page = ana.page, opened.value
    ana.sign_in(ANA)
    ana.page.wait_for_url(f"**/requests/{ref}")
    assert decided(ref) == 0

    ana.page = reading
    ana.page.bring_to_front()
    ana.page.locator("#trouble").wait_for(state="hidden")
    assert ana.page.locator("#note").input_value() == "refunded in May"
    ana.page.get_by_role("button", name="Duplicate", exact=True).click()
    assert ana.receipt().startswith("You rejected: ")
    assert rest.result(run_id)["said"] == "We cannot refund this: duplicate: refunded in May"


def test_session_ended_with_a_note_typed_without_scripts(rest: Rest, visit: Visit, ticket: Ticket) -> None:
    """What was typed is shown, since it was not sent."""
    _, ref = asked(rest, "refund-desk", ticket=ticket.number)
    ana = visit(ANA, java_script_enabled=False)
    ana.expects(401)
    ana.open(ref)
    sign_out_on_the_server()
    ana.reject("Duplicate", "refunded in May")
    assert ana.page.get_by_label("Your note").input_value() == "refunded in May"
    assert ana.page.get_by_label("Your reason").input_value() == "duplicate"
    assert ticket.charge not in ana.text()
    ana.page.get_by_role("link", name="Sign in").click()
    ana.sign_in(ANA)
    ana.page.wait_for_url(f"**/requests/{ref}")
    assert decided(ref) == 0


def test_session_ended_while_editing(rest: Rest, visit: Visit, ticket: Ticket) -> None:
    _, ref = asked(rest, "refund-desk", ticket=ticket.number)
    ana = visit(ANA, java_script_enabled=False)
    ana.expects(401)
    ana.go(f"/requests/{ref}/edit")
    sign_out_on_the_server()
    ana.page.get_by_label("amount").fill("22.00")
    ana.page.get_by_role("button", name="Show what changes").click()
    shown = [field.input_value() for field in ana.page.locator("textarea[readonly]").all()]
    assert shown == [ticket.charge, "22.00"]
    assert decided(ref) == 0


def test_session_ended_before_a_poll(rest: Rest, ana: Visitor, ticket: Ticket) -> None:
    """The poll never paints a sign-in form into the page, and takes nothing that was typed."""
    _, ref = asked(rest, "refund-desk", ticket=ticket.number)
    ana.page.clock.install()
    ana.expects(401)
    ana.open(ref)
    ana.page.locator("summary", has_text="Reject…").click()
    ana.page.locator("#note").fill("half a sent")
    sign_out_on_the_server()
    ana.page.clock.run_for(6000)
    ana.page.get_by_role("heading", name="You’re signed out").wait_for()
    assert ana.page.locator("input[type=password]").count() == 0
    assert ana.page.locator("#note").input_value() == "half a sent"


def test_session_ended_before_a_poll_with_nothing_typed(rest: Rest, ana: Visitor, ticket: Ticket) -> None:
    _, ref = asked(rest, "refund-desk", ticket=ticket.number)
    ana.page.clock.install()
    ana.expects(401)
    ana.open(ref)
    sign_out_on_the_server()
    ana.page.clock.run_for(6000)
    ana.page.wait_for_url(f"**/accounts/login/?next=%2Frequests%2F{ref}")
    assert ticket.charge not in ana.page.locator("body").inner_text()


def test_form_of_an_earlier_session_is_renewed(rest: Rest, ana: Visitor, ticket: Ticket) -> None:
    """Signed out and in again in another tab: this one's token is too old, and what was typed stays."""
    run_id, ref = asked(rest, "refund-desk", ticket=ticket.number)
    ana.expects(403)
    ana.open(ref)
    ana.page.locator("summary", has_text="Reject…").click()
    ana.page.locator("#note").fill("twice in March")
    reading, ana.page = ana.page, ana.context.new_page()
    ana.go("/accounts/logout/")
    ana.page.get_by_role("main").get_by_role("button", name="Sign out").click()
    ana.go("/accounts/login/")
    ana.sign_in(ANA)
    ana.page.wait_for_url(f"{ana.stack.url}/")

    ana.page = reading
    held: list[Route] = []
    ana.page.route(f"**/requests/{ref}", lambda route: held.append(route))
    ana.page.get_by_role("button", name="Duplicate", exact=True).click()
    while not held:
        ana.page.wait_for_timeout(20)
    # Until the new form is here, nothing says that it is, and the old one cannot be sent once more.
    assert not ana.page.get_by_role("heading", name="This form was too old").is_visible()
    assert ana.page.locator("#reject[data-locked]").count() == 1
    held[0].continue_()
    ana.page.unroute(f"**/requests/{ref}")
    ana.page.get_by_role("heading", name="This form was too old").wait_for()
    assert decided(ref) == 0
    assert ana.page.locator("#note").input_value() == "twice in March"
    ana.page.get_by_role("button", name="Duplicate", exact=True).click()
    assert ana.receipt().startswith("You rejected: ")
    assert "twice in March" in rest.result(run_id)["said"]


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no_scripts"])
def test_role_lost_while_the_page_is_open(rest: Rest, visit: Visit, ticket: Ticket, scripts: bool) -> None:
    _, ref = asked(rest, "refund-desk", ticket=ticket.number)
    ben = visit(BEN, java_script_enabled=scripts)
    ben.expects(404)
    ben.open(ref)
    refunds, person = Group.objects.get(name="refunds"), User.objects.get(username=BEN)
    refunds.user_set.remove(person)
    try:
        ben.approve()
        ben.page.get_by_role("heading", name="We can’t show this").wait_for()
    finally:
        refunds.user_set.add(person)
    assert decided(ref) == 0
    assert ticket.charge not in ben.text()


# -- History -----------------------------------------------------------------------------


def test_back_and_forward_after_deciding(rest: Rest, ana: Visitor, ticket: Ticket) -> None:
    run_id, ref = asked(rest, "refund-desk", ticket=ticket.number)
    ana.go("/")
    ana.page.locator(f"#row-{ref} a").click()
    ana.page.wait_for_url(f"**/requests/{ref}")
    ana.approve()
    receipt = ana.receipt()
    rest.ended(run_id)
    ana.page.go_back()
    ana.page.wait_for_url(f"**/requests/{ref}")
    assert "Ana Abbott approved this" in ana.panel()
    assert ana.page.locator("main button").count() == 0
    assert ana.page.locator("header.bar").count() == 1
    ana.page.go_back()
    assert ana.page.locator(f"#row-{ref}").count() == 0
    ana.page.go_forward()
    ana.page.go_forward()
    assert ana.heading() == receipt
    kept = ana.page.evaluate("[...Object.keys(localStorage), ...Object.keys(sessionStorage)]")
    assert [key for key in kept if key != "htmx-current-path-for-history"] == []


def test_fragment_opened_as_a_page_is_a_whole_page(rest: Rest, ana: Visitor, ticket: Ticket) -> None:
    _, ref = asked(rest, "refund-desk", ticket=ticket.number)
    for path, lands in ((f"/requests/{ref}/pulse?v=0", f"/requests/{ref}"), ("/inbox/pulse?v=0", "/")):
        said = ana.go(path)
        assert said is not None
        assert ana.page.url == f"{ana.stack.url}{lands}"
        assert ana.page.locator("header.bar").count() == 1
        assert "HX-Request" in said.headers["vary"]
        assert "no-store" in said.headers["cache-control"]


def test_restored_history_is_a_whole_page(rest: Rest, ana: Visitor, ticket: Ticket) -> None:
    """What htmx asks for when its own store has nothing of a page."""
    _, ref = asked(rest, "refund-desk", ticket=ticket.number)
    headers = {"HX-Request": "true", "HX-History-Restore-Request": "true"}
    for path in ("/", f"/requests/{ref}", "/history"):
        said = ana.context.request.get(f"{ana.stack.url}{path}", headers=headers)
        assert (said.status, said.text().lstrip()[:15].lower()) == (200, "<!doctype html>")


def test_back_after_signing_out_shows_nothing(rest: Rest, ana: Visitor, ticket: Ticket) -> None:
    _, ref = asked(rest, "refund-desk", ticket=ticket.number)
    ana.open(ref)
    ana.page.locator("details.menu summary").click()
    ana.page.get_by_role("button", name="Sign out").click()
    ana.page.wait_for_url("**/accounts/login/**")
    ana.page.go_back()
    ana.page.wait_for_url("**/accounts/login/**")
    assert ticket.charge not in ana.page.content()


# -- Who may look --------------------------------------------------------------------------


def test_somebody_elses_request_is_the_same_page_as_none(rest: Rest, visit: Visit, ticket: Ticket) -> None:
    _, ref = asked(rest, "refund-desk", ticket=ticket.number)
    eli = visit(ELI)
    eli.expects(404)
    eli.open(ref)
    foreign = eli.text()
    eli.open("ZZZZZZZZZZ")
    assert eli.text() == foreign


def test_auditor_sees_and_is_offered_nothing(rest: Rest, visit: Visit, ticket: Ticket) -> None:
    _, ref = asked(rest, "refund-desk", ticket=ticket.number)
    dot = visit(DOT)
    dot.open(ref)
    assert dot.heading() == f"Refund {ticket.amount} EUR to charge {ticket.charge}"
    assert dot.approve_button().count() == 0
    assert dot.page.locator("#reject").count() == 0
    assert "You may see this, but you don't review it." in dot.text()
    assert Request.objects.get(ref=ref).state == "open"
