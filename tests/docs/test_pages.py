"""What the pages say of the code is so: links, examples, settings, addresses, words."""

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from django.urls import Resolver404, resolve

from runs import agents, exceptions
from runs.states import Cause, RunStatus
from runs.tools import declared
from tests.conftest import ROOT
from tests.docs import blocks

DOCS = ROOT / "docs"
names = pytest.mark.parametrize("sheet", blocks.PAGES, ids=lambda sheet: str(sheet.relative_to(ROOT)))


@names
def test_links_lead_somewhere(sheet: Path) -> None:
    local = [link for link in blocks.links(sheet) if "://" not in link]
    assert [link for link in local if not (sheet.parent / link.partition("#")[0]).exists()] == []


@names
def test_pictures_have_a_text(sheet: Path) -> None:
    assert blocks.unsaid(sheet) == []


def test_pictures_are_shown_and_small() -> None:
    """Each file of docs/img is on a page, and light to keep; `./run shots` makes them."""
    shown = {(sheet.parent / link).resolve() for sheet in blocks.PAGES for link in blocks.links(sheet)}
    files = sorted((DOCS / "img").iterdir())
    assert [file.name for file in files if file not in shown] == []
    assert [file.name for file in files if file.stat().st_size > 150_000] == []
    assert sum(file.stat().st_size for file in files) < 3_000_000


@names
def test_pages_are_the_projects_own(sheet: Path) -> None:
    """No place on somebody's machine, and lines that can be read."""
    text = sheet.read_text()
    assert not re.findall(r"(?<![\w.])/(?:work|tmp|home|root)/", text)
    assert [line for line in text.splitlines() if len(line) > 125 and not line.startswith("|")] == []


@pytest.fixture
def authors_page(tmp_path: Path) -> Iterator[ModuleType]:
    """The examples of docs/agents.md as one module, in the order in which they stand."""
    kept = dict(agents._registry), dict(declared._registry)
    for name in [name for name in declared._registry if not name.startswith("abeyance.")]:
        del declared._registry[name]  # other tests' tools: the page may call its own the same
    path = tmp_path / "authors_page.py"
    code = [block.code for block in blocks.of(DOCS / "agents.md") if block.language == "python"]
    path.write_text("\n\n".join(code))
    spec = importlib.util.spec_from_file_location("authors_page", path)
    assert spec
    assert spec.loader
    module = sys.modules["authors_page"] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        yield module
    finally:
        del sys.modules["authors_page"]
        for registry, before in zip((agents._registry, declared._registry), kept, strict=True):
            registry.clear()  # type: ignore[attr-defined]
            registry.update(before)  # type: ignore[attr-defined]


def test_examples_for_authors_are_registered(authors_page: ModuleType) -> None:
    ours = [str(made) for made in agents.all_versions() if made.function.__module__ == "authors_page"]
    assert ours == ["greeter@1", "greeter@2", "refunder@1", "parcel-desk@1"]
    assert agents.latest("greeter").version == "2"
    refund = declared.get("refund")
    assert refund is not None
    assert (refund.repeatable, [fact.name for fact in refund.properties.facts]) == (True, ["refunded_so_far"])


def test_every_property_of_a_tool_is_explained() -> None:
    text = (DOCS / "agents.md").read_text()
    told = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| `.*", text, re.MULTILINE))))
    assert set(declared.Properties.__dataclass_fields__) <= told


def test_every_error_an_agent_catches_is_explained() -> None:
    text = (DOCS / "agents.md").read_text()
    ours = [
        kind.__name__
        for kind in exceptions.AgentError.__subclasses__()
        if kind.__module__ == "runs.exceptions"
    ]
    assert [name for name in ours if f"`{name}" not in text] == []


def test_every_cause_and_status_is_explained_to_submitters() -> None:
    text = (DOCS / "submitters.md").read_text()
    assert [str(word) for word in (*Cause, *RunStatus) if f"`{word}`" not in text] == []


def test_the_table_of_settings_is_the_settings() -> None:
    read = set(re.findall(r'env\.\w+\(\s*"([A-Z_]+)"', (ROOT / "config" / "settings.py").read_text()))
    told = set(re.findall(r"^\| `([A-Z_]+)`", (DOCS / "operators.md").read_text(), re.MULTILINE))
    assert told == read - {"HISTORY_REFUSES_TRUNCATE"}  # for tests only


@names
def test_addresses_exist(sheet: Path) -> None:
    text = sheet.read_text()
    said = set(re.findall(r"`(?:GET |POST )?(/(?:api|admin|runs|accounts|healthz|readyz)[\w./-]*)`", text))
    unknown = []
    for address in sorted(said):
        try:
            match = resolve(address.replace("/ID", "/6f2f1b9e-0c6f-4c55-9d0e-1f0d3b1d3a55"))
        except Resolver404:
            unknown.append(address)
            continue
        if match.url_name == "nothing":
            unknown.append(address)
    assert unknown == []


@pytest.mark.parametrize("room", ["runs", "approvals"])
def test_every_room_is_on_the_map(room: str) -> None:
    text = (DOCS / "architecture.md").read_text()
    told = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]*)`", text))))
    there = {
        path.stem
        for path in (ROOT / room).iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    plumbing = {"__init__", "apps", "migrations", "templatetags"}
    assert there - told - plumbing == set()
