"""What a figure is given: the engines, our side, the peers, and how much of everything."""

import time
from dataclasses import dataclass, field

import psycopg

from benchmarks.engines import Engines
from benchmarks.filling import Filling
from benchmarks.ours import TEXT, Ours
from benchmarks.peers.sides import Peers


@dataclass(frozen=True, slots=True)
class Amounts:
    """How much of everything; all but `rounds`, `waiting`, `rows` and `killed` in each round."""

    rounds: int = 5
    steps: int = 200
    suspends: int = 20
    decisions: int = 20
    burst: int = 100
    held: int = 300
    wakes: int = 50
    waiting: int = 10_000
    dbos_waiting: int = 1_000
    rows: int = 1_000_000
    killed: int = 1_000


QUICK = Amounts(
    rounds=3,
    steps=50,
    suspends=8,
    decisions=8,
    burst=40,
    held=60,
    wakes=15,
    waiting=1_000,
    dbos_waiting=100,
    rows=50_000,
    killed=200,
)


@dataclass
class Sitting:
    engines: Engines
    ours: Ours
    peers: Peers
    amounts: Amounts
    raw: str  # the address of a database for raw commits
    filling: Filling = field(init=False)
    _named: int = field(default=0)

    def __post_init__(self) -> None:
        self.filling = Filling(self.ours)

    def names(self, count: int) -> list[str]:
        """New names for workflows and threads."""
        self._named += count
        return [f"n{number}" for number in range(self._named - count, self._named)]

    def raw_commit(self, count: int) -> float:
        """Milliseconds of one durable single-row commit after another, on one connection."""
        with psycopg.connect(self.raw, autocommit=True) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS raw_commit (id bigserial PRIMARY KEY, body text)")
            began = time.monotonic_ns()
            for _ in range(count):
                connection.execute("INSERT INTO raw_commit (body) VALUES (%s)", [TEXT], prepare=True)
            return (time.monotonic_ns() - began) / 1e6 / count
