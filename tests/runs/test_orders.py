"""Several holds at once, of both scopes, released in every order: the order changes nothing.

A call starts when the last hold that binds it is released, not before and once; what nothing binds starts while
others wait; the end is the same.
"""

from collections.abc import Callable, Iterable
from decimal import Decimal
from itertools import combinations, permutations

import pytest
from django.db import transaction

from runs import allowance, children, credentials, dependencies, events, holds, lifecycle
from runs.models import Allowance, Dependency, Hold, Run
from runs.states import RUN_SCOPED, Cause, RunStatus
from tests import agents_of_causes as world
from tests.factories import (
    CYD,
    OPERATOR,
    answer,
    approve,
    causes,
    drive,
    metered,
    open_hold,
    reject,
    result,
    step,
    submitted,
    verbs,
)
from tests.outside import Outside

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("invariants")]
Rules = Callable[..., None]
Causes = tuple[Cause, ...]

ON_ONE_CALL = [Cause.APPROVAL, Cause.ALLOWANCE, Cause.DEPENDENCY, Cause.CREDENTIAL, *sorted(RUN_SCOPED)]
SIDE_BY_SIDE = [
    Cause.APPROVAL,
    Cause.QUESTION,
    Cause.ALLOWANCE,
    Cause.DEPENDENCY,
    Cause.CREDENTIAL,
    Cause.IN_DOUBT,
    Cause.TIMER,
    Cause.EVENT,
    Cause.CHILD,
    Cause.PERSON,
]
#: Of three at once, one binds the whole run or they are of three kinds: a person's, a machine's, a doubt.
THREES = [
    *((Cause.PERSON, a, b) for a, b in combinations(SIDE_BY_SIDE[:-1], 2)),
    (Cause.APPROVAL, Cause.DEPENDENCY, Cause.IN_DOUBT),
    (Cause.ALLOWANCE, Cause.CREDENTIAL, Cause.CHILD),
    (Cause.QUESTION, Cause.TIMER, Cause.EVENT),
]


def named(found: Iterable[object]) -> str:
    return "-".join(map(str, found))


# -- One call that many things hold ---------------------------------------------------------------


@pytest.fixture
def gated(rules: Rules) -> Callable[[Causes], Run]:
    """A run whose one call is held for all of these."""
    rules(act_approved="hold")

    def make(wanted: Causes) -> Run:
        run = drive(submitted("spread", stages=[["approval"]]))
        for cause in wanted:
            if cause != Cause.APPROVAL:
                place(run, cause)
        if Cause.APPROVAL not in wanted:
            approve(open_hold(run, Cause.APPROVAL))
        return run

    return make


def place(run: Run, cause: Cause) -> None:
    with transaction.atomic():
        on = None if cause in RUN_SCOPED else step(run, 0)
        holds.place(lifecycle.lock(run.pk), cause=cause, actor=OPERATOR, step=on)


def let_go(run: Run, cause: Cause) -> None:
    if cause == Cause.APPROVAL:
        approve(open_hold(run, cause))
    elif cause == Cause.PERSON:
        holds.unpause(run.pk, actor=OPERATOR)
    else:
        holds.release(open_hold(run, cause).pk, actor=OPERATOR, resolution="back")


@pytest.mark.parametrize("wanted", [*combinations(ON_ONE_CALL, 2), *combinations(ON_ONE_CALL, 3)], ids=named)
def test_one_call_starts_after_the_last_of_its_holds(
    wanted: Causes, gated: Callable[[Causes], Run], outside: Outside
) -> None:
    for done, order in enumerate(permutations(wanted)):
        run = gated(wanted)
        for cause in order:
            run.refresh_from_db()
            assert (run.status, outside.n("act_approved")) == (RunStatus.SUSPENDED, done)
            assert drive(run).status == RunStatus.SUSPENDED
            let_go(run, cause)
        run.refresh_from_db()
        assert (run.status, verbs(run).count("resumed")) == (RunStatus.QUEUED, 1)
        assert result(drive(run)) == ["act_approved 0 done"]
        assert outside.n("act_approved") == done + 1


# -- Calls side by side, each held for its own ------------------------------------------------------


