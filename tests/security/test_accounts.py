"""An account stays with its person: an open browser moves it nowhere, and an address is not shed."""

from types import SimpleNamespace

import pytest
from allauth.account.models import EmailAddress
from django.contrib.auth.models import User
from django.test import Client

pytestmark = pytest.mark.django_db
PATH = "/accounts/email/"


@pytest.fixture
def known(people: SimpleNamespace) -> User:
    people.ana.set_password("a good password")
    people.ana.save(update_fields=["password"])
    EmailAddress.objects.create(user=people.ana, email=people.ana.email, verified=True, primary=True)
    return people.ana  # type: ignore[no-any-return]


def addresses(person: User) -> list[str]:
    return list(EmailAddress.objects.filter(user=person).order_by("email").values_list("email", flat=True))


@pytest.mark.parametrize("action", ["action_add", "action_primary", "action_remove"])
def test_open_browser_does_not_move_the_account(known: User, action: str) -> None:
    """Who finds a session, and not the password, would have the next reset mailed to themselves."""
    EmailAddress.objects.create(user=known, email="second@example.org", verified=True)
    browser = Client()
    browser.force_login(known)
    email = "third@example.org" if action == "action_add" else "second@example.org"
    said = browser.post(PATH, {action: "", "email": email})
    assert said.status_code == 302
    assert said["Location"].startswith("/accounts/reauthenticate/")
    assert addresses(known) == ["ana@example.org", "second@example.org"]
    assert User.objects.get(pk=known.pk).email == "ana@example.org"


def test_address_once_had_is_not_removed(known: User) -> None:
    """Runs and agents name people by it: without it they would review what they asked for."""
    EmailAddress.objects.create(user=known, email="second@example.org", verified=True)
    browser = Client()
    browser.force_login(known)
    browser.post(PATH, {"action_primary": "", "email": "second@example.org"})
    browser.post(f"/accounts/reauthenticate/?next={PATH}", {"password": "a good password"})
    assert User.objects.get(pk=known.pk).email == "second@example.org"
    browser.post(PATH, {"action_remove": "", "email": "ana@example.org"})
    assert addresses(known) == ["ana@example.org", "second@example.org"]


def test_sign_in_makes_a_session_of_its_own(known: User) -> None:
    """A session id that somebody else planted is not the one that is signed in."""
    browser = Client()
    browser.cookies["sessionid"] = "a" * 32
    browser.post("/accounts/login/", {"login": known.email, "password": "a good password"})
    cookie = browser.cookies["sessionid"]
    assert cookie.value != "a" * 32
    assert (cookie["httponly"], cookie["samesite"]) == (True, "Lax")
