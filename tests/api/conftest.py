"""A submitter with a key, one agent, and a client that speaks the API the way programs do."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.cache import caches
from django.db.models import Model
from django.test import Client

from approvals.models import ApiKey
from runs.agents import RunContext, agent
from runs.models import Hold, JournalEntry, Run, Step

TABLES: tuple[type[Model], ...] = (Run, Step, Hold, JournalEntry)


@agent(name="api-test-desk", version="3")
async def desk(run: RunContext, ticket: int, note: str = "") -> dict[str, Any]:
    """Answers a ticket."""
    return {"ticket": ticket, "note": note}


@agent(name="api-test-keeper")
async def keeper(run: RunContext, kept: Any = None) -> Any:
    """Gives back what it got."""
    return kept


class Api:
    """Requests with one key; bodies are Python values, or text as it is."""

    def __init__(self, key: str) -> None:
        self.http = Client(headers={"authorization": f"Bearer {key}"}, raise_request_exception=False)

    def get(self, path: str, **query: Any) -> Any:
        return self.http.get(f"/api/v1{path}", query)

    def post(self, path: str, body: Any = None, **headers: str) -> Any:
        text = body if isinstance(body, (str, bytes)) else json.dumps(body or {})
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.http.post(f"/api/v1{path}", text, content_type="application/json", headers=named)

    def submit(self, ticket: int = 7, **more: Any) -> Run:
        said = self.post("/runs", {"agent": "api-test-desk", "input": {"ticket": ticket}, **more})
        assert said.status_code == 201, said.content
        return Run.objects.get(pk=said.json()["id"])


def person(name: str) -> User:
    return User.objects.create_user(name, f"{name}@example.org")


def key_of(user: User, **fields: Any) -> str:
    _, key = ApiKey.objects.create_key(name=f"{user.username}'s", owner=user, **fields)
    return str(key)


@pytest.fixture
def sam(db: None) -> User:
    return person("sam")


@pytest.fixture
def api(sam: User) -> Api:
    return Api(key_of(sam))


@pytest.fixture
def foreign(db: None) -> Api:
    """Somebody else's."""
    return Api(key_of(person("eve")))


@pytest.fixture(autouse=True)
def _no_one_was_counted() -> None:
    caches["process"].clear()


@contextmanager
def nothing_written() -> Iterator[None]:
    """Nothing but that somebody was refused."""
    before = _counts()
    yield
    assert _counts() == before


def _counts() -> list[int]:
    refusals = JournalEntry.objects.filter(verb="refused").count()
    return [
        *(table._default_manager.count() for table in TABLES[:-1]),
        JournalEntry.objects.count() - refusals,
    ]


def refused(said: Any, status: int, code: str, *places: dict[str, str]) -> dict[str, Any]:
    """Checks a problem's frame and its places, and gives its body."""
    assert (said.status_code, said["Content-Type"]) == (status, "application/problem+json"), said.content
    body: dict[str, Any] = said.json()
    assert {name: body[name] for name in ("type", "status", "code", "instance")} == {
        "type": f"/problems/{code.replace('_', '-')}",
        "status": status,
        "code": code,
        "instance": said.wsgi_request.path,
    }
    assert body["errors"] == list(places)
    assert body["title"]
    assert body["detail"]
    return body


Refuses = Callable[..., dict[str, Any]]
