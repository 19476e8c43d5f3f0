"""Ways of deciding in the browser: edited on a phone, by two of two after one was voided, too late, several at once."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from approvals import policies
from approvals.models import Decision, Request, Rule
from runs.actors import Actor
from tests.stack import Stack
from tests.visitors import ANA, BEN, Rest, Ticket, Visit, asked, moved, ticket_of

PHONE = {"width": 390, "height": 844}
RULES = Rule.objects.filter(name="Refunds are decided by the refunds team")


@pytest.fixture
def two_of_two(stack: Stack) -> Iterator[None]:
    _publish(2)
    yield
    _publish(1)


def _publish(quorum: int) -> None:
    RULES.update(quorum=quorum)
    policies.publish(Actor("person", "0", "pat", "admin"), why="a test")


def test_edited_and_approved_on_a_phone(rest: Rest, visit: Visit, ticket: Ticket) -> None:
    run_id, ref = asked(rest, "refund-desk", ticket=ticket.number)
    ana = visit(ANA, viewport=PHONE, has_touch=True)
    ana.open(ref)
    ana.page.get_by_role("link", name="Edit…").tap()
    ana.page.get_by_label("amount").fill("30.50")
    ana.page.get_by_role("button", name="Show what changes").tap()
    expect(ana.page.locator("del")).to_contain_text(ticket.amount)
    expect(ana.page.locator("ins")).to_contain_text("30.50")
    ana.answer()
    assert ana.page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    ana.page.get_by_role("button", name="Approve: refund 30.50 EUR").tap()
    assert ana.receipt() == f"You approved: Refund 30.50 EUR to charge {ticket.charge}"
    assert rest.result(run_id)["amount"] == "30.50"
    assert [refund["amount"] for refund in ticket.refunds()] == ["30.50"]


@pytest.mark.usefixtures("two_of_two")
def test_approval_that_was_voided_does_not_count(rest: Rest, visit: Visit, ticket: Ticket) -> None:
    run_id, ref = asked(rest, "refund-desk", ticket=ticket.number)
    ana, ben = visit(ANA), visit(BEN)
    ana.open(ref)
    ana.approve()
    ana.receipt()
    moved(ref, ticket, ben)
    ana.open(ref)
    assert "which no longer counts" in ana.text()
    for visitor in (ben, ana):
        visitor.open(ref)
        visitor.page.locator("input[name=ack]").check()
        assert Request.objects.get(ref=ref).state == "open"
        visitor.approve()
        visitor.receipt()
    rest.ended(run_id)
    assert Request.objects.get(ref=ref).state == "consumed"
    made = Decision.objects.filter(request__ref=ref).order_by("made_at")
    assert [(one.person_name, one.revision.number) for one in made] == [
        ("Ana Abbott", 1),
        ("Ben Brandt", 2),
        ("Ana Abbott", 2),
    ]


def test_expired_with_the_page_open(rest: Rest, stack: Stack, visit: Visit, ticket: Ticket) -> None:
    """The buttons are still there for who has no script; what they send comes too late, and the note is kept."""
    run_id, ref = asked(rest, "refund-desk", ticket=ticket.number)
    ana, still = visit(ANA), visit(ANA, java_script_enabled=False)
    ana.page.clock.install()
    for visitor in (ana, still):
        visitor.open(ref)
    still.page.locator("summary", has_text="Reject…").click()
    still.page.locator("#note").fill("Ask them first")
    stack.later(days=3, seconds=1)
    with ana.page.expect_response("**/pulse*"):
        ana.page.clock.run_for(5_000)
    expect(ana.page.get_by_role("heading", name="Expired before a decision")).to_be_visible()
    still.expects(409)
    still.page.get_by_role("button", name="Duplicate", exact=True).click()
    still.page.get_by_role("heading", name="Expired before a decision").wait_for()
    assert still.page.get_by_label("Your note").input_value() == "Ask them first"
    assert rest.result(run_id)["refunded"] is False
    assert (ticket.refunds(), Decision.objects.filter(request__ref=ref).count()) == ([], 0)


def test_one_of_several_changed_meanwhile(rest: Rest, stack: Stack, visit: Visit, ticket: Ticket) -> None:
    other = ticket_of(stack)
    refs = [asked(rest, "refund-desk", ticket=one.number)[1] for one in (ticket, other)]
    ana, ben = visit(ANA), visit(BEN)
    ana.go("/")
    for ref in refs:
        ana.page.get_by_label(f"Tick {ref}").check()
    ana.page.get_by_role("button", name="Reject…").click()
    ana.page.get_by_label("Reason").select_option("duplicate")
    moved(refs[1], other, ben)
    ana.page.get_by_role("button", name="Reject what is ticked").click()
    expect(ana.page.get_by_role("heading", level=1)).to_have_text("1 rejected, 1 changed")
    assert [Request.objects.get(ref=ref).state for ref in refs] == ["rejected", "open"]
