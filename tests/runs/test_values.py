"""Values: strict at the door, canonical in the record, equal in value and type when read back."""

import contextlib
import json
import math
import uuid
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any, Literal, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel
from typing_extensions import TypedDict

from runs import values
from runs.exceptions import BadArguments, BadValue

# -- Refused at the door (F30) ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "path", "words"),
    [
        ('{"a": NaN}', "/a", "NaN is not a JSON value"),
        ('{"a": [Infinity]}', "/a/0", "Infinity is not a JSON value"),
        ("-Infinity", "", "-Infinity is not a JSON value"),
        ("1e400", "", "the number 1e400 is too large; send it as a string"),
        ("-1e400", "", "the number -1e400 is too large; send it as a string"),
        ("1e-400", "", "the number 1e-400 would be rounded to 0.0; send it as a string"),
        (
            "0.12345678901234567890",
            "",
            "the number 0.12345678901234567890 would be rounded to 0.12345678901234568;",
        ),
        (
            r'{"a": {"b": ["x\u0000y"]}}',
            "/a/b/0",
            "contains the character NUL (U+0000), which cannot be stored",
        ),
        (r'{"a\u0000": 1}', "", "contains the character NUL"),
        (r'{"a": "\ud83c"}', "/a", "contains half of a surrogate pair, which is not a character"),
        (r'["\udf55\ud83c"]', "/0", "contains half of a surrogate pair"),
        ('{"a": 1, "a": 2}', "/a", "this key appears twice in one object"),
        ('{"x": {"a/b": 1, "a/b": 1}}', "/x/a~1b", "this key appears twice in one object"),
        ("[" * 33 + "]" * 33, "", "nested deeper than 32 levels"),
        ("[" * 200_000, "", "nested deeper than 32 levels"),
        ('{"a":' * 33 + "1" + "}" * 33, "", "nested deeper than 32 levels"),
        ("{", "", "not JSON: "),
        ("", "", "not JSON: "),
        ("{'a': 1}", "", "not JSON: "),
        ("[1,]", "", "not JSON: "),
        ("01", "", "not JSON: "),
        ('"' + "9" * 5 + "\t" + '"', "", "not JSON: "),
        ("9" * 5000, "", "not JSON we can keep: "),
    ],
)
def test_parse_refuses(text: str, path: str, words: str) -> None:
    with pytest.raises(BadValue) as refused:
        values.parse(text)
    assert (refused.value.path, refused.value.message[: len(words)]) == (path, words)


def test_parse_refuses_what_is_not_utf8() -> None:
    with pytest.raises(BadValue, match="not UTF-8 at byte 1"):
        values.parse(b'"\xff"')


def test_parse_refuses_what_is_too_large() -> None:
    assert values.parse('"' + "x" * 98 + '"', limit=100) == "x" * 98
    with pytest.raises(BadValue, match="101 bytes; at most 100 are taken"):
        values.parse('"' + "x" * 99 + '"', limit=100)
    with pytest.raises(BadValue, match="102 bytes"):
        values.parse('"' + "é" * 50 + '"', limit=100)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('"🍕 ‮txt"', "🍕 ‮txt"),
        (r'"🍕"', "🍕"),
        ("[" * 32 + "]" * 32, None),
        ('"' + "[{" * 100 + '"', "[{" * 100),
        (r'"\"[[[["', '"[[[['),
        ("18446744073709551616", 2**64),
        ("1.10", 1.1),
        ("-0.0", -0.0),
        ("1e3", 1000.0),
        ('{"b": 1, "a": 2}', {"a": 2, "b": 1}),
        (b"  [null, true]  ", [None, True]),
    ],
)
def test_parse_takes(text: str | bytes, value: Any) -> None:
    parsed = values.parse(text)
    assert value is None or (parsed == value and type(parsed) is type(value))


# -- Canonical text ----------------------------------------------------------------------------


