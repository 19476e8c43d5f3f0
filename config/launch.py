"""What `./run` does once its environment stands: `up`, `test`, `check`, or any management command.

Each gets the engines the environment does not name: the running ones if `up` runs in this clone, else its
own for as long as it lasts. Tests have a home of their own, so they run beside `up`.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

from config import children, embedded, environment, folders, up
from config.environment import ROOT
from config.folders import CannotStart

USAGE = """\
./run [up] [--port N]   start everything; Ctrl-C ends it
./run test [ARGS]       the tests; arguments go to pytest
./run check             format, lint, types, architecture, migrations, API description, then the tests
./run COMMAND …         any management command; ./run help lists them
"""
TEST_HOMES = 20  # how many test runs may go on side by side

CHECKS: tuple[tuple[str, ...], ...] = (
    ("ruff", "format", "--check"),
    ("ruff", "check"),
    ("lint-imports",),
    ("mypy",),
    ("manage.py", "makemigrations", "--check", "--dry-run"),
    ("manage.py", "spectacular", "--validate", "--fail-on-warn", "--file", os.devnull),
)


def main(arguments: Sequence[str]) -> int:
    verb, rest = (arguments[0], arguments[1:]) if arguments else ("up", [])
    if verb in {"-h", "--help"}:
        print(USAGE, end="")
        return 0
    if verb.startswith("-"):
        verb, rest = "up", arguments
    try:
        return VERBS[verb](rest) if verb in VERBS else manage(arguments)
    except (CannotStart, OSError) as error:
        print(f"run: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def manage(arguments: Sequence[str]) -> int:
    home = environment.var()
    environ = environment.make(home)
    try:
        with embedded.held(home, f"./run {arguments[0]}"):
            return _with_own_engines(home, environ, arguments)
    except embedded.Busy as busy:
        environment.join(home, environ, str(busy))
    with embedded.shared(home):
        return _django(arguments, environ)


def _with_own_engines(home: Path, environ: dict[str, str], arguments: Sequence[str]) -> int:
    engines = embedded.wanted(home, environ)
    fresh = any(engine.fresh for engine in engines)
    with embedded.running(home, engines) as addresses:
        environ |= addresses
        with environment.published(home, environ):
            status = _django(["migrate", "--verbosity=0"], environ) if fresh else 0
            status = status or _django(arguments, environ)
        with embedded.shared(home, alone=True):
            return status


def _django(arguments: Sequence[str], environ: dict[str, str]) -> int:
    return foreground([sys.executable, "manage.py", *arguments], environ)


def test(arguments: Sequence[str]) -> int:
    with _test_environment() as environ:
        return foreground([sys.executable, "-m", "pytest", *arguments], environ)


def check(arguments: Sequence[str]) -> int:
    failed = []
    with _test_environment() as environ:
        for command in (*CHECKS, ("pytest", *arguments)):
            print(f"── {' '.join(command)}", flush=True)
            start = [sys.executable] if command[0] == "manage.py" else []
            status = foreground([*start, *command], environ)
            if _interrupts:
                raise KeyboardInterrupt
            if status != 0:
                failed.append(" ".join(command[:2]))
    print(f"── failed: {', '.join(failed)}" if failed else "── all well")
    return 1 if failed else 0


@contextlib.contextmanager
def _test_environment() -> Iterator[dict[str, str]]:
    with contextlib.ExitStack() as stack:
        home = _test_home(stack)
        environ = {"SECRET_KEY": "for tests only", **environment.make(home)}
        yield environ | stack.enter_context(
            embedded.running(home, embedded.wanted(home, environ, durable=False))
        )


def _test_home(stack: contextlib.ExitStack) -> Path:
    folders.make_home(environment.var(), folders.account())
    for number in range(1, TEST_HOMES + 1):
        home = environment.var() / ("test" if number == 1 else f"test-{number}")
        with contextlib.suppress(embedded.Busy):
            stack.enter_context(embedded.held(home, "./run test"))
            return home
    raise CannotStart(f"{TEST_HOMES} test runs are going on here already.")


def foreground(command: Sequence[str], environ: dict[str, str]) -> int:
    """A command with our terminal. Ctrl-C is its own affair; we wait, and end it if we are ended."""
    process = subprocess.Popen(command, env=environ, cwd=ROOT, preexec_fn=children.mortal(signal.SIGTERM))
    previous = {sign: signal.signal(sign, _interrupted) for sign in (signal.SIGINT, signal.SIGHUP)}
    previous[signal.SIGTERM] = signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    try:
        return _exit_status(process.wait())
    finally:
        for sign, handler in previous.items():
            signal.signal(sign, handler)


_interrupts: list[int] = []


def _interrupted(number: int, frame: FrameType | None) -> None:
    _interrupts.append(number)


def _exit_status(code: int) -> int:
    return code if code >= 0 else 128 - code


VERBS = {"up": up.main, "test": test, "check": check}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