class Scene:
    """A run of several calls at once, each of which stops for a cause of its own; a pause may bind them all."""

    SAID = {
        Cause.APPROVAL: "act_approved {} done",
        Cause.QUESTION: "yes",
        Cause.ALLOWANCE: "act {} done",
        Cause.DEPENDENCY: "act_there {} done",
        Cause.CREDENTIAL: "act_signed {} done",
        Cause.IN_DOUBT: "act_checked {} done",
        Cause.TIMER: "None",
        Cause.EVENT: "yes",
        Cause.CHILD: "said {}, says the child",
    }
    ACTS = {c for c, said in SAID.items() if said.startswith("act")}

    def __init__(self, wanted: Causes, outside: Outside) -> None:
        self.outside = outside
        self.calls = [c for c in wanted if c != Cause.PERSON]
        self._spoil_the_world()
        stages = [list(map(str, self.calls))]
        limits = {"tokens": str(world.ESTIMATE - 1)} if Cause.ALLOWANCE in wanted else {}
        self.run = metered("spread", limits, stages=stages)
        drive(self.run)
        for child in self.run.children.all():
            drive(child)  # before the pause: nothing starts below a run that is paused
        if Cause.PERSON in wanted:
            holds.pause(self.run.pk, actor=OPERATOR)
        assert sorted(causes(self.run)) == sorted(map(str, wanted))

    def _spoil_the_world(self) -> None:
        (self.outside.folder / "calls").unlink(missing_ok=True)
        world.away().touch()
        world.locked().touch()
        away = {"state": "away", "failures": 3, "problem": "closed"}
        Dependency.objects.update_or_create(name=world.SERVICE, defaults=away)
        self.outside.will("act_checked", "act_then_raise")
        self.outside.will("look", "raise")

    # -- Releasing, each its own way -------------------------------------------------------

    def let_go(self, cause: Cause) -> None:
        if cause == Cause.PERSON:
            holds.unpause(self.run.pk, actor=OPERATOR)
            return
        getattr(self, f"_let_go_{cause}")(open_hold(self.run, cause))

    def _let_go_approval(self, hold: Hold) -> None:
        approve(hold)

    def _let_go_question(self, hold: Hold) -> None:
        answer(hold, word="yes")

    def _let_go_allowance(self, hold: Hold) -> None:
        covers = Allowance.objects.get(name=f"run:{self.run.pk}")
        allowance.top_up(covers.pk, Decimal(100), actor=OPERATOR)
        allowance.release_covered(covers.pk)

    def _let_go_dependency(self, hold: Hold) -> None:
        world.away().unlink()
        dependencies.succeeded([world.SERVICE])
        holds.look_again(hold.pk)

    def _let_go_credential(self, hold: Hold) -> None:
        world.locked().unlink()
        credentials.authorised(world.SECRET, actor=OPERATOR)
        holds.look_again(hold.pk)

    def _let_go_in_doubt(self, hold: Hold) -> None:
        holds.look_again(hold.pk)

    def _let_go_timer(self, hold: Hold) -> None:
        holds.release(hold.pk, actor=OPERATOR, resolution="due")

    def _let_go_event(self, hold: Hold) -> None:
        events.tell(self.run.pk, name=hold.subject, event_id=str(hold.pk), payload={"word": "yes"}, actor=CYD)

    def _let_go_child(self, hold: Hold) -> None:
        assert children.tell_parent(hold.pk)

    # -- What is so ------------------------------------------------------------------------------

    def made(self) -> set[Cause]:
        """The causes whose calls acted; none acted twice."""
        places = [call["arguments"]["n"] for call in self.outside.acted()]
        assert len(places) == len(set(places))
        return {self.calls[place] for place in places}

    def expected(self) -> list[str]:
        return [self.SAID[cause].format(place) for place, cause in enumerate(self.calls)]


def together(wanted: Causes, order: Causes, outside: Outside) -> None:
    scene = Scene(wanted, outside)
    made = {Cause.IN_DOUBT} & set(wanted)  # it acted, and nobody knew
    assert scene.made() == made
    free: set[Cause] = set()
    for cause in order:
        scene.let_go(cause)
        free.add(cause)
        scene.run.refresh_from_db()
        drive(scene.run)
        paused = Cause.PERSON in wanted and Cause.PERSON not in free
        made |= set() if paused else free & Scene.ACTS
        assert scene.made() == made, (order, cause)
        left = [] if free == set(wanted) else sorted(str(c) for c in wanted if c not in free)
        assert sorted(causes(scene.run)) == left
    assert result(scene.run) == scene.expected()


@pytest.mark.parametrize("wanted", [*combinations(SIDE_BY_SIDE, 2), *THREES], ids=named)
def test_calls_side_by_side_start_each_on_its_own(wanted: Causes, outside: Outside, rules: Rules) -> None:
    rules(act_approved="hold")
    for order in permutations(wanted):
        together(wanted, order, outside)


# -- A no stands ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("last", [Cause.APPROVAL, Cause.DEPENDENCY])
def test_no_stands_whatever_is_released_after_it(
    last: Cause, gated: Callable[[Causes], Run], outside: Outside
) -> None:
    """Rejected while its source is away: the call ends, in either order, and nobody is asked a second time."""
    run = gated((Cause.APPROVAL, Cause.DEPENDENCY))
    both: dict[Cause, Callable[[], object]] = {
        Cause.APPROVAL: lambda: reject(open_hold(run, Cause.APPROVAL)),
        Cause.DEPENDENCY: lambda: let_go(run, Cause.DEPENDENCY),
    }
    first = next(cause for cause in both if cause != last)
    both[first]()
    both[last]()
    run.refresh_from_db()
    assert (result(drive(run)), outside.n("act_approved")) == (["Rejected"], 0)