def test_canonical_is_sorted_compact_and_utf8() -> None:
    assert (
        values.canonical({"b": [1, 2.5, None], "a": "é🍕", "B": True})
        == '{"B":true,"a":"é🍕","b":[1,2.5,null]}'
    )


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"a": [float("nan")]}, "/a/0"),
        ({"a": {"b": float("inf")}}, "/a/b"),
        (["\x00"], "/0"),
        ({"x/y": "\ud800"}, "/x~1y"),
        ({1: 2}, ""),
        ({"a": Decimal(1)}, "/a"),
        ({"a": (1, 2)}, "/a"),
        ([b"bytes"], "/0"),
    ],
)
def test_canonical_refuses_with_the_path(value: Any, path: str) -> None:
    with pytest.raises(BadValue) as refused:
        values.canonical(value)
    assert refused.value.path == path


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


def test_canonical_nests_as_deep_as_parse_and_no_deeper() -> None:
    assert values.parse(values.canonical(nested(32))) == nested(32)
    with pytest.raises(BadValue):
        values.canonical(nested(33))


_text = st.text(st.characters(exclude_characters="\x00", exclude_categories=("Cs",)))
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _text,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(_text, inner, max_size=5),
    max_leaves=25,
)


@given(_json)
@settings(max_examples=200, deadline=None)
def test_parse_of_canonical_is_the_value(value: Any) -> None:
    text = values.canonical(value)
    again = values.parse(text)
    assert same(again, value)
    assert values.canonical(again) == text


