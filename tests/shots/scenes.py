"""What the pictures show, in the order in which one installation gets there; the data is the demo's own."""

from collections.abc import Iterator

from playwright.sync_api import Browser, Page

from approvals.models import Request
from tests.stack import Stack
from tests.visitors import ANA, BEN, Rest, Visitor, asked, totp_code

Scene = tuple[str, Page]
REFUND, REFUND_TO_BEN, LARGE = 5512, 5514, 5517  # tickets of the demo's outside
CHARGE, PART = "ch_4406", "99.00"  # of the large one, and what somebody refunds elsewhere meanwhile


def play(stack: Stack, browser: Browser) -> Iterator[Scene]:
    """One state after the other; each is to be looked at before the next is asked for."""
    rest, ana, ben = Rest(stack, stack.key), Visitor(browser, stack, ANA), Visitor(browser, stack, BEN)
    refs = _open(rest)
    ana.go("/")
    ana.page.locator("li.row").nth(len(refs) - 1).wait_for()
    yield "inbox", ana.page
    ana.open(refs["refund"])
    yield "request-r2", ana.page
    yield from _decided_by_another(ana, ben, refs["contested"])
    yield from _moved(stack, ana, refs["large"])
    yield from _approved(ana, refs["mailing"])
    yield from _expired(stack, rest, ana, refs["refund"])
    rest.http.close()


def _open(rest: Rest) -> dict[str, str]:
    """What waits for Ana."""
    return {
        "question": asked(rest, "purchase", item="monitor-27", quantity=2)[1],
        "mailing": asked(rest, "mailing", topic="Autumn lamps", mailing_list="customers")[1],
        "press": asked(rest, "mailing", topic="Opening of the Harbour Hall", mailing_list="press")[1],
        "refund": asked(rest, "refund-desk", ticket=REFUND)[1],
        "contested": asked(rest, "refund-desk", ticket=REFUND_TO_BEN)[1],
        "large": asked(rest, "refund-desk", ticket=LARGE)[1],
    }


def _decided_by_another(ana: Visitor, ben: Visitor, ref: str) -> Iterator[Scene]:
    """Ana approves what Ben has approved a moment before."""
    ana.open(ref)
    ben.open(ref)
    ben.approve()
    ben.receipt()
    ana.approve()
    ana.page.get_by_role("heading", name="Ben Brandt already approved this").wait_for()
    yield "conflict", ana.page


def _moved(stack: Stack, ana: Visitor, ref: str) -> Iterator[Scene]:
    """While she reads, somebody refunds a part of it elsewhere."""
    ana.open(ref)
    ana.open_sections()
    status, answer, _ = stack.gateway.request("POST", f"/charges/{CHARGE}/refunds", {"amount": PART})
    assert status == 201, answer
    ana.page.get_by_role("button", name="Check again").click()
    ana.page.get_by_role("heading", name="This changed while you were reading").wait_for()
    yield "request-r3-moved", ana.page


def _approved(ana: Visitor, ref: str) -> Iterator[Scene]:
    """A mailing to many, from its check page to what came of it."""
    ana.open(ref)
    ana.open_sections()
    ana.approve()
    ana.page.get_by_role("heading", name="What you checked").wait_for()
    yield "check", ana.page
    code = totp_code(ANA)
    ana.check(ref)
    ana.page.wait_for_url("**/step-up")
    ana.page.get_by_label("Code from your authenticator app").fill(code)
    ana.page.locator("#step-up button").click()
    ana.receipt()
    ana.page.locator("#outcome:not([data-pulse])").wait_for()
    yield "receipt", ana.page


def _expired(stack: Stack, rest: Rest, ana: Visitor, ref: str) -> Iterator[Scene]:
    """Nobody decided within three days."""
    stack.later(days=3, minutes=1)
    rest.ended(str(Request.objects.get(ref=ref).run_id))
    ana.open(ref)
    ana.page.get_by_role("heading", name="Expired before a decision").wait_for()
    yield "expired", ana.page
