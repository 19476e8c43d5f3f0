"""Pause, resume and cancel over the API: works, refuses, twice; and whose pause may be lifted."""

import pytest
from django.contrib.auth.models import Group, User

from runs import holds, lifecycle
from runs.actors import Actor
from runs.models import Hold, JournalEntry, Run, Step
from tests.api.conftest import Api, key_of, nothing_written, person, refused


def test_pause_holds_the_run_and_keeps_the_reason(api: Api) -> None:
    run = api.submit()
    said = api.post(f"/runs/{run.pk}/pause", {"reason": "wrong customer"})
    hold = Hold.objects.get()
    assert said.status_code == 200
    assert [(h["cause"], h["why"], h["by"]) for h in said.json()["waiting_for"]] == [
        ("person", "wrong customer", "sam's")
    ]
    assert (hold.opened_by_kind, hold.opened_through, hold.by_operator) == ("key", "api", False)


def test_pause_twice_is_one_pause(api: Api) -> None:
    run = api.submit()
    first = api.post(f"/runs/{run.pk}/pause", {"reason": "first"}).json()
    with nothing_written():
        again = api.post(f"/runs/{run.pk}/pause", {"reason": "second"})
    assert (again.status_code, again.json()) == (200, first)


def test_pause_needs_no_body(api: Api) -> None:
    run = api.submit()
    assert api.http.generic("POST", f"/api/v1/runs/{run.pk}/pause").status_code == 200


def test_resume_releases_the_pause(api: Api) -> None:
    run = api.submit()
    api.post(f"/runs/{run.pk}/pause")
    said = api.post(f"/runs/{run.pk}/resume", {"reason": "it was right"})
    hold = Hold.objects.get()
    assert (said.status_code, said.json()["waiting_for"]) == (200, [])
    assert (hold.resolution, hold.answer, hold.released_by_kind) == ("resumed", "it was right", "key")


def test_resume_by_another_key_of_the_owner(api: Api, sam: User) -> None:
    run = api.submit()
    api.post(f"/runs/{run.pk}/pause")
    assert Api(key_of(sam)).post(f"/runs/{run.pk}/resume").status_code == 200


def test_resume_what_its_owner_paused_on_a_page(api: Api, sam: User) -> None:
    run = api.submit()
    holds.pause(run.pk, actor=Actor("person", str(sam.pk), "Sam", "page"))
    assert api.post(f"/runs/{run.pk}/resume").status_code == 200


def test_resume_a_run_that_is_not_paused(api: Api) -> None:
    run = api.submit()
    with nothing_written():
        body = refused(api.post(f"/runs/{run.pk}/resume"), 409, "wrong_state")
    assert body["detail"] == f"run {run.pk} is not paused; it is queued"
    assert body["run_status"] == "queued"


def test_resume_what_an_operator_paused(api: Api) -> None:
    run = api.submit()
    holds.pause(run.pk, actor=Actor("person", "99", "Olga", "admin", operator=True))
    with nothing_written():
        refused(api.post(f"/runs/{run.pk}/resume"), 409, "wrong_state")
    assert Hold.objects.open().count() == 1


def test_resume_what_an_operator_took_over(api: Api) -> None:
    run = api.submit()
    api.post(f"/runs/{run.pk}/pause")
    holds.pause(run.pk, actor=Actor("person", "99", "Olga", "admin", operator=True))
    refused(api.post(f"/runs/{run.pk}/resume"), 409, "wrong_state")
    assert Hold.objects.open().count() == 1


def test_resume_what_a_reviewer_paused(api: Api) -> None:
    run = api.submit()
    ana = person("ana")
    holds.pause(run.pk, actor=Actor("person", str(ana.pk), "Ana", "page"))
    with nothing_written():
        body = refused(api.post(f"/runs/{run.pk}/resume"), 409, "wrong_state")
    assert body["detail"] == "Ana paused this run; only they or an operator can resume it"


def test_cancel_ends_a_queued_run(api: Api) -> None:
    run = api.submit()
    said = api.post(f"/runs/{run.pk}/cancel", {"reason": "not needed"})
    assert (said.status_code, said.json()["status"]) == (200, "cancelled")
    assert JournalEntry.objects.get(verb="cancelled").detail == '{"why":"not needed"}'


def test_cancel_asks_the_worker_of_a_running_run(api: Api) -> None:
    run = api.submit()
    assert lifecycle.take(run.pk, "w1") is not None
    said = api.post(f"/runs/{run.pk}/cancel")
    assert (said.status_code, said.json()["status"], said.json()["stopping"]) == (202, "running", True)
    with nothing_written():
        assert api.post(f"/runs/{run.pk}/cancel").status_code == 202
    assert Run.objects.get().stop_requested is not None


def test_cancel_twice(api: Api) -> None:
    run = api.submit()
    api.post(f"/runs/{run.pk}/cancel")
    with nothing_written():
        body = refused(api.post(f"/runs/{run.pk}/cancel"), 409, "run_ended")
    assert body["run_status"] == "cancelled"


@pytest.mark.parametrize(
    ("path", "status"), [("", 405), ("/approve", 404), ("/decide", 404), ("/answer", 404)]
)
def test_answer_that_names_no_request_is_taken_by_no_door(api: Api, path: str, status: int) -> None:
    """F09: a run takes no answers, only its requests do, on their own pages; nothing of it moves."""
    run = api.submit()
    with nothing_written():
        said = api.post(f"/runs/{run.pk}{path}", {"decision": "approve"})
    assert said.status_code == status