def same(a: Any, b: Any) -> bool:
    """Equal in value and type, minus zero included."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float):
        return a == b and math.copysign(1, a) == math.copysign(1, b)
    return bool(a == b)


@given(st.dictionaries(_text, _json, max_size=6), st.randoms())
@settings(max_examples=100, deadline=None)
def test_digest_is_the_same_in_any_order_of_keys(value: dict[str, Any], random: Any) -> None:
    shuffled = list(value.items())
    random.shuffle(shuffled)
    assert values.digest(values.canonical(dict(shuffled))) == values.digest(values.canonical(value))


@given(_json, _json)
@settings(max_examples=100, deadline=None)
def test_digest_is_another_for_another_value(a: Any, b: Any) -> None:
    digests = values.digest(values.canonical(a)), values.digest(values.canonical(b))
    assert (digests[0] == digests[1]) == (values.canonical(a) == values.canonical(b))


@given(st.text(max_size=200))
@settings(max_examples=200, deadline=None)
def test_parse_never_breaks(text: str) -> None:
    with contextlib.suppress(BadValue):
        values.canonical(values.parse(text))


# -- Every type (F28) ----------------------------------------------------------------------------


class Colour(Enum):
    RED = "red"


class Size(IntEnum):
    SMALL = 1


class Point(NamedTuple):
    x: int
    y: Decimal


class Terms(TypedDict):
    days: int
    rate: Decimal


@dataclass
class Line:
    sku: str
    price: Decimal
    when: datetime


class Inner(BaseModel):
    id: uuid.UUID
    colours: list[Colour]
    at: datetime | None = None


class Outer(BaseModel):
    inner: Inner
    lines: list[Line]
    by_name: dict[str, Decimal]


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    barks: bool


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int


AT = datetime(2026, 3, 7, 13, 0, 5, 123456, tzinfo=timezone(timedelta(hours=2)))
ID = uuid.UUID("12345678-1234-5678-1234-567812345678")

ROUND_TRIPS: list[tuple[Any, Any, str | None]] = [
    (datetime, AT, '"2026-03-07T13:00:05.123456+02:00"'),
    (datetime, datetime(2026, 1, 1, 12), '"2026-01-01T12:00:00"'),
    (date, date(2026, 3, 7), '"2026-03-07"'),
    (time, time(23, 59, 59, 5), None),
    (timedelta, timedelta(days=1, microseconds=5), None),
    (Decimal, Decimal("1.10"), '"1.10"'),
    (Decimal, Decimal("1E+30"), None),
    (Decimal, Decimal("-0.00"), '"-0.00"'),
    (uuid.UUID, ID, f'"{ID}"'),
    (bytes, b"\x00\xff\xfe", '"AP_-"'),
    (bytes, b"", '""'),
    (set[int], {3, 1, 2}, None),
    (frozenset[str], frozenset({"a"}), '["a"]'),
    (tuple[int, str], (1, "a"), '[1,"a"]'),
    (tuple[Decimal, ...], (Decimal("1.0"), Decimal("2.00")), '["1.0","2.00"]'),
    (Colour, Colour.RED, '"red"'),
    (Size, Size.SMALL, "1"),
    (int, 2**63 + 1, "9223372036854775809"),
    (int, -(10**50), None),
    (float, 0.1, "0.1"),
    (float, 1.0, "1.0"),
    (bool, True, "true"),
    (str, "é🍕‮", None),
    (None, None, "null"),
    (int | None, None, "null"),
    (list[Decimal], [Decimal("1.10")], '["1.10"]'),
    (dict[str, list[date]], {"a": [date(2026, 1, 1)]}, None),
    (dict[int, str], {1: "a"}, '{"1":"a"}'),
    (Point, Point(1, Decimal("1.10")), None),
    (Terms, {"days": 1, "rate": Decimal("1.10")}, None),
    (Line, Line("a", Decimal("1.10"), AT), None),
    (Inner, Inner(id=ID, colours=[Colour.RED], at=AT), None),
    (
        Outer,
        Outer(
            inner=Inner(id=ID, colours=[]),
            lines=[Line("a", Decimal("1.10"), AT)],
            by_name={"x": Decimal("2.00")},
        ),
        None,
    ),
    (Dog | Cat, Cat(lives=9), '{"kind":"cat","lives":9}'),
    (list[Dog | Cat], [Dog(barks=True), Cat(lives=9)], None),
    (Any, {"a": [1, None, "x"]}, '{"a":[1,null,"x"]}'),
    (dict, {"a": 1}, '{"a":1}'),
]


@pytest.mark.parametrize(("annotation", "value", "text"), ROUND_TRIPS, ids=lambda v: str(v)[:40])
def test_write_and_read_give_an_equal_value_of_the_same_type(
    annotation: Any, value: Any, text: str | None
) -> None:
    written = values.of(annotation).write(value)
    again = values.of(annotation).read(written)
    assert (again, type(again)) == (value, type(value))
    assert text is None or written == text
    assert values.canonical(values.parse(written)) == written


def test_read_keeps_the_digits_of_a_decimal() -> None:
    again = values.of(Outer).read(values.of(Outer).write(ROUND_TRIPS[-5][1]))
    assert str(again.by_name["x"]) == "2.00"
    assert str(again.lines[0].price) == "1.10"


@given(
    st.decimals(allow_nan=False, allow_infinity=False),
    st.datetimes(timezones=st.timezones()),
    st.binary(max_size=50),
)
@settings(max_examples=100, deadline=None)
def test_write_and_read_of_any_decimal_moment_and_bytes(number: Decimal, at: datetime, raw: bytes) -> None:
    assert str(values.of(Decimal).read(values.of(Decimal).write(number))) == str(number)
    assert values.of(bytes).read(values.of(bytes).write(raw)) == raw
    try:
        written = values.of(datetime).write(at)
    except BadValue:  # an offset with seconds, from before there were time zones
        return
    assert values.of(datetime).read(written) == at


@pytest.mark.parametrize(
    ("annotation", "value", "path"),
    [
        (int, "three", ""),
        (int, 1.5, ""),
        (list[int], [1, "x"], "/1"),
        (float, float("nan"), ""),
        (list[float], [1.0, float("inf")], "/1"),
        (Decimal, Decimal("NaN"), ""),
        (str, "\x00", ""),
        (dict[str, str], {"a": "\ud83c"}, "/a"),
        (Inner, {"id": "x", "colours": []}, "/id"),
        (Any, object(), ""),
        (Any, {"a": {1, 2}, "b": lambda: 0}, ""),
        (Any, {"amount": Decimal("1.10")}, ""),
        (dict, {"when": AT}, ""),
        (list, [(1, 2)], ""),
    ],
)
def test_write_refuses_with_the_path(annotation: Any, value: Any, path: str) -> None:
    with pytest.raises(BadValue) as refused:
        values.of(annotation).write(value)
    assert refused.value.path == path


def test_write_refuses_what_is_too_large() -> None:
    with pytest.raises(BadValue, match="1,048,579 bytes; at most 1,048,576 are kept"):
        values.of(str).write("x" * (1024 * 1024 + 1))


def test_write_refuses_what_nests_too_deep() -> None:
    with pytest.raises(BadValue):
        values.of(Any).write(nested(33))


def test_write_refuses_what_contains_itself() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(BadValue):
        values.of(Any).write(loop)


def test_write_refuses_an_integer_nobody_can_print() -> None:
    with pytest.raises(BadValue):
        values.of(int).write(10**5000)


def test_read_of_what_no_longer_fits() -> None:
    with pytest.raises(BadValue) as refused:
        values.of(Inner).read('{"id":"x","colours":[]}')
    assert refused.value.path == "/id"


# -- Signatures ----------------------------------------------------------------------------------


def order(sku: str, amount: Decimal = Decimal("1.00"), *, tags: list[str] | None = None) -> str:
    return sku


signature = values.Signature(order)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("a",), '{"amount":"1.00","sku":"a","tags":null}'),
        (("a", Decimal("1.10")), '{"amount":"1.10","sku":"a","tags":null}'),
    ],
)
def test_signature_writes(arguments: tuple[Any, ...], text: str) -> None:
    assert signature.write(*arguments) == text


def test_signature_writes_the_same_however_it_is_called() -> None:
    assert signature.write("a", Decimal(2)) == signature.write(amount=Decimal(2), sku="a")
    assert signature.write_json({"sku": "a", "amount": "2"}) == signature.write("a", Decimal(2))


@pytest.mark.parametrize(
    ("args", "kwargs", "errors"),
    [
        ((), {}, [("/sku", "Field required")]),
        (("a", 1, ["x"]), {}, [("", "takes 2 positional arguments, got 3")]),
        (("a",), {"sku": "b"}, [("/sku", "given twice")]),
        (("a",), {"colour": 1}, [("/colour", "Extra inputs are not permitted")]),
        (
            ("a",),
            {"tags": ["\x00"]},
            [("/tags/0", "contains the character NUL (U+0000), which cannot be stored")],
        ),
        (("x" * 300_000,), {}, [("", "300,038 bytes; at most 262,144 are taken")]),
    ],
)
def test_signature_refuses(
    args: tuple[Any, ...], kwargs: dict[str, Any], errors: list[tuple[str, str]]
) -> None:
    with pytest.raises(BadArguments) as refused:
        signature.write(*args, **kwargs)
    assert refused.value.errors == errors


def test_signature_names_every_argument_that_does_not_fit() -> None:
    with pytest.raises(BadArguments) as refused:
        signature.write(5, "x")
    assert [path for path, _ in refused.value.errors] == ["/sku", "/amount"]


def test_signature_refuses_an_integer_nobody_can_print() -> None:
    def count(n: int) -> None: ...

    with pytest.raises(BadArguments):
        values.Signature(count).write(10**5000)


def test_signature_reads_back() -> None:
    assert signature.read(signature.write("a", Decimal("1.10"))) == {
        "sku": "a",
        "amount": Decimal("1.10"),
        "tags": None,
    }


def test_signature_refuses_functions_that_cannot_be_recorded() -> None:
    def any_number(*parts: int) -> None: ...

    def anything(**parts: int) -> None: ...

    def untyped(part) -> None: ...  # type: ignore[no-untyped-def]

    for function, words in (
        (any_number, r"\*parts cannot be recorded"),
        (anything, r"\*parts cannot be recorded"),
        (untyped, "the parameter part needs a type"),
    ):
        with pytest.raises(TypeError, match=words):
            values.Signature(function)


@pytest.mark.parametrize(
    ("path", "key", "pointer"), [("", "a", "/a"), ("/a", 0, "/a/0"), ("", "a/b~c", "/a~1b~0c"), ("", "", "/")]
)
def test_pointer(path: str, key: str | int, pointer: str) -> None:
    assert values.pointer(path, key) == pointer


def test_schema_is_json() -> None:
    assert json.loads(json.dumps(signature.schema()))["required"] == ["sku"]
