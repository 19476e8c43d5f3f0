"""Many whole workers at once, RQ's loop and a horse each, forked from one process that has imported everything.

That process is a *release*: with a folder of its own for the code it may share nothing with another one but the
database, the queue and the outside.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
from django.conf import settings

from tests.crashes.processes import until

CODE = ("approvals", "config", "examples", "runs", "static", "templates", "tests", "manage.py")

RELEASE = """
import ctypes, json, os, signal, sys, django
django.setup()
from tests import authority
authority.stand_in()
from django.db import connections
from django.utils.module_loading import autodiscover_modules
from runs import agents, queues
from runs import worker
for given in sys.argv[2:]:
    name, _, value = given.partition("=")
    setattr(worker, name, json.loads(value))
agents.load()
autodiscover_modules("jobs")
connections.close_all()
parent = os.getpid()
for _ in range(int(sys.argv[1])):
    if os.fork() == 0:
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        worker.Worker().work(logging_level="WARNING")
        os._exit(0)
while True:
    try:
        os.wait()
    except ChildProcessError:
        break
"""


class Release:
    """`count` workers of the code in `folder`; `shorter` sets patiences of theirs, by their names in `worker`."""

    def __init__(self, env: dict[str, str], count: int, folder: Path | None = None, **shorter: float) -> None:
        told = [f"{name}={value}" for name, value in shorter.items()]
        command = [sys.executable, "-c", RELEASE, str(count), *told]
        self.count = count
        self.process = subprocess.Popen(command, cwd=folder or settings.BASE_DIR, env=env)

    def workers(self) -> list[psutil.Process]:
        """Those that live."""
        try:
            return psutil.Process(self.process.pid).children()
        except psutil.NoSuchProcess:
            return []

    def ready(self) -> None:
        until(lambda: len(self.workers()) == self.count or time.sleep(0.2), seconds=120)

    def of(self, horse: int) -> psutil.Process:
        """The worker whose horse this is."""
        parent = psutil.Process(horse).parent()
        assert parent is not None
        return parent

    def told(self) -> None:
        """SIGTERM, once, to each worker."""
        for worker in self.workers():
            worker.send_signal(signal.SIGTERM)

    def over(self) -> None:
        """Returns when all of them have ended by themselves."""
        assert self.process.wait(timeout=120) == 0

    def end(self) -> None:
        for worker in self.workers():
            with contextlib.suppress(psutil.NoSuchProcess):
                worker.kill()
        self.process.kill()
        self.process.wait()


def unpacked(folder: Path) -> Path:
    """A copy of the code, as a deployment brings it to another host."""
    for name in CODE:
        source = settings.BASE_DIR / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    return folder


def alone(env: dict[str, str], home: Path) -> dict[str, str]:
    """An environment that names no folder of anybody else's."""
    (home / "tmp").mkdir(parents=True)
    places = {"HOME": str(home), "TMPDIR": str(home / "tmp"), "VAR_DIR": str(home / "var")}
    return {**env, **places, "PYTHONDONTWRITEBYTECODE": "1", "PWD": str(home), "OLDPWD": os.sep}
