"""Who comes to the stack in a test: people with a browser, a submitter with a key. And the fixtures for both.

A visitor's browser is watched: at the end of the test its console must have held no error but the answers the
test said it expects, no page may have thrown, and nothing may have answered 5xx.
"""

import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal import auth as totp
from allauth.mfa.utils import encrypt
from django.contrib.auth.models import User
from django.test import Client
from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, Response

from approvals.models import Request
from approvals.presentation import questions
from runs import endings
from runs.actors import SYSTEM
from runs.exceptions import RunEnded
from runs.models import Run
from runs.states import ENDED
from tests import invariants
from tests.stack import PATIENCE, Stack, until

ANA, BEN, CYD, DOT, ELI = (f"{name}@example.com" for name in ("ana", "ben", "cyd", "dot", "eli"))
# What Chromium and htmx say of an answer that is a refusal.
REFUSED = re.compile(r"responded with a status of (\d{3})|Response Status Error Code (\d{3}) from")
Visit = Callable[..., "Visitor"]


class Visitor:
    """One browser context with one page; `who` is signed in, or nobody is."""

    def __init__(self, browser: Browser, stack: Stack, who: str = "", **options: Any) -> None:
        self.stack, self.who = stack, who
        self.scripts = options.get("java_script_enabled", True)
        self.context = browser.new_context(**options)
        self.context.set_default_timeout(15_000)
        self._errors: list[str] = []
        self._expected: set[int] = set()
        self._known: list[str] = []
        self.sent: list[str] = []
        self.context.on("console", self._console)
        self.context.on("weberror", lambda error: self._errors.append(f"thrown: {error.error}"))
        self.context.on("response", self._answer)
        if who:
            self.context.add_cookies([session_cookie(stack, who)])
        self.page: Page = self.context.new_page()

    def _console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self._errors.append(message.text)

    def _answer(self, response: Response) -> None:
        if response.request.method == "POST":
            self.sent.append(f"{response.status} from {response.url}")
        if response.status >= 500:
            self._errors.append(f"{response.status} from {response.url}")

    def expects(self, *statuses: int) -> None:
        """These answers may stand in the console: the test asks for them."""
        self._expected.update(statuses)

    def expects_text(self, *parts: str) -> None:
        """So may texts with one of these in them."""
        self._known.extend(parts)

    def errors(self) -> list[str]:
        """What the console held that was not expected."""
        return [text for text in self._errors if not self._is_expected(text)]

    def _is_expected(self, text: str) -> bool:
        if any(part in text for part in self._known):
            return True
        found = REFUSED.search(text)
        return found is not None and int(found.group(1) or found.group(2)) in self._expected

    # -- Going about ---------------------------------------------------------------

    def go(self, path: str, page: Page | None = None) -> Response | None:
        address = path if path.startswith("http") else f"{self.stack.url}{path}"
        return (page or self.page).goto(address)

    def open(self, ref: str) -> None:
        self.go(f"/requests/{ref}")

    def sign_in(self, who: str) -> None:
        """Fills the sign-in form this page shows."""
        assert "/accounts/login/" in self.page.url, self.page.url
        self.who = who
        self.page.get_by_label("Email").fill(who)
        self.page.get_by_label("Password", exact=True).fill(self.stack.password)
        self.page.get_by_role("button", name="Sign in", exact=True).click()

    # -- Deciding ------------------------------------------------------------------

    def approve_button(self, page: Page | None = None) -> Locator:
        return (page or self.page).locator("button.button-main[form=approve]")

    def answer(self, said: str = "Yes") -> None:
        """To every basis question the page asks."""
        for question in self.page.locator("fieldset.basis").all():
            question.get_by_label(said, exact=True).check()

    def approve(self) -> None:
        self.answer()
        self.approve_button().click()

    def open_sections(self) -> None:
        """All that has to be opened before an R3 is approved."""
        buttons = self.page.locator("button[name=section]")
        for left in range(buttons.count(), 0, -1):
            buttons.first.click()
            buttons.nth(left - 1).wait_for(state="detached")

    def approve_r3(self, ref: str) -> None:
        """From the request's page over the check page and the second factor; the receipt is next."""
        self.expects(403)  # how a script is told to go to the step-up
        totp_code(self.who)
        self.open_sections()
        self.approve()
        self.check(ref)
        self.page.wait_for_url("**/step-up")
        self.page.get_by_label("Code from your authenticator app").fill(totp_code(self.who))
        self.page.locator("#step-up button").click()

    def check(self, ref: str) -> None:
        """The check page: types what it wants typed, and goes on."""
        self.page.get_by_role("heading", name="What you checked").wait_for()
        wanted = questions.retype(Request.objects.get(ref=ref).revision)
        if wanted is not None:
            self.page.locator("#basis-retype").fill(str(wanted.value))
        self.page.locator("#approve button").click()

    def reject(self, reason: str = "Duplicate", note: str = "") -> None:
        self.page.locator("summary", has_text="Reject…").click()
        if note:
            self.page.locator("#note").fill(note)
        self.page.get_by_role("button", name=reason, exact=True).click()

    def receipt(self) -> str:
        """The receipt's heading, once this page has got there."""
        self.page.wait_for_url("**/decisions/*")
        return self.heading()

    def heading(self) -> str:
        return " ".join(self.page.locator("main h1").inner_text().split())

    def panel(self) -> str:
        """The panel that says why something cannot be decided, once it is there."""
        return " ".join(self.page.locator("section.notice[data-focus]").first.inner_text().split())

    def text(self) -> str:
        return " ".join(self.page.locator("main").inner_text().split())


