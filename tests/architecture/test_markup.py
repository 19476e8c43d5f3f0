"""Agents' text never becomes markup: templates escape, and code makes markup of constants only. What the templates
themselves may contain is held in `tests/approvals/test_templates.py`."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration  # they read all of the source: too slow for the layer of each commit

ROOT = Path(__file__).resolve().parents[2]
CODE = sorted(p for room in ("runs", "approvals", "config", "examples") for p in (ROOT / room).rglob("*.py"))
#: What tells a template that a text is markup already.
SAFE = {
    "mark_safe",
    "SafeString",
    "SafeText",
    "SafeData",
    "html_safe",
    "__html__",
    "is_safe",
    "allow_tags",
    "needs_autoescape",
    "autoescape",
}
FORMATS = {"format_html", "format_html_join"}


def names(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.keyword | ast.alias):
            yield (node.arg if isinstance(node, ast.keyword) else node.name) or ""


def made_of_more(module: ast.Module) -> list[int]:
    """Lines where markup is put together from something that is no constant."""
    calls = [node for node in ast.walk(module) if isinstance(node, ast.Call)]
    return [
        call.lineno
        for call in calls
        if getattr(call.func, "id", getattr(call.func, "attr", "")) in FORMATS
        and not (call.args and isinstance(call.args[0], ast.Constant))
    ]


@pytest.mark.parametrize("path", CODE, ids=lambda path: str(path.relative_to(ROOT)))
def test_code_marks_nothing_safe(path: Path) -> None:
    module = ast.parse(path.read_text())
    assert SAFE & set(names(module)) == set()
    assert made_of_more(module) == []


@pytest.mark.parametrize(
    ("source", "safe", "lines"),
    [
        ("from django.utils.safestring import mark_safe\nmark_safe(text)", {"mark_safe"}, []),
        ("register.filter(is_safe=True)", {"is_safe"}, []),
        ("class A:\n    def __html__(self): ...", {"__html__"}, []),
        ("html.format_html('<b>' + text)", set(), [1]),
        ("x = 1\nformat_html(f'<b>{text}')", set(), [2]),
        ("format_html('<b>{}</b>', text)", set(), []),
    ],
)
def test_markup_of_code_is_made_of_constants(source: str, safe: set[str], lines: list[int]) -> None:
    """The rule itself: what it finds and what it lets pass."""
    module = ast.parse(source)
    assert (SAFE & set(names(module)), made_of_more(module)) == (safe, lines)
