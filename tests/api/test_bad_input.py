"""Bad input, one test each: the answer names the place and what would be right, and no row is written."""

import io
import json
from typing import Any

import pytest
from django.test import Client

from runs import endings, values
from runs.actors import SYSTEM
from runs.models import Run
from tests.api.conftest import Api, nothing_written, refused

ASKED = {"agent": "api-test-desk", "input": {"ticket": 7}}
MIB = 1024 * 1024


def submit_refused(api: Api, body: Any, status: int, code: str, *places: dict[str, str]) -> dict[str, Any]:
    with nothing_written():
        return refused(api.post("/runs", body), status, code, *places)


def keep(value: str) -> str:
    return f'{{"agent": "api-test-keeper", "input": {{"kept": {value}}}}}'


def test_malformed_json(api: Api) -> None:
    detail = "not JSON: Expecting value at line 2, column 11"
    body = submit_refused(
        api, '{"agent": "x",\n "input": }', 422, "bad_value", {"pointer": "", "detail": detail}
    )
    assert detail in body["detail"]


def test_not_utf8(api: Api) -> None:
    place = {"pointer": "", "detail": "not UTF-8 at byte 11"}
    submit_refused(api, '{"agent": "é"}'.encode("latin-1"), 422, "bad_value", place)


def test_empty_body(api: Api) -> None:
    places = [{"pointer": f"/{name}", "detail": "Field required"} for name in ("agent", "input")]
    with nothing_written():
        said = api.http.post("/api/v1/runs", content_type="application/json")
        refused(said, 422, "bad_body", *places)


def test_oversized_body(api: Api) -> None:
    body = submit_refused(api, keep(json.dumps("x" * MIB)), 413, "too_large")
    assert body["detail"] == "a body takes at most 1,048,576 bytes"


def test_oversized_body_is_refused_by_its_announcement_alone(api: Api) -> None:
    with nothing_written():
        said = api.http.generic(
            "POST", "/api/v1/runs", b"{}", content_type="application/json", CONTENT_LENGTH=str(MIB + 1)
        )
    refused(said, 413, "too_large")


def test_oversized_body_that_announces_less_is_cut_there(api: Api) -> None:
    text = json.dumps({**ASKED, "labels": {"x": "y" * MIB}}).encode()
    with nothing_written():
        said = api.http.generic(
            "POST", "/api/v1/runs", text, content_type="application/json", CONTENT_LENGTH="40"
        )
    assert refused(said, 422, "bad_value", *said.json()["errors"])["errors"][0]["pointer"] == ""


class Chunks(io.BytesIO):
    """What a server hands over for a body in chunks: it ends where the last chunk did."""

    def read(self, size: int | None = -1) -> bytes:
        assert size is not None
        assert 0 <= size <= MIB + 1
        return super().read(size)


def chunked(http: Client, text: bytes) -> Any:
    sent = {
        "wsgi.input": Chunks(text),
        "wsgi.input_terminated": True,
        "HTTP_TRANSFER_ENCODING": "chunked",
        "CONTENT_TYPE": "application/json",
        "REQUEST_METHOD": "POST",
        "PATH_INFO": "/api/v1/runs",
    }
    return http.request(**sent)


def test_oversized_body_in_chunks(api: Api) -> None:
    with nothing_written():
        refused(chunked(api.http, keep(json.dumps("x" * 2 * MIB)).encode()), 413, "too_large")


def test_body_in_chunks_is_read(api: Api) -> None:
    said = chunked(api.http, json.dumps(ASKED).encode())
    assert (said.status_code, said.json()["input"]["ticket"]) == (201, 7)


def test_oversized_input(api: Api) -> None:
    place = {"pointer": "/input", "detail": "at most 262,144 bytes"}
    submit_refused(api, keep(json.dumps("x" * values.MAX_ARGUMENTS)), 413, "too_large", place)
    fits = "x" * (values.MAX_ARGUMENTS - len('{"kept":""}'))
    assert api.post("/runs", keep(json.dumps(fits))).status_code == 201


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_not_a_number(api: Api, word: str) -> None:
    place = {"pointer": "/input/kept/1", "detail": f"{word} is not a JSON value"}
    submit_refused(api, keep(f"[1, {word}]"), 422, "bad_value", place)


def test_number_too_large(api: Api) -> None:
    place = {"pointer": "/input/kept", "detail": "the number 1e400 is too large; send it as a string"}
    submit_refused(api, keep("1e400"), 422, "bad_value", place)


