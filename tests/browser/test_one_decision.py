"""However the buttons are pressed, there is one decision, and the page says which."""

import pytest

from approvals.models import Decision, Request
from tests.stack import Stack
from tests.visitors import ANA, BEN, Rest, Ticket, Visit, Visitor, asked, ticket_of

APPROVE = "document.querySelector('button[form=approve]')"
DUPLICATE = "document.querySelector('#reject button[value=duplicate]')"


def verbs(ref: str) -> list[str]:
    return list(Decision.objects.filter(request__ref=ref).values_list("verb", flat=True))


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no_scripts"])
def test_double_click(rest: Rest, visit: Visit, ticket: Ticket, scripts: bool) -> None:
    run_id, ref = asked(rest, "refund-desk", ticket=ticket.number)
    ana = visit(ANA, java_script_enabled=scripts)
    ana.open(ref)
    ana.answer()
    ana.approve_button().dblclick(no_wait_after=True)
    assert ana.receipt().startswith("You approved: ")
    assert rest.result(run_id)["refunded"] is True
    assert verbs(ref) == ["approve"]
    assert len(ticket.calls()) == 1


def test_two_posts_from_one_page(rest: Rest, ana: Visitor, ticket: Ticket) -> None:
    """Nothing on the page is in the way of the second: it gets the first one's receipt."""
    run_id, ref = asked(rest, "refund-desk", ticket=ticket.number)
    ana.open(ref)
    ana.answer()
    twice = """async () => {
        const form = document.getElementById('approve');
        const post = () => fetch(form.action, {method: 'POST', body: new FormData(form)});
        return (await Promise.all([post(), post()])).map(answer => [answer.status, answer.url]);
    }"""
    first, second = ana.page.evaluate(twice)
    assert first == second
    assert first[1].startswith(f"{ana.stack.url}/decisions/")
    assert verbs(ref) == ["approve"]
    assert rest.result(run_id)["refunded"] is True
    assert len(ticket.calls()) == 1


def test_enter_and_click(rest: Rest, ana: Visitor, ticket: Ticket) -> None:
    run_id, ref = asked(rest, "refund-desk", ticket=ticket.number)
    ana.open(ref)
    ana.answer()
    ana.page.evaluate(f"() => {{ const b = {APPROVE}; b.form.requestSubmit(b); b.click(); b.click(); }}")
    assert ana.receipt().startswith("You approved: ")
    assert rest.result(run_id)["refunded"] is True
    assert verbs(ref) == ["approve"]


def test_approve_then_reject_at_once(rest: Rest, ana: Visitor, ticket: Ticket) -> None:
    """Both are one question: while the first is on its way, the other button does nothing."""
    run_id, ref = asked(rest, "refund-desk", ticket=ticket.number)
    ana.open(ref)
    ana.answer()
    ana.page.evaluate(f"() => {{ {APPROVE}.click(); setTimeout(() => {DUPLICATE}?.click(), 5); }}")
    assert ana.receipt().startswith("You approved: ")
    assert verbs(ref) == ["approve"]
    assert rest.result(run_id)["refunded"] is True


def test_approve_then_reject_without_the_lock(rest: Rest, ana: Visitor, ticket: Ticket) -> None:
    """Two tabs of one person: the second says what stands, and that it was not recorded."""
    run_id, ref = asked(rest, "refund-desk", ticket=ticket.number)
    other = ana.context.new_page()
    ana.go(f"/requests/{ref}", other)
    ana.open(ref)
    ana.approve()
    ana.receipt()
    ana.expects(409)
    other.locator("summary", has_text="Reject…").click()
    other.get_by_role("button", name="Duplicate", exact=True).click()
    other.get_by_role("heading", name="Ana Abbott approved this").wait_for()
    assert other.get_by_text("Your rejection was not recorded.").is_visible()
    assert verbs(ref) == ["approve"]
    assert rest.result(run_id)["refunded"] is True


