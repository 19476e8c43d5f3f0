"""Every page as people see it: wide and narrow, light and dark, nothing beside the screen at 320 px (which is 1280 px
at 400 %), nothing that axe finds wrong, the console quiet.
"""

from django.conf import settings
from playwright.sync_api import Request as Sent

from tests.browser.looking import Look
from tests.stack import Stack
from tests.visitors import ANA, BEN, CYD, ELI, Rest, Ticket, Visit, Visitor, asked, request_of


def test_pages_before_sign_in(visit: Visit, look: Look) -> None:
    nobody = visit()
    for name, path in (("sign-in", "/accounts/login/"), ("password-reset", "/accounts/password/reset/")):
        nobody.go(path)
        look(nobody, name)
    nobody.go("/accounts/login/")
    nobody.page.get_by_label("Email").fill("nobody@example.com")
    nobody.page.get_by_label("Password", exact=True).fill("wrong")
    nobody.page.get_by_role("button", name="Sign in", exact=True).click()
    nobody.page.locator("#main [role=alert], #main .problem").first.wait_for()
    look(nobody, "sign-in-refused")


def test_pages_of_a_reviewer(rest: Rest, visit: Visit, ticket: Ticket, look: Look) -> None:
    ana = visit(ANA)
    ana.expects(404)
    for name, path in (
        ("inbox-empty", "/"),
        ("history", "/history"),
        ("runs-none-of-ours", "/runs/"),
        ("account-password", "/accounts/password/change/"),
        ("account-two-factor", "/accounts/2fa/"),
        ("neutral", "/requests/ZZZZZZZZZZ"),
        ("not-found", "/nothing/here"),
    ):
        ana.go(path)
        look(ana, name)
    asked(rest, "mailing", topic="Lamps for a very long winter evening", mailing_list="customers")
    asked(rest, "purchase", item="standing-desk", quantity=3)
    asked(rest, "refund-desk", ticket=ticket.number)
    ana.go("/")
    assert ana.page.locator("li.row").count() == 3
    look(ana, "inbox")
    ana.go("/?q=nothing-like-it")
    look(ana, "inbox-no-match")


def test_pages_of_an_approval(rest: Rest, visit: Visit, ticket: Ticket, look: Look) -> None:
    run_id, ref = asked(rest, "refund-desk", ticket=ticket.number)
    ana, ben = visit(ANA), visit(BEN)
    ana.expects(409, 422)
    ana.open(ref)
    look(ana, "request")
    ana.page.locator("summary", has_text="Reject…").click()
    look(ana, "request-reject")
    ana.go(f"/requests/{ref}/edit")
    look(ana, "edit")
    ana.page.get_by_label("amount").fill("a lot")
    ana.page.get_by_role("button", name="Show what changes").click()
    ana.page.locator(".field-bad").wait_for()
    look(ana, "edit-refused")
    ana.page.get_by_label("amount").fill("20.50")
    ana.page.get_by_role("button", name="Show what changes").click()
    ana.page.get_by_text("You are changing 1 field").wait_for()
    look(ana, "edit-diff")
    ana.open(ref)
    ben.open(ref)
    ben.approve()
    ben.receipt()
    rest.ended(run_id)
    ben.page.reload()
    look(ben, "receipt")
    ana.approve()
    ana.page.get_by_role("heading", name="Ben Brandt already approved this").wait_for()
    look(ana, "conflict")
    ana.open(ref)
    look(ana, "request-decided")
    ana.go("/history")
    look(ana, "history-of-some")
    for name, path in (
        ("runs", "/runs/"),
        ("run", f"/runs/{run_id}/"),
        ("snapshot", f"/runs/{run_id}/snapshots/1/"),
    ):
        ana.go(path)
        look(ana, name)


def test_pages_of_a_changed_fact(rest: Rest, ana: Visitor, ticket: Ticket, look: Look) -> None:
    _, ref = asked(rest, "refund-desk", ticket=ticket.number)
    ana.expects(422)
    ana.open(ref)
    ticket.refund_elsewhere("3.00")
    ana.page.get_by_role("button", name="Check again").click()
    ana.page.get_by_role("heading", name="This changed while you were reading").wait_for()
    look(ana, "request-moved")
    ana.page.get_by_role("link", name="Show the new version").click()
    ana.page.get_by_text("Changed since revision 1").wait_for()
    look(ana, "request-changed")
    ana.approve()
    ana.page.locator("#main [role=alert]").wait_for()
    look(ana, "request-tick-missing")