def test_number_that_would_be_rounded(api: Api) -> None:
    detail = "the number 0.12345678901234567890 would be rounded to 0.12345678901234568; send it as a string"
    submit_refused(
        api, keep("0.12345678901234567890"), 422, "bad_value", {"pointer": "/input/kept", "detail": detail}
    )


def test_nul(api: Api) -> None:
    detail = "contains the character NUL (U+0000), which cannot be stored"
    place = {"pointer": "/input/kept/1", "detail": detail}
    submit_refused(api, keep('["fine", "a\\u0000b"]'), 422, "bad_value", place)


def test_nul_in_a_key(api: Api) -> None:
    detail = "contains the character NUL (U+0000), which cannot be stored"
    submit_refused(
        api, keep('{"a\\u0000": 1}'), 422, "bad_value", {"pointer": "/input/kept", "detail": detail}
    )


def test_lone_surrogate(api: Api) -> None:
    detail = "contains half of a surrogate pair, which is not a character"
    place = {"pointer": "/input/kept", "detail": detail}
    submit_refused(api, keep('"\\ud83c"'), 422, "bad_value", place)


def test_duplicate_keys(api: Api) -> None:
    place = {"pointer": "/agent", "detail": "this key appears twice in one object"}
    submit_refused(api, '{"agent": "a", "agent": "b", "input": {}}', 422, "bad_value", place)
    place = {"pointer": "/input/kept/0/x", "detail": "this key appears twice in one object"}
    submit_refused(api, keep('[{"x": 1, "x": 2}]'), 422, "bad_value", place)


def test_nesting_deeper_than_32(api: Api) -> None:
    place = {"pointer": "", "detail": "nested deeper than 32 levels"}
    submit_refused(api, keep("[" * 31 + "]" * 31), 422, "bad_value", place)
    assert api.post("/runs", keep("[" * 30 + "]" * 30)).status_code == 201


def test_nesting_bomb(api: Api) -> None:
    place = {"pointer": "", "detail": "nested deeper than 32 levels"}
    submit_refused(api, "[" * (MIB - 1), 422, "bad_value", place)


@pytest.mark.parametrize("body", ["[]", "null", '"x"', "1", "true"])
def test_body_that_is_no_object(api: Api, body: str) -> None:
    said = submit_refused(api, body, 422, "bad_body", {"pointer": "", "detail": "this is not a JSON object"})
    assert (
        said["detail"]
        == "the body is a JSON object of agent, input, labels, on_behalf_of, allowance, draws_on"
    )


def test_unknown_and_missing_keys(api: Api) -> None:
    said = submit_refused(
        api,
        {"agent": "api-test-desk", "inputs": {}, "a/b": 1},
        422,
        "bad_body",
        {"pointer": "/input", "detail": "Field required"},
        {"pointer": "/inputs", "detail": "Extra inputs are not permitted"},
        {"pointer": "/a~1b", "detail": "Extra inputs are not permitted"},
    )
    assert (
        said["detail"]
        == "the body is a JSON object of agent, input, labels, on_behalf_of, allowance, draws_on"
    )


@pytest.mark.parametrize(
    ("changed", "pointer", "detail"),
    [
        ({"agent": 1}, "/agent", "Input should be a valid string"),
        ({"agent": ""}, "/agent", "String should have at least 1 character"),
        ({"input": []}, "/input", "Input should be a valid dictionary"),
        ({"input": None}, "/input", "Input should be a valid dictionary"),
        ({"labels": {"team": 1}}, "/labels/team", "Input should be a valid string"),
        ({"labels": {"a": "x" * 501}}, "/labels/a", "String should have at most 500 characters"),
        ({"on_behalf_of": "x" * 201}, "/on_behalf_of", "String should have at most 200 characters"),
        ({"on_behalf_of": None}, "/on_behalf_of", "Input should be a valid string"),
    ],
)
def test_keys_that_do_not_fit(api: Api, changed: dict[str, Any], pointer: str, detail: str) -> None:
    submit_refused(api, {**ASKED, **changed}, 422, "bad_body", {"pointer": pointer, "detail": detail})


def test_unknown_agent(api: Api) -> None:
    with nothing_written():
        said = api.post("/runs", {"agent": "nobody", "input": {}})
    body = refused(said, 422, "unknown_agent", *said.json()["errors"])
    assert [place["pointer"] for place in body["errors"]] == ["/agent"]
    assert body["detail"].startswith("no agent is called 'nobody'; there are: ")
    assert "api-test-desk, api-test-keeper" in body["detail"]


