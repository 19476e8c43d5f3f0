"""The inventory of cases: each is named by the docstring of a test, so that a reader finds where it is proven."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration  # they read all of the source: too slow for the layer of each commit

TESTS = Path(__file__).resolve().parent.parent
#: Exactly once (A), several at once (B), what was approved is what runs (C), state (D), time (E), queue and workers
#: (F), cancel and pause (G), budgets (L).
CASES = {
    "A": ["F01", "F04", "F08"],
    "B": ["F09", "F11"],
    "C": ["F14", "F20"],
    "D": ["F28", "F30", "F34"],
    "E": ["F36", "F38"],
    "F": ["F44", "F45", "F48", "F49", "F51", "F52"],
    "G": ["F57", "F58", "F59"],
    "L": ["F93", "F94"],
}


@cache
def functions() -> dict[str, str]:
    """`tests/runs/test_x.py::test_y` → its docstring, of every test."""
    found = {}
    for file in sorted(TESTS.rglob("test_*.py")):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                found[f"{file.relative_to(TESTS.parent)}::{node.name}"] = ast.get_docstring(node) or ""
    return found


@pytest.mark.parametrize("case", [case for group in CASES.values() for case in group])
def test_case_is_named_by_a_test(case: str) -> None:
    named = [test for test, says in functions().items() if re.search(rf"\b{case}\b", says)]
    assert named, f"no test says that it proves {case}"


def test_table_of_failures_names_tests_that_are_there() -> None:
    table = ast.get_docstring(ast.parse((TESTS / "runs" / "test_failures.py").read_text())) or ""
    cited = [line.split("|")[2].strip() for line in table.splitlines() if "::" in line]
    assert len(cited) > 10
    assert [test for test in cited if test not in functions()] == []
