"""Values in and out: strict JSON at the door, canonical JSON in the record, Pydantic in between.

Canonical text (sorted keys, no spaces, UTF-8, no NaN) is what is stored, hashed and approved, byte for
byte; digests are SHA-256 of it. Nothing is repaired: a value that cannot be kept raises `BadValue` with
the path of the culprit.
"""

import hashlib
import inspect
import json
import math
import typing
from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache
from typing import Any

import typing_extensions
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, create_model

from runs.exceptions import BadArguments, BadValue

MAX_DEPTH = 32
MAX_BODY = 1024 * 1024
MAX_ARGUMENTS = 256 * 1024
MAX_RESULT = 1024 * 1024

CONFIG = ConfigDict(
    extra="forbid",
    arbitrary_types_allowed=False,
    ser_json_bytes="base64",
    val_json_bytes="base64",
    ser_json_inf_nan="constants",
    protected_namespaces=(),
)


# -- Strict JSON ---------------------------------------------------------------


def parse(text: str | bytes, *, limit: int = MAX_BODY) -> Any:
    """The value of a JSON text. Refuses what would change on the way or break the database.

    Raises BadValue: not UTF-8, not JSON, larger than `limit` bytes, nested deeper than 32, duplicate keys,
    NaN, Infinity, numbers a float cannot keep, NUL, lone surrogates.
    """
    decoded = _decode(text, limit)
    _refuse_depth(decoded)
    try:
        value = json.loads(
            decoded, object_pairs_hook=_no_duplicates, parse_constant=_no_constant, parse_float=_exact_float
        )
    except json.JSONDecodeError as error:
        raise BadValue("", f"not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
    except ValueError as error:  # integers beyond the interpreter's limit of digits
        raise BadValue("", f"not JSON we can keep: {error}") from None
    check(value)
    return value


def _decode(text: str | bytes, limit: int) -> str:
    size = len(text) if isinstance(text, bytes) else len(text.encode("utf-8", "surrogatepass"))
    if size > limit:
        raise BadValue("", f"{size:,} bytes; at most {limit:,} are taken")
    if isinstance(text, str):
        return text
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadValue("", f"not UTF-8 at byte {error.start}") from None


def _refuse_depth(text: str) -> None:
    """Counts brackets outside strings, so that the parser never recurses into a bomb."""
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    depth, inside, escaped = 0, False, False
    for char in text:
        if inside:
            inside = escaped or char != '"'
            escaped = char == "\\" and not escaped
        elif char == '"':
            inside = True
        elif char in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise BadValue("", f"nested deeper than {MAX_DEPTH} levels")
        elif char in "]}":
            depth -= 1


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        return {twice: _Misfit("this key appears twice in one object")}
    return found


class _Misfit(str):
    """What the parser's hooks leave in a bad value's place, because only `check` knows where that is."""


def _no_constant(name: str) -> _Misfit:
    return _Misfit(f"{name} is not a JSON value")


def _exact_float(literal: str) -> float | _Misfit:
    value = float(literal)
    if not math.isfinite(value):
        return _Misfit(f"the number {literal[:40]} is too large; send it as a string")
    if Decimal(literal) != Decimal(repr(value)):
        return _Misfit(f"the number {literal[:40]} would be rounded to {value!r}; send it as a string")
    return value


def pointer(path: str, key: str | int) -> str:
    """`path` extended by one key, as a JSON pointer (RFC 6901)."""
    return f"{path}/{str(key).replace('~', '~0').replace('/', '~1')}"


def check(value: Any, path: str = "", depth: int = 0) -> None:
    """Raises BadValue at the first part of a JSON value that cannot be stored."""
    if isinstance(value, str):
        _check_text(value, path)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise BadValue(path, f"{value} is not a number that can be kept")
    elif isinstance(value, dict | list):
        _check_inside(value, path, depth)
    elif value is not None and not isinstance(value, int):
        raise BadValue(path, f"{type(value).__name__} is not a JSON value")


def _check_inside(value: dict[Any, Any] | list[Any], path: str, depth: int) -> None:
    if depth >= MAX_DEPTH:
        raise BadValue(path, f"nested deeper than {MAX_DEPTH} levels")
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(value, dict):
            if not isinstance(key, str):
                raise BadValue(path, f"the key {key!r} is not text")
            _check_text(key, path)
        check(item, pointer(path, key), depth + 1)


def _check_text(text: str, path: str) -> None:
    if isinstance(text, _Misfit):
        raise BadValue(path, str(text))
    if "\x00" in text:
        raise BadValue(path, "contains the character NUL (U+0000), which cannot be stored")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadValue(path, "contains half of a surrogate pair, which is not a character") from None


def canonical(value: Any) -> str:
    """The one text of a JSON value. Raises BadValue for what `check` refuses."""
    check(value)
    return json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))


