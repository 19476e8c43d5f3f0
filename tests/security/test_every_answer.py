"""Whatever is asked for, by whom and how: every answer carries the policy of the pages, and none may be kept."""

from types import SimpleNamespace
from typing import Any

import pytest
from django.core.cache import cache
from django.http import HttpResponse
from django.test import Client
from django.urls import reverse

from approvals.models import Decision, Request
from tests.approvals import desk
from tests.pages import POLICY, addresses, browser, directives

pytestmark = pytest.mark.django_db

#: The dashboard of the queue is django-rq's: operators alone see it, under a policy of its own.
ELSEWHERE = "/admin/rq/"
#: The same for everybody and about nothing: how to reach the API, and whether it serves.
PUBLIC = ("/api/docs/", "/api/schema/", "/healthz", "/readyz", "/accounts/", "/admin/jsi18n/")


@pytest.fixture
def known(people: SimpleNamespace) -> dict[str, str]:
    """What the parts of addresses stand for: a request that is open, a decision that was made."""
    other = desk.opened(owner=people.cyd)
    desk.decide(desk.opened(), people.ben)
    return {
        "ref": other.ref,
        "decision_id": str(Decision.objects.get().pk),
        "run_id": str(other.run_id),
        "object_id": str(other.pk),
        "name": "nobody",
        "agent": other.run.agent,
        "verb": "pause",
        "number": "1",
        "index": "0",
    }


def answers(known: dict[str, str], client: Client) -> list[tuple[str, HttpResponse]]:
    client.raise_request_exception = False
    return [
        (f"{method} {path}", getattr(client, method)(path))
        for path in sorted(set(addresses(known)))
        for method in ("get", "head", "options", "post", "put", "delete")
        if not path.startswith(ELSEWHERE)
    ]


@pytest.mark.parametrize("who", ["nobody", "ana", "cyd", "olu", "dot", "root"])
def test_policy_is_on_every_answer(people: SimpleNamespace, known: dict[str, str], who: str) -> None:
    client = Client() if who == "nobody" else browser(getattr(people, who))
    for name, answer in answers(known, client):
        assert (name, directives(answer)) == (name, POLICY)
        assert (name, answer["X-Content-Type-Options"]) == (name, "nosniff")
        assert (name, answer["Referrer-Policy"]) == (name, "same-origin")
        assert (name, answer["Cross-Origin-Opener-Policy"]) == (name, "same-origin")
        if not name.split(" ", 1)[1].startswith(PUBLIC):
            assert (name, "no-store" in answer.get("Cache-Control", "")) == (name, True)


def test_cookies_are_for_this_site_and_no_script(people: SimpleNamespace, settings: Any) -> None:
    cache.clear()  # sign-ins of other tests count, too
    people.ana.set_password("a long enough one")
    people.ana.save(update_fields=["password"])
    client = Client()
    page = client.get(reverse("account_login"))
    said = client.post(reverse("account_login"), {"login": people.ana.email, "password": "a long enough one"})
    assert (page.status_code, said.status_code) == (200, 302)
    made = {**page.cookies, **said.cookies}
    assert set(made) >= {"csrftoken", "sessionid"}
    for name in ("csrftoken", "sessionid"):
        assert (name, made[name]["httponly"], made[name]["samesite"]) == (name, True, "Lax")


def test_neutral_page_is_all_that_an_outsider_learns(people: SimpleNamespace, known: dict[str, str]) -> None:
    """Whoever may not see the request finds no word of it at any address."""
    request = Request.objects.get(ref=known["ref"])
    stranger = browser(desk.person("eve"))
    for name, answer in answers(known, stranger):
        told = b"" if getattr(answer, "streaming", False) else answer.content
        found = [word for word in (b"ch_1", b"240", b"cyd@") if word in told]
        assert (name, found) == (name, []), request.ref
