"""Passing on, asking the agent's side, more time: from one browser to the other."""

from approvals.models import Inquiry, Request
from tests.visitors import BEN, ELI, Rest, Ticket, Visit, Visitor, asked


def test_passed_on_and_decided_by_the_other(rest: Rest, ana: Visitor, visit: Visit, ticket: Ticket) -> None:
    run_id, ref = asked(rest, "refund-desk", ticket=ticket.number)
    ana.open(ref)
    ana.page.locator("summary", has_text="Pass on…").click()
    ana.page.get_by_label("To whom?").select_option(label="Ben Brandt")
    ana.page.get_by_label("Why?").fill("You know this customer")
    ana.page.get_by_role("button", name="Pass it on").click()
    ana.page.get_by_text("It lies with Ben Brandt").wait_for()
    ben = visit(BEN)
    ben.open(ref)
    assert "Ana Abbott passed this on to you" in ben.text()
    assert "You know this customer" in ben.text()
    ben.approve()
    assert ben.receipt().startswith("You approved: ")
    assert rest.result(run_id)["refunded"] is True


def test_asked_on_the_page_and_answered_on_the_run(
    rest: Rest, ana: Visitor, visit: Visit, ticket: Ticket
) -> None:
    run_id, ref = asked(rest, "refund-desk", ticket=ticket.number)
    ana.open(ref)
    ana.page.locator("summary", has_text="Ask…").click()
    ana.page.get_by_label("What do you want to know?").fill("Did she send it back?")
    ana.page.get_by_role("button", name="Ask", exact=True).click()
    ana.page.get_by_text("No answer yet").wait_for()
    eli = visit(ELI)
    eli.go(f"/runs/{run_id}/")
    assert "Did she send it back?" in eli.text()
    assert "Ana Abbott" not in eli.text()
    eli.page.get_by_label("Your answer").fill("On Monday")
    eli.page.get_by_role("button", name="Send the answer").click()
    eli.page.get_by_text("Your answer was passed on to the reviewers.").wait_for()
    assert Inquiry.objects.get(request__ref=ref).answer == "On Monday"
    ana.open(ref)
    assert "On Monday" in ana.text()
    ana.approve()
    assert ana.receipt().startswith("You approved: ")
    assert rest.result(run_id)["refunded"] is True


def test_more_time_and_being_on_it_change_no_digest(rest: Rest, visit: Visit, ticket: Ticket) -> None:
    """Without a script; what another has open can still be decided as it is."""
    run_id, ref = asked(rest, "refund-desk", ticket=ticket.number)
    before = Request.objects.get(ref=ref).decide_by
    ben, ana = visit(BEN), visit("ana@example.com", java_script_enabled=False)
    ben.open(ref)
    ana.open(ref)
    ana.page.get_by_role("button", name="3 days more time").click()
    ana.page.get_by_role("button", name="I’m on it").click()
    ana.page.get_by_text("You said that you are on it.").wait_for()
    after = Request.objects.get(ref=ref).decide_by
    assert before is not None
    assert after is not None
    assert (after - before).days == 3
    ben.approve()
    assert ben.receipt().startswith("You approved: ")
    assert rest.result(run_id)["refunded"] is True
