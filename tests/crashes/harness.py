"""The crash points: a scene is played once undisturbed to see which points its processes pass, then once for each,
with the process killed (or frozen) there and fresh ones that finish.

A scene is a list of acts, each done by a process of its own. Who is killed is followed by another that does the
same; then workers and sweepers go on until there is nothing to do, the clock moves on, and people do the rest.
What is compared: the transcripts of all runs, what reached the outside, what people were asked.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import redis
from django.apps import apps
from django.conf import settings
from django.db import connection, transaction

from approvals.models import Notification, Request
from runs import clock, journal
from runs.models import JournalEntry, Run, Step
from runs.states import ENDED, ClaimState, StepStatus
from runs.tools import declared
from tests import invariants
from tests.approvals.fixtures import _broken as requests_broken
from tests.crashes.nursery import DIED
from tests.crashes.processes import until
from tests.outside import FOLDER, Outside

Act = tuple[Any, ...]
#: No limit of a process runs out by itself, however busy the machine is: the clock is moved on instead.
CLOCKS = {"LEASE": "30", "HEARTBEAT": "0.5", "FACT_TIMEOUT": "20", "ACT_MARGIN": "60"}
#: Seconds by which the clock moves on after a process died: its lease has run out then, and what it sent may still act.
LEASE_OVER = 40.0
#: And when nothing is left to do now: more than anything waits for by itself, less than people are given.
QUIET = 150.0
IDEMPOTENT, RELEASES = {"file", "vacate", "sign", "act_keyed"}, {"vacate"}
#: What everybody does who finishes.
FINISH = {"work", "sweep", "decide"}
KEPT = {"policy", "policyversion", "rule"}


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """The `nth` passing of a point by the process that does act number `act`."""

    act: int
    name: str
    nth: int
    in_transaction: bool = False

    def __str__(self) -> str:
        return f"{self.act}:{self.name}#{self.nth}"


@dataclass(frozen=True)
class Scene:
    name: str
    acts: list[Act]


@dataclass
class Played:
    """What came of one play."""

    account: dict[str, Any]
    problems: list[str]
    #: Whether a plain effect stood between intent and receipt when its process died.
    unknowable: bool = False
    asked: bool = False
    #: Whether the second place was come by, and its process died there.
    died_again: bool = False
    passed: list[list[Place]] = field(default_factory=list)


class Nursery:
    """The warm process that forks those of a scene."""

    def __init__(self, env: dict[str, str], folder: Path, agents: str, **more: str) -> None:
        self.folder = folder
        self.commits = False  #: whether the children note their commits among the points
        self.errors = (folder / "errors").open("w+")
        told = {
            "AGENTS": agents,
            "HISTORY_REFUSES_TRUNCATE": "0",
            **CLOCKS,
            FOLDER: os.environ[FOLDER],
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.crashes.nursery"],
            cwd=settings.BASE_DIR,
            env=env | told | more,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
        )

    def start(self, act: Act, trace: Path, place: Place | None = None, gate: str = "") -> int:
        where = place and [place.name, place.nth]
        asked = {"act": act[0], "given": act[1:], "trace": str(trace), "place": where, "gate": gate}
        return self._ask({"do": "start", "commits": self.commits, **asked})

    def wait(self, pid: int) -> int:
        return self._ask({"do": "wait", "pid": pid})

    def _ask(self, told: dict[str, Any]) -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(told) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, self.said()
        return int(json.loads(line))

    def said(self) -> str:
        return (self.folder / "errors").read_text()[-6000:]

    def end(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(timeout=30)
        self.process.stdout.close()
        self.errors.close()


class Theatre:
    """Plays scenes in one database, one after the other; each begins with nothing but people and rules."""

    def __init__(self, nursery: Nursery, outside: Outside, folder: Path) -> None:
        self.nursery, self.outside, self.folder = nursery, outside, folder
        self.ahead = 0.0
        self.plays = 0
        self.passed: list[list[Place]] = []
        self.unknowable = self.died_again = False

    # -- Playing -------------------------------------------------------------------------

    def undisturbed(self, scene: Scene) -> Played:
        self._clear()
        for act in scene.acts:
            self._do(act)
        return self._played(finished=self._is_over())

    def killed(self, scene: Scene, place: Place, second: Place | None = None) -> Played:
        """`second`: a place of a process that came after the first one had died; numbers go on from there."""
        self._clear()
        for act in scene.acts[: place.act]:
            self._do(act)
        self._dies(scene.acts[place.act], place)
        return self._goes_on(scene, place.act, second)

    def _dies(self, act: Act, place: Place) -> None:
        code = self._do(act, place)
        assert code == DIED, f"{place} was not reached ({code}): {self.nursery.said()}"
        self._after_the_death(place)

    def _after_the_death(self, place: Place) -> None:
        self._look_at_the_dead()
        self.later(LEASE_OVER)
        if "mail" in place.name:  # it is tried again after a while, and people read it before they decide
            self.later(QUIET)
            self._do(("carry_on",))

    def frozen(self, scene: Scene, place: Place) -> Played:
        """The process stands still until its lease has run out and others have done what there is to do."""
        self._clear()
        for act in scene.acts[: place.act]:
            self._do(act)
        with self._standing_still(scene.acts[place.act], place):
            self.later(LEASE_OVER)
            self._do(("carry_on",))
        return self._goes_on(scene, place.act)

    def paused(self, scene: Scene, place: Place) -> Played:
        """A person pauses the run while the process stands still: no call begins that was not under way."""
        self._clear()
        for act in scene.acts[: place.act]:
            self._do(act)
        with self._standing_still(scene.acts[place.act], place):
            self._do(("pause",))
            sent = Step.objects.filter(status=StepStatus.DISPATCHED).values_list("key", flat=True)
            under_way, before = set(sent), len(self._calls())
        began = [call for call in self._calls()[before:] if call["key"] not in under_way]
        self._do(("unpause",))
        played = self._goes_on(scene, place.act)
        played.problems += [f"{call['tool']} was called while the run was paused" for call in began]
        return played

    @contextmanager
    def _standing_still(self, act: Act, place: Place) -> Iterator[None]:
        gate, trace = self.folder / "gate", self._trace()
        reached = gate.with_suffix(".reached")
        reached.unlink(missing_ok=True)
        gate.touch()
        pid = self.nursery.start(act, trace, place, str(gate))
        self.passed.append([])
        try:
            until(reached.exists)
            yield
        finally:
            gate.unlink()
            assert self.nursery.wait(pid) == 0, self.nursery.said()
        trace.unlink()

    def _goes_on(self, scene: Scene, number: int, second: Place | None = None) -> Played:
        """Somebody does again what was not done, or not to its end; then everybody goes on."""
        again = scene.acts[number]
        acts: list[Act] = [] if again[0] in FINISH else [again]
        if not all(act[0] in FINISH for act in scene.acts[number + 1 :]):
            acts += [("carry_on",), *scene.acts[number + 1 :]]
        for act in acts:
            self._may_die(act, second)
        for _ in range(12):
            self._may_die(("finish",), second)
            if self._is_over():
                break
            self.later(QUIET)
        return self._played(finished=self._is_over())

    def _may_die(self, act: Act, second: Place | None) -> None:
        """How far the others of a parallel batch had come when the first one died is another thing each time, and
        so is what was left to do: the second place need not be come by."""
        if second is not None and second.act == len(self.passed):
            if self._do(act, second) != DIED:
                return
            self.died_again = True
            self._after_the_death(second)
        self._do(act)

    def _do(self, act: Act, place: Place | None = None) -> int:
        if act[0] == "later":
            self.later(act[1])
            self.passed.append([])
            return 0
        trace = self._trace()
        code = self.nursery.wait(self.nursery.start(act, trace, place))
        self._note(trace)
        assert code in (0, DIED), f"{act} ended with {code}: {self.nursery.said()}"
        return code

    def _trace(self) -> Path:
        return self.folder / f"trace.{self.plays}.{len(self.passed)}"

    def _note(self, trace: Path) -> None:
        lines = [line.split() for line in trace.read_text().splitlines()]
        number = len(self.passed)
        self.passed.append([Place(number, name, int(nth), held == "1") for name, nth, held in lines])
        trace.unlink()

    def later(self, seconds: float) -> None:
        self.ahead += seconds
        clock.shift(timedelta(seconds=self.ahead))

    # -- Before and after ------------------------------------------------------------------

    def _clear(self) -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET LOCAL session_replication_role = replica")  # no triggers: history may go
            cursor.execute(_emptying())
        with redis.Redis.from_url(settings.REDIS_URL) as queue:
            if jobs := list(queue.scan_iter("rq:*")):
                queue.delete(*jobs)
        for file in self.outside.folder.iterdir():
            file.unlink()
        self.plays += 1
        self.passed, self.unknowable, self.died_again, self.ahead = [], False, False, 0.0
        self.later(0)

    def _look_at_the_dead(self) -> None:
        """Whether a plain effect is between its intent and its receipt: then nobody can tell by themselves."""
        sent = Step.objects.filter(status=StepStatus.DISPATCHED).values_list("tool", flat=True)
        tools = [declared.get(name) for name in sent]
        self.unknowable = self.unknowable or any(t is not None and not t.repeatable for t in tools)

    def _is_over(self) -> bool:
        return not (
            Run.objects.exclude(status__in=ENDED).exists()
            or Step.objects.exclude(claim__in=["", ClaimState.GIVEN_BACK]).exists()
            or Notification.objects.filter(sent_at__isnull=True, given_up=False).exists()
        )

    def _calls(self) -> list[dict[str, Any]]:
        return [call for call in self.outside.tried() if call["tool"] != "mail"]

    def _played(self, *, finished: bool) -> Played:
        problems = [] if finished else [f"it never ends: {self._standing()}"]
        problems += invariants.broken()
        problems += [f"journal: {b}" for b in journal.broken([Run, Request])]
        problems += list(requests_broken())
        problems += list(self._doubled())
        asked = JournalEntry.objects.filter(verb="settled").exists()
        if asked and not self.unknowable:
            problems.append("a person was asked about an effect, and nothing was unknowable")
        return Played(self._account(), problems, self.unknowable, asked, self.died_again, self.passed)

    def _standing(self) -> list[str]:
        holds = [
            (run.status, list(run.holds.open().values_list("cause", "why"))) for run in Run.objects.all()
        ]
        claims = list(Step.objects.exclude(claim="").values_list("tool", "claim"))
        mails = Notification.objects.filter(sent_at__isnull=True, given_up=False).count()
        return [*map(str, holds), str(claims), f"{mails} mails wait"]

    def _doubled(self) -> Iterator[str]:
        """Each effect of a run has one key; what is not idempotent acted once."""
        acted = Counter(
            (call["tool"], call["key"]) for call in self.outside.acted() if call["tool"] != "mail"
        )
        for (tool, _), count in acted.items():
            if count > 1 and tool not in IDEMPOTENT:
                yield f"{tool} acted {count} times"
        keys = set(Step.objects.exclude(key="").values_list("key", flat=True))
        for tool, key in acted:
            if key not in keys and tool not in RELEASES:
                yield f"{tool} acted under a key that no step has"

    def _account(self) -> dict[str, Any]:
        """What must be the same, whoever was killed."""
        runs = Run.objects.order_by("created_at")
        shown = ("index", "tool", "arguments", "executed", "status", "result", "effect", "claim")
        return {
            "runs": [(run.agent, run.status, run.result, run.error) for run in runs],
            "steps": [
                [self._same(row) for row in run.steps.order_by("index").values_list(*shown)] for run in runs
            ],
            "acted": sorted({(c["tool"], json.dumps(c["arguments"])) for c in self._calls() if c["acted"]}),
            "decided": sorted(Request.objects.values_list("step__index", "state")),
            "mailed": sorted({c["arguments"]["to"] for c in self.outside.tried("mail")}),
        }

    def _same(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """Without the ids of runs, which differ."""
        ids = [str(pk) for pk in Run.objects.order_by("created_at").values_list("pk", flat=True)]
        return tuple(_named(value, ids) for value in row)


@cache
def _emptying() -> str:
    """A few rows are deleted sooner than their files are truncated."""
    found = [
        apps.get_app_config(name).get_models(include_auto_created=True) for name in ("runs", "approvals")
    ]
    tables = [m._meta.db_table for models in found for m in models if m._meta.model_name not in KEPT]
    return "; ".join(f'DELETE FROM "{table}"' for table in tables)


def differences(played: Played, expected: Played) -> list[str]:
    """What is not as it is when nothing disturbs the scene."""
    found = [
        f"{part}: {played.account[part]} instead of {said}"
        for part, said in expected.account.items()
        if played.account[part] != said
    ]
    return [*played.problems, *found]


def _named(value: Any, ids: list[str]) -> Any:
    if not isinstance(value, str):
        return value
    for number, each in enumerate(ids):
        value = value.replace(each, f"run {number}")
    return value
