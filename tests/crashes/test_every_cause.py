"""Every cause: placed, the process gone, released, gone on with. The same functions, the same transcript.

Each stretch is a process of its own, killed the moment its run is parked. What it passed is told by the
interpreter (`tests.tracing`); what the agent saw, byte for byte, by the agent.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import pytest

from runs import (
    allowance,
    credentials,
    dependencies,
    divergence,
    endings,
    events,
    holds,
    points,
    sweeper,
    versions,
)
from runs.models import Allowance, Dependency, Run, Step
from runs.states import Cause, RunStatus
from tests import agents_of_causes as world
from tests import tracing
from tests.crashes.processes import DRIVE, Workers
from tests.factories import (
    CYD,
    OPERATOR,
    answer,
    approve,
    causes,
    drive,
    later,
    metered,
    open_hold,
    result,
    submitted,
    verbs,
)
from tests.outside import Outside

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("invariants")]
Rules = Callable[..., None]
LONG = 4000.0
BOTH = "tests.agents_for_tests,tests.agents_of_causes"

TRACED = DRIVE.replace(
    "execution.drive(",
    "import os, pathlib\nfrom tests import tracing\n"
    "tracing.start(pathlib.Path(os.environ[tracing.FILE]))\nexecution.drive(",
)

# What is passed, whatever the cause: up to the call in the middle, and from it to the end.
REBUILT = ["take", "load", "check", "advance"]
BEGUN = [*REBUILT, "pass", "arrive", "outcome", "advance", "pass", "arrive"]
CAME_BACK = [*REBUILT, "outcome", "advance", "pass"]
#: What differs, and why: a run that diverges does not get to the call; one whose version nobody has is not taken
#: and stays in the queue; what an ancestor's pause holds is freed after the ancestor is.
STOPPED = {
    Cause.DIVERGED: [*REBUILT, "park"],
    Cause.VERSION: ["take"],
}
RELEASED = {Cause.VERSION: ["release"], Cause.ANCESTOR: ["release", "release", "resume"]}
TOLD = {Cause.ANCESTOR: ["release", "resume"]}  # a child's end goes on to its parent
ENDED = ["outcome", "advance", "pass", "arrive", "outcome", "advance", "finish"]


@dataclass
class Scene:
    """One run that stops for one cause, and the processes that drive it."""

    cause: Cause
    workers: Workers
    outside: Outside
    rules: Rules
    trace: Path
    run: Run = field(init=False)
    ahead: float = 0.0
    free: bool = False

    def submit(self) -> None:
        if self.cause == Cause.ANCESTOR:
            self.run = drive(submitted("witness-above", cause=self.cause)).children.get()
        elif self.cause == Cause.ALLOWANCE and not self.free:
            self.run = metered("witness", {"tokens": str(world.ESTIMATE - 1)}, cause=self.cause)
        else:
            self.run = submitted("witness", cause=self.cause)

    # -- Placing ----------------------------------------------------------------------

    def stop(self) -> list[str]:
        """The run stops for its cause and the process that drove it is killed; what was passed."""
        STOP.get(self.cause, Scene.driven)(self)
        self.run.refresh_from_db()
        stands = RunStatus.QUEUED if self.cause == Cause.VERSION else RunStatus.SUSPENDED
        assert (self.run.status, causes(self.run)) == (stands, [str(self.cause)])
        return tracing.passed(self.trace)

    def driven(self) -> None:
        self.workers.env |= {name: os.environ[name] for name in ("TEST_RULES",) if name in os.environ}
        self.workers.killed_at(self.run, "after-park")

    def approval(self) -> None:
        self.rules(act_approved="hold")
        self.driven()

    def dependency(self) -> None:
        world.away().touch()
        Dependency.objects.create(
            name=world.SERVICE, state="away", failures=3, problem="closed", probe_at=self.run.created_at
        )
        self.driven()

    def credential(self) -> None:
        world.locked().touch()
        self.driven()

    def in_doubt(self) -> None:
        self.outside.will("act_checked", "act_then_raise")
        self.outside.will("look", "raise")
        self.driven()

    def while_driven(self, place: Callable[[], object]) -> None:
        """The hold is placed by somebody else while the first remark is in flight."""
        worker = self.workers.start(self.run, after_effect_before_record="wait", after_park="kill")
        self.workers.reached("after_effect_before_record")
        place()
        self.workers.go("after_effect_before_record")
        worker.wait(timeout=60)

    def person(self) -> None:
        self.while_driven(self.traced(lambda: holds.pause(self.run.pk, actor=OPERATOR)))

    def ancestor(self) -> None:
        above = self.run.parent
        assert above is not None
        self.while_driven(lambda: holds.pause(above.pk, actor=OPERATOR))

    def version(self) -> None:
        """It was to go on, and nobody has its version any more: it stays queued, and is held."""
        self.person()
        holds.unpause(self.run.pk, actor=OPERATOR)
        tracing.passed(self.trace)
        self.traced(lambda: versions.hold(self.run.pk))()
        self.workers.env["AGENTS"] = "tests.agents_for_tests"
        assert self.workers.drives(self.run) == 0
        self.workers.env["AGENTS"] = BOTH

    def traced(self, act: Callable[[], object]) -> Callable[[], None]:
        def do() -> None:
            with tracing.tracing(self.trace):
                act()

        return do

    def diverged(self) -> None:
        """It stopped for something else, and its code was changed meanwhile."""
        self.person()
        holds.unpause(self.run.pk, actor=OPERATOR)
        tracing.passed(self.trace)
        self.workers.env[world.VARIANT] = " new"
        self.workers.drives(self.run)
        del self.workers.env[world.VARIANT]

    # -- Releasing -----------------------------------------------------------------------

    def release(self) -> list[str]:
        with tracing.tracing(self.trace):
            RELEASE[self.cause](self)
        self.run.refresh_from_db()
        return tracing.passed(self.trace)

    def top_up(self) -> None:
        allowance.top_up(Allowance.objects.get().pk, Decimal(1), actor=OPERATOR)
        sweeper.sweep()

    def open_again(self) -> None:
        world.away().unlink()
        assert dependencies.probe(world.SERVICE)
        sweeper.sweep()

    def authorise(self) -> None:
        world.locked().unlink()
        credentials.authorised(world.SECRET, actor=OPERATOR)
        sweeper.sweep()

    def after_a_while(self) -> None:
        self.wait()
        sweeper.sweep()

    def wait(self) -> None:
        self.ahead += LONG
        later(self.ahead)

    def free_above(self) -> None:
        assert self.run.parent is not None
        holds.unpause(self.run.parent.pk, actor=OPERATOR)
        sweeper.sweep()

    def tell(self) -> None:
        events.tell(self.run.pk, name="parcel 0", event_id="1", payload={"word": "yes"}, actor=CYD)

    def due(self) -> None:
        self.wait()
        endings.expire_hold(open_hold(self.run).pk)

    def child_ends(self) -> None:
        drive(self.run.children.get())

    def look_again(self) -> None:
        divergence.look_again(self.run.pk, actor=OPERATOR, why="the code is back")

    def version_is_back(self) -> None:
        assert versions.release(open_hold(self.run).pk)

    # -- Without a stop --------------------------------------------------------------------

    def undisturbed(self) -> bytes:
        """What the same agent sees when nothing stops it, or what it waits for is there before it is parked."""
        for file in (world.away(), world.locked()):
            file.unlink(missing_ok=True)
        self.rules()
        self.free = True
        self.submit()
        with points.on("before-park", self.release):
            drive(self.run)
        assert (self.run.status, self.run.snapshots.count()) == (RunStatus.SUCCEEDED, 0)
        return self.seen()

    def seen(self) -> bytes:
        """The transcript, as the agent saw it when it was built last."""
        return world.transcript(self.run.pk).read_bytes()

    def record(self) -> list[tuple[object, ...]]:
        kept = ("index", "tool", "tool_version", "arguments", "status", "result", "effect")
        return [row[:3] + row[4:] if self.cause == Cause.CHILD else row for row in self._rows(*kept)]

    def _rows(self, *kept: str) -> list[tuple[object, ...]]:
        return list(Step.objects.filter(run=self.run).order_by("index").values_list(*kept))


STOP: dict[Cause, Callable[[Scene], None]] = {
    Cause.APPROVAL: Scene.approval,
    Cause.PERSON: Scene.person,
    Cause.ANCESTOR: Scene.ancestor,
    Cause.DEPENDENCY: Scene.dependency,
    Cause.CREDENTIAL: Scene.credential,
    Cause.IN_DOUBT: Scene.in_doubt,
    Cause.DIVERGED: Scene.diverged,
    Cause.VERSION: Scene.version,
}
RELEASE: dict[Cause, Callable[[Scene], object]] = {
    Cause.APPROVAL: lambda scene: approve(open_hold(scene.run)),
    Cause.QUESTION: lambda scene: answer(open_hold(scene.run), word="yes"),
    Cause.PERSON: lambda scene: holds.unpause(scene.run.pk, actor=OPERATOR),
    Cause.ANCESTOR: Scene.free_above,
    Cause.ALLOWANCE: Scene.top_up,
    Cause.DEPENDENCY: Scene.open_again,
    Cause.CREDENTIAL: Scene.authorise,
    Cause.IN_DOUBT: Scene.after_a_while,
    Cause.DIVERGED: Scene.look_again,
    Cause.VERSION: Scene.version_is_back,
    Cause.TIMER: Scene.due,
    Cause.EVENT: Scene.tell,
    Cause.CHILD: Scene.child_ends,
}


@pytest.fixture
def scene(
    request: pytest.FixtureRequest, workers: Workers, outside: Outside, rules: Rules, tmp_path: Path
) -> Scene:
    trace = tmp_path / "trace"
    workers.script = TRACED
    workers.env |= {"AGENTS": BOTH, tracing.FILE: str(trace)}
    return Scene(request.param, workers, outside, rules, trace)


@pytest.mark.parametrize("scene", list(Cause), indirect=True, ids=str)
def test_every_cause_goes_the_same_way_back(scene: Scene) -> None:
    """Place, the process killed, release, go on: one way for all thirteen, and the agent notices nothing."""
    scene.submit()
    stopped, stood = scene.stop(), scene.run.pk
    seen = scene.seen()
    asked = [name for name in stopped if name not in ("place", "resolve")]
    assert asked == STOPPED.get(scene.cause, [*BEGUN, "park"])
    assert stopped.count("place") == 1

    released = scene.release()
    assert [name for name in released if name in ("release", "resume")] == RELEASED.get(
        scene.cause, ["release", "resume"]
    )
    assert scene.run.status == RunStatus.QUEUED

    assert scene.workers.drives(scene.run) == 0
    came_back = "resolve" if scene.cause == Cause.IN_DOUBT else "come_back"
    assert tracing.passed(scene.trace) == [*CAME_BACK, came_back, *ENDED, *TOLD.get(scene.cause, [])]
    assert scene.run.status == RunStatus.SUCCEEDED

    run, transcript, record = scene.run, scene.seen(), scene.record()
    assert transcript == scene.undisturbed()
    assert record == scene.record()
    assert (run.pk, verbs(run).count("submitted"), run.snapshots.count() > 0) == (stood, 1, True)
    assert (result(run), scene.cause in (Cause.DIVERGED,) or transcript.startswith(seen)) == (
        transcript.decode().split("\n"),
        True,
    )
    assert all(scene.outside.n(tool) == 2 for tool in {call["tool"] for call in scene.outside.tried()})
