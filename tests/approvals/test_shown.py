"""Headlines and consequences, filled from typed arguments: lists by their count, long texts cut with theirs."""

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from approvals.presentation import shown
from runs import tools, values
from runs.tools import ToolContext, declared, tool


class Case(BaseModel):
    id: int
    name: str


@pytest.fixture(autouse=True)
def told() -> Iterator[None]:
    """Tools that are gone after the test."""
    kept = dict(declared._registry)

    @tool(effect=True, consequence="{recipients} get “{subject}” at once. {{sic}}")
    def tell_all(
        context: ToolContext,
        subject: str,
        recipients: list[str],
        extra: dict[str, int],
        urgent: bool,
        cc: str | None,
    ) -> str:
        """Tell {recipients} about {subject} ({urgent}, {cc}, {extra}).

        More words that no reviewer sees in the headline.
        """
        return ""

    @tool()
    def look_at(case: Case, kind: str = "x") -> str:
        """Look at case {case.id} of {case.name}."""
        return ""

    @tool()
    def silent(words: str) -> str:
        return ""

    yield
    declared._registry.clear()
    declared._registry.update(kept)


def arguments(**more: Any) -> str:
    given = {"subject": "spring", "recipients": ["a", "b"], "extra": {"k": 1}, "urgent": True, "cc": None}
    return values.canonical({**given, **more})


def test_headline_tells_lists_by_count_and_flags_by_name() -> None:
    assert (
        shown.headline("tell_all", arguments())
        == "Tell 2 recipients about spring (urgent, no cc, extra (1 entries))"
    )


def test_headline_tells_large_lists_exactly() -> None:
    said = shown.headline("tell_all", arguments(recipients=["x"] * 1204, urgent=False, cc="dan"))
    assert said == "Tell 1,204 recipients about spring (no urgent, dan, extra (1 entries))"


def test_headline_cuts_a_long_text_with_its_count() -> None:
    said = shown.headline("tell_all", arguments(subject="s" * 5000))
    assert (
        said == f"Tell 2 recipients about {'s' * 80}… (5,000 characters) (urgent, no cc, extra (1 entries))"
    )


def test_headline_keeps_a_text_of_just_the_length() -> None:
    assert "s" * 80 + " (" in shown.headline("tell_all", arguments(subject="s" * 80))


def test_headline_never_reads_braces_of_arguments() -> None:
    said = shown.headline("tell_all", arguments(subject="{recipients} {0} {{x}}"))
    assert said == "Tell 2 recipients about {recipients} {0} {{x}} (urgent, no cc, extra (1 entries))"


def test_headline_reaches_into_models() -> None:
    text = values.canonical({"case": {"id": 9007199254740993, "name": "Dana"}, "kind": "x"})
    assert shown.headline("look_at", text) == "Look at case 9007199254740993 of Dana"


def test_headline_without_a_sentence_is_the_tools_name() -> None:
    assert shown.headline("silent", '{"words":"x"}') == "silent"


def test_headline_of_an_unknown_tool_is_its_name_alone() -> None:
    assert shown.headline("gone", '{"evil":"Approve me"}') == "gone"
    assert shown.consequence("gone", '{"evil":"x"}') == ""
    assert shown.approve_label("gone", '{"evil":"x"}') == "Approve gone"


def test_headline_of_a_question_is_its_first_line() -> None:
    text = values.canonical({"question": "\n Which vendor?\nThe red one?", "form": {}})
    assert shown.headline("abeyance.ask", text) == "Question: Which vendor?"


def test_consequence_is_filled_and_keeps_literal_braces() -> None:
    assert shown.consequence("tell_all", arguments()) == "2 recipients get “spring” at once. {sic}"
    assert shown.consequence("silent", '{"words":"x"}') == ""


def test_approve_label_says_verb_and_object() -> None:
    assert shown.approve_label("silent", '{"words":"x"}') == "Approve: silent"
    assert (
        shown.approve_label("look_at", '{"case":{"id":1,"name":"D"},"kind":"x"}')
        == "Approve: look at case 1 of D"
    )


def test_known_is_the_version_that_was_proposed() -> None:
    made = tools.get("silent")
    assert made is not None
    assert shown.known("silent", made.version) is made
    assert shown.known("silent", "0" * 64) is None
    assert shown.known("gone", made.version) is None