def digest(text: str) -> str:
    """SHA-256 of a text's UTF-8 bytes, 64 hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()


# -- Pydantic in and out ----------------------------------------------------------


class Values:
    """Reads and writes values of one Python type."""

    def __init__(self, annotation: Any) -> None:
        self.annotation = annotation
        plain = isinstance(annotation, type) and issubclass(annotation, BaseModel)
        self._adapter: TypeAdapter[Any] = TypeAdapter(
            annotation, config=None if plain else _config(annotation)
        )

    def write(self, value: Any, *, limit: int = MAX_RESULT, comes_back: bool = True) -> str:
        """Canonical text of `value`, validated against the type first.

        Raises BadValue: does not fit the type, too large, or (`comes_back`) read from its text it is not equal.
        """
        try:
            fitted = self._adapter.validate_python(value)
            text = canonical(self._adapter.dump_python(fitted, mode="json", warnings="error"))
            if comes_back and not self._same(fitted, text):
                raise BadValue("", "what is read back is not equal; name its exact type in the annotation")
        except ValidationError as error:
            raise BadValue(*_first(error)) from None
        except BadValue:
            raise
        except Exception as error:  # Pydantic's serialisers raise what the type's own code raises
            raise BadValue("", f"{type(value).__name__} cannot be written: {error}") from None
        if len(text.encode()) > limit:
            raise BadValue("", f"{len(text.encode()):,} bytes; at most {limit:,} are kept")
        return text

    def _same(self, value: Any, text: str) -> bool:
        """Whether reading `text` gives an equal value; or the same text, where the type cannot compare."""
        again = self._adapter.validate_json(text)
        compares: Any = type(value).__eq__
        if compares is not object.__eq__:
            return bool(again == value)
        return canonical(self._adapter.dump_python(again, mode="json")) == text

    def read(self, text: str) -> Any:
        """The value of a canonical text. Raises BadValue when it no longer fits the type."""
        try:
            return self._adapter.validate_json(text)
        except ValidationError as error:
            raise BadValue(*_first(error)) from None

    def schema(self) -> dict[str, Any]:
        return self._adapter.json_schema()


def _config(annotation: Any) -> ConfigDict | None:
    """Pydantic refuses a config for types that carry their own (models, dataclasses, typed dicts)."""
    carries = isinstance(annotation, type) and (
        hasattr(annotation, "__pydantic_config__")
        or hasattr(annotation, "__dataclass_fields__")
        or typing_extensions.is_typeddict(annotation)
    )
    return None if carries else ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")


def _first(error: ValidationError) -> tuple[str, str]:
    path, message = problems(error)[0]
    return path, message


def problems(error: ValidationError) -> list[tuple[str, str]]:
    """Pydantic's complaints as (JSON pointer, sentence)."""
    found = []
    for item in error.errors(include_url=False, include_context=False, include_input=False):
        path = ""
        for key in item["loc"]:
            path = pointer(path, key)
        found.append((path, item["msg"]))
    return found


@lru_cache(maxsize=1024)
def of(annotation: Any) -> Values:
    """The cached reader and writer of a (hashable) type."""
    return Values(annotation)


class Signature:
    """The parameters of a function as one Pydantic model: arguments in, canonical text out, and back."""

    def __init__(self, function: Callable[..., Any], *, skip: int = 0) -> None:
        self.subject = function.__name__
        self._parameters = list(inspect.signature(function).parameters.values())[skip:]
        hints = typing.get_type_hints(function, include_extras=True)
        self.model = create_model(
            function.__name__,
            __config__=CONFIG,
            **{p.name: _field(function, p, hints) for p in self._parameters},
        )
        self.result = of(hints.get("return", Any))
        self._positional = [p.name for p in self._parameters if p.kind is not p.KEYWORD_ONLY]

    def write(self, *args: Any, **kwargs: Any) -> str:
        """Canonical text of the arguments. Raises BadArguments with the place of each that does not fit."""
        if len(args) > len(self._positional):
            raise BadArguments(
                self.subject, [("", f"takes {len(self._positional)} positional arguments, got {len(args)}")]
            )
        named = dict(zip(self._positional, args, strict=False))
        if twice := sorted(named.keys() & kwargs.keys()):
            raise BadArguments(self.subject, [(pointer("", name), "given twice") for name in twice])
        return self._text(self._validate(lambda: self.model.model_validate({**named, **kwargs})))

    def write_json(self, value: dict[str, Any]) -> str:
        """Canonical text of arguments that came as parsed JSON, types read as JSON's are."""
        text = canonical(value)
        return self._text(self._validate(lambda: self.model.model_validate_json(text)))

    def read(self, text: str) -> dict[str, Any]:
        """Arguments by name, as Python values. Raises BadArguments when they no longer fit."""
        found = self._validate(lambda: self.model.model_validate_json(text))
        return {name: getattr(found, name) for name in type(found).model_fields}

    def schema(self) -> dict[str, Any]:
        schema: dict[str, Any] = self.model.model_json_schema()
        return schema

    def _validate(self, build: Callable[[], BaseModel]) -> BaseModel:
        try:
            return build()
        except ValidationError as error:
            raise BadArguments(self.subject, problems(error)) from None

    def _text(self, model: BaseModel) -> str:
        try:
            text = canonical(model.model_dump(mode="json", warnings="error"))
        except BadValue as error:
            raise BadArguments(self.subject, [(error.path, error.message)]) from None
        except Exception as error:  # Pydantic's serialisers raise what the type's own code raises
            raise BadArguments(self.subject, [("", f"cannot be written: {error}")]) from None
        if len(text.encode()) > MAX_ARGUMENTS:
            raise BadArguments(
                self.subject, [("", f"{len(text.encode()):,} bytes; at most {MAX_ARGUMENTS:,} are taken")]
            )
        return text


def _field(function: Callable[..., Any], parameter: inspect.Parameter, hints: dict[str, Any]) -> Any:
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise TypeError(f"{function.__name__}: *{parameter.name} cannot be recorded; name every parameter")
    if parameter.name not in hints:
        raise TypeError(f"{function.__name__}: the parameter {parameter.name} needs a type")
    default = ... if parameter.default is parameter.empty else parameter.default
    return (hints[parameter.name], default)
