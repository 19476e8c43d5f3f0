"""A high-risk approval from the inbox to the receipt: by keyboard alone, and without JavaScript."""

import re

from playwright.sync_api import expect

from approvals.models import Decision, Draft, Request
from tests.stack import Stack
from tests.visitors import ANA, BEN, Rest, Visit, Visitor, asked, moved, ticket_of, totp_code

MOST_TABS = 60


def tab_to(visitor: Visitor, said: str) -> None:
    """Presses Tab until what has the focus says so; between two elements the whole page has it, and says all."""
    for _ in range(MOST_TABS):
        visitor.page.keyboard.press("Tab")
        focused = visitor.page.locator("a:focus, button:focus, input:focus, select:focus, summary:focus")
        if focused.count() and said in focused.evaluate("it => (it.labels?.[0] ?? it).innerText"):
            return
    raise AssertionError(f"{said!r} is not within {MOST_TABS} presses of Tab")


def focused(visitor: Visitor) -> str:
    return str(visitor.page.evaluate("document.activeElement.innerText")).strip()


def test_approved_by_keyboard_alone(stack: Stack, rest: Rest, ana: Visitor) -> None:
    """Each section that opens takes the focus, and every page begins at its heading."""
    ticket = ticket_of(stack, "1299.00")
    run_id, ref = asked(rest, "refund-desk", ticket=ticket.number)
    code = totp_code(ANA)
    ana.expects(403)
    ana.open(ref)
    for section in ("What will run", "Facts, then and now"):
        tab_to(ana, f"Open ‘{section}’")
        ana.page.keyboard.press("Enter")
        ana.page.locator("button[name=section]", has_text=section).wait_for(state="detached")
        expect(ana.page.locator(":focus")).to_contain_text(section)
    tab_to(ana, "Yes")
    ana.page.keyboard.press("Space")
    tab_to(ana, "Approve: refund 1299.00 EUR")
    ana.page.keyboard.press("Enter")
    ana.page.get_by_role("heading", name="What you checked").wait_for()
    expect(ana.page.locator("h1")).to_be_focused()
    assert focused(ana) == f"Refund 1299.00 EUR to charge {ticket.charge}"
    tab_to(ana, "Type the amount")
    ana.page.keyboard.type("1299")
    ana.page.keyboard.press("Enter")
    ana.page.wait_for_url("**/step-up")
    tab_to(ana, "Code from your authenticator app")
    ana.page.keyboard.type(code)
    ana.page.keyboard.press("Enter")
    assert ana.receipt() == f"You approved: Refund 1299.00 EUR to charge {ticket.charge}"
    assert rest.result(run_id)["amount"] == "1299.00"


def test_what_is_opened_leaves_the_summary_of_problems(stack: Stack, rest: Rest, ana: Visitor) -> None:
    """The summary stands above what is opened in place; without the line of what is done it would be wrong."""
    _, ref = asked(rest, "refund-desk", ticket=ticket_of(stack, "1299.00").number)
    ana.expects(422)
    ana.open(ref)
    ana.approve_button().click()
    summary = ana.page.locator("#main [role=alert]")
    summary.wait_for()
    assert summary.locator("li").all_inner_texts()[:2] == [
        "Open ‘What will run’",
        "Open ‘Facts, then and now’",
    ]
    ana.page.locator("#section-run button[name=section]").click()
    ana.page.locator("#section-run button[name=section]").wait_for(state="detached")
    assert summary.locator("li").first.inner_text() == "Open ‘Facts, then and now’"
    ana.answer()
    ana.page.locator("#section-facts button[name=section]").click()
    ana.page.locator("#section-facts button[name=section]").wait_for(state="detached")
    [left] = summary.locator("li").all_inner_texts()
    assert left.startswith("Answer ‘Did the customer")


def test_summary_of_problems_goes_with_its_last_line(stack: Stack, rest: Rest, ana: Visitor) -> None:
    _, ref = asked(rest, "refund-desk", ticket=ticket_of(stack, "1299.00").number)
    ana.expects(422)
    ana.open(ref)
    ana.approve()
    ana.page.locator("#main [role=alert]").wait_for()
    ana.open_sections()
    assert ana.page.locator("#main [role=alert]").count() == 0


def test_section_of_a_page_too_old_opens_on_the_new_one(stack: Stack, rest: Rest, visit: Visit) -> None:
    """What stands there would be something else than what is on this page: nothing counts as opened."""
    ticket = ticket_of(stack, "1299.00")
    _, ref = asked(rest, "refund-desk", ticket=ticket.number)
    ana = visit(ANA)
    ana.open(ref)
    ana.page.locator("summary", has_text="Reject…").click()
    ana.page.locator("#note").fill("half a thought")
    moved(ref, ticket, visit(BEN))
    ana.page.locator("#section-run button[name=section]").click()
    expect(ana.page.get_by_role("heading", name="Changed since revision 1")).to_be_visible()
    assert ana.page.locator("button[name=section]").count() == 2
    assert ana.page.locator("#note").input_value() == "half a thought"
    assert Draft.objects.filter(revision__request__ref=ref).count() == 0
    ana.open_sections()
    assert ana.page.locator("#note").input_value() == "half a thought"


