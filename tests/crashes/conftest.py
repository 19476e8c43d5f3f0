"""What these tests stand on: the fixtures of `runs`, and workers that can be killed.

| what fails, in real processes | proved in |
| --- | --- |
| killed: worker, horse, both; told to stop once, twice; frozen as a pair | `test_whole_workers` |
| killed around an effect, a hold, a child; one frozen past its lease | `test_workers_killed`, `test_children`, `test_frozen` |
| 50 in flight, 500 waiting, every worker replaced by others that share nothing | `test_deployment` |
| Valkey emptied, killed, frozen, away | `test_valkey_away` |
| PostgreSQL restarted; a deadlock's victim; no room | `test_database_trouble`, `journeys/test_database_full` |
| a connection cut at a statement or a COMMIT, done or not | `test_connections_cut` |
| sweepers frozen in a pass and in a transaction | `test_whole_workers` |
| hosts' clocks five minutes apart | `test_clocks` |
| the outside hangs, is late, records and drops | `runs/test_effects`, `test_frozen`, `journeys/test_killed` |
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.crashes import stage
from tests.crashes.harness import Nursery, Theatre
from tests.crashes.own_postgres import Own, own, own_server
from tests.crashes.processes import Workers
from tests.crashes.wire import Wire
from tests.fixtures import alone, in_its_own_time, invariants, outside, registries, rules
from tests.outside import FOLDER, Outside

__all__ = [
    "alone",
    "in_its_own_time",
    "invariants",
    "outside",
    "own",
    "own_server",
    "registries",
    "rules",
]


@pytest.fixture
def workers(child_env: dict[str, str], outside: Outside, tmp_path: Path) -> Iterator[Workers]:
    made = Workers(child_env | {FOLDER: os.environ[FOLDER]}, tmp_path)
    yield made
    made.end()


@pytest.fixture
def wire(own: Own, workers: Workers) -> Iterator[Wire]:
    """Between the processes that `workers` starts and the test's own database; the test itself is not on it."""
    made = Wire(own.server.sockets)
    workers.env["DATABASE_URL"] = made.url(own.name)
    yield made
    workers.end()
    made.close()


@pytest.fixture
def opened(child_env: dict[str, str], outside: Outside, tmp_path: Path) -> Iterator[Callable[..., Theatre]]:
    """Makes theatres for scenes; `mutation` names a fault that is put in on purpose."""
    made: list[Nursery] = []
    stage.seat()

    def open_one(mutation: str = "") -> Theatre:
        folder = tmp_path / f"theatre{len(made)}"
        folder.mkdir()
        made.append(Nursery(child_env, folder, stage.AGENTS, TEST_MUTATION=mutation))
        return Theatre(made[-1], outside, folder)

    yield open_one
    for nursery in made:
        nursery.end()


@pytest.fixture
def theatre(opened: Callable[..., Theatre]) -> Theatre:
    return opened()
