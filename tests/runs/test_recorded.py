"""Errors in recorded form: equal when read back, and whatever a tool raises, a record comes of it."""

import json
from typing import Any

import pytest

from runs import recorded
from runs.exceptions import Denied, Expired, NotSent, PartlyFailed, Rejected, TimedOut, ToolFailed


class Declared(Exception):
    """What a tool lists in `raises=`."""


class WithCode(Exception):
    def __init__(self, code: int, detail: str = "") -> None:
        super().__init__(code, detail)
        self.code = code
        self.detail = detail


class Rewords(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(f"code {code}")


class NeedsMore(Exception):
    def __init__(self, a: int, b: int) -> None:
        super().__init__("one word")


class Explodes(Exception):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        args[0].missing  # noqa: B018


class BrokenText(Exception):
    def __str__(self) -> str:
        raise LookupError


@pytest.mark.parametrize(
    "error",
    [
        Rejected("wrong payee", "ben"),
        Rejected("", ""),
        Expired("2026-01-01T00:00:00Z"),
        Denied("rule", "why"),
        ToolFailed("ValueError", "no"),
        TimedOut(0.5),
        NotSent("refused"),
        Declared(),
        Declared("a", 1, None, [1.5], {"x": True}),
        WithCode(5, "detail"),
    ],
)
def test_write_and_read_give_an_equal_error(error: Exception) -> None:
    declared = (Declared, WithCode)
    again = recorded.read(recorded.write(error, declared), declared)
    assert (type(again), again.args, vars(again)) == (type(error), error.args, vars(error))


@pytest.mark.parametrize(
    ("error", "args"),
    [
        (ValueError("no"), ["ValueError", "no"]),
        (Rewords(5), ["Rewords", "code 5"]),
        (NeedsMore(1, 2), ["NeedsMore", "one word"]),
        (Declared(object), ["Declared", "<class 'object'>"]),
        (Declared(float("nan")), ["Declared", "nan"]),
        (Declared("\x00"), ["Declared", "\\x00"]),
        (Declared("\ud83c"), ["Declared", "\\ud83c"]),
        (BrokenText(), ["BrokenText", "(its text could not be read: LookupError)"]),
        (SystemExit(3), ["SystemExit", "3"]),
        (KeyError("k"), ["KeyError", "'k'"]),
        (ValueError("x" * 9000), ["ValueError", "x" * 4000]),
        (PartlyFailed([]), ["PartlyFailed", "0 of 0 calls failed"]),
    ],
)
def test_write_of_what_cannot_be_rebuilt_is_a_failed_tool(error: BaseException, args: list[str]) -> None:
    declared = (Declared, Rewords, NeedsMore)
    assert json.loads(recorded.write(error, declared)) == {"type": "ToolFailed", "args": args}


def test_write_of_a_class_that_cannot_be_made_again() -> None:
    class Fine:
        missing = 1

    assert json.loads(recorded.write(Explodes(Fine()), (Explodes,)))["type"] == "ToolFailed"


def test_write_of_what_is_not_declared_in_this_type() -> None:
    class Child(Declared):
        pass

    assert json.loads(recorded.write(Child("x"), (Declared,)))["args"] == ["Child", "x"]


def test_write_keeps_notes() -> None:
    error = ValueError("no")
    error.add_note("because")
    assert json.loads(recorded.write(error, ()))["args"] == ["ValueError", "no\nbecause"]


def test_read_of_a_type_that_is_no_longer_declared() -> None:
    again = recorded.read(recorded.write(Declared("a", 1), (Declared,)), ())
    assert again == ToolFailed("tests.runs.test_recorded:Declared", "a, 1")


def test_read_of_a_type_that_can_no_longer_be_made() -> None:
    """The class changed since: the agent gets a failed tool, and the run is not stranded."""
    text = recorded.write(WithCode(5, "x"), (WithCode,))

    class Changed(Exception):
        __module__, __qualname__ = WithCode.__module__, WithCode.__qualname__

        def __init__(self) -> None:
            super().__init__()

    again = recorded.read(text, (Changed,))
    assert again == ToolFailed("tests.runs.test_recorded:WithCode", "5, x")


def test_equal_errors_are_equal() -> None:
    assert Rejected("a", "b") == Rejected("a", "b")
    assert Rejected("a", "b") != Denied("a", "b")
    assert len({Rejected("a"), Rejected("a"), Rejected("b")}) == 2
