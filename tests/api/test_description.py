"""The OpenAPI description, the page to read it, and what nobody foresaw."""

import json
import logging
from typing import Any

import jsonschema
import pytest
import yaml
from django.core.management import call_command
from django.db import OperationalError
from django.test import Client

from runs import agents, serializers
from runs.agents import Agent, RunContext, register
from runs.api import description, problem
from tests.api.conftest import Api, nothing_written, refused


def described() -> dict[str, Any]:
    said = Client().get("/api/schema/openapi.json")
    assert said.status_code == 200
    body: dict[str, Any] = json.loads(said.content)
    return body


def test_description_validates_without_a_warning(tmp_path: Any) -> None:
    path = tmp_path / "openapi.yaml"
    call_command("spectacular", validate=True, fail_on_warn=True, file=str(path))
    assert yaml.safe_load(path.read_text())["openapi"] == "3.1.0"


def test_description_is_the_same_in_every_form() -> None:
    body = described()
    as_yaml = Client().get("/api/schema/openapi.yaml")
    asked = Client().get("/api/schema/", headers={"accept": "application/json"})
    assert yaml.safe_load(as_yaml.content) == body == json.loads(asked.content)


def test_description_names_every_address_and_refusal() -> None:
    paths = described()["paths"]
    found = {
        f"{verb.upper()} {path}": sorted(op["responses"])
        for path, ops in paths.items()
        for verb, op in ops.items()
    }
    controlled = ["200", "401", "404", "409", "413", "415", "422"]
    assert found == {
        "GET /api/v1/agents": ["200", "401", "422"],
        "GET /api/v1/runs": ["200", "401", "422"],
        "POST /api/v1/runs": ["200", "201", "401", "413", "415", "422", "429"],
        "GET /api/v1/runs/{run_id}": ["200", "401", "404", "422"],
        "GET /api/v1/runs/{run_id}/steps": ["200", "401", "404", "422"],
        "POST /api/v1/runs/{run_id}/events": sorted([*controlled, "201"]),
        "POST /api/v1/runs/{run_id}/pause": controlled,
        "POST /api/v1/runs/{run_id}/stop": controlled,
        "POST /api/v1/runs/{run_id}/resume": controlled,
        "POST /api/v1/runs/{run_id}/answers": sorted([*controlled, "403"]),
        "POST /api/v1/runs/{run_id}/accept": sorted([*controlled, "403"]),
        "POST /api/v1/runs/{run_id}/look-again": sorted([*controlled, "403"]),
        **{
            f"POST /api/v1/agents/{{agent}}/{verb}": ["200", "401", "403", "404", "413", "415", "422"]
            for verb in ("pause", "stop", "cancel", "resume")
        },
        "POST /api/v1/credentials/{name}/authorised": ["200", "401", "403", "404", "413", "415", "422"],
        "POST /api/v1/runs/{run_id}/cancel": sorted([*controlled, "202"]),
        "POST /api/v1/runs/{run_id}/steps/{index}/settle": sorted([*controlled, "403"]),
        "POST /api/v1/runs/{run_id}/compensate": sorted({*controlled, "201", "403"} - {"200"}),
    }
    problems = [
        list(answer["content"])
        for ops in paths.values()
        for op in ops.values()
        for status, answer in op["responses"].items()
        if status >= "400"
    ]
    assert {tuple(kinds) for kinds in problems} == {("application/problem+json",)}


def test_description_names_the_key() -> None:
    body = described()
    scheme = body["components"]["securitySchemes"]["key"]
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")
    assert {json.dumps(op["security"]) for ops in body["paths"].values() for op in ops.values()} == {
        '[{"key": []}]'
    }


@pytest.mark.parametrize(
    ("parameters", "model"),
    [
        (description.FILTERS, serializers.Filters),
        (description.PAGED, serializers.Paged),
        (description.WAIT, serializers.Wait),
    ],
)
def test_description_names_the_parameters_that_are_taken(
    parameters: Any, model: type[serializers.Query]
) -> None:
    assert {p.name.removesuffix(".KEY") for p in parameters} == set(model.model_fields)


def test_answers_fit_their_description(api: Api) -> None:
    schemas = described()["components"]["schemas"]
    run = api.submit()
    api.post(f"/runs/{run.pk}/pause")
    said = {
        "ShownRun": api.get(f"/runs/{run.pk}").json(),
        "RunsPage": api.get("/runs").json(),
        "StepsPage": api.get(f"/runs/{run.pk}/steps").json(),
        "AgentsList": api.get("/agents").json(),
        "Problem": api.post("/runs").json(),
    }
    for name, body in said.items():
        jsonschema.validate(
            body, {"$ref": f"#/components/schemas/{name}", "components": {"schemas": schemas}}
        )


def test_page_has_nothing_inline_and_only_our_own_files() -> None:
    said = Client().get("/api/docs/")
    text = said.content.decode()
    assert said.status_code == 200
    assert "<style" not in text
    assert " style=" not in text
    assert " onload=" not in text
    assert text.count("<script src=") == text.count("<script") == 2
    assert "http:" not in text
    assert "https:" not in text
    assert "script-src 'self'" in said["Content-Security-Policy"]
    script = Client().get("/api/docs/?script=")
    assert script["Content-Type"].startswith("application/javascript")
    assert '"/api/schema/"' in script.content.decode()


# -- What nobody foresaw ----------------------------------------------------------------------


async def _broken(run: RunContext) -> None:
    """Its schema cannot be made."""


class Broken(Agent):
    """An agent whose author's code fails while the list of agents is made."""

    @property
    def title(self) -> str:
        raise RuntimeError("secret of the author")


@pytest.fixture
def broken_agent() -> Any:
    made = register(Broken("api-test-broken", "1", _broken))
    yield made
    agents._registry.pop((made.name, made.version))


def test_surprise_is_logged_and_answered_without_its_text(
    api: Api, broken_agent: Agent, caplog: pytest.LogCaptureFixture
) -> None:
    with nothing_written(), caplog.at_level(logging.ERROR, "django.request"):
        said = api.get("/agents")
    refused(said, 500, "internal_error")
    assert b"secret" not in said.content
    assert "secret of the author" in caplog.text


def test_database_away_is_said_to_be_passing(caplog: pytest.LogCaptureFixture, rf: Any) -> None:
    request = rf.get("/api/v1/runs")
    said = problem.answer(OperationalError("connection refused to host 10.0.0.1"), {"request": request})
    assert (said.status_code, said.data["code"], said.headers["Retry-After"]) == (503, "unavailable", "2")
    assert "10.0.0.1" not in json.dumps(said.data)


def test_every_code_is_a_word_and_a_status() -> None:
    assert {status for status, _ in problem.KINDS.values()} == {
        *(400, 401, 403, 404, 405, 406, 409, 413, 415, 422, 429, 500, 503)
    }
