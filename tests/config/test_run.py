"""`./run` before it has anything: which Python it takes, what it says where there is none that will do."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.integration  # starts processes


@pytest.fixture
def clone(tmp_path):
    folder = tmp_path / "clone"
    (folder / "bin").mkdir(parents=True)
    shutil.copy(ROOT / "run", folder)
    (folder / "requirements.lock").write_text("# nothing\n")
    for name in ("sh", "dirname", "cmp"):
        (folder / "bin" / name).symlink_to(shutil.which(name))
    return folder


def run(clone, *arguments):
    environ = {**os.environ, "PATH": str(clone / "bin")}
    return subprocess.run([clone / "run", *arguments], env=environ, capture_output=True, text=True, cwd="/")


def put(clone, name, script):
    path = clone / "bin" / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def fake(version, *, venv=True):
    """Answers what `./run` asks a Python: its version, whether that is enough, whether it can make a venv."""
    enough = 0 if int(version.split(".")[1]) >= 11 else 1
    return (
        f'case "$*" in *print*) echo {version};; *"(3, 11)"*) exit {enough};; '
        f'*ensurepip*) exit {0 if venv else 1};; *) echo "started $0 $*";; esac'
    )


def test_no_python_is_one_line(clone):
    done = run(clone)
    assert (done.returncode, done.stderr) == (1, "run: Abeyance needs Python 3.11 or newer; found none.\n")


def test_old_python_is_named_with_its_version(clone):
    old = put(clone, "python3", fake("3.10.13"))
    done = run(clone)
    assert done.returncode == 1
    assert done.stderr == f"run: Abeyance needs Python 3.11 or newer; found 3.10.13 ({old}).\n"


def test_python_without_ensurepip_is_told_what_to_install(clone):
    lacking = put(clone, "python3", fake("3.11.2", venv=False))
    done = run(clone)
    assert done.returncode == 1
    assert done.stderr.startswith(f"run: {lacking} has no venv and ensurepip modules")
    assert len(done.stderr.splitlines()) == 1


def test_first_python_that_will_do_is_taken(clone):
    put(clone, "python3", fake("3.9.1"))
    put(clone, "python3.11", "exit 127")  # a shim for a version that is not installed
    put(clone, "python3.12", fake("3.12.3", venv=False))
    good = put(clone, "python3.13", fake("3.13.1"))
    assert run(clone).stdout == f"started {good} -m config.bootstrap plain\n"


def test_environment_that_is_up_to_date_is_used_without_looking_further(clone):
    ready(clone, "requirements.lock")
    assert run(clone, "--port", "9000").stdout == "started .venv/bin/python -m config.launch --port 9000\n"


def test_changed_lock_is_installed_again(clone):
    ready(clone, "requirements.lock")
    (clone / "requirements.lock").write_text("# changed\n")
    good = put(clone, "python3", fake("3.11.2"))
    assert run(clone, "up").stdout.splitlines() == [
        f"started {good} -m config.bootstrap plain",
        "started .venv/bin/python -m config.launch up",
    ]


@pytest.mark.parametrize("verb", ["test", "check", "chaos", "shots"])
def test_tests_want_more_installed_than_a_start(clone, verb):
    ready(clone, "requirements.lock")
    (clone / "requirements-dev.lock").write_text("# more\n")
    good = put(clone, "python3", fake("3.11.2"))
    assert run(clone, verb).stdout.splitlines()[0] == f"started {good} -m config.bootstrap dev"


def test_folder_with_blanks_will_do(clone, tmp_path):
    moved = clone.rename(tmp_path / "a clone")
    ready(moved, "requirements.lock")
    assert run(moved).stdout == "started .venv/bin/python -m config.launch\n"


def ready(clone, lock):
    (clone / ".venv" / "bin").mkdir(parents=True)
    put(clone, "../.venv/bin/python", 'echo "started $0 $*"')
    shutil.copy(clone / lock, clone / ".venv" / f"installed-{lock}")
