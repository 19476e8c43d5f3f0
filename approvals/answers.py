"""Whether an answer fits the form of its question: JSON Schema, by the `jsonschema` library."""

from typing import Any

from jsonschema import Draft202012Validator, FormatChecker

from runs import values
from runs.exceptions import BadValue


def misfits(schema: dict[str, Any], answer: Any) -> dict[str, str]:
    """What is wrong with an answer, by top-level field ('' for the whole); empty when it fits."""
    try:
        values.check(answer)
    except BadValue as error:
        return {error.path.lstrip("/").split("/")[0]: error.message}
    validator = Draft202012Validator(schema, format_checker=FormatChecker())
    return {field: said for error in validator.iter_errors(answer) for field, said in _places(error)}


def _places(error: Any) -> list[tuple[str, str]]:
    """The fields an error belongs to, each with a sentence; missing ones are told by their names."""
    if error.path:
        return [(str(error.path[0]), error.message)]
    if error.validator == "required":
        return [(name, "This is needed.") for name in error.validator_value if name not in error.instance]
    return [("", error.message)]
