"""Pages for everybody: the pages and states that other tests here do not pass by are looked at as those are (`looking`),
and what a page says it also says without colours, without motion, and to somebody who has only a keyboard."""

from typing import Any

import pytest
from django.template.loader import render_to_string
from playwright.sync_api import Page

from tests.browser import axe
from tests.browser.looking import Look
from tests.journeys.test_demos import demo, newest
from tests.stack import Stack
from tests.visitors import ANA, CYD, Rest, Ticket, Visit, Visitor, asked, ticket_of

#: What is drawn of an element: nothing of it may depend on a background that forced colours take away.
EDGES = """selector => [...document.querySelectorAll(selector)].filter(e => e.offsetParent).map(element => {
    const style = getComputedStyle(element);
    return [element.textContent.trim(), parseFloat(style.borderTopWidth) > 0 && style.borderTopStyle !== 'none'];
})"""
MOVES = """() => document.getAnimations().length + [...document.querySelectorAll('body *')].filter(element => {
    const style = getComputedStyle(element);
    return parseFloat(style.transitionDuration) > 0 || style.animationName !== 'none';
}).length"""
OUTLINE = """() => {
    const style = getComputedStyle(document.activeElement);
    return [style.outlineStyle !== 'none', parseFloat(style.outlineWidth) >= 2];
}"""


def test_pages_of_a_large_refund(stack: Stack, rest: Rest, ana: Visitor, look: Look) -> None:
    """R3: sections to open, what is missing, the check page, who you are, the receipt."""
    _, ref = asked(rest, "refund-desk", ticket=ticket_of(stack, "1400.00").number)
    ana.expects(403, 422)
    ana.open(ref)
    look(ana, "r3-unopened")
    ana.approve_button().click()
    ana.page.locator("#main [role=alert]").wait_for()
    look(ana, "r3-missing")
    ana.open(ref)
    ana.open_sections()
    look(ana, "r3-opened")
    ana.approve()
    ana.check(ref)
    ana.page.wait_for_url("**/step-up")
    look(ana, "step-up")
    ana.page.go_back()
    ana.page.wait_for_load_state()
    look(ana, "r3-back")


def test_page_of_the_check(stack: Stack, rest: Rest, ana: Visitor, look: Look) -> None:
    _, ref = asked(rest, "mailing", topic="Autumn lamps", mailing_list="customers")
    ana.expects(403, 422)
    ana.open(ref)
    ana.open_sections()
    assert "1,200" in ana.text()
    look(ana, "r3-list")
    ana.approve()
    ana.page.get_by_role("heading", name="What you checked").wait_for()
    assert "1,200" in ana.text()
    look(ana, "check")


def test_inbox_and_verbs_beside_deciding(rest: Rest, ana: Visitor, look: Look) -> None:
    refs = [asked(rest, "purchase", item="monitor-27", quantity=n)[1] for n in (2, 3)]
    ana.expects(422)  # what cannot be approved together says so
    ana.go("/?tier=R2")
    look(ana, "inbox-filtered")
    for act in ("reject", "delegate", "snooze", "approve"):
        ana.go(f"/inbox/together?act={act}&" + "&".join(f"ref={ref}" for ref in refs))
        look(ana, f"bulk-{act}")
    ana.open(refs[0])
    for summary in ana.page.locator(".verbs details > summary").all():
        summary.click()
    look(ana, "request-all-open")


def test_pages_of_operators(stack: Stack, rest: Rest, visit: Visit, ticket: Ticket, look: Look) -> None:
    run_id, _ = asked(rest, "refund-desk", ticket=ticket.number)
    for name in ("credential", "doubt"):
        demo(stack, name)
    doubtful, waiting = newest("doubt"), newest("credential")
    cyd = visit(CYD)
    for name, path in (
        ("doubts", "/runs/doubts/"),
        ("run-of-an-operator", f"/runs/{run_id}/"),
        ("run-in-doubt", doubtful.get_absolute_url()),
        ("run-without-a-credential", waiting.get_absolute_url()),
        ("doubt", f"{doubtful.get_absolute_url()}steps/{doubtful.steps.get(effect='in_doubt').index}/doubt/"),
        ("credential", f"/runs/credentials/{waiting.holds.open().get(cause='credential').subject}/"),
    ):
        cyd.go(path)
        look(cyd, name)


@pytest.mark.parametrize("template", ["400.html", "403.html", "404.html", "500.html"])
def test_pages_of_errors(visit: Visit, look: Look, template: str) -> None:
    """As they are given out where something is wrong: without a request there is nobody signed in."""
    nobody = visit()
    html = render_to_string(template)
    nobody.page.route("**/broken", lambda route: route.fulfill(body=html, content_type="text/html"))
    nobody.go("/broken")
    look(nobody, template)


