"""Keeps children alive and passes on what they print, line by line, with their names in front.

One loop over one selector and no threads, because the kernel's promise to end our children belongs to the
thread that started them (`children`). A child that ends comes back after a wait that doubles from half a
second to thirty; one that has lived for ten seconds starts anew with half a second. Ending is in stages:
each stage is asked, given its patience, then forced; a second Ctrl-C forces everything.
"""

import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import IO

from config import children
from config.children import Spec

FIRST_WAIT = 0.5
LONGEST_WAIT = 30.0
TURN = 1.0  # seconds at most between looks; lines, ends and signals wake the loop at once
LIVED = 10.0  # seconds after which a child counts as having started well
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(Exception):
    """Somebody asked us to stop."""


@dataclass
class Child:
    spec: Spec
    process: subprocess.Popen[bytes]
    restart: bool
    started: float
    wait: float = FIRST_WAIT
    due: float | None = None  # when it comes back
    rest: bytes = field(default=b"", repr=False)  # a line it has not finished

    @property
    def running(self) -> bool:
        return self.process.returncode is None


class Supervisor:
    def __init__(self, out: IO[str] | None = None) -> None:
        self.children: dict[str, Child] = {}
        self.asked = 0
        self._out = out or sys.stdout
        self._selector = selectors.DefaultSelector()
        self._bell, self._rope = socket.socketpair()
        for end in (self._bell, self._rope):
            end.setblocking(False)
        self._selector.register(self._bell, selectors.EVENT_READ, self._silence)

    def listen(self) -> None:
        """Ctrl-C, `kill` and a closed terminal are heard from here on; a child's end wakes the loop."""
        signal.set_wakeup_fd(self._rope.fileno(), warn_on_full_buffer=False)
        for sign in SIGNALS:
            signal.signal(sign, self._ask)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def say(self, name: str, line: str) -> None:
        with suppress(BrokenPipeError, ValueError):
            print(f"{name:<9}│ {line}", file=self._out, flush=True)

    def start(self, spec: Spec, *, restart: bool = True) -> Child:
        child = Child(spec, self._open(spec), restart, time.monotonic())
        self.children[spec.name] = child
        self._watch(child)
        return child

    def run(self, spec: Spec) -> int:
        """To its end, relaying; gives its exit status."""
        child = self.start(spec, restart=False)
        self.until(lambda: not child.running)
        del self.children[spec.name]
        return child.process.returncode

    def until(self, done: Callable[[], bool], seconds: float | None = None) -> bool:
        """Loops until `done`, or false when the seconds are over. Raises `Stopped` when asked to stop."""
        end = None if seconds is None else time.monotonic() + seconds
        while not done():
            if self.asked:
                raise Stopped
            if end is not None and time.monotonic() > end:
                return False
            self._turn(0.05 if seconds is not None else TURN)
        return True

    def forever(self) -> None:
        self.until(lambda: False)

    def stop(self, stages: Iterable[Sequence[str]]) -> None:
        """Ends the children named, stage by stage; the rest first."""
        stages = [list(stage) for stage in stages]
        named = {name for stage in stages for name in stage}
        for child in self.children.values():
            child.restart, child.due = False, None
        for stage in [[name for name in self.children if name not in named], *stages]:
            self._end([self.children[name] for name in stage if name in self.children])

    def close(self) -> None:
        """When all have ended."""
        for key in list(self._selector.get_map().values()):
            if key.fileobj is not self._bell:
                self._selector.unregister(key.fileobj)
                key.fileobj.close()  # type: ignore[union-attr]  # pipes, all of them
        self._selector.close()
        self._bell.close()
        self._rope.close()

    def _end(self, stage: list[Child]) -> None:
        for child in stage:
            if child.running:
                children.ask(child.spec, child.process)
        asked, forced = time.monotonic(), set[str]()
        while alive := [child for child in stage if child.running]:
            for child in alive:
                late = self.asked > 1 or time.monotonic() - asked > child.spec.patience
                if late and child.spec.name not in forced:
                    children.force(child.spec, child.process)
                    forced.add(child.spec.name)
            self._turn(0.1)

    def _turn(self, timeout: float) -> None:
        dues = [child.due - time.monotonic() for child in self.children.values() if child.due is not None]
        for key, _ in self._selector.select(max(0.0, min([timeout, *dues]))):
            key.data()
        for child in list(self.children.values()):
            self._look(child)

    def _look(self, child: Child) -> None:
        if child.due is not None:
            if time.monotonic() >= child.due:
                self._restart(child)
            return
        if child.running and child.process.poll() is not None:
            self._ended(child)

    def _ended(self, child: Child) -> None:
        self._drain(child)
        if not child.restart:
            return
        if time.monotonic() - child.started > LIVED:
            child.wait = FIRST_WAIT
        self.say(child.spec.name, f"ended ({_status(child.process.returncode)}); again in {child.wait:g} s")
        child.due = time.monotonic() + child.wait
        child.wait = min(child.wait * 2, LONGEST_WAIT)

    def _restart(self, child: Child) -> None:
        child.process, child.started, child.due = self._open(child.spec), time.monotonic(), None
        self._watch(child)

    def _open(self, spec: Spec) -> subprocess.Popen[bytes]:
        return children.start(spec, subprocess.PIPE)

    def _watch(self, child: Child) -> None:
        pipe = child.process.stdout
        assert pipe is not None
        os.set_blocking(pipe.fileno(), False)
        self._selector.register(pipe, selectors.EVENT_READ, lambda: self._relay(child, pipe))

    def _relay(self, child: Child, pipe: IO[bytes]) -> None:
        try:
            some = os.read(pipe.fileno(), 65536)
        except BlockingIOError:
            return
        if not some:
            self._selector.unregister(pipe)
            pipe.close()
        *lines, child.rest = (child.rest + some).split(b"\n")
        for line in (line.decode(errors="replace") for line in lines):
            if not child.spec.hush or child.spec.hush not in line:
                self.say(child.spec.name, line)

    def _drain(self, child: Child) -> None:
        """What it still had to say. Its own children may hold the pipe open: that is no reason to wait."""
        pipe = child.process.stdout
        while pipe is not None and not pipe.closed and _readable(pipe):
            self._relay(child, pipe)
        if child.rest:
            self.say(child.spec.name, child.rest.decode(errors="replace"))
            child.rest = b""

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked += 1

    def _silence(self) -> None:
        with suppress(BlockingIOError):
            self._bell.recv(4096)


def _readable(pipe: IO[bytes]) -> bool:
    with selectors.DefaultSelector() as one:
        one.register(pipe, selectors.EVENT_READ)
        return bool(one.select(0))


def _status(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit {code}"
