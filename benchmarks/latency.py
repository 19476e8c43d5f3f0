"""How long from `decide` to the agent's next line in another process, and what a step costs: a line of JSON.

    python benchmarks/latency.py [--decisions 100] [--steps 300] [--rounds 5]

A real worker, and the engines that DATABASE_URL and REDIS_URL name, else embedded ones of its own. What it
writes goes into a database made for it and dropped at the end, and into Valkey's database 15, which must be
empty. Policy, journal, record, fence and gate are on; the undo window is 0. Milliseconds.
"""

import argparse
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import redis

ROOT = Path(__file__).resolve().parent.parent
TEXT = "a hundred bytes, as a step of an agent usually has some of them, and often more than these, mostly so"
KINDS = ("pure", "repeatable", "once")
PAUSE = 0.03  # for the worker to be back at the queue
HELD = {
    "decide_within": 86400,
    "consume_within": 3600,
    "undo_seconds": 0,
    "group": "reviewers",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--decisions", type=int, default=100)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    with (
        tempfile.TemporaryDirectory(prefix="abeyance-latency-") as folder,
        engines(Path(folder)),
        throw_away_database(),
        empty_queue(),
        listening(Path(folder)) as line,
    ):
        migrate = ["manage.py", "migrate", "--verbosity=0", "--skip-checks"]
        subprocess.run([sys.executable, *migrate], cwd=ROOT, check=True)
        print(json.dumps(measure(line, options)))


# -- The set-up ------------------------------------------------------------------------


@contextmanager
def engines(home: Path) -> Iterator[None]:
    """What the environment names, else our own; durable, as in production."""
    from config import embedded, environment

    os.environ["VAR_DIR"] = str(home)
    environ = environment.make(home)
    with embedded.running(home, embedded.wanted(home, environ)) as addresses:
        agents = {"AGENTS": "benchmarks.latency_agents", "DEMO": "false", "LOG_LEVEL": "WARNING"}
        os.environ.update(environ | addresses | agents | {"PYTHONPATH": str(ROOT)})
        yield