# -- Without colours, motion, pointer -----------------------------------------------------------


def test_forced_colours_leave_buttons_tiers_and_focus(rest: Rest, visit: Visit, ticket: Ticket) -> None:
    _, ref = asked(rest, "refund-desk", ticket=ticket.number)
    ana = visit(ANA, forced_colors="active")
    ana.open(ref)
    for selector in (".button", ".tier", ".card", ".pill, .tag"):
        drawn = ana.page.evaluate(EDGES, selector)
        assert [text for text, edge in drawn if not edge] == [], selector
    assert ana.page.evaluate(EDGES, ".button") != []
    assert "R2" in ana.page.locator(".lead .tier").inner_text()
    ana.approve_button().focus()
    ana.page.keyboard.press("Shift+Tab")
    ana.page.keyboard.press("Tab")
    assert ana.page.evaluate(OUTLINE) == [True, True]


def test_reduced_motion_moves_nothing(rest: Rest, visit: Visit, ticket: Ticket) -> None:
    _, ref = asked(rest, "refund-desk", ticket=ticket.number)
    ana = visit(ANA, reduced_motion="reduce")
    for path in ("/", f"/requests/{ref}", "/runs/"):
        ana.go(path)
        assert (path, ana.page.evaluate(MOVES)) == (path, 0)


def test_text_spacing_hides_nothing(rest: Rest, ana: Visitor, ticket: Ticket) -> None:
    """WCAG 1.4.12: with more space between lines, words and letters all of it is there still."""
    _, ref = asked(rest, "refund-desk", ticket=ticket.number)
    ana.open(ref)
    ana.page.set_viewport_size({"width": 390, "height": 844})
    ana.page.evaluate(SPACED)
    assert ana.page.evaluate(CUT) == []
    assert ana.page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


SPACED = """() => { for (const e of document.querySelectorAll('body *')) {
    e.style.setProperty('line-height', '1.5', 'important');
    e.style.setProperty('letter-spacing', '0.12em', 'important');
    e.style.setProperty('word-spacing', '0.16em', 'important');
} }"""
CUT = """() => [...document.querySelectorAll('main *')].filter(e => e.children.length === 0 && e.offsetParent
    && getComputedStyle(e).clipPath === 'none' && getComputedStyle(e).overflow === 'hidden' && e.scrollWidth > e.clientWidth + 1)
    .map(e => `${e.tagName}.${e.className}: ${e.textContent.slice(0, 60)}`)"""


def test_approving_with_a_keyboard_alone(rest: Rest, ana: Visitor, ticket: Ticket) -> None:
    """From the top of the page: each stop is seen, evidence comes before the decision, Enter approves."""
    _, ref = asked(rest, "refund-desk", ticket=ticket.number)
    ana.open(ref)
    stops = _stops(ana.page)
    assert stops[0] == "Skip to content"
    assert stops.index("Check again") < next(i for i, said in enumerate(stops) if said.startswith("Approve"))
    assert ana.receipt().startswith("You approved: ")


def _stops(page: Page, most: int = 60) -> list[str]:
    """Tabs on until the button that approves has the focus, answering by the space bar, and presses Enter."""
    stops = []
    for _ in range(most):
        page.keyboard.press("Tab")
        found: dict[str, Any] = page.evaluate(
            "() => ({said: document.activeElement.innerText.trim(), form: document.activeElement.getAttribute('form'),"
            " radio: document.activeElement.type === 'radio', tag: document.activeElement.tagName})"
        )
        assert page.evaluate(OUTLINE) == [True, True], found
        stops.append(found["said"])
        if found["radio"]:
            page.keyboard.press("Space")
        if found["form"] == "approve" and found["tag"] == "BUTTON":
            page.keyboard.press("Enter")
            return stops
    raise AssertionError(stops)


@pytest.mark.parametrize(
    "path", ["/admin/", "/admin/approvals/request/", "/admin/runs/run/", "/admin/approvals/rule/"]
)
def test_admin_in_both_schemes(rest: Rest, visit: Visit, ticket: Ticket, path: str) -> None:
    """Its frame is Django's: what WCAG asks for has to be there, whatever else is good practice. Loaded anew in each
    scheme, for there colours take their time to change."""
    asked(rest, "refund-desk", ticket=ticket.number)
    cyd, heard = visit(CYD), {}
    for scheme in ("light", "dark"):
        cyd.page.emulate_media(color_scheme=scheme)
        cyd.go(path)
        heard[scheme] = axe.violations(cyd.page, axe.WCAG)
    assert heard == {"light": [], "dark": []}
