"""Pause, resume and cancel over the API: works, refuses, twice; and whose pause may be lifted."""

from django.contrib.auth.models import User

from runs import holds, lifecycle
from runs.actors import Actor
from runs.models import Hold, JournalEntry, Run
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


def test_verbs_take_no_parameters(api: Api) -> None:
    run = api.submit()
    with nothing_written():
        said = api.http.post(f"/api/v1/runs/{run.pk}/cancel?reason=x")
    place = {"parameter": "reason", "detail": "Extra inputs are not permitted"}
    refused(said, 422, "bad_parameter", place)
