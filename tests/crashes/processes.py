"""Workers in processes of their own that tests stop, freeze and kill; each drives one run."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from django.conf import settings

from runs.models import Run

DRIVE = """
import sys, uuid, django
django.setup()
from runs import execution
from tests import authority
authority.stand_in()
execution.drive(uuid.UUID(sys.argv[1]))
"""


class Workers:
    """Starts them; `env` is that of the test's own database, queue and outside, `script` what each one does."""

    script = DRIVE

    def __init__(self, env: dict[str, str], folder: Path) -> None:
        self.env = env | {"AGENTS": "tests.agents_for_tests", "HISTORY_REFUSES_TRUNCATE": "0"}
        self.folder = folder
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, run: Run, **points: str) -> subprocess.Popen[bytes]:
        """`points` by name with `_` for `-`: `kill` or `wait`. A waiting one is let go by `go(name)`."""
        told = []
        for name, verb in points.items():
            self.gate(name).touch()
            told.append(f"{name.replace('_', '-')}={verb}:{self.gate(name)}")
        env = self.env | {"ABEYANCE_POINTS": ";".join(told)}
        command = [sys.executable, "-c", self.script, str(run.pk)]
        worker = subprocess.Popen(command, cwd=settings.BASE_DIR, env=env)
        self.started.append(worker)
        return worker

    def gate(self, name: str) -> Path:
        return self.folder / name

    def reached(self, name: str) -> None:
        until(lambda: self.gate(name).with_suffix(".reached").exists())

    def go(self, name: str) -> None:
        self.gate(name).unlink()

    def killed_at(self, run: Run, point: str) -> None:
        """Drives until the point, where the process is killed as by the kernel."""
        assert self.start(run, **{point.replace("-", "_"): "kill"}).wait(timeout=30) == -signal.SIGKILL

    def drives(self, run: Run) -> int:
        """Drives to where it stops; the exit code."""
        code = self.start(run).wait(timeout=60)
        run.refresh_from_db()
        return code

    def end(self) -> None:
        for worker in self.started:
            if worker.poll() is None:
                os.kill(worker.pid, signal.SIGCONT)
                worker.kill()
                worker.wait()


def until(look: object, *, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not look():  # type: ignore[operator]
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.01)


def rules(env: dict[str, str], **words: object) -> None:
    env["TEST_RULES"] = json.dumps(words)
