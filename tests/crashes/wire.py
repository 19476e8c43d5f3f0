"""A wire between a process and PostgreSQL that is cut at a chosen place, as a network may.

`cut(marker)` cuts the first connection over which a statement that holds `marker` goes, or the COMMIT behind it:
before the server has seen it, or when it has done it and before its answer is passed on. Either way the process
sees the same: its connection is gone, and it does not know. Connections made after the cut work.
"""

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

NO_TLS = {80877103, 80877104}  # what a client asks first where nobody told it not to
#: A statement by itself is its own commit.
ALONE, COMMIT = "statement", "commit"


class Wire:
    """Listens on loopback; each connection goes on to the server's socket."""

    def __init__(self, server: Path) -> None:
        self._server = str(server / ".s.PGSQL.5432")
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port = self._door.getsockname()[1]
        self._marker = ""
        self._at, self._answer_lost = ALONE, False
        self._once = threading.Lock()
        self.was_cut = threading.Event()
        threading.Thread(target=self._listen, daemon=True).start()

    def url(self, database: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}?sslmode=disable&gssencmode=disable"

    def cut(self, marker: str, *, at: str = COMMIT, done: bool) -> None:
        """The next time. `done`: the server does it, and only its answer is lost."""
        self._at, self._answer_lost, self._marker = at, done, marker
        self.was_cut.clear()

    def close(self) -> None:
        self._door.close()

    # -- One connection -------------------------------------------------------------

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._door.accept()
                threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        server = socket.socket(socket.AF_UNIX)
        with client, server, contextlib.suppress(OSError):
            server.connect(self._server)
            quiet = threading.Event()
            back = threading.Thread(target=_pour, args=(server, client, quiet), daemon=True)
            _begin(client, server)
            back.start()
            texts: dict[bytes, bytes] = {}
            behind = False
            for kind, body in _messages(client):
                said = _executed(kind, body, texts)
                behind, here = self._is_here(said, behind)
                if here:
                    quiet.set()
                    if self._answer_lost:
                        _finish(client, server, kind, body)
                        back.join(timeout=10)
                        assert not back.is_alive()
                    self.was_cut.set()
                    break
                server.sendall(_framed(kind, body))
            server.shutdown(socket.SHUT_RDWR)  # closing would wait for the thread that reads it

    def _is_here(self, said: bytes, behind: bool) -> tuple[bool, bool]:
        """Whether the marked statement came in this transaction, and whether this is the place to cut."""
        marked = bool(self._marker) and self._marker.encode() in said
        if self._at == ALONE:
            return False, marked and self._claim()
        if said.upper().startswith((b"COMMIT", b"ROLLBACK")):
            return False, behind and said.upper().startswith(b"COMMIT") and self._claim()
        return behind or marked, False

    def _claim(self) -> bool:
        with self._once:
            claimed, self._marker = bool(self._marker), ""
            return claimed


def _finish(client: socket.socket, server: socket.socket, kind: bytes, body: bytes) -> None:
    """The server does what it was told, and ends."""
    server.sendall(_framed(kind, body))
    if kind == b"B":  # then its execution, and the synchronisation behind it
        for more, rest in _messages(client):
            server.sendall(_framed(more, rest))
            if more == b"S":
                break
    server.sendall(_framed(b"X", b""))


def _begin(client: socket.socket, server: socket.socket) -> None:
    """The first message has no kind."""
    while True:
        length, code = struct.unpack("!ii", _exactly(client, 8))
        if code not in NO_TLS:
            server.sendall(struct.pack("!ii", length, code) + _exactly(client, length - 8))
            return
        client.sendall(b"N")


def _pour(server: socket.socket, client: socket.socket, quiet: threading.Event) -> None:
    """What the server says goes to the client, unless nobody is to hear it."""
    with contextlib.suppress(OSError):
        while piece := server.recv(65536):
            if not quiet.is_set():
                client.sendall(piece)
        if not quiet.is_set():
            client.shutdown(socket.SHUT_RDWR)


def _messages(client: socket.socket) -> Iterator[tuple[bytes, bytes]]:
    with contextlib.suppress(EOFError):
        while True:
            kind = _exactly(client, 1)
            (length,) = struct.unpack("!i", _exactly(client, 4))
            yield kind, _exactly(client, length - 4)


def _framed(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


def _executed(kind: bytes, body: bytes, texts: dict[bytes, bytes]) -> bytes:
    """The text that this message executes; of prepared ones what was prepared under that name."""
    if kind == b"P":
        name, text, _ = body.split(b"\0", 2)
        texts[name] = text
    elif kind == b"Q":
        return body
    elif kind == b"B":
        return texts.get(body.split(b"\0", 2)[1], b"")
    return b""


def _exactly(one: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        piece = one.recv(count - len(found))
        if not piece:
            raise EOFError
        found += piece
    return found
