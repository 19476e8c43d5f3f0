"""Texts and values made to take long: a page of them is drawn in a time that grows with their length alone.

Nothing is timed; what grows faster does not end before the test's own limit.
"""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from approvals.presentation import reveal, tree
from runs.models import Run
from tests.approvals import desk

LONG = 250_000
TEXTS = {
    "digits": "1" * LONG + "x",
    "signs before a digit": "-+., " * (LONG // 5) + "x",
    "a word beside another": "é " + "a" * LONG,
    "a label": "é." + "a" * LONG,
    "labels": "é " + "a." * (LONG // 2) + "1",
    "hyphens": "é " + "-" * LONG,
    "no address": "é " + ":/" * (LONG // 2),
    "at signs": "é " + "@" * LONG,
    "hidden": "\u200b" * LONG,
    "hidden between": "\u200ba" * (LONG // 2),
    "directions": "\u202e\u200b" * (LONG // 2),
    "joined emoji": "\U0001f600\u200d" * (LONG // 2),
    "selectors and a joiner": ("\ufe0f" * 200 + "\u200d") * (LONG // 201),
    "skins and a joiner": "\U0001f3fb" * (LONG // 2) + "\u200d",
    "blanks": " " * LONG + "x",
    "blank lines": " \n" * (LONG // 2) + "x",
    "tabs and returns": "\t\r" * (LONG // 2) + "x",
}
BASE: dict[str, Any] = {"account": 1, "amount": "1.00", "ratio": 1.0, "code": "c", "letter": "l", "tree": {}}
BASE |= {"many": [], "sure": True, "level": "low"}
VALUES = {
    "items": {**BASE, "many": ["a"] * 60_000},
    "names": {**BASE, "tree": {str(number): number for number in range(20_000)}},
    "hidden": {**BASE, "letter": "\u200ba" * 60_000},
    "hidden items": {**BASE, "many": ["\u200b"] * 40_000},
}
MOST = 3_000_000  # bytes of a page


@pytest.mark.property
@pytest.mark.parametrize("name", TEXTS)
def test_text_is_looked_through_in_one_pass(name: str) -> None:
    text = TEXTS[name]
    assert "".join(segment.text for segment in reveal.reveal(text)) == text
    reveal.flags(text)
    tree.build({"a": text})


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("write to аna@example.org today", ["аna@example.org"]),
        ("see http://exаmple.org/x now", ["http://exаmple.org/x"]),
        ("the host exаmple.org. is down", ["exаmple.org"]),
        ("v1.2é is out", []),
        ("naïve words", []),
        ("exаmple.org", ["exаmple.org"]),
    ],
)
def test_addresses_in_prose_are_still_found(text: str, found: list[str]) -> None:
    assert reveal._suspects(text) == found


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("12", True),
        ("-1.50", True),
        ("1e5", True),
        ("TRUE", True),
        ("1,200", True),
        ("12 a", False),
        ("a1", False),
    ],
)
def test_texts_like_numbers_are_still_told_apart(text: str, told: bool) -> None:
    assert (tree.build(text).kind == "text") is told


def every_value(node: tree.Node) -> list[Any]:
    return [node] if not node.children else [one for child in node.children for one in every_value(child)]


def test_tree_holds_all_of_a_value_too_long_for_it() -> None:
    """What is not taken apart stands as JSON, whole; what is beside it is taken apart as ever."""
    value = {"a": "x", "long": list(range(9_000)), "z": [1, 2]}
    built = tree.build(value)
    assert [child.shape for child in built.children] == ["text", "text", "list"]
    whole = "".join(segment.text for segment in built.children[1].segments)
    assert json.loads(whole) == value["long"]
    assert built.children[1].kind == "9,000 items, written as JSON"


def test_tree_never_has_many_more_nodes_than_it_may() -> None:
    value = {f"k{number}": [0] * 4_000 for number in range(20)}
    assert len(every_value(tree.build(value))) < tree.MOST_NODES + 100


def test_text_with_more_marks_than_a_page_bears_is_written_with_escapes() -> None:
    text = "a\u202eb" * 5_000
    [note, written] = reveal.drawn(text)
    assert note.alarm is True
    assert written.text == "a\\u202eb" * 5_000


@pytest.mark.django_db
@pytest.mark.parametrize("name", VALUES)
def test_pages_of_values_made_to_be_long(people: SimpleNamespace, name: str) -> None:
    request = desk.opened("approvals-filler", values=VALUES[name])
    ana, olu = Client(), Client()
    ana.force_login(people.ana)
    olu.force_login(people.olu)
    pages = [
        (ana, f"/requests/{request.ref}"),
        (ana, f"/requests/{request.ref}/edit"),
        (ana, "/"),
        (ana, f"/runs/{request.run_id}/"),
        (ana, f"/runs/{request.run_id}/?step={request.step.index}"),
        (olu, reverse("admin:runs_step_change", args=[request.step_id])),
        (olu, reverse("admin:approvals_revision_change", args=[request.revision.pk])),
        (olu, reverse("admin:runs_run_change", args=[request.run_id])),
    ]
    for browser, path in pages:
        answer = browser.get(path)
        assert answer.status_code == 200, path
        assert len(answer.content) < MOST, path


@pytest.mark.django_db
def test_run_page_shows_so_much_and_leads_to_the_rest(people: SimpleNamespace) -> None:
    """The newest steps' values first; each of the others stands alone on a page of its own, whole."""
    request = desk.opened("approvals-blind", words="y" * 100_000)
    ana = Client()
    ana.force_login(people.ana)
    page = ana.get(f"/runs/{request.run_id}/").content.decode()
    assert "y" * 1_000 not in page.partition("input-title")[0]
    assert f'href="?step={request.step.index}"' in page
    alone = ana.get(f"/runs/{request.run_id}/?step={request.step.index}").content.decode()
    assert "y" * 100_000 in alone.partition("input-title")[0]
    assert ana.get(f"/runs/{request.run_id}/?step=77").status_code == 200
    assert Run.objects.count() == 1
