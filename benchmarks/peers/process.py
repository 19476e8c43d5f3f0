"""A peer's process that is told what to do in lines of JSON and answers in lines of JSON."""

import json
import os
import queue
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PATIENCE = 300.0  # seconds for one answer; thousands of waiting threads take their time


class PeerEnded(Exception):
    """It ended or said nothing; the text is the end of its log."""


class Peer:
    """`ask(do, …)` returns what it answered. What it prints besides goes to `log`."""

    def __init__(self, python: Path, script: str, *arguments: str, log: Path) -> None:
        self.arguments, self.log = arguments, log
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [python, HERE / script, *arguments],
                cwd=HERE,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self._said: queue.Queue[dict[str, Any] | None] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()
        self.ready = self._answer()

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        assert self.process.stdin
        self.process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """Closes its input, on which it ends; kills it if it does not."""
        assert self.process.stdin
        self.process.stdin.close()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.kill()

    def _listen(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            if line.startswith("{"):
                self._said.put(json.loads(line))
        self._said.put(None)

    def _answer(self) -> dict[str, Any]:
        try:
            said = self._said.get(timeout=PATIENCE)
        except queue.Empty:
            said = None
        if said is None:
            raise PeerEnded(self.log.read_text(errors="replace")[-3000:])
        return said


def background(
    python: Path, script: str, *arguments: str, log: Path, environ: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """A process that nobody talks to."""
    with log.open("ab") as output:
        return subprocess.Popen(
            [python, HERE / script, *arguments],
            cwd=HERE,
            env={**os.environ, **environ},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