@contextmanager
def throw_away_database() -> Iterator[None]:
    """A new database beside the one that DATABASE_URL names."""
    address, name = os.environ["DATABASE_URL"], f"abeyance_latency_{os.getpid()}"
    with psycopg.connect(address, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name}")
        try:
            os.environ["DATABASE_URL"] = urlsplit(address)._replace(path=f"/{name}").geturl()
            yield
        finally:
            server.execute(f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def empty_queue() -> Iterator[None]:
    """Valkey's database 15: nobody else's worker takes our runs, and ours takes nobody's."""
    address = os.environ["REDIS_URL"].partition("?")[0]
    if not address.startswith("unix"):
        address = urlsplit(address)._replace(path="").geturl()
    os.environ["REDIS_URL"] = f"{address}?db=15"
    with redis.Redis.from_url(os.environ["REDIS_URL"]) as queue:
        if queue.dbsize():
            sys.exit("Database 15 of that Valkey is not empty; this wants one of its own.")
        yield
        queue.flushdb()


@contextmanager
def listening(folder: Path) -> Iterator[socket.socket]:
    """Where agents say what time it is."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        os.environ["LATENCY_SOCKET"] = f"{folder}/said"
        line.bind(os.environ["LATENCY_SOCKET"])
        line.settimeout(30)
        yield line


@contextmanager
def worker() -> Iterator[None]:
    process = subprocess.Popen(
        [sys.executable, "manage.py", "work"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout
        process.stdout.readline()  # its one line: it is ready
        yield
    finally:
        process.terminate()
        process.wait()


# -- Measuring ---------------------------------------------------------------------------


def measure(line: socket.socket, options: argparse.Namespace) -> dict[str, object]:
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    django.setup()
    reviewer = people_and_rules()
    with worker():
        decided(line, reviewer, 5)  # warm
        decisions = decided(line, reviewer, options.decisions)
        rounds = [one_round(line, options.steps) for _ in range(options.rounds)]
    return {
        "decide": {name: spread([each[name] for each in decisions]) for name in decisions[0]},
        "steps": {kind: of_rounds(rounds, kind) for kind in (*KINDS, "raw_commit")},
        "counts": vars(options),
        "machine": machine(),
    }


def people_and_rules() -> object:
    """A reviewer, and rules as an installation has them: the demo's, and three for our tools."""
    from django.contrib.auth.models import Group, User

    from approvals import policies
    from examples.policies import SEED

    def rule(name: str, tool: str, outcome: str, **terms: object) -> dict[str, object]:
        return {
            "pass": "verdict",
            "name": name,
            "tool": tool,
            "expression": "true",
            "outcome": outcome,
            **terms,
        }

    ours = [rule("asked", "approved", "hold", **HELD), *(rule(each, each, "allow") for each in KINDS[1:])]
    policies.seed([*SEED, *ours])
    person = User.objects.create_user("reviewer@example.com", "reviewer@example.com", first_name="Ana")
    person.groups.set(Group.objects.filter(name="reviewers"))
    return person


def decided(line: socket.socket, person: object, count: int) -> list[dict[str, float]]:
    """Each: the time of `decide` itself, until the approved tool's first line, and until the agent's next."""
    from approvals import decisions
    from approvals.models import Request

    found = []
    for number in range(count):
        run = submitted("waiter", text=f"{number} {TEXT}")
        until(lambda run=run: status(run) == "suspended")  # type: ignore[misc]
        time.sleep(PAUSE)
        request = Request.objects.get(run=run)
        choice = decisions.Choice("approve", request.revision.digest)
        asked = time.monotonic_ns()
        decisions.decide(request.ref, person=person, choice=choice)  # type: ignore[arg-type]
        answered = time.monotonic_ns()
        times = {"decide": answered, "tool": heard(line, "tool"), "next_line": heard(line, "line")}
        found.append({name: (at - asked) / 1e6 for name, at in times.items()})
        until(lambda run=run: status(run) == "succeeded")  # type: ignore[misc]
    return found


def one_round(line: socket.socket, steps: int) -> dict[str, float]:
    """Milliseconds a step of each kind, and a single-row commit on one connection, all in the same minute."""
    found = {"raw_commit": raw_commit(steps)}
    for kind in KINDS:
        run = submitted("stepper", what=kind, steps=steps, text=TEXT)
        begun = heard(line, "begin")
        found[kind] = (heard(line, "end") - begun) / 1e6 / steps
        until(lambda run=run: status(run) == "succeeded")  # type: ignore[misc]
    return found


def raw_commit(count: int) -> float:
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS raw_commit (id bigserial PRIMARY KEY, body text)")
        started = time.monotonic_ns()
        for _ in range(count):
            connection.execute("INSERT INTO raw_commit (body) VALUES (%s)", [TEXT], prepare=True)
        return (time.monotonic_ns() - started) / 1e6 / count


# -- Helping -------------------------------------------------------------------------------


def submitted(agent: str, **arguments: object) -> object:
    from runs import lifecycle
    from runs.actors import Actor

    asked = lifecycle.Submission(agent, arguments, {})
    return lifecycle.submit(asked, actor=Actor("key", "latency", "latency", "api"))[0].pk


def status(run: object) -> str:
    from runs.models import Run

    return str(Run.objects.values_list("status", flat=True).get(pk=run))


def until(true: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 30
    while not true():
        if time.monotonic() > give_up:
            sys.exit("A run did not get there in 30 s.")
        time.sleep(0.005)


def heard(line: socket.socket, what: str) -> int:
    said, at = line.recv(100).decode().split(" ")
    assert said == what, f"{said} instead of {what}"
    return int(at)


def spread(values: list[float]) -> dict[str, float]:
    return {
        "median": round(statistics.median(values), 2),
        "p95": round(statistics.quantiles(values, n=20)[-1], 2),
        "min": round(min(values), 2),
    }


def of_rounds(rounds: list[dict[str, float]], kind: str) -> dict[str, float]:
    """The median over the rounds, and of its ratios to a raw commit of the same round."""
    ratios = [each[kind] / each["raw_commit"] for each in rounds]
    return {
        "ms": round(statistics.median(each[kind] for each in rounds), 3),
        "per_raw_commit": round(statistics.median(ratios), 2),
    }


def machine() -> dict[str, object]:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('server_version'), current_setting('fsync')")
        version, fsync = cursor.fetchone()
    return {
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "postgresql": version,
        "fsync": fsync,
    }


if __name__ == "__main__":
    main()