def totp_code(who: str) -> str:
    """A code that was never used: of an authenticator app that is set up for it. Needs `stack.inside`."""
    secret, owner = totp.generate_totp_secret(), User.objects.get(username=who)
    kept = {"data": {"secret": encrypt(secret)}}
    Authenticator.objects.update_or_create(user=owner, type=Authenticator.Type.TOTP, defaults=kept)
    return totp.format_hotp_value(totp.hotp_value(secret, int(time.time()) // 30))


def session_cookie(stack: Stack, who: str) -> Any:
    """Signed in without the form. Needs `stack.inside`."""
    client = Client()
    client.force_login(User.objects.get(username=who))
    return {
        "name": "sessionid",
        "value": client.cookies["sessionid"].value,
        "url": stack.url,
        "httpOnly": True,
    }


class Rest:
    """A submitter's program: the API with one key."""

    def __init__(self, stack: Stack, key: str) -> None:
        headers = {"Authorization": f"Bearer {key}"}
        self.http = httpx.Client(base_url=f"{stack.url}/api/v1", headers=headers, timeout=PATIENCE)

    def submit(self, agent: str, **arguments: Any) -> str:
        said = self.http.post("/runs", json={"agent": agent, "input": arguments})
        assert said.status_code == 201, said.text
        return str(said.json()["id"])

    def run(self, run_id: str, **query: Any) -> dict[str, Any]:
        said = self.http.get(f"/runs/{run_id}", params=query)
        assert said.status_code == 200, said.text
        body: dict[str, Any] = said.json()
        return body

    def until(self, run_id: str, *statuses: str, within: float = PATIENCE) -> dict[str, Any]:
        """By long-poll: the run once it has one of these statuses."""
        deadline = time.monotonic() + within
        body = self.run(run_id)
        while body["status"] not in statuses:
            assert time.monotonic() < deadline, f"not {statuses} within {within:g} s: {body}"
            body = self.run(run_id, wait=5, since=body["version"])
        return body

    def ended(self, run_id: str, **options: float) -> dict[str, Any]:
        return self.until(run_id, "succeeded", "failed", "cancelled", "expired", **options)

    def result(self, run_id: str, **options: float) -> Any:
        body = self.ended(run_id, **options)
        assert body["status"] == "succeeded", body
        return body["result"]

    def steps(self, run_id: str) -> list[dict[str, Any]]:
        said = self.http.get(f"/runs/{run_id}/steps")
        assert said.status_code == 200, said.text
        found: list[dict[str, Any]] = said.json()["results"]
        return found


@dataclass(frozen=True)
class Ticket:
    """A ticket at the gateway: its customer wants `amount` EUR, all of the charge, back."""

    stack: Stack
    number: int
    charge: str
    amount: str

    def calls(self) -> list[dict[str, Any]]:
        """Every refund of its charge that was asked for, by anybody."""
        return self.stack.gateway.calls(f"/charges/{self.charge}/refunds")

    def reads(self) -> int:
        """How often the ticket was read."""
        return len(self.stack.gateway.calls(f"/tickets/{self.number}", method="GET"))

    def refunds(self) -> list[dict[str, Any]]:
        """The refunds that were made."""
        found: list[dict[str, Any]] = self.stack.gateway.get(f"/refunds?charge={self.charge}")["refunds"]
        return found

    def letters(self) -> list[str]:
        """What the customer was told."""
        calls = self.stack.gateway.calls(f"/tickets/{self.number}/replies")
        return [call["body"]["text"] for call in calls if not call["replayed"]]

    def refund_elsewhere(self, amount: str) -> None:
        """Somebody else gives a part of it back."""
        path = f"/charges/{self.charge}/refunds"
        status, answer, _ = self.stack.gateway.request("POST", path, {"amount": amount})
        assert status == 201, answer


def ticket_of(stack: Stack, amount: str = "48.70") -> Ticket:
    """About a new charge of so many EUR: up to 20.00 are refunded at once, over 1,000.00 are R3."""
    bought = {"customer": "cus_881", "amount": amount, "description": "Desk lamp “Heron”"}
    charge = stack.gateway.post("/charges", bought)["id"]
    wish = {"charge": charge, "asks_for": amount, "subject": "It flickers", "text": "I want my money back."}
    return Ticket(stack, stack.gateway.post("/tickets", wish)["id"], charge, amount)


def request_of(run_id: str, number: int = 1) -> Request:
    """The run's request of that number, once it is open."""
    found = Request.objects.filter(run_id=run_id).order_by("opened_at")
    return until(lambda: list(found[number - 1 : number]), f"request {number} of run {run_id}")[0]


def asked(rest: Rest, agent: str, **arguments: Any) -> tuple[str, str]:
    """A submitted run that waits for a person: its id and the ref of its request."""
    run_id = rest.submit(agent, **arguments)
    rest.until(run_id, "suspended")
    return run_id, request_of(run_id).ref


def moved(ref: str, ticket: Ticket, by: Visitor) -> None:
    """Something changes outside, and a look finds it."""
    number = Request.objects.get(ref=ref).number
    ticket.refund_elsewhere("1.00")
    by.open(ref)
    by.page.get_by_role("button", name="Check again").click()
    until(lambda: Request.objects.get(ref=ref).number == number + 1, "another revision")


# -- Fixtures ------------------------------------------------------------------------

_STACK = pytest.StashKey[Stack]()


class Ending:
    """Ends the stack with the session: later, xdist's workers have no time left for it."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack

    def pytest_sessionfinish(self) -> None:
        self.stack.stop()


@pytest.fixture(scope="session")
def running(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Stack:
    """Started once for all tests that ask, wherever they stand."""
    if _STACK not in pytestconfig.stash:
        worker = getattr(pytestconfig, "workerinput", {}).get("workerid", "gw0")
        stack = Stack(tmp_path_factory.mktemp("stack"), number=int(worker.removeprefix("gw")))
        pytestconfig.stash[_STACK] = stack
        pytestconfig.pluginmanager.register(Ending(stack))
        stack.start()
    return pytestconfig.stash[_STACK]


@pytest.fixture
def stack(running: Stack, django_db_blocker: Any) -> Iterator[Stack]:
    """All its processes, and nothing waiting; what a test left is ended, and must hold together."""
    with django_db_blocker.unblock(), running.inside():
        running.heal()
        yield running
        sys.stdout.write(running.said())  # shown if the test failed
        running.heal()
        Authenticator.objects.all().delete()
        _end_all()
        running.later(seconds=0)
        assert invariants.broken() == []


def _end_all() -> None:
    for run in Run.objects.exclude(status__in=ENDED):
        try:
            endings.cancel(run.pk, actor=SYSTEM, why="the test is over")
        except RunEnded:
            continue
    until(lambda: not Run.objects.exclude(status__in=ENDED).exists(), "every run has ended")


@pytest.fixture
def rest(stack: Stack) -> Iterator[Rest]:
    client = Rest(stack, stack.key)
    yield client
    client.http.close()


@pytest.fixture
def visit(stack: Stack, browser: Browser) -> Iterator[Visit]:
    """Opens browsers; at the end each of them must have been quiet."""
    visitors: list[Visitor] = []

    def open_browser(who: str = "", **options: Any) -> Visitor:
        visitors.append(Visitor(browser, stack, who, **options))
        return visitors[-1]

    yield open_browser
    heard = {f"{visitor.who} {number}": visitor.errors() for number, visitor in enumerate(visitors)}
    for visitor in visitors:
        sys.stdout.write(f"{visitor.who} sent: {visitor.sent}\n")  # shown if the test failed
        visitor.context.close()
    assert {name: errors for name, errors in heard.items() if errors} == {}


@pytest.fixture
def ana(visit: Visit) -> Visitor:
    """A reviewer, signed in."""
    return visit(ANA)


@pytest.fixture
def ticket(stack: Stack) -> Ticket:
    """A ticket of its own for each test, so that tests never meet at a charge."""
    return ticket_of(stack)
