"""F52: a worker is frozen, its lease runs out, another takes the run over, and then the first one wakes.

For each kind of tool, before the fence, after it, and inside the call. What is promised: no second dispatch that
the database could know of; the late result is evidence, settles its own doubt, and moves nothing else.
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from runs import clock, doubts, lifecycle
from runs.doubts import Said
from runs.exceptions import WrongState
from runs.models import Run, Step
from runs.states import RunStatus
from tests.agents_for_tests import SHORT
from tests.crashes.processes import Workers, until
from tests.factories import OPERATOR, causes, drive, go_on, later, result, step, submitted, verbs
from tests.outside import Outside

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("invariants")]
ALL = ["pay", "pay_keyed", "pay_checked"]
LIMIT = SHORT + 5.0
BEFORE, AFTER, INSIDE = "after_boundary", "after_intent_before_call", "after_call_before_record"
NOT = Said("did_not_happen", "the bank has nothing")


@contextmanager
def frozen(run: Run, point: str, workers: Workers) -> Iterator[subprocess.Popen[bytes]]:
    """W1 is frozen at `point`, and its lease has really run out; W2 may take the run."""
    first = workers.start(run, **{point: "wait"})
    workers.reached(point)
    os.kill(first.pid, signal.SIGSTOP)
    until(lambda: lifecycle.recover(run.pk))
    run.refresh_from_db()
    yield first


def wakes(first: subprocess.Popen[bytes], point: str, workers: Workers) -> None:
    """And does what it does, to its end."""
    workers.go(point)
    os.kill(first.pid, signal.SIGCONT)
    assert first.wait(timeout=30) == 0


def over(run: Run) -> Run:
    """Long after every limit, as far as it goes by itself."""
    for ahead in (LIMIT + 5, 60, 3600):
        later(ahead)
        go_on(run)
    return run


def settled_record(run: Run) -> list[tuple[object, ...]]:
    shown = ("index", "status", "result", "settled", "effect", "attempt", "open_holds")
    return list(Step.objects.filter(run=run).order_by("index").values_list(*shown))


# -- Before the fence --------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ALL)
def test_frozen_before_the_fence_makes_no_call_and_no_write(
    how: str, workers: Workers, outside: Outside
) -> None:
    run = submitted("payer", how=how)
    with frozen(run, BEFORE, workers) as first:
        over(drive(run))
        before, told = settled_record(run), verbs(run)
        wakes(first, BEFORE, workers)
    run.refresh_from_db()
    assert (settled_record(run), verbs(run)) == (before, told)
    by_second = [call["attempt"] for call in outside.tried(how)]
    assert by_second == ([] if how == "pay" else [2])  # nobody can tell of `pay` whether W1 called
    assert run.status == (RunStatus.SUSPENDED if how == "pay" else RunStatus.SUCCEEDED)


# -- After the fence, while W2 waits -----------------------------------------------------------------------


@pytest.mark.parametrize("how", ["pay", "pay_checked"])
@pytest.mark.parametrize("point", [AFTER, INSIDE])
def test_frozen_in_the_call_is_not_repeated_before_its_limit(
    how: str, point: str, workers: Workers, outside: Outside
) -> None:
    """W2 waits; the one that wakes before the limit settles its own doubt, and the run goes on with it."""
    run = submitted("payer", how=how)
    with frozen(run, point, workers) as first:
        drive(run)
        made = 1 if point == INSIDE else 0
        if how == "pay_checked" and made:  # it happened, and looking finds it at once
            assert (run.status, step(run, 0).attempt) == (RunStatus.SUCCEEDED, 1)
        else:
            assert (causes(run), step(run, 0).effect) == (["in_doubt"], "in_doubt")
        later(LIMIT - 2 - SHORT)
        go_on(run)
        assert len(outside.tried(how)) == made
        wakes(first, point, workers)
    run.refresh_from_db()
    go_on(run)
    assert (run.status, len(outside.tried(how)), step(run, 0).attempt) == (RunStatus.SUCCEEDED, 1, 1)
    assert [(e["attempt"], e["kind"]) for e in step(run, 0).evidence] == [(1, "returned")]


@pytest.mark.parametrize("point", [AFTER, INSIDE])
def test_frozen_in_a_keyed_call_is_one_effect_under_one_key(
    point: str, workers: Workers, outside: Outside
) -> None:
    """W2 calls at once; W1's own call arrives as well, under the same key: the outside makes it one."""
    run = submitted("payer", how="pay_keyed")
    with frozen(run, point, workers) as first:
        assert drive(run).status == RunStatus.SUCCEEDED
        before = settled_record(run)
        wakes(first, point, workers)
    assert (settled_record(run), len(outside.keys("pay_keyed"))) == (before, 1)
    assert sorted(call["attempt"] for call in outside.tried("pay_keyed")) == [1, 2]
    assert [(e["attempt"], e["kind"]) for e in step(run, 0).evidence] == [(1, "returned")]


# -- A person, and the one that wakes ----------------------------------------------------------------------


def test_frozen_in_a_plain_call_nobody_can_say_that_it_did_not(workers: Workers, outside: Outside) -> None:
    """Not offered and refused before the limit; the late result then settles it, and nothing is called twice."""
    run = submitted("payer")
    with frozen(run, AFTER, workers) as first:
        drive(run)
        assert doubts.forbids(run, step(run, 0), "did_not_happen").startswith(
            "step 0: the call may still act"
        )
        with pytest.raises(WrongState):
            doubts.settle(run.pk, 0, NOT, actor=OPERATOR)
        wakes(first, AFTER, workers)
    run.refresh_from_db()
    go_on(run)
    assert (result(run), outside.n("pay"), len(outside.tried("pay"))) == (
        f"receipt {step(run, 0).key[:8]}",
        1,
        1,
    )


def test_frozen_until_a_person_was_wrong_is_evidence(workers: Workers, outside: Outside) -> None:
    """Frozen past every limit after it acted: `did not happen` is said, and its receipt comes before the second
    call. The receipt counts; nothing is called again."""
    run = submitted("payer")
    with frozen(run, INSIDE, workers) as first:
        over(drive(run))
        doubts.settle(run.pk, 0, NOT, actor=OPERATOR)
        wakes(first, INSIDE, workers)
    run.refresh_from_db()
    drive(run)
    assert (result(run), len(outside.tried("pay"))) == (f"receipt {step(run, 0).key[:8]}", 1)
    assert clock.now() > (step(run, 0).may_act_until or clock.now())


def test_frozen_past_every_limit_is_what_no_database_can_stop(workers: Workers, outside: Outside) -> None:
    """What is not promised, as it is written in the operators' pages: frozen after the fence and before the call,
    woken after the second one. Both arrive, under one key; nothing here is moved by the late one."""
    run = submitted("payer")
    with frozen(run, AFTER, workers) as first:
        over(drive(run))
        doubts.settle(run.pk, 0, NOT, actor=OPERATOR)
        run.refresh_from_db()
        assert drive(run).status == RunStatus.SUCCEEDED
        before = settled_record(run)
        wakes(first, AFTER, workers)
    assert (settled_record(run), len(outside.keys("pay"))) == (before, 1)
    assert sorted(call["attempt"] for call in outside.tried("pay")) == [1, 2]
    assert [e["kind"] for e in step(run, 0).evidence] == ["did_not_happen", "returned"]
