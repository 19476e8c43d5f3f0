"""Whoever opens the mail's link without signing in and presses everything changes and learns nothing."""

import re
from typing import Any

import httpx
from django.apps import apps
from django.contrib.sessions.models import Session

from approvals.models import Notification, Request
from tests.stack import Stack, until
from tests.visitors import ANA, Rest, Ticket, Visit, Visitor, asked

TOKEN = re.compile(r'name="csrfmiddlewaretoken" value="[^"]+"')


def everything() -> dict[str, list[dict[str, Any]]]:
    """Every row of every table, but sessions."""
    models = [model for model in apps.get_models() if model._meta.managed and model is not Session]
    return {model._meta.label: list(model._default_manager.order_by("pk").values()) for model in models}


def settled(ref: str) -> None:
    """All mails about it are out, so that nothing changes by itself any more."""
    until(lambda: not Notification.objects.filter(request__ref=ref, sent_at=None).exists(), "mails are sent")


def test_scanner_that_runs_scripts_and_presses_every_button(
    stack: Stack, rest: Rest, visit: Visit, ticket: Ticket
) -> None:
    _, ref = asked(rest, "refund-desk", ticket=ticket.number)
    address = stack.address_in_mail(ANA, ref)
    settled(ref)
    before = everything()
    scanner = visit()
    scanner.expects_text("NotAllowedError", "WebAuthn", "credentials")
    pressed, learnt = 0, []
    for page in pages_from(scanner, address):
        for number in range(count(scanner, page)):
            press(scanner, page, number)
            learnt.append(scanner.page.content())
            pressed += 1
    assert pressed >= 3
    assert everything() == before
    secrets = (ticket.charge, ticket.amount, "refund", "Refund", "Heron", "approve", "Approve")
    assert [word for word in secrets if any(word in text for text in learnt)] == []


def pages_from(scanner: Visitor, address: str) -> list[str]:
    """Where the link leads, and the pages that are linked from there."""
    scanner.go(address)
    links = scanner.page.locator("a[href]").evaluate_all("all => all.map(link => link.href)")
    ours = {link.partition("#")[0] for link in links if link.startswith(scanner.stack.url)}
    return [address, *sorted(ours)]


def count(scanner: Visitor, page: str) -> int:
    scanner.go(page)
    return scanner.page.locator("button, input[type=submit]").count()


def press(scanner: Visitor, page: str, number: int) -> None:
    scanner.go(page)
    button = scanner.page.locator("button, input[type=submit]").nth(number)
    if button.is_visible():
        button.click()
        scanner.page.wait_for_load_state()


def test_addresses_fetched_without_a_session(stack: Stack, rest: Rest, ticket: Ticket) -> None:
    """GET, HEAD and POST, with whatever in the query; an unknown address answers alike."""
    _, ref = asked(rest, "refund-desk", ticket=ticket.number)
    settled(ref)
    digest = Request.objects.get(ref=ref).revision.digest
    before = everything()
    with httpx.Client(base_url=stack.url, timeout=30) as client:
        for path in (f"/requests/{ref}", f"/requests/{ref}/edit", f"/requests/{ref}?decision=approve"):
            for method in ("GET", "HEAD", "GET"):
                said = client.request(method, path)
                assert (said.status_code, said.headers["location"].partition("?")[0]) == (
                    303,
                    "/accounts/login/",
                )
        said = client.post(f"/requests/{ref}/decide", data={"decision": "approve", "view_digest": digest})
        assert said.status_code == 403
        known, unknown = (
            client.get(f"/accounts/login/?next=/requests/{name}").text for name in (ref, "Z" * 10)
        )
        token = client.cookies["csrftoken"]
        form = {"csrfmiddlewaretoken": token, "decision": "approve", "view_digest": digest}
        said = client.post(f"/requests/{ref}/decide", data=form)
        assert (said.status_code, ticket.charge in said.text) == (401, False)
    assert TOKEN.sub("", known).replace(ref, "Z" * 10) == TOKEN.sub("", unknown)
    assert everything() == before


def test_pages_fetched_by_who_may_see_them(stack: Stack, rest: Rest, ana: Visitor, ticket: Ticket) -> None:
    """Looking changes nothing either, however often and whatever the query says."""
    run_id, ref = asked(rest, "refund-desk", ticket=ticket.number)
    settled(ref)
    before = everything()
    for path in (
        f"/requests/{ref}",
        f"/requests/{ref}?decision=approve",
        f"/requests/{ref}/edit",
        "/",
        "/history",
    ):
        for _ in range(3):
            assert ana.context.request.get(f"{stack.url}{path}").status == 200
            assert ana.context.request.head(f"{stack.url}{path}").status in (200, 405)
    said = ana.context.request.get(f"{stack.url}/requests/{ref}/decide?decision=approve")
    assert (said.status, said.url) == (200, f"{stack.url}/requests/{ref}")
    assert ana.context.request.get(f"{stack.url}/requests/{ref}/look").status == 405
    assert ana.context.request.get(f"{stack.url}/runs/{run_id}/").status == 200
    assert everything() == before


def test_forwarded_link(rest: Rest, visit: Visit, stack: Stack, ticket: Ticket) -> None:
    """It gives whoever signs in what their own rights give: to a submitter nothing."""
    _, ref = asked(rest, "refund-desk", ticket=ticket.number)
    address = stack.address_in_mail(ANA, ref)
    outsider = visit()
    outsider.expects(404)
    outsider.go(address)
    outsider.sign_in("eli@example.com")
    outsider.page.get_by_role("heading", name="We can’t show this").wait_for()
    assert ticket.charge not in outsider.page.content()
    assert Request.objects.get(ref=ref).state == "open"


def test_mail_holds_nothing_of_the_action(stack: Stack, rest: Rest, ticket: Ticket) -> None:
    _, ref = asked(rest, "refund-desk", ticket=ticket.number)
    stack.address_in_mail(ANA, ref)
    [text] = stack.mails(ANA, ref)
    assert [word for word in (ticket.charge, ticket.amount, "refund", "desk") if word in text.lower()] == []
