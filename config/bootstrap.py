"""Makes `.venv` what a lock file says, once, and says so in a copy of it that `./run` compares.

Run by the system's Python with nothing installed: the standard library only. One process at a time does this
in a clone (a lock on the folder itself, which ends with the process); one that waited finds it done. An
environment that is there already is completed, not made again, unless its Python is gone or another one.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".venv"
PYTHON = HOME / "bin" / "python"
LOCKS = {"plain": ["requirements.lock"], "dev": ["requirements.lock", "requirements-dev.lock"]}
# Not compiled: what is never imported need not be, and the first start compiles the rest.
PIP = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", "--no-compile"]
STRICT = ["--require-hashes", "--only-binary", ":all:"]


def main(kind: str) -> int:
    locks = LOCKS[kind]
    with Alone():
        if all(_stamped(name) for name in locks) and _usable():
            return 0
        print(f"Installing what {locks[-1]} names into .venv, once…", file=sys.stderr, flush=True)
        if not _usable():
            venv.create(HOME, clear=True, with_pip=True, symlinks=True)
        done = _install(locks[-1])
        if done == 0:
            for name in locks:
                shutil.copyfile(ROOT / name, _stamp(name))
        return done


def _install(lock: str) -> int:
    if subprocess.run([PYTHON, "-m", "pip", "--version"], capture_output=True).returncode != 0:
        subprocess.run([PYTHON, "-m", "ensurepip"], stdout=subprocess.DEVNULL, check=True)
    return subprocess.run([PYTHON, *PIP, *STRICT, "-r", ROOT / lock]).returncode


def _usable() -> bool:
    """Its Python starts and is the one its packages were installed for."""
    look = "import os, sys, sysconfig; sys.exit(not os.path.isdir(sysconfig.get_path('purelib')))"
    try:
        return subprocess.run([PYTHON, "-c", look], capture_output=True).returncode == 0
    except OSError:
        return False


def _stamped(lock: str) -> bool:
    try:
        return _stamp(lock).read_bytes() == (ROOT / lock).read_bytes()
    except OSError:
        return False


def _stamp(lock: str) -> Path:
    return HOME / f"installed-{lock}"


class Alone:
    def __enter__(self) -> None:
        self.folder = os.open(ROOT, os.O_RDONLY)
        try:
            fcntl.flock(self.folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("Another ./run is installing here; waiting for it…", file=sys.stderr, flush=True)
            fcntl.flock(self.folder, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        os.close(self.folder)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1]))
    except KeyboardInterrupt:
        sys.exit(130)
