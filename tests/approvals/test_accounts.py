"""Accounts are made by invitation, and a sign-in leads nowhere outside."""

import re

import pytest
from django.contrib.auth.models import Group, User
from django.core import mail
from django.core.exceptions import ValidationError
from django.test import Client

from approvals import accounts

pytestmark = pytest.mark.django_db
PASSWORD = "a-long-enough-passphrase"


def test_invite_makes_an_account_without_a_password(django_capture_on_commit_callbacks) -> None:
    finance = Group.objects.create(name="Finance")
    with django_capture_on_commit_callbacks(execute=True):
        user = accounts.invite(email="Ana@Example.org ", name="Ana Maria Ruiz", groups=[finance])
    assert (user.email, user.get_full_name(), user.has_usable_password()) == (
        "ana@example.org",
        "Ana Maria Ruiz",
        False,
    )
    assert list(user.groups.all()) == [finance]
    assert list(user.emailaddress_set.values_list("email", "verified", "primary")) == [
        ("ana@example.org", True, True)
    ]
    assert [(m.to, m.subject) for m in mail.outbox] == [(["ana@example.org"], "Your account on Abeyance")]


def test_invite_link_sets_the_password_once(django_capture_on_commit_callbacks, client: Client) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        accounts.invite(email="ana@example.org", name="Ana")
    path = re.search(r"https?://[^/]+(/\S+)", mail.outbox[0].body)[1]
    page = client.get(path, follow=True)
    assert "Choose a password" in page.content.decode()
    client.post(page.redirect_chain[-1][0], {"password1": PASSWORD, "password2": PASSWORD})
    assert User.objects.get().check_password(PASSWORD)
    again = Client().get(path, follow=True)
    assert "This link doesn’t work any more" in again.content.decode()


@pytest.mark.parametrize("email", ["ana@example.org", "ANA@example.org", "no address", ""])
def test_invite_refuses_an_address_that_is_taken_or_none(email: str) -> None:
    accounts.invite(email="ana@example.org", name="Ana")
    with pytest.raises(ValidationError):
        accounts.invite(email=email, name="Ana again")
    assert User.objects.count() == 1


def test_signup_is_closed(client: Client) -> None:
    client.post("/accounts/signup/", {"email": "eve@example.org", "password1": PASSWORD})
    assert User.objects.count() == 0
    assert "by invitation" in client.get("/accounts/signup/").content.decode()


@pytest.mark.parametrize(
    ("next_page", "lands"),
    [
        ("/requests/7Q2F8M3K", "/requests/7Q2F8M3K"),
        ("https://evil.example/", "/"),
        ("//evil.example/", "/"),
        ("/\\evil.example/", "/"),
        ("http://testserver/history", "/"),
        ("javascript:alert(1)", "/"),
    ],
)
def test_sign_in_leads_to_this_site_only(client: Client, next_page: str, lands: str) -> None:
    user = accounts.invite(email="ana@example.org", name="Ana")
    user.set_password(PASSWORD)
    user.save(update_fields=["password"])
    answer = client.post(
        "/accounts/login/", {"login": "ana@example.org", "password": PASSWORD, "next": next_page}
    )
    assert answer["Location"] == lands


def test_second_factor_secret_is_sealed() -> None:
    adapter = accounts.MfaAdapter()
    sealed = adapter.encrypt("JBSWY3DPEHPK3PXP")
    assert "JBSWY3DPEHPK3PXP" not in sealed
    assert adapter.decrypt(sealed) == "JBSWY3DPEHPK3PXP"