def test_verbs_take_no_parameters(api: Api) -> None:
    run = api.submit()
    with nothing_written():
        said = api.http.post(f"/api/v1/runs/{run.pk}/cancel?reason=x")
    place = {"parameter": "reason", "detail": "Extra inputs are not permitted"}
    refused(said, 422, "bad_parameter", place)


# -- Stop now -------------------------------------------------------------------------------


def calling(api: Api) -> Run:
    """A run with an effect in flight that has to be finished."""
    run = api.submit()
    assert lifecycle.take(run.pk, "w1") is not None
    Step.objects.create(
        run=run,
        index=0,
        tool="gone",
        tool_version="1",
        arguments="{}",
        arguments_digest="d",
        status="dispatched",
        effect="dispatched",
        key="k",
        attempt=1,
        may_act_until=run.created_at,
    )
    return run


def test_stop_holds_the_run_and_says_what_is_finished_first(api: Api) -> None:
    run = calling(api)
    said = api.post(f"/runs/{run.pk}/stop", {"reason": "wrong customer"}).json()
    assert (said["status"], said["pausing"], said["stopping"], said["in_flight"]) == (
        "running",
        True,
        False,
        [0],
    )
    assert [(hold["cause"], hold["why"]) for hold in said["waiting_for"]] == [("person", "wrong customer")]
    assert Hold.objects.get().detail == {"stop_now": True}


def test_stop_twice_is_one_stop(api: Api) -> None:
    run = calling(api)
    first = api.post(f"/runs/{run.pk}/stop").json()
    with nothing_written():
        assert api.post(f"/runs/{run.pk}/stop", {"reason": "again"}).json() == first


def test_stop_of_a_run_that_ended(api: Api) -> None:
    run = api.submit()
    api.post(f"/runs/{run.pk}/cancel")
    with nothing_written():
        refused(api.post(f"/runs/{run.pk}/stop"), 409, "run_ended")


def test_stop_of_a_foreign_run(api: Api, foreign: Api) -> None:
    run = api.submit()
    with nothing_written():
        refused(foreign.post(f"/runs/{run.pk}/stop"), 404, "not_found")


def test_run_says_what_is_in_flight_only_while_nothing_new_starts(api: Api) -> None:
    run = calling(api)
    assert api.get(f"/runs/{run.pk}").json()["in_flight"] == []
    api.post(f"/runs/{run.pk}/pause")
    shown = api.get(f"/runs/{run.pk}").json()
    assert (shown["pausing"], shown["in_flight"]) == (True, [0])
    api.post(f"/runs/{run.pk}/cancel")
    shown = api.get(f"/runs/{run.pk}").json()
    assert (shown["pausing"], shown["stopping"], shown["in_flight"]) == (False, True, [0])


# -- All runs of an agent ---------------------------------------------------------------------

DESK = "/agents/api-test-desk"


@pytest.fixture
def operator(db: None) -> Api:
    """A key whose owner is an operator."""
    olu = person("olu")
    olu.groups.add(Group.objects.get_or_create(name="operators")[0])
    return Api(key_of(olu))


def test_pause_all_and_resume_all(api: Api, operator: Api) -> None:
    mine, runs = api.submit(), [api.submit() for _ in range(2)]
    api.post(f"/runs/{mine.pk}/pause", {"reason": "mine"})
    said = operator.post(f"{DESK}/pause", {"reason": "rates are down"})
    assert (said.status_code, said.json()) == (200, {"runs": 3, "changed": 3})
    assert operator.post(f"{DESK}/pause").json() == {"runs": 3, "changed": 0}
    refused(api.post(f"/runs/{runs[0].pk}/resume"), 409, "wrong_state")
    assert operator.post(f"{DESK}/resume").json() == {"runs": 3, "changed": 3}
    assert [hold.why for hold in Hold.objects.open()] == ["mine"]
    assert api.post(f"/runs/{mine.pk}/resume").status_code == 200


def test_stop_all_and_cancel_all(api: Api, operator: Api) -> None:
    runs = [api.submit() for _ in range(2)]
    assert operator.post(f"{DESK}/stop").json() == {"runs": 2, "changed": 2}
    assert operator.post(f"{DESK}/cancel", {"reason": "enough"}).json() == {"runs": 2, "changed": 2}
    assert {run.status for run in Run.objects.filter(pk__in=[run.pk for run in runs])} == {"cancelled"}
    assert operator.post(f"{DESK}/cancel").json() == {"runs": 0, "changed": 0}


@pytest.mark.parametrize("verb", ["pause", "stop", "cancel", "resume"])
def test_all_is_for_keys_of_operators(api: Api, verb: str) -> None:
    api.submit()
    with nothing_written():
        refused(api.post(f"{DESK}/{verb}"), 403, "forbidden")


def test_all_of_an_unknown_agent(operator: Api) -> None:
    with nothing_written():
        refused(operator.post("/agents/nobody/pause"), 404, "not_found")


def test_key_of_an_operator_is_a_submitter_elsewhere(api: Api, operator: Api) -> None:
    run = api.submit()
    with nothing_written():
        refused(operator.post(f"/runs/{run.pk}/pause"), 404, "not_found")
