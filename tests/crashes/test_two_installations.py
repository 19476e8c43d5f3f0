"""Two installations with databases of their own: a run is exported in one and goes on in the other, once.

Everything runs in processes of its own and through the commands, with the real rules, inbox and authority.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from django.conf import settings

from tests.outside import FOLDER, Outside

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(240)]

SETUP = """
import json, sys, uuid, django
django.setup()
from django.contrib.auth.models import Group, User
from approvals import decisions, policies
from approvals.decisions import Choice
from approvals.models import Permit, Request
from runs import execution, lifecycle
from runs.actors import Actor
from runs.models import JournalEntry, Run
"""
RULES = """
def rule(tool, outcome, **more):
    return {"pass": "verdict", "name": tool, "tool": tool, "expression": "true", "outcome": outcome, **more}
policies.seed([rule("note", "allow"), rule("pay", "hold", group="tellers")])
person = User.objects.create(username=sys.argv[1], email=sys.argv[1] + "@example.org")
person.groups.add(Group.objects.get_or_create(name="tellers")[0])
"""
STOPS = """
run, _ = lifecycle.submit(lifecycle.Submission("transfer", {}, {}), actor=Actor("command", "x", "x"))
execution.drive(run.pk)
print(run.pk)
"""
GOES_ON = """
request = Request.objects.get()
who = User.objects.get(username=sys.argv[1])
choice = Choice("approve", digest=request.revision.digest, basis={"1": "yes"})
decisions.decide(request.ref, person=who, choice=choice)
execution.drive(request.run_id)
"""
TOLD = """
run = Run.objects.get()
print(json.dumps({"id": str(run.pk), "status": run.status, "why": JournalEntry.objects.of(run.stream).last().detail,
    "result": run.result, "requests": list(Request.objects.values_list("state", flat=True)),
    "permits": Permit.objects.count()}))
"""


class Installation:
    def __init__(self, env: dict[str, str]) -> None:
        self.env = env

    def runs(self, script: str, *given: str) -> str:
        return self._call([sys.executable, "-c", SETUP + script, *given])

    def manage(self, *given: str) -> str:
        return self._call([sys.executable, "manage.py", *given])

    def refuses(self, *given: str) -> str:
        done = self._run([sys.executable, "manage.py", *given])
        assert done.returncode == 1
        return done.stderr

    def told(self) -> dict[str, object]:
        found: dict[str, object] = json.loads(self.runs(TOLD))
        return found

    def _call(self, command: list[str]) -> str:
        done = self._run(command)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def _run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=settings.BASE_DIR, env=self.env, capture_output=True, text=True, timeout=120
        )


@pytest.fixture
def here(child_env: dict[str, str], outside: Outside) -> Installation:
    return Installation(
        child_env
        | {"AGENTS": "tests.agents_for_tests", FOLDER: os.environ[FOLDER], "HISTORY_REFUSES_TRUNCATE": "0"}
    )


@pytest.fixture
def there(here: Installation) -> Iterator[Installation]:
    address = urlsplit(here.env["DATABASE_URL"])
    name = f"{address.path[1:]}_there_{os.getpid()}"
    with psycopg.connect(address._replace(path="/postgres").geturl(), autocommit=True) as server:
        server.execute(f'CREATE DATABASE "{name}"')
        try:
            made = Installation(here.env | {"DATABASE_URL": address._replace(path=f"/{name}").geturl()})
            made.manage("migrate", "--verbosity=0")
            yield made
        finally:
            server.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


def test_a_run_goes_on_elsewhere(
    here: Installation, there: Installation, outside: Outside, tmp_path: Path
) -> None:
    run = here.runs(RULES + STOPS, "ana")
    there.runs(RULES, "zoe")
    file = str(tmp_path / "run.json")
    assert here.manage("export", run, "--output", file).splitlines()[0] == file
    assert there.manage("import", file).splitlines()[0] == run
    left = here.told()
    assert (left["status"], left["requests"]) == ("cancelled", ["cancelled"])
    assert "moved to another installation" in str(left["why"])
    assert "is here already" in there.refuses("import", file)
    assert "has ended: cancelled" in here.refuses("export", run, "--output", str(tmp_path / "again.json"))
    there.runs(GOES_ON, "zoe")
    arrived = there.told()
    assert (arrived["id"], arrived["status"], arrived["requests"]) == (run, "succeeded", ["consumed"])
    assert "approve by zoe" in str(arrived["result"])
    assert ([c["arguments"] for c in outside.acted("note")], outside.n("pay")) == (
        [{"text": "a"}, {"text": "b"}],
        1,
    )
    assert here.manage("verify_journal")[:3] == there.manage("verify_journal")[:3] == "ok:"
