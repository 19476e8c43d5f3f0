"""Forms from schemas: what was not touched keeps its value, type and all, and what is typed is read one way only."""

import json
from decimal import Decimal
from enum import Enum
from typing import Any

import pytest
from django.utils import translation
from hypothesis import given, settings
from hypothesis import strategies as some
from pydantic import BaseModel, Field

from approvals.forms import SchemaForm
from runs import values
from tests.approvals import desk

KEPT: dict[str, Any] = {
    "account": 9007199254740993,
    "amount": "1234.50",
    "ratio": 0.1,
    "code": "00123",
    "letter": "Dear all,\r\n\r\nsecond line\n",
    "tree": {"big": 2**70, "far": 1e21, "low": -0.0, "none": None, "deep": [{"ä": "☃\u202e"}], "text": "1,5"},
    "many": ["a", "", " b "],
    "sure": False,
    "level": "high",
    "spare": None,
    "memo": None,
    "tag": "",
    "count": None,
}


def form_of(kept: dict[str, Any], **typed: str) -> SchemaForm:
    """The form as a browser sends it back: each field as it was shown, but for what was typed."""
    schema = desk.fill_in.signature.schema()
    shown = SchemaForm(schema, initial=kept)
    sent = {f"f-{name}": as_browsers_send(field.initial) for name, field in shown.fields.items()}
    sent |= {f"f-{name}": text for name, text in typed.items()}
    return SchemaForm(schema, initial=kept, data=sent)


def as_browsers_send(text: str) -> str:
    """Line ends become CR LF."""
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\n", "\r\n")


def value(form: SchemaForm) -> dict[str, Any]:
    assert form.is_valid(), form.errors
    return form.value()


def same(one: Any, other: Any) -> bool:
    """Equal to the byte: 1, 1.0 and true are three values, and so are 0.0 and -0.0."""
    return values.canonical(one) == values.canonical(other)


# -- Untouched ------------------------------------------------------------------------


@pytest.mark.parametrize("language", ["en", "de", "fr"])
def test_untouched_form_gives_the_same_arguments(language: str) -> None:
    """F26."""
    with translation.override(language):
        found = value(form_of(KEPT))
    assert same(found, KEPT)
    assert desk.fill_in.signature.write_json(found) == desk.fill_in.signature.write_json(KEPT)


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("amount", "1E+21"),
        ("amount", "-0"),
        ("amount", "0.10"),
        ("ratio", 1e21),
        ("ratio", -0.0),
        ("ratio", 5e-324),
        ("account", -(10**30)),
        ("code", ""),
        ("code", " padded "),
        ("code", "\n"),
        ("code", "\n\ntwo before"),
        ("code", "a\rb"),
        ("code", "a\r\nb\nc"),
        ("code", "tab\tand \u2028 and \x0b"),
        ("code", "null"),
        ("code", '"quoted"'),
        ("memo", ""),
        ("memo", "x"),
        ("spare", "low"),
        ("count", 0),
        ("tree", {}),
        ("many", []),
        ("sure", True),
    ],
)
def test_untouched_field_keeps_its_value(name: str, kept: Any) -> None:
    found = value(form_of({**KEPT, name: kept}))
    assert same(found[name], kept)


def test_untouched_field_that_was_left_out_stays_out() -> None:
    kept = {name: v for name, v in KEPT.items() if name not in ("spare", "memo", "tag", "count")}
    assert same(value(form_of(kept)), kept)


ANY = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats(allow_nan=False, allow_infinity=False)
    | some.text(some.characters(exclude_characters="\x00", exclude_categories=["Cs"])),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.text(max_size=5).filter(str.isalnum), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


@given(
    tree=some.dictionaries(some.sampled_from("abc"), ANY),
    code=some.text(some.characters(exclude_characters="\x00", exclude_categories=["Cs"])),
)
@settings(max_examples=60, deadline=None)
def test_untouched_fields_keep_any_value(tree: dict[str, Any], code: str) -> None:
    found = value(form_of({**KEPT, "tree": tree, "code": code, "letter": code}))
    assert same([found["tree"], found["code"], found["letter"]], [tree, code, code])


def test_field_of_several_lines_is_a_textarea() -> None:
    """An input of one line would drop the line ends, the lone CR too."""
    for text in ("a\nb", "a\rb", "x" * 100):
        widget = SchemaForm(desk.fill_in.signature.schema(), initial={"code": text}).fields["code"].widget
        assert type(widget).__name__ == "Textarea"


# -- Typed ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "typed", "expected"),
    [
        ("account", "12", 12),
        ("account", " -7 ", -7),
        ("account", "9007199254740995", 9007199254740995),
        ("amount", "1234.50", "1234.50"),
        ("amount", "1000", "1000"),
        ("ratio", "0.25", 0.25),
        ("ratio", "-3", -3),
        ("code", "00124", "00124"),
        ("code", " x ", " x "),
        ("code", "a\r\nb", "a\nb"),
        ("letter", "one\r\ntwo", "one\r\ntwo"),
        ("tree", '{"a": 1}', {"a": 1}),
        ("many", '["x"]', ["x"]),
        ("sure", "true", True),
        ("level", "low", "low"),
        ("spare", "low", "low"),
        ("count", "5", 5),
        ("memo", "m", "m"),
    ],
)
def test_typed_value_is_read(name: str, typed: str, expected: Any) -> None:
    found = value(form_of(KEPT, **{name: typed}))
    assert same(found, {**KEPT, name: expected})


