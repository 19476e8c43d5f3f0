"""Telling a run of an event over the API: new, the same again, and everything that does not fit."""

import json
from typing import Any

import pytest

from runs import endings, execution
from runs.actors import SYSTEM
from runs.agents import RunContext, agent
from runs.models import Event, JournalEntry, Run
from runs.tools import start, wait_for
from tests.api.conftest import Api, nothing_written, refused


@agent(name="api-test-waiter")
async def waiter(run: RunContext) -> Any:
    """Waits until a parcel has arrived."""
    return await wait_for("arrived", Any)  # type: ignore[arg-type]


@agent(name="api-test-sender")
async def sender(run: RunContext) -> Any:
    """Lets another agent wait."""
    return await start(waiter)


TOLD = {"id": "scan-1", "name": "arrived", "payload": {"weight": "2.50"}}


@pytest.fixture
def run(api: Api) -> Run:
    said = api.post("/runs", {"agent": "api-test-waiter", "input": {}})
    return driven(said.json()["id"])


def driven(run_id: Any) -> Run:
    execution.drive(Run.objects.get(pk=run_id).pk)
    return Run.objects.get(pk=run_id)


def test_tell_releases_the_wait(api: Api, run: Run) -> None:
    said = api.post(f"/runs/{run.pk}/events", TOLD)
    event = Event.objects.get()
    assert (said.status_code, said.json()) == (
        201,
        {"id": "scan-1", "name": "arrived", "told_at": event.told_at.isoformat().replace("+00:00", "Z")},
    )
    assert json.loads(driven(run.pk).result or "") == {"weight": "2.50"}
    entry = JournalEntry.objects.of(run.stream).get(verb="event")
    assert (entry.actor_kind, entry.door) == ("key", "api")


def test_tell_again_is_the_first_answer(api: Api, run: Run) -> None:
    first = api.post(f"/runs/{run.pk}/events", TOLD).json()
    driven(run.pk)
    with nothing_written():
        again = api.post(f"/runs/{run.pk}/events", TOLD)
    assert (again.status_code, again.json(), again["Idempotent-Replayed"]) == (200, first, "true")
    assert Event.objects.count() == 1


@pytest.mark.parametrize("other", [{"payload": {"weight": "9"}}, {"name": "left"}])
def test_tell_another_event_under_the_same_id(api: Api, run: Run, other: dict[str, Any]) -> None:
    api.post(f"/runs/{run.pk}/events", TOLD)
    with nothing_written():
        said = api.post(f"/runs/{run.pk}/events", {**TOLD, **other})
    refused(said, 409, "event_reused")
    assert Event.objects.count() == 1


def test_tell_a_run_that_ended(api: Api, run: Run) -> None:
    endings.cancel(run.pk, actor=SYSTEM)
    with nothing_written():
        body = refused(api.post(f"/runs/{run.pk}/events", TOLD), 409, "run_ended")
    assert (body["run_status"], Event.objects.count()) == ("cancelled", 0)


def test_tell_a_foreign_run_and_none_are_one_answer(api: Api, foreign: Api, run: Run) -> None:
    with nothing_written():
        theirs = foreign.post(f"/runs/{run.pk}/events", TOLD)
        none = api.post("/runs/00000000-0000-0000-0000-000000000000/events", TOLD)
    for said in (theirs, none):
        refused(said, 404, "not_found")
    assert Event.objects.count() == 0


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"id": ""}, "/id"),
        ({"id": "x" * 201}, "/id"),
        ({"id": 5}, "/id"),
        ({"name": ""}, "/name"),
        ({"name": "x" * 101}, "/name"),
        ({"more": 1}, "/more"),
    ],
)
def test_tell_what_does_not_fit(api: Api, run: Run, change: dict[str, Any], pointer: str) -> None:
    with nothing_written():
        said = api.post(f"/runs/{run.pk}/events", {**TOLD, **change})
    assert (said.status_code, said.json()["code"]) == (422, "bad_body")
    assert [place["pointer"] for place in said.json()["errors"]] == [pointer]
    assert Event.objects.count() == 0


@pytest.mark.parametrize("missing", ["id", "name", "payload"])
def test_tell_without(api: Api, run: Run, missing: str) -> None:
    said = api.post(f"/runs/{run.pk}/events", {k: v for k, v in TOLD.items() if k != missing})
    assert [place["pointer"] for place in said.json()["errors"]] == [f"/{missing}"]
    assert said.status_code == 422


@pytest.mark.parametrize(
    "text", ['{"id":"a","name":"b","payload":NaN}', '{"id":"a\\u0000","name":"b","payload":1}', "[]", "{"]
)
def test_tell_what_is_no_json_that_can_be_kept(api: Api, run: Run, text: str) -> None:
    assert api.post(f"/runs/{run.pk}/events", text).status_code == 422
    assert Event.objects.count() == 0


@pytest.mark.parametrize(("size", "status"), [(256 * 1024 - 2, 201), (256 * 1024 - 1, 413)])
def test_tell_the_largest_payload_and_one_more(api: Api, run: Run, size: int, status: int) -> None:
    said = api.post(f"/runs/{run.pk}/events", {**TOLD, "payload": "x" * size})
    assert said.status_code == status
    if status == 413:
        refused(said, 413, "too_large", {"pointer": "/payload", "detail": "at most 262,144 bytes"})


def test_tell_the_longest_id_and_name(api: Api, run: Run) -> None:
    said = api.post(f"/runs/{run.pk}/events", {"id": "é" * 200, "name": "ß" * 100, "payload": None})
    assert said.status_code == 201


def test_events_are_only_told(api: Api, run: Run) -> None:
    refused(api.get(f"/runs/{run.pk}/events"), 405, "method_not_allowed")


def test_read_shows_until_when_it_waits(api: Api) -> None:
    @agent(name="api-test-patient")
    async def patient(run: RunContext) -> int:
        return await wait_for("arrived", int, within=3600)

    run = driven(api.post("/runs", {"agent": "api-test-patient", "input": {}}).json()["id"])
    (waits,) = api.get(f"/runs/{run.pk}").json()["waiting_for"]
    hold = run.holds.get()
    assert hold.expires_at is not None
    assert (waits["cause"], waits["subject"], waits["step"], waits["until"]) == (
        "event",
        "arrived",
        0,
        hold.expires_at.isoformat().replace("+00:00", "Z"),
    )


def test_read_names_the_family(api: Api) -> None:
    run = driven(api.post("/runs", {"agent": "api-test-sender", "input": {}}).json()["id"])
    said = api.get(f"/runs/{run.pk}").json()
    (child,) = said["children"]
    assert (said["parent"], said["ancestors"]) == (None, [])
    below = api.get(f"/runs/{child}").json()
    assert [below[name] for name in ("agent", "parent", "ancestors", "children")] == [
        "api-test-waiter",
        str(run.pk),
        [str(run.pk)],
        [],
    ]


def test_list_has_children_as_well(api: Api) -> None:
    run = driven(api.post("/runs", {"agent": "api-test-sender", "input": {}}).json()["id"])
    listed = [found["id"] for found in api.get("/runs").json()["results"]]
    assert listed == [str(Run.objects.get(parent=run).pk), str(run.pk)]
