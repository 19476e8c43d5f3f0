"""The layers of the tests, after what a test asks for; `pyproject.toml` says what each may take.

    unit          nothing but this process: no database, queue, other process or address
    integration   the database and the queue, in this process
    property      made-up cases and sequences against a law or a model
    crashes       real processes and several at once: crashes, races, journeys
    points        the same, killed at every crash point
    browser       a real browser

Each test is in one of them: the one it is marked with, else the one its folder and its fixtures say. So
`./run test -m unit` runs a layer. The unit layer is held to its promise while it runs. How long a layer took is
printed beside its budget, and fails nothing.
"""

import gc
import re
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

ROOT = Path(__file__).resolve().parent.parent
LAYERS: dict[str, dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["abeyance"][
    "layers"
]

BROWSER = {"page", "context", "browser", "new_context", "visit"}
PROCESSES = {"stack", "child_env"}
SERVED = {"db", "transactional_db", "django_db_setup", "running_valkey", "gateway"}
APART = {"crashes", "races", "journeys", "chaos"}  # folders
OWN_ENGINE = {"own_server", "durable"}  # PostgreSQL from the wheel, whichever the others have
NEVER_UNIT = APART | {"browser"}
ELSEWHERE = re.compile(r"^pytestmark = .*(django_db|mark\.integration)", re.MULTILINE)
LEAVES_THE_PROCESS = {
    "subprocess.Popen",
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "os.system",
    "socket.bind",
    "socket.connect",
}


class LeftTheProcess(Exception):
    """A test of the unit layer started a process or opened an address: it belongs to another layer."""


def pytest_configure(config: pytest.Config) -> None:
    for name, layer in LAYERS.items():
        config.addinivalue_line("markers", f"{name}: the layer of {layer['budget']} s")
    config.addinivalue_line("markers", "own_engine: starts a PostgreSQL of its own, the wheel's")


def layer_of(item: pytest.Item) -> str:
    if marked := [name for name in LAYERS if item.get_closest_marker(name)]:
        return marked[0]
    asks = set(getattr(item, "fixturenames", ()))
    if BROWSER & asks:
        return "browser"
    if PROCESSES & asks or APART & set(item.path.relative_to(ROOT).parts):
        return "crashes"
    if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
        return "property"
    if SERVED & asks or item.get_closest_marker("django_db"):
        return "integration"
    return "unit"


@pytest.hookimpl(tryfirst=True)  # before `-m` looks at the markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker(layer_of(item))
        if OWN_ENGINE & set(getattr(item, "fixturenames", ())):
            item.add_marker("own_engine")


def pytest_collection_finish() -> None:
    """What was read in stays to the end. Looking through it for garbage, over and over, costs a fifth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 50, 100)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`-m unit` runs before each commit: a file that can hold nothing of it is not even read in."""
    if _chosen(config) != "unit":
        return None
    if collection_path.is_dir():
        return collection_path.name in NEVER_UNIT or None
    return bool(ELSEWHERE.search(collection_path.read_text())) or None


def _chosen(config: pytest.Config) -> str | None:
    chosen: str = config.option.markexpr
    return chosen if chosen in LAYERS else None


# -- The promise of the unit layer ------------------------------------------------
_held: pytest.Item | None = None
_hooked = False


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    global _held
    if item.get_closest_marker("unit"):
        _hook()
        _held = item
    try:
        return (yield)
    finally:
        _held = None


def _hook() -> None:
    """The interpreter tells of what happens, whoever does it; the database is refused by pytest-django."""
    global _hooked
    if not _hooked:
        sys.addaudithook(_refuse)  # stays for as long as the process lives
        _hooked = True


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if _held is not None and event in LEAVES_THE_PROCESS:
        raise LeftTheProcess(f"{_held.nodeid}: {event} {arguments!r:.200}")


# -- What it took ----------------------------------------------------------------
def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    layer = _chosen(config)
    if layer is None:
        return
    counted = sum(
        len(terminalreporter.stats.get(how, ())) for how in ("passed", "failed", "error", "skipped")
    )
    seconds = time.time() - psutil.Process().create_time()
    budget = LAYERS[layer]["budget"]
    over = "" if seconds <= budget else "   OVER ITS BUDGET"
    terminalreporter.write_line(f"layer {layer}: {counted} tests in {seconds:.1f} of {budget} s{over}")
