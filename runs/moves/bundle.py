"""The format of a bundle: one JSON object with a schema number, and the digest of what it holds.

The digest finds what was changed or cut on the way; whoever changes a bundle on purpose can make it anew, so a
bundle is to be trusted as far as where it comes from.
"""

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from runs import values
from runs.exceptions import BadBundle, BadValue

FORMAT = "abeyance-run"
SCHEMA = 1
MAX_BYTES = 256 * 1024 * 1024

Row = dict[str, Any]


class Body(BaseModel):
    """A run with all that belongs to it, as rows of columns. `shared` names the allowances it draws on with others
    (name, unit); `parts` is what other apps brought."""

    model_config = ConfigDict(extra="forbid", strict=True)

    run: Row
    steps: list[Row]
    holds: list[Row]
    readings: list[Row]
    snapshots: list[Row]
    events: list[Row]
    allowances: list[Row]
    shared: list[tuple[str, str]]
    draws: list[Row]
    journal: list[Row]
    parts: dict[str, Row]


def write(body: Body) -> str:
    """The bundle's text."""
    told = body.model_dump(mode="json")
    digest = values.digest(values.canonical(told))
    return values.canonical({"format": FORMAT, "schema": SCHEMA, "digest": digest, "body": told}) + "\n"


def read(text: str | bytes) -> Body:
    """Raises BadBundle: no bundle, a newer one, or not as it was written."""
    try:
        told = values.parse(text, limit=MAX_BYTES)
    except BadValue as error:
        raise BadBundle(f"this is no bundle of a run: {error}") from None
    if not isinstance(told, dict) or told.get("format") != FORMAT or type(told.get("schema")) is not int:
        raise BadBundle("this is no bundle of a run")
    if told["schema"] < 1:
        raise BadBundle(f"there is no schema {told['schema']}")
    if told["schema"] > SCHEMA:
        raise BadBundle(
            f"the bundle has schema {told['schema']}, and this installation knows {SCHEMA} at most: it was"
            " made by a newer release"
        )
    if values.digest(values.canonical(told.get("body"))) != told.get("digest"):
        raise BadBundle("the bundle is not as it was written: its digest differs")
    try:
        return Body.model_validate_json(values.canonical(told["body"]))
    except ValidationError as error:
        path, message = values.problems(error)[0]
        raise BadBundle(f"the bundle does not fit at {path}: {message}") from None
