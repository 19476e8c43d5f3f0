"""POST /api/v1/runs: what it makes, what the same key gives again, and what it refuses."""

import json

from django.conf import LazySettings
from django.contrib.auth.models import User

from approvals.models import ApiKey
from runs.models import JournalEntry, Run
from tests.api.conftest import Api, nothing_written, refused

ASKED = {"agent": "api-test-desk", "input": {"ticket": 7}}


def test_submit_makes_a_queued_run_and_names_its_address(api: Api, sam: User) -> None:
    said = api.post(
        "/runs",
        {**ASKED, "labels": {"team": "billing"}, "on_behalf_of": "dana@example.org"},
        idempotency_key="k-1",
    )
    run = Run.objects.get()
    key = ApiKey.objects.get()
    assert said.status_code == 201
    assert said["Location"] == f"/api/v1/runs/{run.id}"
    assert "Idempotent-Replayed" not in said
    assert (run.owner_id, run.submitter_kind, run.submitter_id) == (str(sam.pk), "key", key.prefix)
    assert json.loads(run.input) == {"ticket": 7, "note": ""}
    body = said.json()
    created = run.created_at.isoformat().replace("+00:00", "Z")
    assert body == {
        "id": str(run.id),
        "agent": "api-test-desk",
        "agent_version": "3",
        "status": "queued",
        "stopping": False,
        "pausing": False,
        "labels": {"team": "billing"},
        "on_behalf_of": "dana@example.org",
        "version": "1",
        "created_at": created,
        "started_at": None,
        "suspended_at": None,
        "ended_at": None,
        "waiting_for": [],
        "links": {
            "self": f"/api/v1/runs/{run.id}",
            "steps": f"/api/v1/runs/{run.id}/steps",
            "events": f"/api/v1/runs/{run.id}/events",
            "pause": f"/api/v1/runs/{run.id}/pause",
            "stop": f"/api/v1/runs/{run.id}/stop",
            "resume": f"/api/v1/runs/{run.id}/resume",
            "cancel": f"/api/v1/runs/{run.id}/cancel",
        },
        "parent": None,
        "ancestors": [],
        "children": [],
        "in_flight": [],
        "input": {"ticket": 7, "note": ""},
        "allowance": [],
        "result": None,
        "error": None,
    }
    entry = JournalEntry.objects.get()
    assert (entry.verb, entry.actor_kind, entry.actor_id, entry.door) == (
        "submitted",
        "key",
        key.prefix,
        "api",
    )


def test_submit_keeps_values_to_the_last_digit(api: Api) -> None:
    text = (
        '{"agent": "api-test-keeper", "input": {"kept":'
        ' [9007199254740993, 123456789012345678901234567890, 0.1, "00123", "  é🙂\u202e ", -0.0]}}'
    )
    said = api.post("/runs", text)
    assert said.status_code == 201
    kept = [9007199254740993, 123456789012345678901234567890, 0.1, "00123", "  é🙂\u202e ", -0.0]
    assert said.json()["input"] == {"kept": kept}
    assert api.get(f"/runs/{said.json()['id']}").json()["input"] == {"kept": kept}


def test_submit_again_with_the_same_key_and_body_gives_the_first_run(api: Api) -> None:
    first = api.post("/runs", {**ASKED, "labels": {"a": "1", "b": "2"}}, idempotency_key="k")
    with nothing_written():
        again = api.post(
            "/runs",
            '{ "labels": {"b": "2", "a": "1"},\n "input": {"ticket": 7}, "agent": "api-test-desk" }',
            idempotency_key="k",
        )
    assert again.status_code == 200
    assert again["Idempotent-Replayed"] == "true"
    assert again["Location"] == first["Location"]
    assert again.json() == first.json()


def test_submit_again_with_another_body_is_refused(api: Api) -> None:
    first = api.post("/runs", ASKED, idempotency_key="k")
    place = {"header": "Idempotency-Key", "detail": "send the first body again, or a new key"}
    for other in (
        {**ASKED, "input": {"ticket": 8}},
        {**ASKED, "agent": "api-test-keeper", "input": {}},
        {**ASKED, "labels": {"a": "b"}},
        {**ASKED, "on_behalf_of": "dana@example.org"},
    ):
        with nothing_written():
            said = api.post("/runs", other, idempotency_key="k")
        body = refused(said, 422, "idempotency_key_reused", place)
        assert first.json()["id"] in body["detail"]


def test_submit_with_a_key_of_somebody_else_is_independent(api: Api, foreign: Api) -> None:
    first = api.post("/runs", ASKED, idempotency_key="k")
    other = foreign.post("/runs", {**ASKED, "input": {"ticket": 8}}, idempotency_key="k")
    assert (first.status_code, other.status_code) == (201, 201)
    assert first.json()["id"] != other.json()["id"]


def test_submit_after_a_refusal_executes_with_the_same_key(api: Api) -> None:
    refused_first = api.post("/runs", {**ASKED, "agent": "nobody"}, idempotency_key="k")
    assert refused_first.status_code == 422
    assert api.post("/runs", ASKED, idempotency_key="k").status_code == 201


def test_replay_reveals_nothing_after_the_key_changed_hands(api: Api, foreign: Api) -> None:
    api.post("/runs", ASKED, idempotency_key="k")
    key = ApiKey.objects.get(owner__username="sam")
    key.owner = User.objects.get(username="eve")
    key.save(update_fields=["owner"])
    refused(api.post("/runs", ASKED, idempotency_key="k"), 404, "not_found")


def test_submit_without_a_key_twice_makes_two_runs(api: Api) -> None:
    assert api.submit().pk != api.submit().pk


def test_submit_with_a_bad_idempotency_key_is_refused(api: Api) -> None:
    place = {"header": "Idempotency-Key", "detail": "1 to 200 visible ASCII characters, without spaces"}
    for key in ("", "a b", "x" * 201, "é"):
        with nothing_written():
            refused(api.post("/runs", ASKED, idempotency_key=key), 422, "bad_parameter", place)
    assert api.post("/runs", ASKED, idempotency_key="x" * 200).status_code == 201


def test_submit_too_often_is_refused_for_that_key_only(
    api: Api, foreign: Api, settings: LazySettings
) -> None:
    settings.SUBMIT_RATE = "2/min"
    assert [api.post("/runs", ASKED).status_code for _ in range(2)] == [201, 201]
    with nothing_written():
        said = api.post("/runs", ASKED)
    refused(said, 429, "too_many_requests")
    assert 1 <= int(said["Retry-After"]) <= 60
    assert api.get("/runs").status_code == 200
    assert foreign.post("/runs", ASKED).status_code == 201