def test_approved_without_scripts(rest: Rest, visit: Visit) -> None:
    """A mailing to 1,200 people, with its list as a section of its own."""
    run_id, ref = asked(rest, "mailing", topic="Lamps without a script", mailing_list="customers")
    ana = visit(ANA, java_script_enabled=False)
    ana.go("/")
    ana.page.locator(f"a[href='/requests/{ref}']").first.click()
    ana.approve_button().click()
    ana.expects(422)
    said = ana.page.locator("[role=alert]").inner_text()
    assert re.findall(r"Open ‘[^’]+’|Answer ‘[^’]+’", said) == [
        "Open ‘What will run’",
        "Open ‘Facts, then and now’",
        "Open ‘recipients (1,200)’",
        "Answer ‘Are the 1,200 recipients the people this e-mail is meant for?’",
        "Answer ‘Did you read the text to its end, and may it go out as it is?’",
    ]
    ana.approve_r3(ref)
    assert ana.receipt().startswith("You approved: Send “Lamps without a script")
    assert rest.result(run_id)["accepted"] == 1200
    made = Decision.objects.get(request__ref=ref)
    assert (made.step_up, [each["answer"] for each in made.basis]) == ("totp", ["yes", "yes", "1200"])


def test_approved_with_scripts_keeps_what_is_ticked(rest: Rest, ana: Visitor) -> None:
    """Opening a section takes nothing away that was answered before, and the wrong number is said at its place."""
    _, ref = asked(rest, "mailing", topic="Lamps with a script", mailing_list="customers")
    ana.open(ref)
    ana.answer()
    ana.page.locator("summary", has_text="Reject…").click()
    ana.page.locator("#note").fill("half a thought")
    ana.open_sections()
    assert ana.page.locator("#note").input_value() == "half a thought"
    assert ana.page.locator("fieldset.basis input:checked").count() == 2
    assert "Where they lead" in ana.text()
    ana.expects(403, 422)
    ana.approve()
    ana.page.get_by_role("heading", name="What you checked").wait_for()
    ana.page.locator("#basis-retype").fill("1,100")
    ana.page.locator("#approve button").click()
    ana.page.get_by_text("Type the number of recipients as you read it.").first.wait_for()
    ana.check(ref)
    ana.page.wait_for_url("**/step-up")
    ana.page.get_by_text("You have no second factor yet.").wait_for()
    ana.page.get_by_role("link", name="Back", exact=True).click()
    ana.page.locator("fieldset.basis").first.wait_for()
    assert ana.page.locator("button[name=section]").count() == 0
    assert ana.page.locator("fieldset.basis input:checked").count() == 2
    assert ana.page.locator("#note").input_value() == "half a thought"
    assert (Request.objects.get(ref=ref).state, Decision.objects.filter(request__ref=ref).count()) == (
        "open",
        0,
    )


def test_approved_with_a_passkey(stack: Stack, rest: Rest, ana: Visitor) -> None:
    """Who has no second factor is led to add one, and comes back to what was begun."""
    ticket = ticket_of(stack, "1299.00")
    run_id, ref = asked(rest, "refund-desk", ticket=ticket.number)
    key = {"protocol": "ctap2", "transport": "internal", "hasResidentKey": True, "hasUserVerification": True}
    key |= {"isUserVerified": True, "automaticPresenceSimulation": True}
    devices = ana.context.new_cdp_session(ana.page)
    devices.send("WebAuthn.enable")
    devices.send("WebAuthn.addVirtualAuthenticator", {"options": key})
    ana.expects(403)
    ana.open(ref)
    ana.open_sections()
    ana.approve()
    ana.check(ref)
    ana.page.wait_for_url("**/step-up")
    ana.page.get_by_role("link", name="Add a passkey").click()
    ana.page.get_by_label("Password", exact=True).fill(stack.password)
    ana.page.get_by_role("button", name="Confirm").click()
    ana.page.locator("#mfa_webauthn_add").click()
    ana.page.get_by_role("link", name=f"Back to {ref}").click()
    ana.page.get_by_role("button", name="Approve with a passkey").click()
    assert ana.receipt().startswith("You approved: Refund 1299.00 EUR")
    assert Decision.objects.get(request__ref=ref).step_up == "webauthn"
    assert rest.result(run_id)["amount"] == "1299.00"
