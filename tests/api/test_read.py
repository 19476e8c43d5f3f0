"""GET: one run, the list and its pages, the steps, the agents; and waiting for a run to move."""

import json
import threading
import time
import uuid
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from django.db import connection, connections
from pytest_django import DjangoAssertNumQueries

from runs import clock, endings, holds, values
from runs.actors import SYSTEM, Actor
from runs.api import pages, waiting
from runs.models import Run, Step
from runs.states import Cause, StepStatus
from tests.api.conftest import Api, key_of, person, refused


def iso(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")


def a_step(run: Run, index: int, **fields: Any) -> Step:
    given = {"status": StepStatus.HELD, "arguments": "{}", **fields}
    return Step.objects.create(
        run=run, index=index, tool="pay", tool_version="v", arguments_digest="d", **given
    )


# -- One run -----------------------------------------------------------------------------


def test_read_says_what_a_run_waits_for(api: Api) -> None:
    run = api.submit()
    step = a_step(run, 4)
    at = clock.now()
    hold = holds.place(
        run,
        cause=Cause.APPROVAL,
        actor=Actor("agent", "desk@3", "desk"),
        step=step,
        why="more than 100",
        terms=holds.Terms(expires_in=60),
    )
    body = api.get(f"/runs/{run.pk}").json()
    assert hold.expires_at is not None
    assert hold.expires_at >= at + timedelta(seconds=60)
    assert body["waiting_for"] == [
        {
            "id": str(hold.pk),
            "cause": "approval",
            "subject": "",
            "why": "more than 100",
            "step": 4,
            "by": "desk",
            "since": iso(hold.opened_at),
            "until": iso(hold.expires_at),
            "asked": None,
        }
    ]
    holds.release(hold.pk, actor=SYSTEM, resolution="approved")
    assert api.get(f"/runs/{run.pk}").json()["waiting_for"] == []


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        ({"type": "ToolFailed", "args": ["KeyError", "no such charge"]}, ("KeyError", "no such charge")),
        ({"type": "Rejected", "args": ["too much", "Ana"]}, ("Rejected", "too much, Ana")),
        ({"type": "Expired", "args": ["2026-01-01T00:00:00Z"]}, ("Expired", "2026-01-01T00:00:00Z")),
        ({"type": "examples.world:Declined", "args": ["card"]}, ("Declined", "card")),
    ],
)
def test_read_tells_how_a_run_failed(api: Api, error: dict[str, Any], shown: tuple[str, str]) -> None:
    run = api.submit()
    Run.objects.filter(pk=run.pk).update(error=json.dumps(error))
    body = api.get(f"/runs/{run.pk}").json()
    assert (body["error"]["kind"], body["error"]["message"]) == shown


def test_version_rises_whenever_a_run_moves(api: Api) -> None:
    run = api.submit()
    seen = [int(api.get(f"/runs/{run.pk}").json()["version"])]
    for verb in ("pause", "resume", "pause", "cancel"):
        assert api.post(f"/runs/{run.pk}/{verb}").status_code == 200
        seen.append(int(api.get(f"/runs/{run.pk}").json()["version"]))
    assert seen == sorted(set(seen))


def test_reading_changes_nothing(api: Api) -> None:
    run = api.submit()
    before = Run.objects.values().get()
    for path in (f"/runs/{run.pk}", f"/runs/{run.pk}/steps", "/runs", "/agents"):
        assert api.get(path).status_code == 200
        assert api.http.head(f"/api/v1{path}").status_code == 200
        assert api.http.options(f"/api/v1{path}").status_code == 200
    assert Run.objects.values().get() == before


def test_no_answer_is_kept_on_the_way(api: Api) -> None:
    for said in (api.get("/runs"), api.get("/agents"), api.get("/runs", nothing=1)):
        assert said["Cache-Control"] == "no-store"


# -- The list ----------------------------------------------------------------------------


def ids(said: Any) -> list[str]:
    assert said.status_code == 200, said.content
    return [run["id"] for run in said.json()["results"]]


