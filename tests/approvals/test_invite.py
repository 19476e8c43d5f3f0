"""`invite`: the way to the first operator."""

import re
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.management import CommandError, call_command
from django.test import Client

from approvals import rights

pytestmark = pytest.mark.django_db

OLU = "olu@example.com"


def invite(*words: str) -> str:
    out = StringIO()
    call_command("invite", *words, stdout=out)
    return out.getvalue()


def test_invite_makes_the_first_operator(mailoutbox: Any, django_capture_on_commit_callbacks: Any) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        said = invite(
            "Olu@example.com", "--name", "Olu Obi", "--group", "operators", "--group", "policy editors"
        )
    assert said == f"{OLU} is invited by mail\n"
    olu = User.objects.get(email=OLU)
    assert (olu.get_full_name(), olu.has_usable_password(), olu.is_staff) == ("Olu Obi", False, True)
    assert rights.is_operator(olu)
    assert rights.is_policy_editor(olu)
    [mail] = mailoutbox
    assert (mail.to, mail.subject) == ([OLU], "Your account on Abeyance")


def test_the_invited_choose_a_password_and_enter_the_admin(
    mailoutbox: Any, django_capture_on_commit_callbacks: Any, client: Client
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        invite(OLU, "--group", "operators")
    [address] = re.findall(r"http://\S+/accounts/password/reset/key/\S+", mailoutbox[0].body)
    form = client.get(address, follow=True).redirect_chain[-1][0]
    client.post(form, {"password1": "a very long secret", "password2": "a very long secret"})
    client.post("/accounts/login/", {"login": OLU, "password": "a very long secret"})
    assert client.get("/admin/").status_code == 200


def test_invite_refuses_somebody_who_is_there() -> None:
    invite(OLU)
    with pytest.raises(CommandError, match=r"^Somebody has an account with this e-mail address already\.$"):
        invite("OLU@example.com")
    assert User.objects.count() == 1


def test_invite_refuses_what_is_no_address() -> None:
    with pytest.raises(CommandError, match=r"^Enter a valid email address\.$"):
        invite("olu")


def test_invite_refuses_a_group_nobody_made() -> None:
    with pytest.raises(
        CommandError, match=r"^no group is called 'operator'; there are: auditors, operators, "
    ):
        invite(OLU, "--group", "operator")
    assert not User.objects.exists()
    assert not Group.objects.filter(name="operator").exists()
