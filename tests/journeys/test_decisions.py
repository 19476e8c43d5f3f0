"""What people can say to a run that waits, and what the world and the clock say meanwhile."""

import json

from approvals.models import Decision, Request
from runs.models import Run
from tests.stack import Stack, until
from tests.visitors import ANA, BEN, Rest, Ticket, Visit, Visitor, asked, request_of


def test_rejected_the_agent_reads_the_reason(rest: Rest, ana: Visitor, ticket: Ticket) -> None:
    run_id, ref = asked(rest, "refund-desk", ticket=ticket.number)
    ana.open(ref)
    ana.reject("Duplicate", "It was refunded in May, under order 30118.")
    assert ana.receipt() == f"You rejected: Refund {ticket.amount} EUR to charge {ticket.charge}"
    result = rest.result(run_id)
    said = "We cannot refund this: duplicate: It was refunded in May, under order 30118."
    assert (result["refunded"], result["said"]) == (False, said)
    assert ticket.calls() == []
    [letter] = ticket.letters()
    assert letter.splitlines()[2] == said
    assert Request.objects.get(ref=ref).state == "rejected"


def test_rejected_without_scripts(rest: Rest, visit: Visit, ticket: Ticket) -> None:
    run_id, ref = asked(rest, "refund-desk", ticket=ticket.number)
    ana = visit(ANA, java_script_enabled=False)
    ana.open(ref)
    ana.reject("Wrong amount")
    assert ana.receipt().startswith("You rejected: ")
    assert rest.result(run_id)["said"] == "We cannot refund this: wrong amount"
    assert ticket.calls() == []


def test_edited_the_outside_the_agent_and_the_record_know(rest: Rest, ana: Visitor, ticket: Ticket) -> None:
    run_id, ref = asked(rest, "refund-desk", ticket=ticket.number)
    ana.open(ref)
    ana.page.get_by_role("link", name="Edit…").click()
    ana.page.get_by_label("amount").fill("21.50")
    ana.page.get_by_role("button", name="Show what changes").click()
    ana.page.get_by_text("You are changing 1 field").wait_for()
    assert ana.heading() == f"Refund 21.50 EUR to charge {ticket.charge}"
    ana.answer()
    ana.page.locator("section.decide button.button-main").click()
    assert ana.receipt() == f"You approved: Refund 21.50 EUR to charge {ticket.charge}"

    result = rest.result(run_id)
    [call] = ticket.calls()
    assert call["body"] == {"amount": "21.50"}
    assert result["amount"] == "21.50"
    assert f"You asked for {ticket.amount} EUR" in result["said"]
    [step] = [step for step in rest.steps(run_id) if step["tool"] == "issue_refund"]
    assert step["arguments"] == {"charge": ticket.charge, "amount": ticket.amount}
    assert step["executed"] == {"charge": ticket.charge, "amount": "21.50"}
    assert (step["decision"]["verb"], step["decision"]["by"]) == ("edit", "Ana Abbott")


def test_drift_approving_is_refused_with_what_changed(rest: Rest, ana: Visitor, ticket: Ticket) -> None:
    """Somebody refunds a part elsewhere while the page is open, and a look has found it out."""
    run_id, ref = asked(rest, "refund-desk", ticket=ticket.number)
    ana.open(ref)
    other = ana.context.new_page()
    ana.go(f"/requests/{ref}", other)
    ticket.refund_elsewhere("5.00")
    other.get_by_role("button", name="Check again").click()
    until(lambda: Request.objects.get(ref=ref).number == 2, "a second revision")

    ana.expects(409)
    ana.approve()
    ana.page.get_by_role("heading", name="This changed while you were reading").wait_for()
    assert "Your approval was not recorded." in ana.panel()
    row = ana.page.locator("table.diff tbody tr")
    assert row.locator("del").inner_text().endswith("0.00")
    assert row.locator("ins").inner_text().endswith("5.00")
    assert Decision.objects.filter(request__ref=ref).count() == 0

    ana.page.get_by_role("link", name="Show the new version").click()
    changed = ana.page.locator("tr.fact-changed")
    changed.wait_for()
    assert [cell.split("\n")[-1] for cell in changed.locator("td").all_inner_texts()[:2]] == ["0.00", "5.00"]
    [own] = ticket.calls()
    assert own["body"] == {"amount": "5.00"}
    assert rest.run(run_id)["status"] == "suspended"


def test_drift_found_at_the_call_asks_again(rest: Rest, ana: Visitor, ticket: Ticket) -> None:
    """Nobody looked before the approval: the look right before the call finds it, and nothing is called."""
    run_id, ref = asked(rest, "refund-desk", ticket=ticket.number)
    ana.open(ref)
    ticket.refund_elsewhere("5.00")
    ana.approve()
    assert ana.receipt().startswith("You approved: ")
    until(lambda: Request.objects.get(ref=ref).number == 2, "a second revision")
    rest.until(run_id, "suspended")
    assert len(ticket.calls()) == 1
    ana.open(ref)
    assert "Changed since revision 1" in ana.text()
    assert "approved, which no longer counts" in ana.text()

    ana.expects(422)
    ana.approve()
    ana.page.locator("#main [role=alert]").wait_for()
    ana.page.locator("input[name=ack]").check()
    ana.page.get_by_role("link", name="Edit…").wait_for()
    ana.reject("Wrong amount")
    assert ana.receipt().startswith("You rejected: ")
    assert rest.result(run_id)["refunded"] is False
    assert len(ticket.calls()) == 1