def test_buttons_are_free_again_after_the_answer_was_lost(rest: Rest, ana: Visitor, ticket: Ticket) -> None:
    run_id, ref = asked(rest, "refund-desk", ticket=ticket.number)
    ana.expects_text("net::ERR_", "htmx:sendError", "htmx:afterRequest")
    ana.open(ref)
    ana.page.route("**/decide", lambda route: route.abort())
    ana.page.locator("summary", has_text="Reject…").click()
    ana.page.locator("#note").fill("kept?")
    ana.approve()
    ana.page.get_by_role("heading", name="We don’t know yet whether your decision was saved").wait_for()
    assert ana.approve_button().get_attribute("aria-disabled") is None
    assert ana.page.locator("#note").input_value() == "kept?"
    ana.page.unroute("**/decide")
    ana.approve()
    assert ana.receipt().startswith("You approved: ")
    assert verbs(ref) == ["approve"]
    assert rest.result(run_id)["refunded"] is True


def test_answer_lost_on_the_way_back_then_pressed_again(rest: Rest, ana: Visitor, ticket: Ticket) -> None:
    """The decision was saved and the page never heard of it: pressing again shows its receipt."""
    run_id, ref = asked(rest, "refund-desk", ticket=ticket.number)
    ana.expects_text("net::ERR_", "htmx:sendError", "htmx:afterRequest")
    ana.open(ref)

    def saved_but_unheard(route) -> None:  # type: ignore[no-untyped-def]
        route.fetch()
        route.abort()

    ana.page.route("**/decide", saved_but_unheard)
    ana.approve()
    ana.page.get_by_role("heading", name="We don’t know yet whether your decision was saved").wait_for()
    ana.page.unroute("**/decide")
    ana.approve()
    assert ana.receipt().startswith("You approved: ")
    assert verbs(ref) == ["approve"]
    assert rest.result(run_id)["refunded"] is True
    assert len(ticket.calls()) == 1


def test_offline_nothing_is_sent(rest: Rest, ana: Visitor, ticket: Ticket) -> None:
    _, ref = asked(rest, "refund-desk", ticket=ticket.number)
    ana.expects_text("net::ERR_", "htmx:sendError", "htmx:afterRequest")
    ana.open(ref)
    ana.context.set_offline(True)
    ana.approve()
    ana.page.get_by_role("heading", name="You’re offline").wait_for()
    ana.context.set_offline(False)
    assert verbs(ref) == []
    ana.approve()
    assert ana.receipt().startswith("You approved: ")


def test_stale_tab_shows_old_and_new_side_by_side(stack: Stack, rest: Rest, visit: Visit) -> None:
    """Ben edits a large refund, which somebody else has to approve, while Ana reads the first version."""
    ticket = ticket_of(stack, "1299.00")
    run_id, ref = asked(rest, "refund-desk", ticket=ticket.number)
    ana, ben = visit(ANA), visit(BEN)
    ana.open(ref)
    ben.open(ref)
    ben.page.get_by_role("link", name="Edit…").click()
    ben.page.get_by_label("amount").fill("1100.00")
    ben.page.get_by_role("button", name="Show what changes").click()
    ben.page.get_by_role("button", name="Propose this version").click()
    ben.page.get_by_text("You edited this action").wait_for()

    ana.expects(409)
    ana.approve()
    ana.page.get_by_role("heading", name="This changed while you were reading").wait_for()
    row = ana.page.locator("table.diff tbody tr")
    assert row.locator("del").inner_text().endswith("1299.00")
    assert row.locator("ins").inner_text().endswith("1100.00")
    assert verbs(ref) == []
    ana.page.get_by_role("link", name="Show the new version").click()
    ana.page.get_by_role("heading", level=1, name="Refund 1100.00 EUR").wait_for()
    ana.approve_r3(ref)
    ana.receipt()
    assert rest.result(run_id)["amount"] == "1100.00"
    assert [call["body"] for call in ticket.calls()] == [{"amount": "1100.00"}]


def test_decision_without_a_digest_is_refused(rest: Rest, ana: Visitor, ticket: Ticket) -> None:
    _, ref = asked(rest, "refund-desk", ticket=ticket.number)
    ana.expects(428)
    ana.open(ref)
    ana.page.evaluate("document.querySelectorAll('[name=view_digest]').forEach(field => field.remove())")
    ana.approve()
    ana.page.locator("section.notice[data-focus]").wait_for()
    assert verbs(ref) == []
    assert Request.objects.get(ref=ref).state == "open"
