"""Who may write what: a status has one room that changes it, and the doorbell has one importer."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration  # they read all of the source: too slow for the layer of each commit

ROOT = Path(__file__).resolve().parent.parent.parent
ROOMS = sorted(
    p
    for app in ("runs", "approvals", "config")
    for p in (ROOT / app).rglob("*.py")
    if "migrations" not in p.parts
)
#: Words only a run's status has; `status=` with one of them is a write or a filter of a run.
WRITES = {"update", "create", "bulk_create", "update_or_create", "get_or_create"}


def rooms(*, but: str = "") -> Iterator[tuple[str, ast.Module]]:
    for path in ROOMS:
        name = str(path.relative_to(ROOT))
        if name != but:
            yield name, _parsed(path)


@cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imports(module: ast.Module) -> set[str]:
    found = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def test_only_the_doorbell_imports_django_rq() -> None:
    users = {name for name, module in rooms() if any(i.split(".")[0] == "django_rq" for i in imports(module))}
    assert users <= {"runs/queues.py", "config/urls.py", *_admin_of_the_queue()}
    assert "runs/queues.py" in users


def _admin_of_the_queue() -> set[str]:
    """The dashboard's page may be mounted; nobody else may enqueue."""
    return {str(p.relative_to(ROOT)) for p in ROOMS if p.parent.name == "admin" or p.name == "site.py"}


def status_writes(module: ast.Module) -> Iterator[int]:
    """Lines that write a status which only runs have: `….update(status=RunStatus…)`, `run.status = …`, and the
    changes that go with a journal entry: `{"status": RunStatus…}`."""
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in WRITES:
            if any(k.arg == "status" for k in node.keywords):
                about = ast.unparse(node)
                if "RunStatus" in about or "Run.objects" in about:
                    yield node.lineno
        elif isinstance(node, ast.Dict) and re.search(r"'status': (str\()?RunStatus", ast.unparse(node)):
            yield node.lineno
        elif isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if (
                    isinstance(target, ast.Attribute)
                    and target.attr == "status"
                    and "run" in ast.unparse(target.value)
                ):
                    yield node.lineno


def test_only_lifecycle_writes_the_status_of_runs() -> None:
    found = {
        name: lines
        for name, module in rooms(but="runs/lifecycle.py")
        if (lines := list(status_writes(module)))
    }
    assert found == {}
    own = _parsed(ROOT / "runs/lifecycle.py")
    assert len(list(status_writes(own))) >= 3


def test_only_lifecycle_runs_the_statements_that_move_a_run() -> None:
    moving = {"TAKE", "PARK", "RESUME", "FINISH"}
    for name, module in rooms(but="runs/lifecycle.py"):
        used = {n.attr for n in ast.walk(module) if isinstance(n, ast.Attribute) and n.attr in moving}
        assert used == set(), name


@pytest.mark.parametrize("word", ["SET status = '"])
def test_no_other_hand_written_sql_sets_a_runs_status(word: str) -> None:
    users = {
        str(p.relative_to(ROOT))
        for p in ROOMS
        if "UPDATE runs_run" in (text := p.read_text()) and word in text.partition("UPDATE runs_run")[2]
    }
    assert users <= {"runs/statements.py"}


def test_tests_can_fail() -> None:
    """The checks above see what they are to see."""
    bad = [
        "Run.objects.filter(pk=1).update(status='x')",
        "run.status = 'x'",
        "Step.objects.update(status='x')",
    ]
    assert sorted(status_writes(ast.parse("\n".join(bad)))) == [1, 2]
    assert imports(ast.parse("from django_rq import get_queue")) == {"django_rq", "django_rq.get_queue"}
