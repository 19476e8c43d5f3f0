"""What people and the world do about the causes of holds, as acts of processes; and a short scene for each cause.

A person who finds it done (the pause is lifted, the hold closed) is content.
"""

import os
from contextlib import suppress
from decimal import Decimal
from typing import Any

from runs import allowance, credentials, dependencies, divergence, events, holds, versions
from runs.exceptions import HoldClosed, NotFound, RunEnded, WrongState
from runs.models import Allowance, Dependency, Hold
from runs.states import Cause
from tests import agents_of_causes as world
from tests.crashes.acts import root, work
from tests.factories import CYD, OPERATOR
from tests.outside import Outside

Step = tuple[Any, ...]
LONG = 4000.0


def work_changed() -> None:
    """A worker whose code is another."""
    os.environ[world.VARIANT] = " new"
    work()


def pause() -> None:
    with suppress(RunEnded):
        holds.pause(root().pk, actor=OPERATOR)


def unpause() -> None:
    with suppress(RunEnded, WrongState):
        holds.unpause(root().pk, actor=OPERATOR)


def top_up() -> None:
    for row in Allowance.objects.all():
        allowance.top_up(row.pk, Decimal(100), actor=OPERATOR, once="once")


def close() -> None:
    world.away().touch()
    Dependency.objects.get_or_create(
        name=world.SERVICE, defaults={"state": "away", "failures": 3, "problem": "closed"}
    )


def open_again() -> None:
    world.away().unlink(missing_ok=True)
    dependencies.probe(world.SERVICE)


def lock() -> None:
    world.locked().touch()


def authorise() -> None:
    world.locked().unlink(missing_ok=True)
    with suppress(NotFound):
        credentials.authorised(world.SECRET, actor=OPERATOR)


def fall_silent() -> None:
    Outside.of_this_process().will("act_checked", "act_then_raise")
    Outside.of_this_process().will("look", "raise")


def trouble() -> None:
    Outside.of_this_process().will("fetch", "raise")


def look_again() -> None:
    with suppress(RunEnded, WrongState, HoldClosed):
        divergence.look_again(root().pk, actor=OPERATOR, why="the code is back")


def miss_version() -> None:
    versions.hold(root().pk)


def find_version() -> None:
    for hold in Hold.objects.open().filter(cause=Cause.VERSION):
        versions.release(hold.pk)


def tell() -> None:
    with suppress(RunEnded):
        events.tell(root().pk, name="parcel 0", event_id="1", payload={"word": "yes"}, actor=CYD)


def _witness(cause: str, *acts: str | Step, agent: str = "witness", **limits: str) -> list[Step]:
    submit: Step = ("submit", agent, {"cause": cause}, limits)
    return [submit, *((act,) if isinstance(act, str) else act for act in acts)]


#: What each short run goes through, act by act, when nothing disturbs it.
SCENES: dict[Cause, list[Step]] = {
    Cause.APPROVAL: _witness("approval", "work", "sweep", "decide", "work"),
    Cause.QUESTION: _witness("question", "work", "sweep", "decide", "work"),
    Cause.PERSON: _witness("person", "pause", "work", "unpause", "work"),
    Cause.ANCESTOR: _witness(
        "ancestor", "work_once", "pause", "work", "unpause", "work", "sweep", agent="witness-above"
    ),
    Cause.ALLOWANCE: _witness("allowance", "work", "top_up", "sweep", "work", tokens=str(world.ESTIMATE - 1)),
    Cause.DEPENDENCY: [("close",), *_witness("dependency", "work", "open_again", "sweep", "work")],
    Cause.CREDENTIAL: [("lock",), *_witness("credential", "work", "authorise", "sweep", "work")],
    Cause.IN_DOUBT: [
        ("fall_silent",),
        *_witness("in_doubt", "work", ("later", LONG), "sweep", "work"),
    ],
    Cause.DIVERGED: _witness("approval", "work", "sweep", "decide", "work_changed", "look_again", "work"),
    Cause.VERSION: _witness("version", "miss_version", "find_version", "work"),
    Cause.TIMER: _witness("timer", "work", ("later", LONG), "sweep", "work"),
    Cause.EVENT: _witness("event", "work", "tell", "work"),
    Cause.CHILD: _witness("child", "work", "sweep", "work"),
}
