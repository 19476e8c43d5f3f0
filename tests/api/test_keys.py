"""Who is let in: 401 for all others, with the same answer whatever is wrong with the key."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client

from approvals.models import ApiKey
from runs import clock
from tests.api.conftest import Api, key_of, nothing_written, refused

BAD = "this key is unknown, expired or revoked, or its owner may not sign in"
PATHS = ["/api/v1/runs", "/api/v1/agents", "/api/v1/runs/00000000-0000-4000-8000-000000000000"]


@pytest.mark.parametrize("path", PATHS)
def test_without_a_key(db: None, path: str) -> None:
    said = Client().get(path)
    refused(said, 401, "not_authenticated")
    assert said["WWW-Authenticate"] == 'Bearer realm="Abeyance"'


def test_submit_without_a_key_writes_nothing(db: None) -> None:
    with nothing_written():
        said = Client().post("/api/v1/runs", "{", content_type="application/json")
    refused(said, 401, "not_authenticated")


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "Api-Key"])
def test_either_scheme(sam: User, scheme: str) -> None:
    said = Client().get("/api/v1/runs", headers={"authorization": f"{scheme} {key_of(sam)}"})
    assert said.status_code == 200


@pytest.mark.parametrize(
    "given",
    [
        "Bearer",
        "Bearer x",
        "Bearer abcdefgh." + "x" * 32,
        "Bearer é.\x80",
        "Bearer a b",
        "Basic YTpi",
        "Token x",
    ],
)
def test_with_what_is_no_key(sam: User, given: str) -> None:
    key_of(sam)
    said = Client().get("/api/v1/runs", headers={"authorization": given})
    refused(said, 401, "not_authenticated")
    assert said["WWW-Authenticate"] == 'Bearer realm="Abeyance"'


def test_with_the_prefix_of_a_key_and_another_secret(sam: User) -> None:
    key = key_of(sam)
    other = key[:-1] + ("a" if key[-1] != "a" else "b")
    assert refused(Api(other).get("/runs"), 401, "not_authenticated")["detail"] == BAD


def test_expired_by_the_databases_clock(sam: User) -> None:
    at = clock.now()
    late, due = (key_of(sam, expiry_date=at + timedelta(hours=hours)) for hours in (2, 1))
    assert [Api(key).get("/runs").status_code for key in (late, due)] == [200, 200]
    clock.shift(timedelta(minutes=90))
    assert [Api(key).get("/runs").status_code for key in (late, due)] == [200, 401]


def test_revoked(api: Api) -> None:
    key = ApiKey.objects.get()
    key.revoked = True
    key.save(update_fields=["revoked"])
    assert refused(api.get("/runs"), 401, "not_authenticated")["detail"] == BAD


def test_owner_disabled(api: Api, sam: User) -> None:
    sam.is_active = False
    sam.save(update_fields=["is_active"])
    assert refused(api.get("/runs"), 401, "not_authenticated")["detail"] == BAD


def test_a_session_is_no_key(sam: User) -> None:
    http = Client()
    http.force_login(sam)
    refused(http.get("/api/v1/runs"), 401, "not_authenticated")