@pytest.mark.parametrize("rows", [1, 3])
def test_list_costs_three_queries(
    api: Api, rows: int, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    for ticket in range(rows):
        run = api.submit(ticket)
        holds.place(run, cause=Cause.APPROVAL, actor=SYSTEM, step=a_step(run, 0))
        holds.pause(run.pk, actor=SYSTEM)
    with django_assert_num_queries(3):  # the key, the runs, their holds
        body = api.get("/runs").json()
    assert [len(run["waiting_for"]) for run in body["results"]] == [2] * rows
    assert body["next"] is None


def test_list_shows_own_runs_newest_first_and_without_their_values(api: Api, foreign: Api) -> None:
    mine = [str(api.submit(ticket).pk) for ticket in range(3)]
    theirs = str(foreign.submit().pk)
    body = api.get("/runs").json()
    assert [run["id"] for run in body["results"]] == mine[::-1]
    assert {"input", "result", "error"} & body["results"][0].keys() == set()
    assert ids(foreign.get("/runs")) == [theirs]


def test_list_filters(api: Api) -> None:
    paused, cancelled, plain = (api.submit(n, labels={"n": str(n), "team": "x"}) for n in range(3))
    endings.cancel(cancelled.pk, actor=SYSTEM)
    keeper = api.post("/runs", {"agent": "api-test-keeper", "input": {}}).json()
    everything = {"agent": "api-test-desk", "created_before": iso(plain.created_at)}
    assert ids(api.get("/runs", status="cancelled")) == [str(cancelled.pk)]
    assert len(ids(api.get("/runs", status=["cancelled", "queued"]))) == 4
    assert ids(api.get("/runs", agent="api-test-keeper")) == [keeper["id"]]
    assert ids(api.get("/runs", **{"label.n": "2"})) == [str(plain.pk)]
    assert ids(api.get("/runs", **{"label.n": "0", "label.team": "x"})) == [str(paused.pk)]
    assert ids(api.get("/runs", **{"label.n": "0", "label.team": "y"})) == []
    assert ids(api.get("/runs", created_after=iso(plain.created_at))) == [keeper["id"], str(plain.pk)]
    assert ids(api.get("/runs", **everything)) == [str(cancelled.pk), str(paused.pk)]


@pytest.mark.parametrize(
    ("query", "name", "detail"),
    [
        ({"state": "queued"}, "state", "Extra inputs are not permitted"),
        ({"format": "xml"}, "format", "Extra inputs are not permitted"),
        ({"labels": "x"}, "labels", "Extra inputs are not permitted"),
        ({"label": "x"}, "label", "written label.KEY=VALUE"),
        ({"limit": "0"}, "limit", "Input should be greater than or equal to 1"),
        ({"limit": "101"}, "limit", "Input should be less than or equal to 100"),
        (
            {"limit": "many"},
            "limit",
            "Input should be a valid integer, unable to parse string as an integer",
        ),
        ({"limit": ["1", "2"]}, "limit", "given more than once"),
        ({"created_after": "2026-01-01T00:00:00"}, "created_after", "Input should have timezone info"),
        (
            {"status": ["queued", "asleep"]},
            "status",
            "Input should be 'queued', 'running', 'suspended', 'succeeded', 'failed', 'cancelled'"
            " or 'expired'",
        ),
        (
            {"agent": "a\x00"},
            "agent",
            "contains the character NUL (U+0000), which cannot be stored",
        ),
    ],
)
def test_list_refuses_parameters_by_name(api: Api, query: dict[str, Any], name: str, detail: str) -> None:
    refused(api.get("/runs", **query), 422, "bad_parameter", {"parameter": name, "detail": detail})


@pytest.mark.parametrize("cursor", ["x", "!!!", "AAAA", "MjAyNi0wMS0wMQ", "é", "MjAyNi0wMS0wMSB4"])
def test_list_refuses_a_cursor_that_is_none(api: Api, cursor: str) -> None:
    detail = "not a cursor of this list; take the address in a page's `next`"
    place = {"parameter": "cursor", "detail": detail}
    refused(api.get("/runs", cursor=cursor), 422, "bad_parameter", place)


def pages_of(api: Api, first: Any) -> Iterator[Any]:
    while True:
        assert first.status_code == 200, first.content
        yield first.json()["results"]
        address = first.json()["next"]
        if address is None:
            return
        query = dict(parse_qsl(urlsplit(address).query))
        first = api.get(urlsplit(address).path.removeprefix("/api/v1"), **query)


def batch(run: Run, count: int) -> list[str]:
    """Runs that were made in one moment, as copies of one."""
    fields = {f.attname: getattr(run, f.attname) for f in Run._meta.concrete_fields if f.name != "id"}
    rows = Run.objects.bulk_create(Run(id=uuid.uuid4(), **fields) for _ in range(count))
    return [str(row.pk) for row in rows]


def test_pages_neither_repeat_nor_skip_while_runs_move(api: Api) -> None:
    there = [*batch(first := api.submit(), 119), str(first.pk)]
    pages = pages_of(api, api.get("/runs", limit=50, agent="api-test-desk"))
    seen = [run["id"] for run in next(pages)]
    for run_id in there[:10]:
        endings.cancel(uuid.UUID(run_id), actor=SYSTEM)
    for ticket in range(10):
        api.submit(ticket)
    lengths = [50]
    for page in pages:
        seen += [run["id"] for run in page]
        lengths.append(len(page))
    assert lengths == [50, 50, 20]
    assert sorted(seen) == sorted(there)


def test_pages_end_without_an_empty_one(api: Api) -> None:
    for ticket in range(4):
        api.submit(ticket)
    assert [len(page) for page in pages_of(api, api.get("/runs", limit=2))] == [2, 2]


# -- Steps and agents ----------------------------------------------------------------------


def test_steps_show_calls_and_what_came_of_them(api: Api) -> None:
    run = api.submit()
    at = clock.now()
    done = a_step(
        run,
        0,
        status="done",
        arguments='{"amount":"250.00"}',
        executed='{"amount":"25.00"}',
        result='{"id":9007199254740993}',
        settled=1,
        settled_at=at,
        effect="confirmed",
        key="k0",
        attempt=1,
        may_act_until=at,
        dispatched_at=at,
        decision={"verb": "edit", "by": "Ben", "note": "one only"},
    )
    a_step(run, 1, status="raised", result='{"type":"Rejected","args":["no","Ana"]}', settled=2)
    body = api.get(f"/runs/{run.pk}/steps").json()
    assert body["next"] is None
    assert body["results"][0] == {
        "index": 0,
        "tool": "pay",
        "tool_version": "v",
        "status": "done",
        "arguments": {"amount": "250.00"},
        "executed": {"amount": "25.00"},
        "result": {"id": 9007199254740993},
        "error": None,
        "effect": {
            "state": "confirmed",
            "key": "k0",
            "attempt": 1,
            "dispatched_at": iso(at),
            "may_act_until": iso(at),
        },
        "decision": {"verb": "edit", "by": "Ben", "note": "one only"},
        "created_at": iso(done.created_at),
        "settled_at": iso(at),
    }
    raised = body["results"][1]
    assert (raised["result"], raised["error"]) == (None, {"kind": "Rejected", "message": "no, Ana"})


@pytest.mark.parametrize("rows", [1, 3])
def test_steps_cost_four_queries(
    api: Api, rows: int, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    run = api.submit()
    for index in range(rows):
        a_step(run, index)
    with django_assert_num_queries(4):  # the key, the run, how long its steps are, the steps
        body = api.get(f"/runs/{run.pk}/steps").json()
    assert [step["index"] for step in body["results"]] == list(range(rows))


def test_pages_of_steps_with_long_values_end_early(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """And none is left out; one that is longer than a page is a page."""
    run = api.submit()
    for index in range(7):
        a_step(run, index)
    long = values.canonical({"text": "x" * 3_000})
    Step.objects.filter(run=run, index__in=(1, 2, 5)).update(arguments=long)
    monkeypatch.setattr(pages, "MOST", 2_000)
    address, seen = f"/runs/{run.pk}/steps", []
    while address:
        body = api.get(address).json()
        seen.append([step["index"] for step in body["results"]])
        address = (body["next"] or "").removeprefix("/api/v1")
    assert seen == [[0], [1], [2], [3, 4], [5], [6]]


def test_steps_come_in_pages(api: Api) -> None:
    run = api.submit()
    for index in (3, 1, 2, 5, 4):
        a_step(run, index)
    pages = list(pages_of(api, api.get(f"/runs/{run.pk}/steps", limit=2)))
    assert [[step["index"] for step in page] for page in pages] == [[1, 2], [3, 4], [5]]
    detail = "not a cursor of this list; take the address in a page's `next`"
    said = api.get(f"/runs/{run.pk}/steps", cursor="LTE")
    refused(said, 422, "bad_parameter", {"parameter": "cursor", "detail": detail})


def test_agents_come_with_the_schema_of_their_input(api: Api) -> None:
    found = {agent["name"]: agent for agent in api.get("/agents").json()["results"]}
    assert found["api-test-desk"] == {
        "name": "api-test-desk",
        "version": "3",
        "title": "Answers a ticket.",
        "versions": ["3"],
        "input_schema": {
            "additionalProperties": False,
            "properties": {
                "ticket": {"title": "Ticket", "type": "integer"},
                "note": {"default": "", "title": "Note", "type": "string"},
            },
            "required": ["ticket"],
            "title": "desk",
            "type": "object",
        },
    }


# -- Waiting -------------------------------------------------------------------------------


class Looks:
    """Counts the waiters' looks at a run's version, and calls `then` at the first."""

    def __init__(self, then: Any = None) -> None:
        self.count = 0
        self.then = then

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        found = execute(sql, params, many, context)
        if '"seq" + ' in sql:
            self.count += 1
            if self.count == 1 and self.then is not None:
                self.then()
        return found


def elsewhere(act: Any) -> None:
    """In another thread, with a connection of its own, committed on return."""

    def run() -> None:
        try:
            act()
        finally:
            connections.close_all()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()


def test_wait_answers_when_the_run_moves(transactional_db: None) -> None:
    api = Api(key_of(person("sam")))
    run = api.submit()
    looks = Looks(then=lambda: elsewhere(lambda: endings.cancel(run.pk, actor=SYSTEM)))
    with connection.execute_wrapper(looks):
        body = api.get(f"/runs/{run.pk}", wait=60).json()
    assert (body["status"], body["version"]) == ("cancelled", "2")
    assert looks.count == 2
    assert connection.get_autocommit()
    assert not connection.in_atomic_block


def test_wait_ends_with_its_time(api: Api) -> None:
    run = api.submit()
    with connection.execute_wrapper(looks := Looks()):
        body = api.get(f"/runs/{run.pk}", wait=0.01).json()
    assert (body["status"], body["version"], looks.count) == ("queued", "1", 1)


def test_wait_since_another_version_answers_at_once(api: Api) -> None:
    run = api.submit()
    with connection.execute_wrapper(looks := Looks()):
        for since in ("0", "2", "999999999999999999"):
            assert api.get(f"/runs/{run.pk}", wait=60, since=since).json()["version"] == "1"
    assert looks.count == 0


def test_wait_since_the_present_version_waits(transactional_db: None) -> None:
    api = Api(key_of(person("sam")))
    run = api.submit()
    looks = Looks(then=lambda: elsewhere(lambda: holds.pause(run.pk, actor=SYSTEM)))
    with connection.execute_wrapper(looks):
        body = api.get(f"/runs/{run.pk}", wait=60, since="1").json()
    assert [hold["cause"] for hold in body["waiting_for"]] == ["person"]


def test_wait_for_a_run_that_ended_answers_at_once(api: Api) -> None:
    run = api.submit()
    endings.cancel(run.pk, actor=SYSTEM)
    with connection.execute_wrapper(looks := Looks()):
        assert api.get(f"/runs/{run.pk}", wait=60, since="2").json()["status"] == "cancelled"
    assert looks.count == 0


def test_wait_is_answered_at_once_when_eight_wait_already(api: Api) -> None:
    run = api.submit()
    taken = [waiting.place() for _ in range(8)]
    assert [place.__enter__() for place in taken] == [True] * 8
    try:
        with connection.execute_wrapper(looks := Looks()):
            said = api.get(f"/runs/{run.pk}", wait=60)
        assert (said.status_code, said["Retry-After"], looks.count) == (200, "2", 0)
        taken.pop().__exit__(None, None, None)
        assert "Retry-After" not in api.get(f"/runs/{run.pk}", wait=0.01)
    finally:
        for place in taken:
            place.__exit__(None, None, None)


def test_waiters_of_one_run_share_a_look(api: Api) -> None:
    run = api.submit()
    with connection.execute_wrapper(looks := Looks()):
        for _ in range(3):
            waiting.until_moved(run.pk, 1, 0)
    assert looks.count == 1


def test_a_shared_look_older_than_the_version_known_is_no_move(api: Api) -> None:
    run = api.submit()
    waiting.until_moved(run.pk, 1, 0)
    holds.pause(run.pk, actor=SYSTEM)
    began = time.monotonic()
    waiting.until_moved(run.pk, 2, 0.05)
    assert time.monotonic() - began >= 0.05


@pytest.mark.parametrize(
    ("query", "name", "detail"),
    [
        ({"wait": "61"}, "wait", "Input should be less than or equal to 60"),
        ({"wait": "-1"}, "wait", "Input should be greater than or equal to 0"),
        ({"wait": "nan"}, "wait", "Input should be a finite number"),
        ({"wait": "1", "since": "v1"}, "since", "String should match pattern '^[0-9]{1,18}$'"),
        ({"until": "1"}, "until", "Extra inputs are not permitted"),
    ],
)
def test_wait_refuses_parameters_by_name(api: Api, query: dict[str, Any], name: str, detail: str) -> None:
    run = api.submit()
    place = {"parameter": name, "detail": detail}
    refused(api.get(f"/runs/{run.pk}", **query), 422, "bad_parameter", place)
