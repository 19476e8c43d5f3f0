"""Does a fresh clone in a closed folder start, end, start again, survive `kill -9`, with only Python there?

    python3 -m tests.install.fresh_clone [--user NAME]

As whoever calls it, or, called by root, as the account named. Not collected by pytest: it installs everything
anew and takes a minute or two. Linux. Standard library only. Prints one line a promise kept; the first broken
one ends it.
"""

import argparse
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import startup

ADD = "from django.contrib.auth.models import User as U; U.objects.create_user('kept')"
ENOUGH = "import ensurepip, venv, sys; sys.exit(sys.version_info < (3, 11))"
COUNT = """
from django.contrib.auth.models import User
print("kept:", User.objects.filter(username="kept").count())
"""


class Clone:
    def __init__(self, folder: Path, name: str | None) -> None:
        self.account = pwd.getpwnam(name).pw_uid if name else None
        self.path = startup.copy(folder / "clone")
        self.environ = startup.bare(folder, _python(self.account))
        if self.account is not None:
            for path in (folder, *folder.rglob("*")):
                os.chown(path, self.account, self.account, follow_symlinks=False)
        self.before = self.modes()

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["./run", *arguments],
            cwd=self.path,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            user=self.account,
            group=self.account,
            extra_groups=None if self.account is None else [],
        )

    def modes(self) -> dict[Path, int]:
        """Of everything around `var`, the folders above included."""
        mine = (
            path for path in self.path.rglob("*") if not {"var", ".venv", "__pycache__"} & set(path.parts)
        )
        return {path: stat.S_IMODE(path.lstat().st_mode) for path in (*self.path.parents, self.path, *mine)}

    def processes(self) -> list[str]:
        """Command lines of all that run from here or work on its data."""
        marks = [str(self.path)]
        if (note := self.path / "var" / "postgres.where").exists():
            marks.append(note.read_text().strip())
        return [
            line for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if (line := _of(pid, marks))
        ]


def _python(account: int | None) -> str:
    """Ours, or where it is in a folder closed to the account, the system's."""
    for path in (sys.executable, *(f"/usr/bin/python3{minor}" for minor in ("", ".11", ".12", ".13", ".14"))):
        try:
            done = subprocess.run([path, "-c", ENOUGH], user=account, cwd="/", stderr=subprocess.DEVNULL)
        except OSError:
            continue
        if done.returncode == 0:
            return path
    sys.exit("No Python that this account may execute will do.")


def _of(pid: int, marks: list[str]) -> str | None:
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        where = os.readlink(f"/proc/{pid}/cwd")
    except OSError:  # gone, or another's
        return None
    return line if any(mark in line or where.startswith(mark) for mark in marks) else None


def promise(what: str, kept: bool, detail: object = "") -> None:
    if not kept:
        sys.exit(f"BROKEN: {what}\n{detail}")
    print(f"kept: {what}", flush=True)


def gone(clone: Clone, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while clone.processes() and time.monotonic() < until:
        time.sleep(0.1)
    return not clone.processes()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--user")
    with tempfile.TemporaryDirectory(prefix="abeyance-install-", ignore_cleanup_errors=True) as folder:
        clone = Clone(Path(folder), parser.parse_args().user)
        try:
            first_start(clone)
            second_start(clone)
            killed(clone)
            promise("no permission outside var changed", clone.modes() == clone.before)
        finally:
            startup.forget(clone.path)
            if clone.account is not None:
                shutil.rmtree(clone.path, ignore_errors=True)


def first_start(clone: Clone) -> None:
    started = time.monotonic()
    with startup.running(clone.path, clone.environ, clone.account) as (process, port):
        took = time.monotonic() - started
        promise(f"a fresh clone is ready in {took:.0f} s (at most 60)", took <= 60)
        again = clone.run("up", "--port", str(startup.free_port()))
        promise("a second start is refused", again.returncode == 1 and one_line(again.stderr), again)
        promise("the API asks for a key", startup.get(f"http://localhost:{port}/api/v1/runs") == 401)
        added = clone.run("shell", "-c", ADD)
        promise("a command finds the running engines", added.returncode == 0, added)
        process.send_signal(signal.SIGINT)
        promise("Ctrl-C ends it", process.wait(60) == 0)
        promise("Ctrl-C leaves no process", gone(clone, 0.5), clone.processes())


def second_start(clone: Clone) -> None:
    with startup.running(clone.path, clone.environ, clone.account) as (process, port):
        found = clone.run("shell", "-c", COUNT)
        promise("a second start finds its data", "kept: 1" in found.stdout, found)
        taken = subprocess_with_own_var(clone, port)
        promise("a taken port is one line", taken.returncode == 1 and one_line(taken.stderr), taken)
        process.kill()
        process.wait()
        promise("kill -9 leaves no process", gone(clone, 15), clone.processes())


def killed(clone: Clone) -> None:
    with startup.running(clone.path, clone.environ, clone.account) as (process, _port):
        found = clone.run("shell", "-c", COUNT)
        promise("a start after kill -9 finds its data", "kept: 1" in found.stdout, found)
        process.send_signal(signal.SIGTERM)
        promise("SIGTERM ends it", process.wait(60) == 0)
    alone = clone.run("shell", "-c", COUNT)
    promise("a command starts engines of its own", "kept: 1" in alone.stdout, alone)
    promise("and ends them", gone(clone, 0.5), clone.processes())


def subprocess_with_own_var(clone: Clone, port: int) -> subprocess.CompletedProcess[str]:
    other = dict(clone.environ)
    try:
        clone.environ["VAR_DIR"] = str(clone.path / "var" / "other")
        return clone.run("up", "--port", str(port))
    finally:
        clone.environ = other


def one_line(text: str) -> bool:
    return len(text.strip().splitlines()) == 1


if __name__ == "__main__":
    main()