def test_arguments_that_do_not_fit(api: Api) -> None:
    submit_refused(
        api,
        {"agent": "api-test-desk", "input": {"ticket": "many", "note": 1, "tickets": []}},
        422,
        "bad_arguments",
        {
            "pointer": "/input/ticket",
            "detail": "Input should be a valid integer, unable to parse string as an integer",
        },
        {"pointer": "/input/note", "detail": "Input should be a valid string"},
        {"pointer": "/input/tickets", "detail": "Extra inputs are not permitted"},
    )


def test_missing_argument(api: Api) -> None:
    place = {"pointer": "/input/ticket", "detail": "Field required"}
    submit_refused(api, {"agent": "api-test-desk", "input": {}}, 422, "bad_arguments", place)


def test_reused_key_with_another_body(api: Api) -> None:
    api.post("/runs", ASKED, idempotency_key="k")
    place = {"header": "Idempotency-Key", "detail": "send the first body again, or a new key"}
    with nothing_written():
        said = api.post("/runs", {**ASKED, "input": {"ticket": 8}}, idempotency_key="k")
    refused(said, 422, "idempotency_key_reused", place)


UNKNOWN = "00000000-0000-4000-8000-000000000000"
VERBS = ["", "/steps", "/pause", "/resume", "/cancel"]


def call(api: Api, run: str, verb: str) -> Any:
    return api.get(f"/runs/{run}{verb}") if verb in ("", "/steps") else api.post(f"/runs/{run}{verb}")


@pytest.mark.parametrize("verb", VERBS)
def test_unknown_run(api: Api, verb: str) -> None:
    with nothing_written():
        body = refused(call(api, UNKNOWN, verb), 404, "not_found")
    assert body["detail"] == f"there is no run {UNKNOWN}"


@pytest.mark.parametrize("verb", VERBS)
def test_foreign_run_answers_as_an_unknown_one(api: Api, foreign: Api, verb: str) -> None:
    run = str(api.submit().pk)
    unknown = refused(call(foreign, UNKNOWN, verb), 404, "not_found")
    with nothing_written():
        body = refused(call(foreign, run, verb), 404, "not_found")
    assert json.dumps(body) == json.dumps(unknown).replace(UNKNOWN, run)
    assert Run.objects.get().status == "queued"


@pytest.mark.parametrize("body", ["{", "[]", '{"why": "x"}', '{"reason": 1}', '{"reason": "a\\u0000"}'])
@pytest.mark.parametrize("verb", ["pause", "resume", "cancel"])
def test_bad_body_of_a_verb(api: Api, verb: str, body: str) -> None:
    run = api.submit()
    with nothing_written():
        said = api.post(f"/runs/{run.pk}/{verb}", body)
    code = "bad_value" if body == "{" or "u0000" in body else "bad_body"
    refused(said, 422, code, *said.json()["errors"])
    run.refresh_from_db()
    assert (run.status, run.open_holds) == ("queued", 0)


def test_reason_too_long(api: Api) -> None:
    run = api.submit()
    place = {"pointer": "/reason", "detail": "String should have at most 4000 characters"}
    with nothing_written():
        refused(api.post(f"/runs/{run.pk}/pause", {"reason": "x" * 4001}), 422, "bad_body", place)
    assert api.post(f"/runs/{run.pk}/pause", {"reason": "x" * 4000}).status_code == 200


@pytest.mark.parametrize("verb", ["pause", "resume", "cancel"])
def test_verbs_on_an_ended_run(api: Api, verb: str) -> None:
    run = api.submit()
    endings.cancel(run.pk, actor=SYSTEM)
    with nothing_written():
        body = refused(api.post(f"/runs/{run.pk}/{verb}"), 409, "run_ended")
    assert body["run_status"] == "cancelled"


@pytest.mark.parametrize(
    "path", ["/api", "/api/", "/api/v1/", "/api/v1/runs/", "/api/v1/runs/7", "/api/v2/runs"]
)
def test_unknown_address(path: str) -> None:
    refused(Client().get(path, follow=True), 404, "not_found")
    refused(Client().post("/api/v1/nothing", "{", content_type="application/json"), 404, "not_found")


def test_method_an_address_does_not_take(api: Api) -> None:
    said = api.http.delete("/api/v1/runs")
    refused(said, 405, "method_not_allowed")
    assert said["Allow"] == "GET, POST, HEAD, OPTIONS"


def test_media_type_that_is_not_json(api: Api) -> None:
    with nothing_written():
        said = api.http.post("/api/v1/runs", ASKED)  # a form
    refused(said, 415, "unsupported_media_type")


def test_answer_in_a_form_there_is_not(api: Api) -> None:
    refused(api.http.get("/api/v1/runs", headers={"accept": "text/csv"}), 406, "not_acceptable")
