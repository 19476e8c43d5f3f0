"""What every test stands on: real engines, the tests' short clocks, and a browser where there is one.

`./run test` starts the engines and names them in the environment; plain `pytest` needs DATABASE_URL and
REDIS_URL. Processes that tests start get `child_env`, so that they see the test's database and queue.
"""

import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests import layers

ROOT = Path(__file__).resolve().parent.parent
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
BROWSER_FIXTURES = {"page", "context", "browser", "new_context"}
# Seconds. Short enough that a test may wait for a lease to run out.
CLOCKS = {"LEASE": 1.5, "HEARTBEAT": 0.5, "SWEEP_EVERY": 0.5, "FACT_TIMEOUT": 2.0}

# Here and nowhere else: whichever folder's conftest comes first imports them.
pytest.register_assert_rewrite("tests.stack", "tests.visitors")

# Playwright runs an event loop in the test's thread, and Django would refuse the database there.
os.environ.setdefault("DJANGO_ALLOW_ASYNC_UNSAFE", "true")

# How long one example takes says what else the machine is doing.
hypothesis.settings.register_profile("untimed", hypothesis.settings(), deadline=None)
hypothesis.settings.load_profile("untimed")


def pytest_configure(config: pytest.Config) -> None:
    missing = [name for name in ("DATABASE_URL", "REDIS_URL") if not os.environ.get(name)]
    if missing and not config.option.help and config.option.markexpr != "unit":
        raise pytest.UsageError(
            f"{' and '.join(missing)} not set: use ./run test, which starts its own engines."
        )
    config.pluginmanager.register(layers)
    _apart(os.environ.get("PYTEST_XDIST_WORKER", ""))


def _apart(worker: str) -> None:
    """Side by side, each of xdist's workers has a queue of its own: Valkey's database by its number."""
    from django.conf import settings

    for name, value in CLOCKS.items():
        setattr(settings, name, value)
    settings.HISTORY_REFUSES_TRUNCATE = False  # transactional tests empty the tables
    if worker:
        address, _, _ = settings.REDIS_URL.partition("?")
        number = int(worker.removeprefix("gw")) + 1
        address = (
            f"{address}?db={number}"
            if address.startswith("unix")
            else f"{address.rsplit('/', 1)[0]}/{number}"
        )
        os.environ["REDIS_URL"] = settings.REDIS_URL = settings.RQ_QUEUES["default"]["URL"] = address


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if CHROMIUM is not None:
        return
    skip = pytest.mark.skip(reason="no Chromium on PATH; apt install chromium")
    for item in items:
        if BROWSER_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker(skip)


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args: dict[str, Any]) -> dict[str, Any]:
    quiet = ["--disable-quic", "--no-first-run", "--disable-background-networking"]
    return {
        **browser_type_launch_args,
        "executable_path": CHROMIUM,
        "args": ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", *quiet],
    }


@pytest.fixture
def child_env(transactional_db: None, tmp_path: Path) -> dict[str, str]:
    """For `subprocess`: the test's own database, queue, clocks and a folder for mail and keys."""
    from django.conf import settings

    return {
        **os.environ,
        **{name: str(getattr(settings, name)) for name in CLOCKS},
        "DATABASE_URL": _database_url(),
        "REDIS_URL": settings.REDIS_URL,
        "SECRET_KEY": settings.SECRET_KEY,
        "VAR_DIR": str(tmp_path / "var"),
        "DJANGO_SETTINGS_MODULE": "config.settings",
        "PYTHONHASHSEED": "0",
        "PYTHONUNBUFFERED": "1",
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
    }


def _database_url() -> str:
    from urllib.parse import urlsplit

    from django.db import connection

    return urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{connection.settings_dict['NAME']}").geturl()


@pytest.fixture(autouse=True)
def _empty_queue(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a test rang for is not the next one's. Only tests with a database can ring."""
    yield
    if {"db", "transactional_db"} & set(request.fixturenames):
        import redis
        from django.conf import settings

        with redis.Redis.from_url(settings.REDIS_URL) as queue:
            if jobs := list(queue.scan_iter("rq:*")):
                queue.delete(*jobs)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What the crash points came to: `tests/crashes/test_every_point.py` records a line a test."""
    reports = [r for found in ("passed", "failed") for r in terminalreporter.stats.get(found, [])]
    lines = [told for report in reports for name, told in report.user_properties if name == "crash_points"]
    sums: dict[tuple[str, str], Counter[str]] = {}
    for told in lines:
        counts = {name: count for name, count in told.items() if name not in ("scene", "how")}
        sums.setdefault((told["how"], told["scene"]), Counter()).update(counts)
    if sums:
        names = list(next(iter(sums.values())))
        terminalreporter.section("crash points")
        terminalreporter.write_line(f"{'':28}" + "".join(f"{name:>10}" for name in names))
        for (how, scene), counts in sorted(sums.items()):
            row = "".join(f"{counts[name]:>10}" for name in names)
            terminalreporter.write_line(f"{how + ': ' + scene:28}{row}")