@pytest.mark.parametrize(
    ("name", "typed"),
    [
        ("amount", "1.234,50"),
        ("amount", "1,234.50"),
        ("amount", "1234,50"),
        ("amount", "1 234.50"),
        ("amount", "1.234.50"),
        ("amount", "١٢٣"),
        ("amount", "１２"),
        ("amount", ""),
        ("amount", "NaN"),
        ("amount", "Infinity"),
        ("amount", "1e99999"),
        ("account", "1.0"),
        ("account", "1e3"),
        ("account", "１２"),
        ("account", "0x10"),
        ("account", "1_000"),
        ("account", ""),
        ("ratio", "1.234,50"),
        ("ratio", "0,5"),
        ("ratio", "true"),
        ("ratio", "1e400"),
        ("ratio", "0.1000000000000000055511151231257827"),
        ("tree", '{"a": 1, "a": 2}'),
        ("tree", "{a: 1}"),
        ("tree", '{"a": "\\u0000"}'),
        ("many", ""),
        ("sure", "maybe"),
        ("level", "HIGH"),
        ("code", "a\x00b"),
    ],
)
def test_typed_value_that_cannot_be_meant_is_refused_at_its_field(name: str, typed: str) -> None:
    form = form_of(KEPT, **{name: typed})
    assert not form.is_valid()
    assert list(form.errors) == [name]


@pytest.mark.parametrize("name", ["amount", "ratio"])
def test_number_with_a_comma_says_what_would_be_right(name: str) -> None:
    form = form_of(KEPT, **{name: "1.234,50"})
    assert form.errors[name] == [
        "“1.234,50” is not a number such as 1234.50, with a point and without spaces."
    ]


@pytest.mark.parametrize(("name", "kept"), [("memo", "x"), ("spare", "low"), ("count", 3)])
def test_emptied_optional_field_is_none(name: str, kept: Any) -> None:
    assert value(form_of({**KEPT, name: kept}, **{name: ""}))[name] is None


def test_emptied_text_is_empty_text() -> None:
    assert value(form_of(KEPT, code=""))["code"] == ""


def test_leading_line_that_was_removed_is_an_edit() -> None:
    assert value(form_of({**KEPT, "letter": "\n\nhello"}, letter="hello"))["letter"] == "hello"


def test_bound_form_shows_what_was_typed() -> None:
    form = form_of(KEPT, amount="1.234,50", code="<b>")
    assert (form["amount"].value(), form["code"].value()) == ("1.234,50", "<b>")
    assert "&lt;b&gt;" in str(form["code"])


# -- Shapes -----------------------------------------------------------------------------


class Colour(Enum):
    RED = 1
    BLUE = 2


class Shapes(BaseModel):
    colour: Colour = Field(description="Which")
    kind: desk.Level
    maybe: desk.Level | None = None
    price: Decimal | None = None
    both: int | str = 3


def test_choices_of_any_type_are_choices() -> None:
    form = SchemaForm(
        Shapes.model_json_schema(),
        data={"f-colour": "2", "f-kind": "low", "f-maybe": "", "f-price": "", "f-both": "3"},
    )
    kinds = {name: type(field).__name__ for name, field in form.fields.items()}
    assert kinds == {
        "colour": "ChoiceField",
        "kind": "ChoiceField",
        "maybe": "ChoiceField",
        "price": "CharField",
        "both": "CharField",
    }
    assert same(value(form), {"colour": 2, "kind": "low", "both": 3})
    assert Shapes.model_validate(form.value()).colour is Colour.BLUE


def test_required_fields_stand_first_and_say_that_they_are_wanted() -> None:
    form = SchemaForm(Shapes.model_json_schema())
    assert list(form.fields) == ["colour", "kind", "maybe", "price", "both"]
    assert [name for name, field in form.fields.items() if field.wanted] == ["colour", "kind"]


def test_required_field_left_empty_is_refused() -> None:
    form = SchemaForm(desk.Answer.model_json_schema(), data={"f-vendor": "", "f-number": "", "f-note": ""})
    assert not form.is_valid()
    assert sorted(form.errors) == ["number", "vendor"]


def test_refuse_puts_errors_at_their_fields_and_others_on_top() -> None:
    form = SchemaForm(
        desk.Answer.model_json_schema(), data={"f-vendor": "low", "f-number": "1", "f-note": ""}
    )
    assert form.is_valid()
    form.refuse({"number": "too small", "": "policy says no", "stranger": "is not known"})
    told = json.loads(form.errors.as_json())
    assert {name: [each["message"] for each in found] for name, found in told.items()} == {
        "number": ["too small"],
        "__all__": ["policy says no", "stranger: is not known"],
    }
