"""`./run up`: everything Abeyance is, on this machine, until Ctrl-C.

The order is the point: engines, then what a start needs (checks, migrations, the demo's people), then web,
workers, sweeper and the demo's outside system; backwards at the end. The web's sockets are opened here and
handed down, so a taken port is known before anything starts and stays ours while the web restarts.
"""

import argparse
import errno
import signal
import socket
import struct
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from config import embedded, environment
from config.children import Spec
from config.embedded import Engine
from config.environment import ROOT
from config.folders import CannotStart
from config.supervisor import Child, Stopped, Supervisor

WORKERS = ("worker-1", "worker-2")
LAST = (("queue",), ("database",))  # ended after all others, in this order
MOST_WORKERS = 64
READY_WITHIN = 120.0
CLIENT_PATIENCE = 15  # seconds until the next bytes of a request
PORT_PATIENCE = 3.0  # a web whose supervisor was killed a moment ago lets go of the port on its own


def main(arguments: Sequence[str]) -> int:
    options = _options(arguments)
    home = environment.var()
    environ = environment.make(home)
    _local_address(environ, options.port)
    try:
        with embedded.held(home, "./run up"), _doors(options.host, options.port) as doors:
            return _live(home, environ, doors, options)
    except embedded.Busy as busy:
        raise CannotStart(f"Already in use here by {busy}: this folder runs once.") from None


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run up", description="Starts everything; Ctrl-C ends it.")
    parser.add_argument("--port", type=_port, default=8000, help="of the web (8000)")
    parser.add_argument("--host", default="localhost", help="the address to listen on (localhost)")
    parser.add_argument("--workers", type=_workers, default=2, help="how many (2)")
    return parser.parse_args(arguments)


def _port(text: str) -> int:
    return _number(text, range(1, 65536), "a port is a number from 1 to 65535")


def _workers(text: str) -> int:
    return _number(text, range(MOST_WORKERS + 1), f"a number from 0 to {MOST_WORKERS}")


def _number(text: str, wanted: range, right: str) -> int:
    if not (text.isdecimal() and len(text) < 10 and int(text) in wanted):
        raise argparse.ArgumentTypeError(f"{text!r}: {right}")
    return int(text)


def _local_address(environ: dict[str, str], port: int) -> None:
    environ.setdefault("BASE_URL", f"http://localhost:{port}")


def _live(
    home: Path, environ: dict[str, str], doors: list[socket.socket], options: argparse.Namespace
) -> int:
    supervisor = Supervisor()
    supervisor.listen()
    try:
        _engines(supervisor, embedded.wanted(home, environ), environ)
        if supervisor.run(_django("prepare", "prepare", environ=environ)) != 0:
            raise CannotStart("The start stopped there.")
        _people(supervisor, environ, doors, options)
        with environment.published(home, environ):
            if not supervisor.until(Answer(doors[0], environ["BASE_URL"]), READY_WITHIN):
                raise CannotStart(f"The web did not answer in {READY_WITHIN:g} s; what it said is above.")
            print(_welcome(home, environ, options), flush=True)
            supervisor.forever()
    except Stopped:
        supervisor.say("run", "Stopping; Ctrl-C again hurries.")
    finally:
        supervisor.stop(LAST)
        supervisor.close()
    return 0


def _engines(supervisor: Supervisor, engines: list[Engine], environ: dict[str, str]) -> None:
    for engine in engines:
        engine.prepare()
    waiting = [(engine, supervisor.start(engine.spec())) for engine in engines]
    for engine, child in waiting:
        child.restart = False
        supervisor.until(partial(_settled, engine, child), embedded.START_WITHIN)
        if not (child.running and engine.ready()):
            raise CannotStart(f"The {child.spec.name} did not start; what it said is above.")
        child.restart = True
        environ[engine.variable] = engine.url()


def _settled(engine: Engine, child: Child) -> bool:
    return not child.running or engine.ready()


def _people(
    supervisor: Supervisor, environ: dict[str, str], doors: list[socket.socket], options: argparse.Namespace
) -> None:
    if environment.demo(environ) and "GATEWAY_URL" not in environ:
        port = _free_port(options.port + 900)
        environ["GATEWAY_URL"] = f"http://127.0.0.1:{port}"
        supervisor.start(_gateway(port, environ))
    supervisor.start(_web(doors, environ))
    for number in range(1, options.workers + 1):
        supervisor.start(_django(f"worker-{number}", "work", environ=environ, patience=25.0))
    supervisor.start(_django("sweeper", "sweep", environ=environ))


def _gateway(port: int, environ: dict[str, str]) -> Spec:
    """The demo's outside service; what happened in it belongs to this home's runs and to no other's."""
    data = Path(environ["VAR_DIR"]) / "gateway.sqlite3"
    return _python(
        "gateway", "-m", "examples.gateway", "--port", str(port), "--db", str(data), environ=environ
    )


