"""The page of a run that renews itself: what happens is seen, and who types is left alone."""

from playwright.sync_api import Request as Sent

from tests.stack import until
from tests.visitors import CYD, Rest, Ticket, Visit, asked

CARET = "() => [document.activeElement.id, document.activeElement.selectionStart]"
HIDE = """state => {
    Object.defineProperty(document, 'visibilityState', {configurable: true, get: () => state});
    document.dispatchEvent(new Event('visibilitychange'));
}"""


def test_page_of_a_run_is_live_and_leaves_typing_alone(rest: Rest, visit: Visit, ticket: Ticket) -> None:
    run_id, _ = asked(rest, "refund-desk", ticket=ticket.number)
    cyd = visit(CYD)
    page = cyd.page
    page.clock.install()
    cyd.go(f"/runs/{run_id}/")
    sent: list[Sent] = []
    page.on("request", lambda request: sent.append(request) if "/pulse" in request.url else None)

    def beat(status: int) -> None:
        with page.expect_response("**/pulse*") as answer:
            page.clock.run_for(5_000)
        assert answer.value.status == status

    beat(204)
    page.locator("details.more[id$=arguments] > summary").first.click()
    page.locator("summary", has_text="Cancel…").click()
    why = page.locator("#cancel-reason")
    why.press_sequentially("Not this one: ask first")
    why.evaluate("field => field.setSelectionRange(8, 8)")
    assert rest.http.post(f"/runs/{run_id}/pause", json={"reason": "looks odd"}).status_code == 200
    beat(200)
    page.locator("#run-state").get_by_text("also paused by").wait_for()
    page.locator("#run-timeline").get_by_text("looks odd").wait_for()
    assert page.locator("details.more[id$=arguments]").first.get_attribute("open") is not None
    assert page.evaluate(CARET) == ["cancel-reason", 8]
    why.press_sequentially("!")
    assert why.input_value() == "Not this! one: ask first"
    assert page.get_by_role("button", name="Resume run").count() == 0  # the verbs wait for who types
    beat(200)
    why.fill("")
    page.locator("summary", has_text="Cancel…").click()
    beat(200)
    page.get_by_role("button", name="Resume run").wait_for()
    beat(204)
    page.evaluate(HIDE, "hidden")
    before = len(sent)
    page.clock.run_for(30_000)
    assert len(sent) == before
    with page.expect_response("**/pulse*"):
        page.evaluate(HIDE, "visible")
    assert rest.http.post(f"/runs/{run_id}/cancel", json={}).status_code == 200
    beat(200)
    page.locator("#run-state").get_by_text("Cancelled by").wait_for()
    before = len(sent)
    page.clock.run_for(30_000)
    assert len(sent) == before
    until(lambda: page.get_by_role("button", name="Pause run").count() == 0, "no verbs")
