"""Fixtures of the tests of `runs`: the stand-in authority, the outside, the clock, the invariants."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from runs import agents, clock, credentials, dependencies, gate, moves, redaction, shutdown, signals
from runs.tools import declared
from tests import agents_for_tests, authority
from tests import invariants as invariants_of_rows
from tests.outside import FOLDER, Outside

__all__ = ["alone", "in_its_own_time", "invariants", "outside", "registries", "rules"]

_SIGNALS = (
    signals.hold_placed,
    signals.hold_released,
    signals.hold_overdue,
    signals.allowance_low,
    signals.run_ended,
)


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """`runs` without the app that knows people: nobody hears of holds, the tests' authority decides."""
    before, heard = gate.contract._authority, [(s, list(s.receivers)) for s in _SIGNALS]
    parts = moves.contract.parts()
    moves.contract._parts.clear()
    authority.stand_in()
    yield
    moves.contract._parts.update(parts)
    gate.register(before)
    for signal, receivers in heard:
        signal.receivers = receivers
        signal.sender_receivers_cache.clear()
    shutdown.forget()


@pytest.fixture(autouse=True)
def registries() -> Iterator[None]:
    """Agents and tools that a test declares are gone after it."""
    assert agents_for_tests
    registries: list[dict[Any, Any]] = [
        agents._registry,
        declared._registry,
        dependencies._probes,
        credentials._providers,
        redaction._secrets,
    ]
    kept = [dict(registry) for registry in registries]
    yield
    for registry, before in zip(registries, kept, strict=True):
        registry.clear()
        registry.update(before)


@pytest.fixture(autouse=True)
def in_its_own_time(request: pytest.FixtureRequest) -> Iterator[None]:
    """The clock is put right after a test that shifted it with a commit."""
    real = "transactional_db" in request.fixturenames or _commits(request)
    if real:
        request.getfixturevalue("transactional_db")
    yield
    if real:
        with connection.cursor() as cursor:
            cursor.execute(clock.CREATE.format(seconds=0))


def _commits(request: pytest.FixtureRequest) -> bool:
    marker = request.node.get_closest_marker("django_db")
    return bool(marker and marker.kwargs.get("transaction"))


@pytest.fixture(autouse=True)
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Outside:
    folder = tmp_path / "outside"
    folder.mkdir()
    monkeypatch.setenv(FOLDER, str(folder))
    return Outside(folder)


@pytest.fixture
def rules(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`rules(pay="hold", expires_in=60)`: what the stand-in authority says by tool."""

    def say(**words: Any) -> None:
        monkeypatch.setenv(authority.RULES, json.dumps(words))

    return say


@pytest.fixture
def invariants(db: None, in_its_own_time: None) -> Iterator[None]:
    yield
    assert invariants_of_rows.broken() == []
