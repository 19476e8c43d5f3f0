"""The processes `./run` starts: how each is started, asked to end and made to end.

A child leads a session of its own, so Ctrl-C in a terminal reaches only the process that started it, which
then ends its children in an order. On Linux the kernel signals a child when that process dies, however it
dies. That wish belongs to the thread that forked: whoever starts children here has no other threads.
"""

import contextlib
import ctypes
import os
import pwd
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


@dataclass(frozen=True)
class Account:
    """Somebody to be instead of root."""

    name: str
    uid: int
    gid: int

    @classmethod
    def first_of(cls, *names: str) -> "Account | None":
        for name in names:
            try:
                entry = pwd.getpwnam(name)
            except KeyError:
                continue
            return cls(name, entry.pw_uid, entry.pw_gid)
        return None


@dataclass(frozen=True)
class Spec:
    """What to start and how it likes to be ended. Seconds for `patience`."""

    name: str
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None
    account: Account | None = None
    pass_fds: tuple[int, ...] = ()
    ask: signal.Signals = signal.SIGTERM  # ends warmly
    force: signal.Signals = signal.SIGKILL  # ends now
    orphaned: signal.Signals = signal.SIGKILL  # sent by the kernel when we are gone
    patience: float = 10.0
    hush: str = ""  # lines that hold this are not passed on


def start(spec: Spec, output: IO[bytes] | int) -> subprocess.Popen[bytes]:
    account = spec.account
    return subprocess.Popen(
        spec.command,
        env=spec.env,
        cwd=spec.cwd,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        pass_fds=spec.pass_fds,
        user=account.uid if account else None,
        group=account.gid if account else None,
        extra_groups=[] if account else None,
        # Runs after the change of user, which would take the wish back.
        preexec_fn=mortal(spec.orphaned),
    )


def mortal(sign: signal.Signals) -> Callable[[], None] | None:
    """For `preexec_fn`: the new process gets this signal when the present one dies (Linux)."""
    if _libc is None:
        return None
    libc, parent = _libc, os.getpid()

    def wish() -> None:
        libc.prctl(PR_SET_PDEATHSIG, int(sign), 0, 0, 0)
        if os.getppid() != parent:  # died in between
            os._exit(1)

    return wish


def ask(spec: Spec, process: subprocess.Popen[bytes]) -> None:
    _signal(process.pid, spec.ask)


def force(spec: Spec, process: subprocess.Popen[bytes]) -> None:
    """The child and, where it is killed outright, whatever it started in its session's group."""
    if spec.force == signal.SIGKILL:
        _signal(process.pid, spec.force, whole_group=True)
    else:
        _signal(process.pid, spec.force)


def end(spec: Spec, process: subprocess.Popen[bytes]) -> None:
    """Ask, wait, force. For callers that have nothing else to do meanwhile."""
    ask(spec, process)
    try:
        process.wait(spec.patience)
    except subprocess.TimeoutExpired:
        force(spec, process)
        process.wait()


def _signal(pid: int, sign: signal.Signals, *, whole_group: bool = False) -> None:
    with contextlib.suppress(ProcessLookupError):
        (os.killpg if whole_group else os.kill)(pid, sign)
