"""What was asked of the project's shape, held by tests: its top level, its parts, where steps run."""

import ast
import subprocess
from functools import cache
from pathlib import Path

import pytest
from django.apps import apps

pytestmark = pytest.mark.integration  # they read all of the source: too slow for the layer of each commit

ROOT = Path(__file__).resolve().parents[2]
ASKED_FOR = {"manage.py", "pyproject.toml", "approvals", "runs", "templates", "static", "tests"}
BESIDE = {"config", "examples", "benchmarks", "docs"}
CUSTOMARY = {
    "run",
    "requirements.lock",
    "requirements-dev.lock",
    "README.md",
    "CHANGELOG.md",
    "LICENSE",
    ".ci",
    ".gitignore",
}


def top_level():
    """What is the project's own: what git would keep, or everything that is not made by running it."""
    command = [
        "git",
        "-c",
        f"safe.directory={ROOT}",
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True)
    if listed.returncode == 0:
        names = (name.split("/")[0] for name in listed.stdout.decode().split("\0") if name)
        return {name for name in names if (ROOT / name).exists()}
    return {path.name for path in ROOT.iterdir()} - {".git", ".venv", "var"}


@cache
def imports(path):
    """Dotted names a file imports, `from a import b` as `a.b`."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(found)


def sources():
    return [path for room in ("runs", "approvals", "config") for path in (ROOT / room).rglob("*.py")]


@pytest.mark.parametrize("name", sorted(ASKED_FOR))
def test_entry_asked_for_is_there(name):
    assert (ROOT / name).exists()


@pytest.mark.integration  # asks git
def test_other_entries_are_those_of_the_plan():
    assert top_level() == ASKED_FOR | BESIDE | CUSTOMARY


@pytest.mark.parametrize("name", ["django_rq", "rest_framework", "django_htmx"])
def test_part_asked_for_is_installed(name):
    assert apps.is_installed(name)


def test_tests_run_under_pytest_django(pytestconfig):
    assert pytestconfig.pluginmanager.hasplugin("django")


def test_steps_run_only_inside_jobs():
    """The loop has one caller, RQ's entry point, and the entry point is only ever named to the queue."""
    callers = {path.relative_to(ROOT).as_posix() for path in sources() if "runs.execution" in imports(path)}
    assert callers == {"runs/jobs.py"}
    assert not [path for path in sources() if {"runs.jobs", "runs.jobs.drive"} & imports(path)]


def test_only_the_doorbell_and_the_dashboard_know_django_rq():
    knowing = {
        path.relative_to(ROOT).as_posix()
        for path in sources()
        if any(name.split(".")[0] == "django_rq" for name in imports(path))
    }
    assert knowing == {"runs/queues.py", "runs/admin/dashboard.py"}


def test_runs_does_not_know_people():
    above = {"approvals", "config", "examples"}
    assert not [
        (path, name)
        for path in (ROOT / "runs").rglob("*.py")
        for name in imports(path)
        if name.split(".")[0] in above
    ]
