"""Health for machines: yes or no, what is missing, and the headers that go with every answer."""

import pytest
from django.db import OperationalError, connection
from rq import Worker

from tests.runs.own_valkey import running_valkey, valkey

__all__ = ["running_valkey", "valkey"]


@pytest.mark.django_db
def test_healthz_is_well(client):
    answer = client.get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"ok": True, "database": True})
    assert "no-store" in answer["Cache-Control"]


@pytest.mark.django_db
def test_healthz_without_a_database_is_not(client, monkeypatch):
    def away():
        raise OperationalError("the server has gone")

    monkeypatch.setattr(connection, "cursor", away)
    answer = client.get("/healthz")
    assert (answer.status_code, answer.json()) == (503, {"ok": False, "database": False})


@pytest.mark.django_db
def test_readyz_names_what_is_missing(client, valkey):
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json() == {
        "ok": False,
        "database": True,
        "migrations": True,
        "queue": True,
        "workers": False,
    }


@pytest.mark.django_db
def test_readyz_is_well_with_a_worker(client, valkey):
    worker = Worker(["default"], connection=valkey.client)
    worker.register_birth()
    answer = client.get("/readyz")
    worker.register_death()
    assert (answer.status_code, answer.json()["workers"]) == (200, True)


@pytest.mark.django_db
def test_readyz_without_a_queue_is_not_ready(client, valkey):
    valkey.kill()
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json() == {
        "ok": False,
        "database": True,
        "migrations": True,
        "queue": False,
        "workers": False,
    }


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_health_is_only_looked_at(client, path):
    assert client.post(path).status_code == 405


@pytest.mark.django_db
def test_headers_of_every_answer(client):
    answer = client.get("/healthz")
    assert sorted(answer["Content-Security-Policy"].split("; ")) == [
        "base-uri 'none'",
        "connect-src 'self'",
        "default-src 'none'",
        "font-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "frame-src 'self'",
        "img-src 'self' data:",
        "object-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
    ]
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer["Referrer-Policy"] == "same-origin"
    assert answer["Cross-Origin-Opener-Policy"] == "same-origin"
    assert answer["X-Frame-Options"] == "DENY"
