"""A warm parent of processes: it has loaded everything, holds no connection and no thread, and forks.

    python -m tests.crashes.nursery

Asked by lines of JSON: `start` forks a child that does one act of `tests.crashes.acts` and notes each point it
passes in a file; `wait` gives its exit code. A child may be told one place, the n-th passing of a point: there it
dies (`os._exit`: nothing is cleaned up, no commit follows) or stands still until a file is gone.
"""

import gc
import json
import os
import sys
import threading
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

DIED, BROKE = 77, 3
COMMIT = "COMMIT"


class Passing:
    """The points of one process, in the order of their passing: `name nth in-a-transaction`, a line each."""

    def __init__(self, trace: str, place: list[Any] | None, gate: str) -> None:
        self.file = os.open(trace, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.place = place and (place[0], place[1])
        self.gate = gate and Path(gate)
        self.passed: Counter[str] = Counter()
        self.one_at_a_time = threading.Lock()

    def __call__(self, name: str) -> None:
        from django.db import connection

        with self.one_at_a_time:
            self.passed[name] += 1
            nth = self.passed[name]
            self.note(f"{name} {nth} {int(connection.in_atomic_block)}")
        if (name, nth) == self.place:
            self.stop()

    def note(self, line: str) -> None:
        os.write(self.file, f"{line}\n".encode())

    def stop(self) -> None:
        if not self.gate:
            os._exit(DIED)
        self.gate.with_suffix(".reached").touch()
        while self.gate.exists():
            time.sleep(0.005)


def _child(asked: dict[str, Any]) -> None:
    """Does its act and exits; what went wrong is on stderr, and in the exit code."""
    code = BROKE
    try:
        from runs import points
        from tests.crashes import acts, causes

        act = getattr(acts, asked["act"], None) or getattr(causes, asked["act"])
        passing = Passing(asked["trace"], asked["place"], asked["gate"])
        if asked["commits"]:
            _note_commits(passing)
        with points.watch(passing):
            act(*asked.get("given", []))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _note_commits(passing: Passing) -> None:
    """Each commit of something written is noted among the points; `SELECT`s write nothing."""
    import psycopg

    executed, committed = psycopg.Cursor.execute, psycopg.Connection.commit
    wrote: set[int] = set()

    def execute(self: Any, query: Any, *given: Any, **more: Any) -> Any:
        done = executed(self, query, *given, **more)
        if str(query).lstrip().startswith(("INSERT", "UPDATE", "DELETE", "WITH")):
            wrote.add(id(self.connection))
            if self.connection.autocommit:
                note(self.connection)
        return done

    def commit(self: Any) -> None:
        committed(self)
        note(self)

    def note(connection: Any) -> None:
        if id(connection) in wrote:
            wrote.discard(id(connection))
            passing.note(f"{COMMIT} 0 0")

    psycopg.Cursor.execute, psycopg.Connection.commit = execute, commit  # type: ignore[method-assign]


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else is said goes to the errors
    import django

    django.setup()
    from django.conf import settings
    from django.db import connections

    from tests.crashes import acts, causes, mutations

    assert acts
    assert causes
    settings.EMAIL_BACKEND = "tests.crashes.reference.Mails"
    mutations.apply(os.environ.get(mutations.MUTATION, ""))
    _warm()
    connections.close_all()
    gc.collect()
    gc.freeze()  # what is loaded is not looked through, and so not copied, in every child
    for line in sys.stdin:
        asked = json.loads(line)
        answer = _start(asked) if asked["do"] == "start" else _wait(asked["pid"])
        answers.write(f"{json.dumps(answer)}\n")
        answers.flush()


def _warm() -> None:
    """What every process would do for the first time: connect, compile queries and templates, import."""
    from django.template.loader import get_template
    from django.urls import reverse

    from tests.crashes import acts

    acts.sweep()
    acts.work()
    reverse("request", args=["R-1"])
    for name in ("emails/request_opened_subject.txt", "emails/request_opened.txt"):
        get_template(name)


def _start(asked: dict[str, Any]) -> int:
    assert threading.active_count() == 1
    pid = os.fork()
    if not pid:
        _child(asked)
    return pid


def _wait(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


if __name__ == "__main__":
    main()