def test_question_is_answered_then_the_purchase_approved(stack: Stack, rest: Rest, ana: Visitor) -> None:
    run_id, ref = asked(rest, "purchase", item="label-printer", quantity=2)
    ana.open(ref)
    assert "Which quote should we take for 2 × label-printer?" in ana.text()
    ana.page.get_by_label("kappa").check()
    ana.page.get_by_label("4200-studio").check()
    ana.page.get_by_role("button", name="Send this answer").click()
    assert ana.receipt() == "You answered: A question from purchase"

    second = request_of(run_id, 2).ref
    rest.until(run_id, "suspended")
    ana.open(second)
    assert ana.heading() == "Buy 2 × label-printer from kappa for 290.46 EUR"
    ana.approve()
    assert ana.receipt().startswith("You approved: Buy 2 × label-printer")
    result = rest.result(run_id)
    [step] = [step for step in rest.steps(run_id) if step["tool"] == "buy"]
    bought = (result["bought"], result["amount"], result["purchase"])
    assert bought == (True, "290.46", step["result"]["id"])
    key = step["effect"]["key"]
    [call] = [call for call in stack.gateway.calls("/purchases") if call["idempotency_key"] == key]
    assert call["body"]["cost_centre"] == "4200-studio"


def test_question_with_nothing_chosen_is_shown_again(rest: Rest, ana: Visitor) -> None:
    run_id, ref = asked(rest, "purchase", item="label-printer", quantity=1)
    ana.expects(422)
    ana.open(ref)
    ana.page.get_by_label("norde").check()
    ana.page.get_by_role("button", name="Send this answer").click()
    ana.page.locator(".field-bad").wait_for()
    assert ana.page.get_by_label("norde").is_checked()
    assert Decision.objects.filter(request__ref=ref).count() == 0
    assert rest.run(run_id)["status"] == "suspended"


def test_expired_while_the_page_is_open(stack: Stack, rest: Rest, ana: Visitor, ticket: Ticket) -> None:
    run_id, ref = asked(rest, "refund-desk", ticket=ticket.number)
    ana.open(ref)
    stack.later(days=3, minutes=1)
    ana.expects(409)
    ana.approve()
    ana.page.get_by_role("heading", name="Expired before a decision").wait_for()
    assert "Nothing was run." in ana.panel()
    result = rest.result(run_id)
    assert (result["refunded"], result["said"]) == (False, "We could not decide on your refund in time.")
    assert ticket.calls() == []
    ana.open(ref)
    assert "Expired before a decision" in ana.panel()
    assert ana.approve_button().count() == 0
    [step] = [step for step in rest.steps(run_id) if step["tool"] == "issue_refund"]
    assert step["error"]["kind"] == "Expired"
    assert Request.objects.get(ref=ref).state == "expired"


def test_two_reviewers_at_once(rest: Rest, visit: Visit, ticket: Ticket) -> None:
    """Both have the page open and both press approve: one receipt, one page that says who was first."""
    run_id, ref = asked(rest, "refund-desk", ticket=ticket.number)
    ana, ben = visit(ANA), visit(BEN)
    for reviewer in (ana, ben):
        reviewer.expects(409)
        reviewer.open(ref)
    for reviewer in (ana, ben):
        reviewer.answer()
    for reviewer in (ana, ben):
        reviewer.page.evaluate("document.querySelector('button[form=approve]').click()")
    for reviewer in (ana, ben):
        reviewer.page.locator("main section.receipt, main section.notice[data-focus]").first.wait_for()
    [decision] = Decision.objects.filter(request__ref=ref)
    first, second = (ana, ben) if decision.person_name == "Ana Abbott" else (ben, ana)
    assert first.receipt().startswith("You approved: ")
    said = f"{decision.person_name} already approved this"
    assert said in second.panel()
    assert "One decision was enough" in second.panel()
    assert rest.result(run_id)["refunded"] is True
    assert len(ticket.calls()) == 1


def test_two_reviewers_who_disagree(rest: Rest, visit: Visit, ticket: Ticket) -> None:
    """The second sees who decided otherwise and that theirs was not recorded, with what they had typed."""
    run_id, ref = asked(rest, "refund-desk", ticket=ticket.number)
    ana, ben = visit(ANA), visit(BEN)
    ben.expects(409)
    ana.open(ref)
    ben.open(ref)
    ana.approve()
    ana.receipt()
    ben.reject("Duplicate", "I know this customer.")
    ben.page.get_by_role("heading", name="Ana Abbott approved this").wait_for()
    assert "Your rejection was not recorded." in ben.panel()
    assert ben.page.locator("textarea[readonly]").input_value() == "I know this customer."
    assert rest.result(run_id)["refunded"] is True
    assert Decision.objects.filter(request__ref=ref).count() == 1


def test_cancelled_while_the_page_is_open(rest: Rest, ana: Visitor, ticket: Ticket) -> None:
    run_id, ref = asked(rest, "refund-desk", ticket=ticket.number)
    ana.open(ref)
    said = rest.http.post(f"/runs/{run_id}/cancel", json={"reason": "customer called"})
    assert (said.status_code, said.json()["status"]) == (200, "cancelled")
    ana.expects(409)
    ana.approve()
    ana.page.get_by_role("heading", name="The run was cancelled").wait_for()
    assert "Nothing was run." in ana.panel()
    assert ticket.calls() == []
    ana.go("/")
    assert ref not in ana.text()
    ana.open(ref)
    assert ana.approve_button().count() == 0
    assert Request.objects.get(ref=ref).state == "cancelled"
    assert Run.objects.get(pk=run_id).status == "cancelled"
    assert json.loads(Run.objects.get(pk=run_id).error or "null") is None