def _web(doors: list[socket.socket], environ: dict[str, str]) -> Spec:
    binds = [part for door in doors for part in ("--bind", f"fd://{door.fileno()}")]
    flags = ["--worker-class=gthread", "--workers=1", "--threads=16", "--no-control-socket"]
    limits = ["--graceful-timeout=5", "--keep-alive=5", "--timeout=60", "--log-level=warning"]
    return _python(
        "web",
        *("-m", "gunicorn", "config.wsgi:application", *flags, *limits, *binds),
        environ=environ,
        fds=tuple(door.fileno() for door in doors),
        orphaned=signal.SIGQUIT,  # at once, and with its own child
    )


def _django(name: str, command: str, *, environ: dict[str, str], patience: float = 10.0) -> Spec:
    return _python(name, "manage.py", command, environ=environ, patience=patience)


def _python(
    name: str,
    *arguments: str,
    environ: dict[str, str],
    fds: tuple[int, ...] = (),
    orphaned: signal.Signals = signal.SIGKILL,
    patience: float = 10.0,
) -> Spec:
    return Spec(
        name,
        (sys.executable, *arguments),
        env=dict(environ),
        cwd=ROOT,
        pass_fds=fds,
        orphaned=orphaned,
        patience=patience,
    )


def _welcome(home: Path, environ: dict[str, str], options: argparse.Namespace) -> str:
    people = home / "demo.txt"
    if environment.demo(environ) and people.exists():
        lines = people.read_text().strip().splitlines()
    else:
        lines = ["The first operator is made by: ./run invite ADDRESS --group operators"]
    if not environment.local(environ):
        lines.append(f"It listens on {options.host}:{options.port}; a proxy with TLS belongs in front.")
    if environment.demo(environ):
        lines.append(f"The demo's outside service: {environ['GATEWAY_URL']}")
    if not environ.get("EMAIL_URL"):
        mails = home / "mail"
        lines.append(
            f"Mails are files in {mails.relative_to(ROOT) if mails.is_relative_to(ROOT) else mails}."
        )
    lines.append("Ctrl-C stops everything; the data stays.")
    rule = "─" * 72
    inner = "\n".join(f"  {line}".rstrip() for line in lines)
    return f"\n{rule}\n  Abeyance is ready: {environ['BASE_URL']}\n\n{inner}\n{rule}\n"


@contextmanager
def _doors(host: str, port: int) -> Iterator[list[socket.socket]]:
    """Listening sockets, for each address the host has: `localhost` is two."""
    doors: list[socket.socket] = []
    try:
        for family, *_, address in socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            if door := _door(family, str(address[0]), port):
                doors.append(door)
        if not doors:
            raise CannotStart(f"Nothing can listen on {host}.")
        yield doors
    finally:
        for door in doors:
            door.close()


def _door(family: int, address: str, port: int) -> socket.socket | None:
    until = time.monotonic() + PORT_PATIENCE
    while True:
        try:
            door = socket.create_server((address, port), family=family, backlog=1024)
            # What is accepted here inherits it: a client that stops half-way holds a thread no longer than that.
            door.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", CLIENT_PATIENCE, 0))
            return door
        except PermissionError:
            raise CannotStart(f"Port {port} is not for ordinary users; try --port 8000.") from None
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                return None  # no IPv6 here, say
            if time.monotonic() > until:
                raise CannotStart(f"Port {port} is taken; try --port {port + 1}.") from None
        time.sleep(0.1)


def _free_port(wish: int) -> int:
    for port in (wish, 0):
        try:
            with socket.create_server(("127.0.0.1", port)) as free:
                return int(free.getsockname()[1])
        except (OSError, OverflowError):
            continue
    raise CannotStart("No port is free.")


class Answer:
    """Whether `/healthz` has answered 200; asks again after any other answer. Never waits."""

    def __init__(self, door: socket.socket, base_url: str) -> None:
        self._address = door.getsockname()[:2]
        host = urlsplit(base_url).netloc
        self._question = f"GET /healthz HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
        self._line: socket.socket | None = None
        self._next = 0.0

    def __call__(self) -> bool:
        if self._line is None:
            return self._ask()
        try:
            said = self._line.recv(100)
        except BlockingIOError:
            return False
        except OSError:
            said = b""
        self._line.close()
        self._line, self._next = None, time.monotonic() + 0.2
        return said.startswith(b"HTTP/1.1 200")

    def _ask(self) -> bool:
        if time.monotonic() > self._next:
            self._line = socket.create_connection(self._address)
            self._line.sendall(self._question)
            self._line.setblocking(False)
        return False
