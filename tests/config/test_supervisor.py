"""The supervisor with tiny real children: lines, restarts, the order of ending, and nothing left behind."""

import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from config import supervisor as room
from config.children import Spec
from config.supervisor import Stopped, Supervisor

pytestmark = pytest.mark.integration  # starts processes


@pytest.fixture
def out():
    return io.StringIO()


@pytest.fixture
def supervisor(out, monkeypatch):
    monkeypatch.setattr(room, "TURN", 0.02)  # nobody here listens to SIGCHLD, which is pytest's own
    made = Supervisor(out)
    yield made
    made.asked = 2
    made.stop([])
    made.close()


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(room, "FIRST_WAIT", 0.01)
    monkeypatch.setattr(room, "LONGEST_WAIT", 0.04)
    monkeypatch.setattr(room.Child.__init__, "__defaults__", (0.01, None, b""))


def python(name, code, **manner):
    return Spec(name, (sys.executable, "-c", code), env=dict(os.environ), **manner)


def lines(out, name):
    return [line.split("│ ", 1)[1] for line in out.getvalue().splitlines() if line.startswith(name)]


def test_lines_of_both_streams_carry_the_name(supervisor, out):
    code = "import sys; print('one', flush=True); print('two', file=sys.stderr); print('three', end='')"
    assert supervisor.run(python("web", code)) == 0
    assert out.getvalue().splitlines() == ["web      │ one", "web      │ two", "web      │ three"]


def test_bytes_that_are_no_text_are_passed_on_as_well_as_can_be(supervisor, out):
    supervisor.run(python("web", r"import sys; sys.stdout.buffer.write(b'\xff\n')"))
    assert lines(out, "web") == ["�"]


def test_hushed_lines_are_not_passed_on(supervisor, out):
    supervisor.run(python("queue", "print('an advert'); print('news')", hush="advert"))
    assert lines(out, "queue") == ["news"]


def test_exit_status_is_given(supervisor):
    assert supervisor.run(python("prepare", "raise SystemExit(3)")) == 3


def test_child_that_ends_comes_back_after_waits_that_double_up_to_a_limit(supervisor, out, quick):
    supervisor.start(python("worker", "raise SystemExit(1)"))
    supervisor.until(lambda: len(lines(out, "worker")) == 4)
    assert lines(out, "worker") == [
        "ended (exit 1); again in 0.01 s",
        "ended (exit 1); again in 0.02 s",
        "ended (exit 1); again in 0.04 s",
        "ended (exit 1); again in 0.04 s",
    ]


def test_child_that_lived_for_a_while_comes_back_as_quickly_as_at_first(supervisor, out, quick, monkeypatch):
    monkeypatch.setattr(room, "LIVED", 0.0)
    supervisor.start(python("worker", "raise SystemExit(1)"))
    supervisor.until(lambda: len(lines(out, "worker")) == 3)
    assert set(lines(out, "worker")) == {"ended (exit 1); again in 0.01 s"}


def test_killed_child_is_named_by_its_signal_and_is_another_process_afterwards(supervisor, out, quick):
    child = supervisor.start(python("web", "import time; print('up', flush=True); time.sleep(60)"))
    supervisor.until(lambda: lines(out, "web") == ["up"])
    first = child.process.pid
    child.process.kill()
    supervisor.until(lambda: lines(out, "web") == ["up", "ended (signal SIGKILL); again in 0.01 s", "up"])
    assert child.process.pid != first


def test_stages_end_one_after_the_other_and_the_unnamed_first(supervisor, out):
    polite = (
        "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: (print('end'), sys.exit()))\n"
    )
    wait = polite + "print('up', flush=True)\ntime.sleep(60)"
    slow = wait.replace("lambda *_: (", "lambda *_: (time.sleep(0.3), ")
    for name, code in (("database", wait), ("queue", slow), ("web", slow), ("worker", wait)):
        supervisor.start(python(name, code))
    supervisor.until(lambda: out.getvalue().count("up") == 4)
    supervisor.stop([("queue",), ("database",)])
    ended = [line.split()[0] for line in out.getvalue().splitlines() if line.endswith("end")]
    assert ended == ["worker", "web", "queue", "database"]
    assert not any(child.running for child in supervisor.children.values())


STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
time.sleep(60)
"""


def test_child_that_does_not_end_is_killed_when_its_patience_is_over(supervisor, out):
    child = supervisor.start(python("web", STUBBORN, patience=0.1))
    supervisor.until(lambda: lines(out, "web") == ["up"])
    supervisor.stop([])
    assert child.process.returncode == -signal.SIGKILL


def test_second_request_to_stop_does_not_wait_for_anybody_s_patience(supervisor, out):
    child = supervisor.start(python("web", STUBBORN, patience=3600))
    supervisor.until(lambda: lines(out, "web") == ["up"])
    supervisor.asked = 2
    supervisor.stop([])
    assert child.process.returncode == -signal.SIGKILL


def test_killed_child_takes_its_own_children_along(supervisor, out):
    grand = f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', {STUBBORN!r}])\n{STUBBORN}"
    supervisor.start(python("web", grand, patience=0.0))
    supervisor.until(lambda: lines(out, "web") == ["up", "up"])
    group = supervisor.children["web"].process.pid
    supervisor.stop([])
    while _group_lives(group):  # pytest's time-out ends it
        time.sleep(0.01)


def test_waiting_ends_when_somebody_asks_to_stop(supervisor):
    supervisor.asked = 1
    with pytest.raises(Stopped):
        supervisor.forever()


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_ask_to_stop(sign, tmp_path):
    code = (
        "from config.supervisor import Stopped, Supervisor\n"
        "s = Supervisor(); s.listen(); print('up', flush=True)\n"
        "try: s.forever()\n"
        "except Stopped: print('stopped')\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "up\n"
    process.send_signal(sign)
    assert process.communicate()[0] == "stopped\n"


def test_nothing_survives_a_supervisor_that_is_killed():
    if not Path("/proc/self").exists():
        pytest.skip("only Linux signals orphans")
    code = (
        "import sys\nfrom config.supervisor import Supervisor\nfrom config.children import Spec\n"
        f"s = Supervisor(); c = s.start(Spec('web', (sys.executable, '-c', {STUBBORN!r})))\n"
        "print(c.process.pid, flush=True)\ns.forever()\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    child = int(process.stdout.readline())
    assert process.stdout.readline().endswith("up\n")
    process.kill()
    process.communicate()
    while _lives(child):  # pytest's time-out ends it
        time.sleep(0.01)


def _group_lives(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    members = [_stat(int(pid)) for pid in os.listdir("/proc") if pid.isdigit()]
    return any(fields[4] == str(group) and fields[2] != "Z" for fields in members if fields)


def _lives(pid):
    fields = _stat(pid)
    return bool(fields) and fields[2] != "Z"


def _stat(pid):
    """pid, name, state, parent, group; a name with blanks would shift them, and ours have none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()
    except OSError:
        return []
