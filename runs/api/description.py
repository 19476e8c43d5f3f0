"""The OpenAPI 3.1 description: what Pydantic models look like in it, and what every operation may refuse.

Schemas of what comes in are made for reading, those of what goes out for writing: a default makes a key
optional only on the way in.
"""

from typing import Any

from drf_spectacular.contrib.pydantic import PydanticExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import ResolvedComponent
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import Direction, OpenApiParameter, OpenApiResponse
from pydantic.json_schema import model_json_schema

from runs.api import problem
from runs.serializers import MAX_WAIT, Problem
from runs.states import RunStatus

_WHY = {
    401: "No key, or one that is unknown, expired or revoked.",
    404: "There is no such run, or it is not yours; the answer is the same.",
    409: "It does not apply as the run stands; `code` says why, `run_status` how it stands.",
    413: "The body is larger than 1 MiB, or the input larger than 256 KiB.",
    415: "The body is not application/json.",
    422: "Something is malformed, unknown or does not fit; `errors` names each place.",
    429: "Too many runs started; `Retry-After` says when to try again.",
}


class Models(PydanticExtension):  # type: ignore[no-untyped-call]
    """Pydantic models, in the mode that fits the direction."""

    priority = 1

    def map_serializer(self, auto_schema: AutoSchema, direction: Direction) -> dict[str, Any]:
        schema = model_json_schema(
            self.target,
            ref_template="#/components/schemas/{model}",
            mode="validation" if direction == "request" else "serialization",
        )
        for name, part in schema.pop("$defs", {}).items():
            kind = ResolvedComponent.SCHEMA
            auto_schema.registry.register_on_missing(
                ResolvedComponent(name=name, type=kind, object=name, schema=part)
            )
        return schema


def answers(*refusals: int, **shown: Any) -> dict[Any, Any]:
    """An operation's responses: `s200=Model` for what it gives, statuses for what it refuses."""
    found: dict[Any, Any] = {int(name.removeprefix("s")): model for name, model in shown.items()}
    for status in (401, *refusals):
        found[status, problem.MEDIA_TYPE] = OpenApiResponse(Problem, description=_WHY[status])
    return found


def header(name: str, description: str, *, response: tuple[int, ...] = ()) -> OpenApiParameter:
    return OpenApiParameter(
        name, OpenApiTypes.STR, OpenApiParameter.HEADER, description=description, response=list(response) or False
    )


def _query(name: str, kind: Any, description: str, **more: Any) -> OpenApiParameter:
    return OpenApiParameter(name, kind, OpenApiParameter.QUERY, description=description, **more)


PAGED = [
    _query("limit", {"type": "integer", "minimum": 1, "maximum": 100, "default": 50}, "How many a page."),
    _query("cursor", OpenApiTypes.STR, "From a page's `next`."),
]
FILTERS = [
    _query("status", OpenApiTypes.STR, "May be given several times.", many=True, enum=list(RunStatus.values)),
    _query("agent", OpenApiTypes.STR, "The agent's name."),
    _query("label.KEY", OpenApiTypes.STR, "Runs whose label KEY has this value; KEY is yours, several may be given."),
    _query("created_after", OpenApiTypes.DATETIME, "This moment or later, with its offset from UTC."),
    _query("created_before", OpenApiTypes.DATETIME, "Earlier than this moment, with its offset from UTC."),
    *PAGED,
]
WAIT = [
    _query(
        "wait",
        {"type": "number", "minimum": 0, "maximum": MAX_WAIT, "default": 0},
        "Seconds to wait for the run to move. A run that has ended is answered at once; so is everybody when too"
        " many wait already, with `Retry-After`.",
    ),
    _query(
        "since",
        {"type": "string", "pattern": "^[0-9]{1,18}$"},
        "The `version` you know: the answer comes when the run's is another one, at once if it is already.",
    ),
]
IDEMPOTENCY_KEY = header(
    "Idempotency-Key",
    "1 to 200 visible ASCII characters, unique among your key's. The same key and body again give the first run"
    " (200); with another body they are refused (422). A refused request keeps nothing.",
)
CREATED = [
    header("Location", "Address of the run.", response=(201, 200)),
    header("Idempotent-Replayed", "`true` on an answer that was given before.", response=(200,)),
]
RETRY_AFTER = header("Retry-After", "Seconds; sent when there was no place to wait.", response=(200,))