def test_pages_of_a_question_and_of_a_large_mailing(rest: Rest, ana: Visitor, look: Look) -> None:
    run_id, ref = asked(rest, "purchase", item="standing-desk", quantity=10)
    ana.expects(422)
    ana.open(ref)
    look(ana, "question")
    ana.page.get_by_role("button", name="Send this answer").click()
    ana.page.locator(".field-bad").first.wait_for()
    look(ana, "question-refused")
    ana.page.get_by_label("tallis").check()
    ana.page.get_by_label("4300-warehouse").check()
    ana.page.get_by_role("button", name="Send this answer").click()
    ana.receipt()
    look(ana, "receipt-answer")
    ana.open(request_of(run_id, 2).ref)
    look(ana, "request-purchase")
    _, large = asked(rest, "mailing", topic="Autumn lamps", mailing_list="customers")
    ana.open(large)
    assert "1,200" in ana.text()
    look(ana, "request-mailing")


def test_pages_of_an_expired_and_a_cancelled_request(
    stack: Stack, rest: Rest, ana: Visitor, ticket: Ticket, look: Look
) -> None:
    run_id, ref = asked(rest, "refund-desk", ticket=ticket.number)
    other, second = asked(rest, "purchase", item="monitor-27", quantity=2)
    assert rest.http.post(f"/runs/{other}/cancel", json={}).status_code == 200
    ana.open(second)
    look(ana, "request-cancelled")
    stack.later(days=3, minutes=1)
    rest.ended(run_id)
    ana.open(ref)
    look(ana, "request-expired")
    ana.go(f"/runs/{run_id}/")
    look(ana, "run-expired-request")


def test_pages_of_a_submitter(rest: Rest, visit: Visit, ticket: Ticket, look: Look) -> None:
    run_id, _ = asked(rest, "refund-desk", ticket=ticket.number)
    eli = visit(ELI)
    eli.expects(403)
    for name, path in (
        ("inbox-of-no-reviewer", "/"),
        ("runs-own", "/runs/"),
        ("run-own", f"/runs/{run_id}/"),
    ):
        eli.go(path)
        look(eli, name)
    eli.page.locator("summary", has_text="Pause…").click()
    eli.page.get_by_role("button", name="Pause run").click()
    eli.page.get_by_role("button", name="Resume run").wait_for()
    look(eli, "run-paused")
    tokens = eli.page.locator("form [name=csrfmiddlewaretoken]")
    tokens.evaluate_all("all => all.forEach(field => field.remove())")
    eli.page.get_by_role("button", name="Resume run").click()
    eli.page.get_by_role("heading", name="That form was too old to use").wait_for()
    look(eli, "form-refused")


ADMIN = (
    "runs/run", "runs/step", "runs/hold", "runs/snapshot", "runs/journalentry", "approvals/request",
    "approvals/decision", "approvals/rule", "approvals/policyversion", "approvals/apikey",
    "auth/user", "auth/group",
)  # fmt: skip


def test_pages_of_an_operator(rest: Rest, visit: Visit, ticket: Ticket) -> None:
    """The admin's own pages: quiet, and something is on each list."""
    run_id, _ = asked(rest, "refund-desk", ticket=ticket.number)
    cyd = visit(CYD)
    for path in ("/admin/", *(f"/admin/{name}/" for name in ADMIN), f"/admin/runs/run/{run_id}/change/"):
        said = cyd.go(path)
        assert said is not None
        assert (path, said.status) == (path, 200)
        assert cyd.page.locator("#content").count() == 1


def test_api_reference(ana: Visitor, look: Look) -> None:
    ana.go("/api/docs/")
    ana.page.locator(".opblock").first.wait_for()
    ana.page.screenshot(full_page=True)
    assert "Start a run" in ana.page.locator("body").inner_text()


def test_headers_that_keep_pages_private(rest: Rest, ana: Visitor, ticket: Ticket) -> None:
    _, ref = asked(rest, "refund-desk", ticket=ticket.number)
    for path in ("/", f"/requests/{ref}", "/history", "/runs/"):
        said = ana.go(path)
        assert said is not None
        headers = said.headers
        assert (path, "no-store" in headers["cache-control"]) == (path, True)
        policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
        wanted = settings.CONTENT_SECURITY_POLICY["DIRECTIVES"]
        assert policy == {name: " ".join(value) for name, value in wanted.items()}
        assert headers["referrer-policy"] == "same-origin"
        assert headers["x-content-type-options"] == "nosniff"
    loaded = {request.url.split("/")[2] for request in _requests(ana, f"/requests/{ref}")}
    assert loaded == {ana.stack.url.split("/")[2]}


def _requests(visitor: Visitor, path: str) -> list[Sent]:
    """Everything a page loads."""
    seen: list[Sent] = []
    visitor.page.on("request", lambda request: seen.append(request))
    visitor.go(path)
    visitor.page.wait_for_load_state("networkidle")
    return seen
