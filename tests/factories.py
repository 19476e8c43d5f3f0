"""People of the cases, runs, and the moves tests make with them."""

import json
import uuid
from datetime import timedelta
from typing import Any

from runs import allowance, clock, execution, holds, lifecycle, sweeper
from runs.actors import Actor
from runs.models import Hold, Run, Step
from runs.states import Cause, RunStatus

CYD = Actor("key", "cyd", "cyd's key", "api")
ANA = Actor("person", "ana", "ana", "page")
BEN = Actor("person", "ben", "ben", "page")
OPERATOR = Actor("person", "olu", "olu", "admin", operator=True)
#: The id of no run.
NO_RUN = uuid.UUID(int=0)
VERBS_OF_RUNS = (
    "recover",
    "stop",
    "ring",
    "resume",
    "expire_holds",
    "look_again",
    "tell_parents",
    "free_below",
    "cancel_orphans",
    "expire_runs",
)


def submitted(agent: str, **arguments: Any) -> Run:
    """A queued run."""
    run, made = lifecycle.submit(lifecycle.Submission(agent, arguments, {}, owner_id="cyd"), actor=CYD)
    assert made
    return run


def metered(agent: str, limits: dict[str, str], **arguments: Any) -> Run:
    """A queued run that may use so much of each unit."""
    asked = lifecycle.Submission(agent, arguments, {}, owner_id="cyd", limits=allowance.limits(limits))
    return lifecycle.submit(asked, actor=CYD)[0]


def driven(agent: str, **arguments: Any) -> Run:
    """A run that was driven until it stopped or ended."""
    return drive(submitted(agent, **arguments))


def drive(run: Run) -> Run:
    execution.drive(run.pk)
    run.refresh_from_db()
    return run


def sweep_run(run: Run) -> list[str]:
    """One pass of the verbs of runs; the names of those that did something for this run."""
    done = []
    for name in VERBS_OF_RUNS:
        verb = sweeper._verbs[name]
        done += [name for item in verb.find(clock.now()) if verb.act(item)]
    run.refresh_from_db()
    return done


def go_on(run: Run, *, rounds: int = 10) -> Run:
    """Sweeps and drives until the run stands still or has ended."""
    for _ in range(rounds):
        sweep_run(run)
        if run.status != RunStatus.QUEUED:
            break
        drive(run)
    return run


def all_go_on(*, rounds: int = 30) -> None:
    """Sweeps and drives every run until all stand still or have ended."""
    for _ in range(rounds):
        verbs = [sweeper._verbs[name] for name in VERBS_OF_RUNS]
        done = [verb.act(item) for verb in verbs for item in verb.find(clock.now())]
        queued = list(Run.objects.filter(status=RunStatus.QUEUED))
        if not queued and not any(done):
            return
        for run in queued:
            drive(run)
    raise AssertionError("some run never stands still")


def only_child(run: Run) -> Run:
    return Run.objects.get(parent=run)


def later(seconds: float) -> None:
    """The clock moves on by so many seconds from the machine's time (absolute, not added up)."""
    clock.shift(timedelta(seconds=seconds))


def open_hold(run: Run, cause: Cause | None = None, index: int | None = None) -> Hold:
    found = Hold.objects.open().filter(run=run)
    if cause is not None:
        found = found.filter(cause=cause)
    if index is not None:
        found = found.filter(step__index=index)
    return found.get()


def causes(run: Run) -> list[str]:
    """Causes of the open holds, in order."""
    return list(Hold.objects.open().filter(run=run).order_by("opened_at").values_list("cause", flat=True))


def approve(hold: Hold, *, arguments: dict[str, Any] | None = None, note: str = "") -> Hold:
    answer = json.dumps({"by": "ana", "arguments": arguments, "note": note})
    return holds.release(hold.pk, actor=ANA, resolution="approved", answer=answer)


def reject(hold: Hold, reason: str = "wrong payee") -> Hold:
    return holds.release(
        hold.pk, actor=BEN, resolution="rejected", answer=json.dumps({"reason": reason, "by": "ben"})
    )


def answer(hold: Hold, **form: Any) -> Hold:
    return holds.release(
        hold.pk, actor=ANA, resolution="answered", answer=json.dumps({"answer": form, "by": "ana"})
    )


def result(run: Run) -> Any:
    assert run.result is not None, (run.status, run.error, causes(run))
    return json.loads(run.result)


def error(run: Run) -> dict[str, Any]:
    assert run.error is not None, (run.status, run.result, causes(run))
    found: dict[str, Any] = json.loads(run.error)
    return found


def step(run: Run, index: int) -> Step:
    return Step.objects.get(run=run, index=index)


def verbs(run: Run) -> list[str]:
    """What the journal says of a run, in order."""
    from runs.models import JournalEntry

    return list(JournalEntry.objects.of(run.stream).values_list("verb", flat=True))
