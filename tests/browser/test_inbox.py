"""The inbox with a browser: rows that open and leave in their place, rows ticked together, and keys that decide nothing."""

from playwright.sync_api import expect

from approvals.models import Decision, Request
from tests.browser.test_polling import beat
from tests.visitors import ANA, BEN, Rest, Ticket, Visit, Visitor, asked

FOCUSED = "document.activeElement.closest('[data-row]')?.id ?? document.activeElement.id"


def with_keys(visitor: Visitor) -> None:
    visitor.go("/")
    visitor.page.get_by_role("button", name="Turn on keyboard shortcuts").click()
    visitor.page.get_by_role("button", name="Turn off").wait_for()


def calm(visitor: Visitor) -> None:
    """After the first moments of a page."""
    visitor.page.wait_for_timeout(750)


def two(rest: Rest, ticket: Ticket) -> str:
    """Two that wait; the ref of the first."""
    _, ref = asked(rest, "refund-desk", ticket=ticket.number)
    asked(rest, "purchase", item="monitor-27", quantity=1)
    return ref


def shown(visitor: Visitor) -> list[str]:
    return [row.get_attribute("id") or "" for row in visitor.page.locator("[data-row]").all()]


def test_keys_do_nothing_until_they_are_turned_on(rest: Rest, visit: Visit, ticket: Ticket) -> None:
    two(rest, ticket)
    ana = visit(ANA)
    ana.go("/")
    calm(ana)
    for key in ("j", "x", "o", "?", "/"):
        ana.page.keyboard.press(key)
    assert ana.page.evaluate(FOCUSED) in ("", "main")
    assert ana.page.locator("#keys-help").count() == 0


def test_keys_move_tick_and_open(rest: Rest, visit: Visit, ticket: Ticket) -> None:
    two(rest, ticket)
    ana = visit(ANA)
    with_keys(ana)
    rows, press = shown(ana), ana.page.keyboard.press
    seen = []
    for key in ("j", "j", "j", "k"):
        press(key)
        seen.append(ana.page.evaluate(FOCUSED))
    assert seen == [rows[0], rows[1], rows[1], rows[0]]
    press("x")
    expect(ana.page.locator(f"#{rows[0]} .row-pick input")).to_be_checked()
    press("/")
    assert ana.page.evaluate(FOCUSED) == "q"
    ana.page.keyboard.type("jx?")
    assert ana.page.locator("#q").input_value() == "jx?"
    ana.page.locator("h1").click()
    press("?")
    expect(ana.page.locator("#keys-help")).to_be_visible()
    press("Escape")
    ana.page.locator(f"#{rows[1]} .row-title a").focus()
    press("o")
    ana.page.wait_for_url(f"**/requests/{rows[1].removeprefix('row-')}")
    press("g")
    press("h")
    ana.page.wait_for_url("**/history")
    press("u")
    ana.page.wait_for_url(f"{ana.stack.url}/")


def test_keys_open_forms_and_decide_nothing(rest: Rest, visit: Visit, ticket: Ticket) -> None:
    _, ref = asked(rest, "refund-desk", ticket=ticket.number)
    ana = visit(ANA)
    with_keys(ana)
    ana.open(ref)
    press = ana.page.keyboard.press
    press("r")  # in the first moments: it was meant for what was there before
    expect(ana.page.locator("#note")).to_be_hidden()
    calm(ana)
    press("r")
    expect(ana.page.locator("#note")).to_be_focused()
    ana.page.keyboard.type("a r z")
    assert ana.page.locator("#note").input_value() == "a r z"
    ana.page.locator("h1").first.click()
    press("Control+a")
    assert ana.page.evaluate("document.activeElement.dataset.key") is None
    press("a")
    assert ana.page.evaluate("document.activeElement.getAttribute('form')") == "approve"
    ana.page.evaluate("document.activeElement.blur()")
    ana.page.evaluate(
        "document.body.dispatchEvent(new KeyboardEvent('keydown', {key: 'a', repeat: true, bubbles: true}))"
    )
    assert ana.page.evaluate("document.activeElement.tagName") == "BODY"
    assert Decision.objects.filter(request__ref=ref).count() == 0


def test_row_decided_elsewhere_says_so_in_its_place(rest: Rest, visit: Visit, ticket: Ticket) -> None:
    ticketed = two(rest, ticket)
    ana, ben = visit(ANA), visit(BEN)
    ana.page.clock.install()
    ana.go("/")
    rows = shown(ana)
    before = ana.page.locator(f"#row-{ticketed}").bounding_box()
    ben.open(ticketed)
    ben.reject()
    ben.receipt()
    beat(ana, 15)
    left = ana.page.locator(f"#left-{ticketed}")
    expect(left).to_have_text("Decided by Ben Brandt: rejected")
    assert shown(ana) == rows
    after = ana.page.locator(f"#row-{ticketed}").bounding_box()
    assert before is not None
    assert after is not None
    assert after["height"] >= before["height"]
    expect(ana.page).to_have_title("Inbox (1) · Abeyance")
    ana.page.locator(".pulse-pill a").click()
    ana.page.locator(f"#row-{ticketed}").wait_for(state="detached")
    assert len(shown(ana)) == len(rows) - 1


def test_rejected_together_without_a_script(rest: Rest, visit: Visit, ticket: Ticket) -> None:
    _, ref = asked(rest, "refund-desk", ticket=ticket.number)
    ana = visit(ANA, java_script_enabled=False)
    ana.go("/")
    ana.page.get_by_label(f"Tick {ref}").check()
    ana.page.get_by_role("button", name="Reject…").click()
    assert ana.heading() == "Reject 1 together"
    ana.page.get_by_label("Reason").select_option("duplicate")
    ana.page.get_by_role("button", name="Reject what is ticked").click()
    assert ana.heading() == "1 rejected"
    assert Request.objects.get(ref=ref).state == "rejected"
