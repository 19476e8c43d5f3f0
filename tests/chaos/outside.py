"""The outside of the chaos: an HTTP service of its own, in a process of its own, whose log is the truth.

`POST /act` acts and answers; each act is a line of the log before it is answered, so that killing this process
forgets nothing. A call that says `honours` has its key honoured: the same again is answered and does not act.
The others act each time. `GET /find` says what was done under a key. `POST /faults` names what happens to the next
calls, one word each; a word may make a call act, answer late, or not at all (`WORDS`).

Run as `python -m tests.chaos.outside PORT LOG`. Only the standard library. `CHAOS_LIES=N` is for the test of the
reckoning: every Nth act is not in the log, and every one after it is there twice.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import deque
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

#: What may happen to a call: before it acts, whether it acts, and after it: seconds of waiting, or no answer (None).
WORDS: dict[str, tuple[float, bool, float | None]] = {
    "late": (0.0, True, 2.5),
    "hang": (2.5, True, 0.0),
    "drop": (0.0, True, None),
    "lose": (0.0, False, None),
    "500 and acted": (0.0, True, 0.0),
    "500": (0.0, False, 0.0),
}
LONGEST = max(before + (after or 0.0) for before, _, after in WORDS.values())


# -- The log ------------------------------------------------------------------------------


def acts(log: Path) -> list[dict[str, Any]]:
    """Every act, in order. A line that a killed process left half is one that did not act."""
    if not log.exists():
        return []
    return [json.loads(line) for line in log.read_text().split("\n")[:-1] if line]


class Book:
    """The log, and what was answered under each key."""

    def __init__(self, log: Path) -> None:
        self._lock = threading.Lock()
        self._answers: dict[str, str] = {}
        whole = log.read_text().rpartition("\n")[0] if log.exists() else ""
        log.write_text(whole + "\n" if whole else "")
        for act in acts(log):
            self._answers.setdefault(act["key"], act["answer"])
        self._log = log.open("a")
        self._lies, self._count = int(os.environ.get("CHAOS_LIES", "0")), 0

    def act(self, call: dict[str, Any]) -> str:
        with self._lock:
            if call["honours"] and call["key"] in self._answers:
                return self._answers[call["key"]]
            answer = answer_to(call["tool"], call["key"], call["amount"])
            self._log.write(
                (json.dumps({**call, "answer": answer, "at": time.time()}) + "\n") * self._times()
            )
            self._log.flush()
            self._answers.setdefault(call["key"], answer)
            return answer

    def close(self) -> None:
        self._log.close()

    def _times(self) -> int:
        """Once, if it does not lie."""
        self._count += 1
        return {0: 0, 1: 2}.get(self._count % self._lies, 1) if self._lies else 1

    def find(self, key: str) -> str | None:
        with self._lock:
            return self._answers.get(key)


def answer_to(tool: str, key: str, amount: int) -> str:
    return f"{tool} of {amount} under {key[:8]}"


# -- The service -----------------------------------------------------------------------------


class Service(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, port: int, log: Path) -> None:
        self.book = Book(log)
        self.words: deque[str] = deque()
        self.under_way = 0
        self.counting = threading.Lock()
        super().__init__(("127.0.0.1", port), Handler)

    def server_close(self) -> None:
        super().server_close()
        self.book.close()


class Handler(BaseHTTPRequestHandler):
    server: Service
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        if asked.path == "/find":
            self._say(200, {"answer": self.server.book.find(parse_qs(asked.query)["key"][0])})
        else:
            self._say(200, {"under_way": self.server.under_way})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/faults":
            with self.server.counting:
                self.server.words = deque(body["words"])
            return self._say(200, {})
        with self.server.counting:
            self.server.under_way += 1
            word = self.server.words.popleft() if self.server.words else ""
        try:
            self._act(body, word)
        finally:
            with self.server.counting:
                self.server.under_way -= 1

    def _act(self, call: dict[str, Any], word: str) -> None:
        before, does, after = WORDS.get(word, (0.0, True, 0.0))
        time.sleep(before)
        answer = self.server.book.act(call) if does else ""
        if after is None:
            self.close_connection = True
            return
        time.sleep(after)
        self._say(500 if word.startswith("500") else 200, {"answer": answer})

    def _say(self, status: int, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        try:
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
        except OSError:  # who asked has gone; what was done stays done
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        pass


# -- For those who call it ----------------------------------------------------------------------


class Unanswered(Exception):
    """Nobody can tell from this whether it acted."""


class Unreached(Exception):
    """The connection was never made."""


def ask(port: int, method: str, path: str, body: object = None, *, timeout: float = 5.0) -> dict[str, Any]:
    """One call over a connection of its own. Raises Unreached, Unanswered."""
    line = HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        line.connect()
    except OSError as error:
        raise Unreached(str(error)) from error
    try:
        line.request(method, path, None if body is None else json.dumps(body))
        said = line.getresponse()
        content = said.read()
    except (OSError, HTTPException) as error:
        raise Unanswered(f"{type(error).__name__}: {error}") from error
    finally:
        line.close()
    if said.status != 200:
        raise Unanswered(f"status {said.status}")
    found: dict[str, Any] = json.loads(content)
    return found


if __name__ == "__main__":
    Service(int(sys.argv[1]), Path(sys.argv[2])).serve_forever()
