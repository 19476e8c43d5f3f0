"""The service as a process in the hand of a test: start it, read its calls, make it fail, end it.

What it needs is on the command line, so this is also how anything else may run it. Only the standard
library.
"""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

PROJECT = Path(__file__).resolve().parent.parent.parent


class RunningGateway:
    """`python -m examples.gateway` on a free port of its own, with `db` as its file. Starts when made.

    `url` stays the same over `restart`. `kill` is SIGKILL, `stop` SIGTERM; both wait for the end.
    """

    def __init__(self, db: Path, *, port: int = 0, quote_seconds: float = 7200.0) -> None:
        self.db, self.quote_seconds = db, quote_seconds
        self._start(port)

    def _start(self, port: int) -> None:
        command = [sys.executable, "-m", "examples.gateway", "--port", str(port), "--db", str(self.db)]
        self.process = subprocess.Popen(
            [*command, "--quote-seconds", str(self.quote_seconds)],
            cwd=PROJECT,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()  # printed once it listens; empty if it could not
        if not line.startswith("gateway: http"):
            raise RuntimeError(f"the gateway did not start (it ended with {self._ended()})")
        self.url = line.removeprefix("gateway: ").strip()

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    def stop(self) -> int:
        self.process.terminate()
        return self._ended()

    def kill(self) -> int:
        self.process.kill()
        return self._ended()

    def restart(self) -> None:
        """Start again at the same address, after `stop` or `kill`."""
        self._start(self.port)

    def _ended(self) -> int:
        code = self.process.wait(timeout=10)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    def request(
        self, method: str, path: str, body: Any = None, *, key: str | None = None, timeout: float = 10
    ) -> tuple[int, dict[str, Any], dict[str, str]]:
        """One call as anybody with a shell makes it: status, body, headers (names in lower case)."""
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"} | ({"Idempotency-Key": key} if key else {})
        request = urllib.request.Request(self.url + path, data=data, method=method, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                status, headers, content = answer.status, dict(answer.headers.items()), answer.read()
        except urllib.error.HTTPError as refused:
            with refused:
                status, headers, content = refused.code, dict(refused.headers.items()), refused.read()
        return status, json.loads(content), {name.lower(): value for name, value in headers.items()}

    def get(self, path: str) -> dict[str, Any]:
        return self.request("GET", path)[1]

    def post(self, path: str, body: Any = None, *, key: str | None = None) -> dict[str, Any]:
        return self.request("POST", path, {} if body is None else body, key=key)[1]

    def calls(self, path: str = "/*", *, method: str = "POST", after: int = 0) -> list[dict[str, Any]]:
        """The calls received on a path (a glob), oldest first: what really reached the outside world."""
        query = urlencode({"path": path, "method": method, "after": after})
        found: list[dict[str, Any]] = self.get(f"/calls?{query}")["calls"]
        return found

    def fail(
        self, kind: str, path: str, *, method: str = "POST", times: int = 1, seconds: float = 60.0
    ) -> None:
        """The next `times` calls of a path fail: `hang`, `late`, `503`, `drop` or `lose` (see `faults`)."""
        fault = {"kind": kind, "path": path, "method": method, "times": times, "seconds": seconds}
        status, answer, _ = self.request("POST", "/faults", fault)
        assert status == 201, answer

    def clear_faults(self) -> None:
        """No more faults, and whatever hangs goes on at once."""
        self.request("DELETE", "/faults")
