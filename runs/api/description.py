"""What the OpenAPI 3.1 description cannot read from the views: parameters, headers, and every refusal.

The schemas of bodies are the Pydantic models' own. What a parameter may be is checked in `serializers`; the
tests hold both together.
"""

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse

from runs.api import problem
from runs.serializers import MAX_WAIT, Problem
from runs.states import RunStatus

_WHY = {
    401: "No key, or one that is unknown, expired or revoked.",
    403: "The key's owner is no operator.",
    404: "There is no such run, or it is not yours; the answer is the same.",
    409: "It does not apply as the run stands; `code` says why, `run_status` how it stands.",
    413: "The body is larger than 1 MiB, or the input larger than 256 KiB.",
    415: "The body is not application/json.",
    422: "Something is malformed, unknown or does not fit; `errors` names each place.",
    429: "Too many runs started; `Retry-After` says when to try again.",
}


def answers(*refusals: int, **shown: Any) -> dict[Any, Any]:
    """An operation's responses: `s200=Model` for what it gives, statuses for what it refuses."""
    found: dict[Any, Any] = {int(name.removeprefix("s")): model for name, model in shown.items()}
    for status in (401, *refusals):
        found[status, problem.MEDIA_TYPE] = OpenApiResponse(Problem, description=_WHY[status])
    return found


def header(name: str, description: str, *, response: tuple[int, ...] = ()) -> OpenApiParameter:
    return OpenApiParameter(
        name,
        OpenApiTypes.STR,
        OpenApiParameter.HEADER,
        description=description,
        response=list(response) or False,
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
    _query("label.KEY", OpenApiTypes.STR, "Runs whose label KEY has this value; KEY is yours."),
    _query("created_after", OpenApiTypes.DATETIME, "This moment or later, with its offset from UTC."),
    _query("created_before", OpenApiTypes.DATETIME, "Earlier than this moment, with its offset from UTC."),
    *PAGED,
]
WAIT = [
    _query(
        "wait",
        {"type": "number", "minimum": 0, "maximum": MAX_WAIT, "default": 0},
        "Seconds to wait for the run to move. A run that has ended is answered at once; so is"
        " everybody when too many wait already, with `Retry-After`.",
    ),
    _query(
        "since",
        {"type": "string", "pattern": "^[0-9]{1,18}$"},
        "The `version` you know: the answer comes when the run's is another one, at once if it is already.",
    ),
]
IDEMPOTENCY_KEY = header(
    "Idempotency-Key",
    "1 to 200 visible ASCII characters, unique among your key's. The same key and body again give the first"
    " run (200); with another body they are refused (422). A refused request keeps nothing.",
)
REPLAYED = header("Idempotent-Replayed", "`true` on an answer that was given before.", response=(200,))
CREATED = [header("Location", "Address of the run.", response=(201, 200)), REPLAYED]
RETRY_AFTER = header("Retry-After", "Seconds; sent when there was no place to wait.", response=(200,))
