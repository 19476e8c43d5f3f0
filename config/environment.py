"""The environment our processes run in, made once by whoever starts them.

What the user set stays. What is missing is filled in: the folder for data, a secret key that is made once and
kept, the addresses of engines that run here already. Nothing is read from Django's settings, which read this.
"""

import json
import os
import secrets
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from config import folders
from config.folders import CannotStart

ROOT = Path(__file__).resolve().parent.parent
ADDRESSES = ("DATABASE_URL", "REDIS_URL")
SHARED = ("BASE_URL", "AGENTS", "DEMO", "GATEWAY_URL")
WITHHELD = (*ADDRESSES, "SECRET_KEY", "EMAIL_URL")  # may hold a password
STARTING_TAKES = 90.0


def var() -> Path:
    return Path(os.environ.get("VAR_DIR") or ROOT / "var").resolve()


def make(home: Path) -> dict[str, str]:
    """A copy of ours with what is missing. Makes `home`."""
    folders.make_home(home, folders.account())
    environ = dict(os.environ)
    if not environ.get("DATABASE_URL"):
        # They would quietly change where libpq goes, and are about some other server.
        environ = {name: value for name, value in environ.items() if not name.startswith("PG")}
    environ |= {
        "DJANGO_SETTINGS_MODULE": "config.settings",
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), environ.get("PATH", os.defpath)]),
        "PYTHONHASHSEED": "0",  # sets in agents come in the same order when they are replayed
        "PYTHONUNBUFFERED": "1",
        "TZ": "UTC",
        "VAR_DIR": str(home),
    }
    if local(environ) and not environ.get("SECRET_KEY"):
        environ["SECRET_KEY"] = secret_key(home)
    return environ


def local(environ: Mapping[str, str]) -> bool:
    address = environ.get("BASE_URL") or "http://localhost"
    return urlsplit(address).hostname in {"localhost", "127.0.0.1", "::1"}


def demo(environ: Mapping[str, str]) -> bool:
    wish = environ.get("DEMO")
    return local(environ) if not wish else wish.lower() in {"1", "true", "yes", "on", "t", "y"}


def secret_key(home: Path) -> str:
    """Made at the first start, by whichever process is first."""
    path = home / "secret_key"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path.read_text().strip()
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_urlsafe(50))
    return path.read_text().strip()


@contextmanager
def published(home: Path, environ: Mapping[str, str]) -> Iterator[None]:
    """While it lasts, other commands in this clone find the running engines, and know the same agents.

    What came from outside and may hold a password is not written down, only that it was set.
    """
    path = home / "up.json"
    outside = [name for name in WITHHELD if os.environ.get(name)]
    names = [name for name in (*SHARED, *ADDRESSES) if environ.get(name) and name not in outside]
    partial = path.with_suffix(".part")
    partial.touch(mode=0o600)
    partial.write_text(json.dumps({name: environ[name] for name in names} | {"SET_OUTSIDE": outside}))
    partial.rename(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def join(home: Path, environ: dict[str, str], holder: str) -> None:
    """Fills in what `holder`, which runs here, was started with; waits for a start that is under way."""
    path = home / "up.json"
    until = time.monotonic() + STARTING_TAKES
    while not path.exists():
        if time.monotonic() > until:
            raise CannotStart(f"In use here by {holder}, which does not say where its engines are.")
        time.sleep(0.1)
    said = json.loads(path.read_text())
    missing = [name for name in said.pop("SET_OUTSIDE") if not os.environ.get(name)]
    if missing:
        raise CannotStart(f"The running Abeyance was started with {' and '.join(missing)}; set it here too.")
    for name, value in said.items():
        environ.setdefault(name, value)
