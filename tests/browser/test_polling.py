"""Pages that look again by themselves: they take nothing from who types, and never pile up."""

import re

from playwright.sync_api import Request as Sent
from playwright.sync_api import expect

from approvals.models import Decision, Request
from tests.stack import until
from tests.visitors import ANA, BEN, Rest, Ticket, Visit, Visitor, asked

CARET = "() => [document.activeElement.id, document.activeElement.selectionStart]"
HIDE = """state => {
    Object.defineProperty(document, 'visibilityState', {configurable: true, get: () => state});
    document.dispatchEvent(new Event('visibilitychange'));
}"""


def pulses(visitor: Visitor) -> list[Sent]:
    """The polls this page sends from now on."""
    sent: list[Sent] = []
    visitor.page.on("request", lambda request: sent.append(request) if "/pulse" in request.url else None)
    return sent


def beat(visitor: Visitor, seconds: int = 5) -> None:
    """Lets the page's clock run on until it polls, and waits for the answer."""
    with visitor.page.expect_response("**/pulse*"):
        visitor.page.clock.run_for(seconds * 1000)


def drift(visit: Visit, ref: str, ticket: Ticket) -> None:
    """Something changes outside, and Ben's look finds it."""
    number = Request.objects.get(ref=ref).number
    ticket.refund_elsewhere("1.00")
    ben = visit(BEN)
    ben.open(ref)
    ben.page.get_by_role("button", name="Check again").click()
    until(lambda: Request.objects.get(ref=ref).number == number + 1, "another revision")


def test_typing_goes_on_while_things_change(rest: Rest, visit: Visit, ticket: Ticket) -> None:
    run_id, ref = asked(rest, "refund-desk", ticket=ticket.number)
    ana = visit(ANA)
    ana.page.clock.install()
    ana.open(ref)
    ana.page.locator("summary", has_text="Reject…").click()
    note = ana.page.locator("#note")
    note.press_sequentially("Not this one: ask the customer first")
    note.evaluate("field => field.setSelectionRange(8, 8)")
    drift(visit, ref, ticket)
    beat(ana)
    ana.page.get_by_role("heading", name="This changed while you were reading").wait_for()
    assert ana.page.evaluate(CARET) == ["note", 8]
    note.press_sequentially("!")
    assert note.input_value() == "Not this! one: ask the customer first"
    ana.page.evaluate(
        "htmx.config.defaultSettleDelay = 3000"
    )  # it is there with the swap, not when that settles
    ana.page.get_by_role("link", name="Show the new version").click()
    ana.page.get_by_text("Changed since revision 1").wait_for()
    assert ana.page.locator("#note").input_value() == "Not this! one: ask the customer first"
    ana.page.get_by_role("button", name="Duplicate", exact=True).click()
    assert ana.receipt().startswith("You rejected: ")
    assert "Not this! one" in rest.result(run_id)["said"]


def test_an_answer_that_waits_keeps_others_from_starting(rest: Rest, ana: Visitor, ticket: Ticket) -> None:
    """One poll at a time: an older answer can never come after a newer one."""
    _, ref = asked(rest, "refund-desk", ticket=ticket.number)
    ana.page.clock.install()
    ana.open(ref)
    sent, held = pulses(ana), []
    ana.page.route("**/pulse*", lambda route: held.append(route))
    ana.page.clock.run_for(5_000)
    until(lambda: ana.page.wait_for_timeout(50) or held, "a poll")
    ana.page.clock.run_for(4_000)  # less than its own time limit
    assert (len(held), len(sent)) == (1, 1)
    with ana.page.expect_response("**/pulse*"):
        held[0].continue_()
    ana.page.unroute("**/pulse*")
    beat(ana)
    assert len(sent) == 2


def test_one_loop_however_often_the_page_is_swapped(rest: Rest, visit: Visit, ticket: Ticket) -> None:
    _, ref = asked(rest, "refund-desk", ticket=ticket.number)
    ana = visit(ANA)
    ana.page.clock.install()
    ana.open(ref)
    for _ in range(3):
        drift(visit, ref, ticket)
        beat(ana)
        ana.page.get_by_role("link", name="Show the new version").click()
        ana.page.locator("#pulse .notice").wait_for(state="detached")
    beat(ana)
    sent = pulses(ana)
    for _ in range(4):
        beat(ana)
    assert len(sent) == 4


def test_no_polls_from_a_hidden_tab(rest: Rest, ana: Visitor, ticket: Ticket) -> None:
    _, ref = asked(rest, "refund-desk", ticket=ticket.number)
    ana.page.clock.install()
    ana.open(ref)
    ana.page.evaluate(HIDE, "hidden")
    sent = pulses(ana)
    ana.page.clock.run_for(60_000)
    assert sent == []
    with ana.page.expect_response("**/pulse*"):
        ana.page.evaluate(HIDE, "visible")
    assert len(sent) == 1


def test_inbox_tells_of_what_is_new_and_moves_nothing(rest: Rest, visit: Visit, ticket: Ticket) -> None:
    _, first = asked(rest, "refund-desk", ticket=ticket.number)
    ana = visit(ANA)
    ana.page.clock.install()
    ana.go("/")
    assert ana.page.title().startswith("Inbox (1)")
    ana.page.locator("#q").fill("refu")
    _, second = asked(rest, "purchase", item="monitor-27", quantity=1)
    beat(ana, 15)
    pill = ana.page.locator(".pulse-pill")
    pill.wait_for()
    assert " ".join(pill.inner_text().split()) == "1 new Show"
    expect(ana.page).to_have_title(re.compile(r"^Inbox \(2\)"))  # said after the pill
    assert ana.page.locator(f"#row-{second}").count() == 0
    assert ana.page.locator("#q").input_value() == "refu"
    pill.get_by_role("link").click()
    ana.page.locator(f"#row-{second}").wait_for()
    assert ana.page.locator(f"#row-{first}").count() == 1


def test_decided_by_somebody_else_while_reading(rest: Rest, visit: Visit, ticket: Ticket) -> None:
    """The page says so in its place; what was typed stays until it is reloaded."""
    _, ref = asked(rest, "refund-desk", ticket=ticket.number)
    ana, ben = visit(ANA), visit(BEN)
    ana.page.clock.install()
    ana.open(ref)
    ana.page.locator("summary", has_text="Reject…").click()
    ana.page.locator("#note").fill("wait")
    ben.open(ref)
    ben.approve()
    ben.receipt()
    beat(ana)
    ana.page.get_by_role("heading", name="Ben Brandt approved this").wait_for()
    assert ana.page.locator("#note").input_value() == "wait"
    ana.page.get_by_role("link", name="Show where it stands").click()
    ana.page.locator("#decide").wait_for(state="detached")
    assert Decision.objects.filter(request__ref=ref).count() == 1


def test_unreachable_for_a_while(rest: Rest, ana: Visitor, ticket: Ticket) -> None:
    """The inbox says since when it knows nothing new, and that it is live again."""
    asked(rest, "refund-desk", ticket=ticket.number)
    ana.expects_text("net::ERR_", "htmx:sendError", "htmx:afterRequest")
    ana.page.clock.install()
    ana.go("/")
    ana.page.route("**/pulse*", lambda route: route.abort())
    for _ in range(2):
        with ana.page.expect_event("requestfailed"):
            ana.page.clock.run_for(15_000)
    ana.page.get_by_text("showing what we last knew").wait_for()
    ana.page.unroute("**/pulse*")
    beat(ana, 15)
    ana.page.get_by_text("· live").wait_for()
