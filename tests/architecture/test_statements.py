"""The table of statements is honest: none is missing, and what is said to show it is there and is collected."""

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.security.statements import STATEMENTS

pytestmark = pytest.mark.integration  # they read all of the source: too slow for the layer of each commit

ROOT = Path(__file__).resolve().parents[2]
#: Of the checklist, what the first release must meet; then the cases of people and pages.
IDS = (
    *(f"C-{number:02}" for number in (*range(1, 11), *range(14, 21), 23, 27, 28, 30, 31, *range(35, 39), 40, 41)),
    *(f"C-{number}" for number in (44, 45, *range(47, 53), *range(60, 66), 68, 69, *range(73, 77), 79, 80)),
    *(f"F{number}" for number in (14, 16, 17, 20, 23, 26, 36, 38, 41, 57, 60, 63, 66, 68, 69, 71)),
    *(f"F{number}" for number in (*range(74, 77), *range(78, 82))),
)  # fmt: skip


def test_no_statement_is_missing() -> None:
    assert sorted(STATEMENTS) == sorted(IDS)


@cache
def collected(file: str) -> frozenset[str]:
    """The tests of a file: functions of the module itself that pytest takes by their names."""
    path = ROOT / file
    if not path.exists():
        return frozenset()
    body = ast.parse(path.read_text()).body
    return frozenset(n.name for n in body if isinstance(n, ast.FunctionDef) and n.name.startswith("test_"))


@pytest.mark.parametrize("statement", IDS)
def test_statement_is_shown_by_tests_that_are_there(statement: str) -> None:
    named = STATEMENTS[statement].tests()
    assert named, f"{statement} is shown by no test"
    split = [test.split("::") for test in named]
    assert [f"{file}::{name}" for file, name in split if name not in collected(file)] == []
    assert len(set(named)) == len(named)


@pytest.mark.parametrize("statement", IDS)
def test_statement_is_in_words(statement: str) -> None:
    assert 10 <= len(STATEMENTS[statement].says) <= 125
