"""The peers' processes on the sitting's engines, each for as long as a figure is measured.

Started by the figure that wants them, so that nothing of theirs runs while another is measured. Without peers there
is None, and the figure leaves their columns empty.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.engines import PEERS_QUEUE, Engines
from benchmarks.peers.process import Peer, background


@dataclass
class Workflows:
    """DBOS: the process that runs workflows, and the one that approves."""

    worker: Peer
    client: Peer


@dataclass
class Peers:
    engines: Engines
    python: Path | None  # None: without them

    @contextmanager
    def dbos(self) -> Iterator[Workflows | None]:
        if self.python is None:
            yield None
            return
        address = self.engines.database("dbos")
        found = Workflows(self._peer("dbos_worker.py", address), self._peer("dbos_client.py", address))
        try:
            yield found
        finally:
            found.client.stop()
            found.worker.kill()  # its threads wait for a week

    def dbos_again(self, found: Workflows) -> None:
        """The worker after `kill -9`, with a new process."""
        found.worker.kill()
        found.worker = self._peer("dbos_worker.py", found.worker.arguments[0])

    @contextmanager
    def graph(self, *workers: str) -> Iterator[Peer | None]:
        """LangGraph, and workers of RQ's of these classes, each on the queue that has its name."""
        if self.python is None:
            yield None
            return
        graphs, queue = self.engines.database("graphs"), self.engines.valkey(PEERS_QUEUE)
        found = self._peer("langgraph_side.py", graphs, queue)
        environ = {"BENCH_GRAPHS": graphs, "BENCH_QUEUE": queue}
        behind = [
            background(self.python, "rq_worker.py", kind, log=self._log, environ=environ) for kind in workers
        ]
        try:
            yield found
        finally:
            found.stop()
            for process in behind:
                process.terminate()
                process.wait()

    def _peer(self, script: str, *arguments: str) -> Peer:
        assert self.python
        return Peer(self.python, script, *arguments, log=self._log)

    @property
    def _log(self) -> Path:
        return self.engines.home / "peers.log"
