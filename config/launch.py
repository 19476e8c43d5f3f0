"""What `./run` does once its environment stands: one of the verbs below, or any management command.

Each gets the engines the environment does not name: the running ones if `up` runs in this clone, else its
own for as long as it lasts. Tests have a home of their own, so they run beside `up`.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

from config import children, embedded, environment, folders, up
from config.environment import ROOT
from config.folders import CannotStart

USAGE = """\
./run [up] [--port N]   start everything; Ctrl-C ends it
./run test [ARGS]       the tests; arguments go to pytest
./run check [ARGS]      format, lint, types, architecture, migrations, API description, then the tests by layers
./run chaos [--minutes N] [--seed S]
                        short runs while everything is killed, frozen and cut off; a table of what came of it
./run bench [--quick] [--only 1,4]
                        speed: DBOS and LangGraph beside Abeyance in one sitting; a table of targets met and missed
./run shots [--to FOLDER]
                        the pictures of the documentation, made anew into docs/img
./run COMMAND …         any management command; ./run help lists them
"""
HOMES = 20  # how many test runs may go on side by side

WITHOUT_ENGINES = ("-m", "unit")  # the layer that reaches for none, and is waited for before each commit
NOTHING_CHOSEN = 5  # pytest's status where the arguments leave nothing of a layer
# One worker a processor; whoever is done takes over half of what another has left.
SIDE_BY_SIDE = ("-n", "logical", "--maxprocesses", "4", "--dist", "worksteal")

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
    with _test_environment(engines=tuple(arguments[:2]) != WITHOUT_ENGINES) as environ:
        return foreground([sys.executable, "-m", "pytest", *arguments], environ)


def check(arguments: Sequence[str]) -> int:
    failed, said = [], []
    with _test_environment() as environ:
        for command in (*CHECKS, *_layers(arguments)):
            print(f"── {' '.join(command)}", flush=True)
            start = [sys.executable] if command[0] == "manage.py" else []
            began = time.monotonic()
            status = foreground([*start, *command], environ)
            if _interrupts:
                raise KeyboardInterrupt
            if status not in ({0, NOTHING_CHOSEN} if command[0] == "pytest" else {0}):
                failed.append(" ".join(command[:3]))
            said.append(f"{time.monotonic() - began:8.1f} s  {' '.join(command[:3])}")
    print("──", *said, sep="\n")
    print(f"── failed: {', '.join(failed)}" if failed else "── all well")
    return 1 if failed else 0


def _layers(arguments: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The tests, a layer at a time. Which test is in which: `tests/layers.py`."""
    layers = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["abeyance"]["layers"]
    for name, layer in layers.items():
        yield ("pytest", "-m", name, *(SIDE_BY_SIDE if layer.get("side_by_side") else ()), *arguments)


@contextlib.contextmanager
def _test_environment(*, engines: bool = True) -> Iterator[dict[str, str]]:
    with contextlib.ExitStack() as stack:
        home = _own_home(stack, "test")
        environ = {"SECRET_KEY": "for tests only", **environment.make(home)}
        # They start hundreds of processes: each would compile everything anew where no bytecode is to be kept.
        environ["PYTHONDONTWRITEBYTECODE"] = ""
        wanted = embedded.wanted(home, environ, durable=False) if engines else []
        yield environ | stack.enter_context(embedded.running(home, wanted))


def chaos(arguments: Sequence[str]) -> int:
    """It starts its own engines, whatever the environment names, because it kills them."""
    with contextlib.ExitStack() as stack:
        home = _own_home(stack, "chaos")
        environ = {"SECRET_KEY": "for tests only", **environment.make(home)}
        return foreground([sys.executable, "-m", "tests.chaos", *arguments], environ)


def shots(arguments: Sequence[str]) -> int:
    with _test_environment() as environ:
        return foreground([sys.executable, "-m", "tests.shots", *arguments], environ)


def bench(arguments: Sequence[str]) -> int:
    """It starts engines where none are named, once it has understood what it is asked for."""
    return foreground(
        [sys.executable, "-m", "benchmarks.bench", *arguments], environment.make(environment.var())
    )


def _own_home(stack: contextlib.ExitStack, verb: str) -> Path:
    """The first that nobody uses: several may go on side by side."""
    folders.make_home(environment.var(), folders.account())
    for number in range(1, HOMES + 1):
        home = environment.var() / (verb if number == 1 else f"{verb}-{number}")
        with contextlib.suppress(embedded.Busy):
            stack.enter_context(embedded.held(home, f"./run {verb}"))
            return home
    raise CannotStart(f"./run {verb} goes on here {HOMES} times already.")


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


VERBS = {"up": up.main, "test": test, "check": check, "chaos": chaos, "bench": bench, "shots": shots}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
