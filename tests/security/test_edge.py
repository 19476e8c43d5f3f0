"""What is refused before any page sees it, and what forms may not carry."""

import re
import socket
import struct
from io import BytesIO
from types import SimpleNamespace
from urllib.parse import urlencode

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.test import Client

from config import up
from runs import values as values_of
from tests.approvals import desk

pytestmark = pytest.mark.django_db
FORM = "application/x-www-form-urlencoded"


def strict(user: User) -> Client:
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(user)
    return browser


def token(browser: Client, path: str) -> str:
    found = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', browser.get(path).content.decode())
    assert found is not None
    return found[1]


@pytest.mark.parametrize("path", ["/accounts/login/", "/requests/0000000000/decide", "/nothing", "/healthz"])
def test_files_nobody_asked_for_are_refused_unread(path: str) -> None:
    """Django would write a file of any size to the disk, for somebody who is not signed in."""
    upload = BytesIO(b"x" * (settings.DATA_UPLOAD_MAX_MEMORY_SIZE + 1))
    assert Client().post(path, {"file": upload}).status_code == 413


def test_longest_edit_is_taken(people: SimpleNamespace) -> None:
    """256 KiB of text that grows when it is escaped, once in the form and once in what it carries along."""
    values = {"account": 1, "amount": "1.00", "ratio": 1.0, "code": "c", "tree": {}, "many": []}
    values |= {"sure": True, "level": "low", "letter": "é" * 125_000}
    request = desk.opened("approvals-filler", values=values)
    carried = {"f-letter": "é" * 125_000, "edited": values_of.canonical({**values, "account": 2})}
    form = {"decision": "approve", "view_digest": request.revision.digest, "edited": carried["edited"]}
    form["basis-1"] = "yes"
    assert len(urlencode(carried)) < settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    browser = Client()
    browser.force_login(people.ana)
    assert browser.post(f"/requests/{request.ref}/decide", form).status_code == 303


@pytest.mark.parametrize(
    "path",
    [
        "/runs/?agent=%00",
        "/?q=%00",
        "/accounts/login/?next=/%00",
        "/admin/runs/run/?status=%00",
        "/admin/auth/user/?email=%00",
        "/admin/approvals/apikey/?name=%00",
    ],
)
def test_nul_in_a_query_is_a_bad_request(people: SimpleNamespace, path: str) -> None:
    browser = Client()
    browser.force_login(people.olu)
    assert browser.get(path).status_code == 400


def test_nul_in_the_name_of_an_object_is_no_such_object(people: SimpleNamespace) -> None:
    browser = Client()
    browser.force_login(people.olu)
    for model in ("runs/run", "approvals/apikey", "approvals/request", "auth/user"):
        assert browser.get(f"/admin/{model}/%00/change/").status_code == 302


@pytest.mark.parametrize("seen", ["²-", "9" * 5000, "", "x", "-1", "1-", "٣-x", "1.", "²."])
def test_version_that_is_none_is_an_old_one(people: SimpleNamespace, seen: str) -> None:
    request = desk.opened()
    browser = Client()
    browser.force_login(people.ana)
    for path in ("/inbox/pulse", f"/requests/{request.ref}/pulse"):
        answer = browser.get(path, {"v": seen}, headers={"HX-Request": "true"})
        assert answer.status_code == 200, path


@pytest.mark.parametrize("site", ["cross-site"])
def test_form_that_comes_from_another_site_is_refused_with_its_token_too(
    people: SimpleNamespace, site: str
) -> None:
    request = desk.opened()
    browser = strict(people.ana)
    form = {"decision": "reject", "reason": "x", "view_digest": request.revision.digest}
    form["csrfmiddlewaretoken"] = token(browser, f"/requests/{request.ref}")
    path = f"/requests/{request.ref}/decide"
    assert browser.post(path, form, headers={"Sec-Fetch-Site": site}).status_code == 403
    assert desk.counts(request) == ("open", 0, 0)
    assert browser.post(path, form, headers={"Sec-Fetch-Site": "same-origin"}).status_code == 303


def test_link_from_another_site_is_followed(people: SimpleNamespace) -> None:
    """As from a mail in a browser."""
    request = desk.opened()
    browser = strict(people.ana)
    page = browser.get(f"/requests/{request.ref}", headers={"Sec-Fetch-Site": "cross-site"})
    assert page.status_code == 200


@pytest.mark.parametrize("name", ["decision", "view_digest", "form_nonce", "edited", "note", "reason"])
def test_field_sent_twice_decides_nothing(people: SimpleNamespace, name: str) -> None:
    request = desk.opened()
    browser = Client()
    browser.force_login(people.ana)
    form = [("decision", "reject"), ("reason", "x"), ("view_digest", request.revision.digest)]
    form += [(name, dict(form).get(name, "1")), (name, "2")]
    said = browser.post(f"/requests/{request.ref}/decide", urlencode(form), content_type=FORM)
    assert said.status_code == 422
    assert desk.counts(request) == ("open", 0, 0)


def kept_by_nobody(answer: HttpResponse) -> bool:
    return "no-store" in answer["Cache-Control"]


@pytest.mark.parametrize(
    "path",
    [
        "/accounts/email/",
        "/accounts/2fa/",
        "/accounts/2fa/recovery-codes/",
        "/accounts/password/change/",
        "/accounts/reauthenticate/",
        "/accounts/login/",
        "/nothing",
        "/api/nothing",
        "/healthz",
    ],
)
def test_every_page_is_kept_by_nobody(people: SimpleNamespace, path: str) -> None:
    browser = Client()
    browser.force_login(people.ana)
    assert kept_by_nobody(browser.get(path))
    assert kept_by_nobody(Client().get(path))


def test_client_that_stops_half_way_is_not_waited_for_for_ever() -> None:
    """Sixteen of them would be all threads of the web."""
    door = up._door(socket.AF_INET, "127.0.0.1", 0)
    assert door is not None
    with door, socket.create_connection(door.getsockname()):
        accepted, _ = door.accept()
        with accepted:
            seconds, _ = struct.unpack("ll", accepted.getsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, 16))
    assert seconds == up.CLIENT_PATIENCE
