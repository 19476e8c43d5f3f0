

def out_(*a):
    open("/tmp/probe.out", "a").write(" ".join(map(str, a)) + "\n")


import pytest
from django.test import Client

pytestmark = pytest.mark.django_db


def test_email(people, settings):
    settings.LOGGING_CONFIG = None
    c = Client(raise_request_exception=False)
    c.force_login(people.ana)
    a = c.get("/accounts/email/")
    out_("email", a.status_code, len(a.content))
    out_(a.content.decode()[:3000] if a.status_code == 200 else a.headers)
    for data in (
        {"action_add": "", "email": "evil@example.net"},
        {"action_primary": "", "email": "evil@example.net"},
        {"action_add": "", "email": "ben@example.org"},
        {"action_remove": "", "email": "ana@example.org"},
    ):
        a = c.post("/accounts/email/", data)
        people.ana.refresh_from_db()
        out_(
            data,
            a.status_code,
            a.headers.get("location"),
            people.ana.email,
            list(people.ana.emailaddress_set.values_list("email", "verified", "primary")),
        )
    for p in (
        "/accounts/password/change/",
        "/accounts/password/set/",
        "/accounts/2fa/",
        "/accounts/2fa/totp/activate/",
        "/accounts/2fa/webauthn/add/",
        "/accounts/signup/",
        "/accounts/reauthenticate/",
        "/accounts/confirm-email/",
        "/accounts/inactive/",
        "/accounts/login/code/confirm/",
    ):
        a = c.get(p)
        out_(
            p,
            a.status_code,
            a.headers.get("location"),
            a.headers.get("Cache-Control"),
            b"<style" in a.content,
            b"style=" in a.content,
            b"<script>" in a.content,
        )
