"""The outside world of tests: a folder, so that every process sees the same calls and the same faults.

`record` keeps each call that reached it. `will("pay", "hang", "ok")` says what happens to the next calls of a
tool, one word a call; without one a call acts and is answered. `n(tool)` counts the calls that acted.
"""

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FOLDER = "TEST_OUTSIDE"


class Outside:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def of_this_process(cls) -> "Outside":
        return cls(Path(os.environ[FOLDER]))

    def record(self, tool: str, key: str, attempt: int, arguments: dict[str, Any], *, acted: bool) -> None:
        said = {
            "tool": tool,
            "key": key,
            "attempt": attempt,
            "arguments": arguments,
            "acted": acted,
            "at": time.time(),
        }
        with self._locked(), (self.folder / "calls").open("a") as file:
            file.write(json.dumps(said) + "\n")

    def tried(self, tool: str = "") -> list[dict[str, Any]]:
        """Every call that was received, whether it acted or not."""
        file = self.folder / "calls"
        calls = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        return [call for call in calls if tool in ("", call["tool"])]

    def acted(self, tool: str = "") -> list[dict[str, Any]]:
        return [call for call in self.tried(tool) if call["acted"]]

    def n(self, tool: str = "") -> int:
        return len(self.acted(tool))

    def keys(self, tool: str) -> set[str]:
        return {call["key"] for call in self.tried(tool)}

    def will(self, tool: str, *words: str) -> None:
        with self._locked():
            (self.folder / f"{tool}.next").write_text("\n".join(words))

    def next(self, tool: str) -> str:
        """What happens to this call; the word is used up."""
        file = self.folder / f"{tool}.next"
        with self._locked():
            words = file.read_text().splitlines() if file.exists() else []
            if not words:
                return "ok"
            file.write_text("\n".join(words[1:]))
        return words[0]

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
