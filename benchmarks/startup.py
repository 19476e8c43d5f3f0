"""Seconds from `./run` to the first 200 of `/healthz`, on a fresh clone: cold, then warm. Prints JSON.

    python3 benchmarks/startup.py

The clone is made in a closed folder (0700) under the system's temporary one and removed afterwards. Cold
includes making `.venv`: so it is also a measure of the way to the package index. Standard library only.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GIVE_UP = 300.0
NEEDED = ("sh", "dirname", "cmp")


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="abeyance-startup-", ignore_cleanup_errors=True) as folder:
        clone = copy(Path(folder) / "clone")
        environ = bare(Path(folder))
        try:
            print(json.dumps({"cold": measure(clone, environ), "warm": measure(clone, environ)}, indent=2))
        finally:
            forget(clone)


def measure(clone: Path, environ: dict[str, str]) -> dict[str, float]:
    """Seconds until ready, and from Ctrl-C until nothing is left."""
    started = time.monotonic()
    with running(clone, environ) as (process, _port):
        ready = time.monotonic() - started
        asked = time.monotonic()
        process.send_signal(signal.SIGINT)
        process.wait(60)
        return {"seconds": round(ready, 1), "stop_seconds": round(time.monotonic() - asked, 1)}


@contextmanager
def running(
    clone: Path, environ: dict[str, str], account: int | None = None
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """`./run up` on a free port, once it is ready; killed if it is still there at the end."""
    port, log = free_port(), clone.parent / "run.log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            ["./run", "up", "--port", str(port)],
            cwd=clone,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            user=account,
            group=account,
            extra_groups=None if account is None else [],
        )
    try:
        until_healthy(process, port, log)
        yield process, port
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def until_healthy(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + GIVE_UP
    while get(f"http://localhost:{port}/healthz") != 200:
        if process.poll() is not None or time.monotonic() > until:
            sys.exit(f"./run did not get ready:\n{log.read_text(errors='replace')[-4000:]}")
        time.sleep(0.05)


def get(address: str) -> int:
    """The status, 0 where nothing answers."""
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def copy(target: Path) -> Path:
    """This working tree without what git ignores, in a folder nobody else may enter."""
    target.mkdir(mode=0o700)
    listed = subprocess.run(
        [
            "git",
            "-c",
            f"safe.directory={ROOT}",
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    return target


def bare(folder: Path, python: str = sys.executable) -> dict[str, str]:
    """An environment whose PATH holds Python and the three commands `./run` uses: no database, no Redis."""
    path = folder / "bin"
    path.mkdir(mode=0o755, exist_ok=True)
    for name in NEEDED:
        if found := shutil.which(name):
            (path / name).symlink_to(found)
    (path / "python3").symlink_to(Path(python).resolve())
    kept = {
        name: value
        for name, value in os.environ.items()
        if name.startswith("PIP_") or "proxy" in name.lower()
    }
    return {**kept, "PATH": str(path), "HOME": str(folder)}


def forget(clone: Path) -> None:
    """What a closed clone keeps elsewhere (only when started by root)."""
    data, sockets = clone / "var" / "postgres.where", clone / "var" / "sockets.where"
    if data.exists():
        shutil.rmtree(Path(data.read_text().strip()).parent)
    if sockets.exists():
        shutil.rmtree(sockets.read_text().strip())


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


if __name__ == "__main__":
    main()
