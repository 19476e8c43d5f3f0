"""How rows travel: every column by name as a JSON value, but those that mean nothing elsewhere.

What comes back must have exactly the columns that are known here, each of its type.
"""

from collections.abc import Callable, Collection
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any, TypeVar
from uuid import UUID

from django.contrib.postgres.fields import ArrayField
from django.db import models

from runs import values
from runs.exceptions import BadBundle
from runs.models import Allowance, Draw, Event, FactReading, Hold, JournalEntry, Run, Snapshot, Step

M = TypeVar("M", bound=models.Model)
LONGEST = 8 * values.MAX_RESULT  # bytes of a column that holds JSON as text

#: Columns that stay: keys of this database, and what other rows of it say.
STAYS: dict[type[models.Model], frozenset[str]] = {
    Run: frozenset(
        {"again_of", "parent", "token", "lease_until", "ended_at", "stop_requested", "idempotency_key"}
    ),
    Step: frozenset({"id", "run", "compensated_by"}),
    Hold: frozenset({"run", "step", "child"}),
    FactReading: frozenset({"id", "step"}),
    Snapshot: frozenset({"id", "run"}),
    Event: frozenset({"id", "run", "step"}),
    Allowance: frozenset({"id", "seq", "head"}),
    Draw: frozenset({"id", "run", "allowance"}),
    JournalEntry: frozenset({"id"}),
}


def out(row: models.Model, **more: Any) -> dict[str, Any]:
    """A row as JSON values; `more` says what its foreign keys mean."""
    told = {field.name: _out(getattr(row, field.attname)) for field in _columns(type(row))}
    return {**told, **more}


def back(model: type[M], told: dict[str, Any], *, more: Collection[str] = (), **given: Any) -> M:
    """An unsaved row of what was told, with what is `given` here. `more` are names that are read elsewhere.

    Raises BadBundle.
    """
    columns = {field.name: field for field in _columns(model)}
    name = model._meta.verbose_name
    if set(told) != {*columns, *more}:
        odd = ", ".join(sorted(set(told) ^ {*columns, *more}))
        raise BadBundle(
            f"a {name} in the bundle has other columns than here ({odd}): another release made it"
        )
    read = {key: _back(field, told[key], f"{name}.{key}") for key, field in columns.items()}
    return model(**{**read, **given})


def _columns(model: type[models.Model]) -> list[Any]:
    return [field for field in model._meta.concrete_fields if field.name not in STAYS[model]]


def _out(value: Any) -> Any:
    if isinstance(value, bytes | memoryview):
        return bytes(value).hex()
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, UUID | Decimal) else value


def _moment(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError("no time zone")
    return found


def _decimal(text: str) -> Decimal:
    found = Decimal(text)
    if not found.is_finite():
        raise ValueError("not finite")
    return found


def _as(kind: type) -> Callable[[Any], Any]:
    def same(value: Any) -> Any:
        if type(value) is not kind and not (kind is float and type(value) is int):
            raise TypeError(f"not {kind.__name__}")
        return value

    return same


def _nothing(value: Any) -> list[Any]:
    if value != []:
        raise ValueError("a run below others does not move")
    return []


def _labels(value: Any) -> dict[str, str]:
    return {_as(str)(name): _as(str)(text) for name, text in _as(dict)(value).items()}


def _items(value: Any) -> list[dict[str, Any]]:
    return [_as(dict)(item) for item in _as(list)(value)]


def _names(value: Any) -> list[str]:
    return [_as(str)(name) for name in _as(list)(value)]


def _json(text: str) -> str:
    """Canonical JSON, as columns of text keep it."""
    if values.canonical(values.parse(text, limit=LONGEST)) != text:
        raise ValueError("not canonical JSON")
    return text


#: What columns hold that pages and rooms rely on, by the name of the row and the column.
_SHAPES: dict[str, Callable[[Any], Any]] = {
    "run.labels": _labels,
    "run.input": _json,
    "step.arguments": _json,
    "step.executed": _json,
    "step.result": _json,
    "step.evidence": _items,
    "snapshot.used": _as(list),
    "snapshot.credentials": _names,
    "snapshot.why": _as(list),
}

_READ: tuple[tuple[type[Any], Callable[[Any], Any]], ...] = (
    (models.DateTimeField, _moment),
    (models.UUIDField, UUID),
    (models.DecimalField, _decimal),
    (models.BinaryField, bytes.fromhex),
    (ArrayField, _nothing),
    (models.BooleanField, _as(bool)),
    (models.IntegerField, _as(int)),
    (models.FloatField, _as(float)),
    (models.JSONField, _as(dict)),
    (models.CharField, _as(str)),
    (models.TextField, _as(str)),
)


def _back(field: Any, value: Any, path: str) -> Any:
    if value is None and (field.null or isinstance(field, models.JSONField)):
        return None
    read = _SHAPES.get(path) or next(read for kind, read in _READ if isinstance(field, kind))
    try:
        return read(value)
    except (AttributeError, InvalidOperation, TypeError, ValueError) as error:
        raise BadBundle(f"the bundle does not fit at {path}: {error}") from None
