"""Releases, expiries, ends and pauses at the same moment: one outcome, and nothing stranded."""
# ruff: noqa: B023 - what `together` starts has ended before the loop goes on

from collections.abc import Callable

import pytest

from runs import endings, holds, lifecycle
from runs.exceptions import HoldClosed, RunEnded
from runs.models import Hold, Run
from runs.states import Cause, RunStatus
from tests.factories import (
    CYD,
    OPERATOR,
    approve,
    drive,
    driven,
    go_on,
    later,
    open_hold,
    reject,
    result,
    verbs,
)
from tests.outside import Outside
from tests.threads import attempt, behind, elsewhere, together

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("invariants")]
Rules = Callable[..., None]
ROUNDS = 30


@pytest.fixture
def held(rules: Rules) -> Run:
    rules(pay="hold", expires_in=60)
    return driven("payer")


def lock(run: Run) -> Callable[[], object]:
    return lambda: lifecycle.lock(run.pk)


def test_release_against_release(rules: Rules, outside: Outside) -> None:
    """ana and ben at once, thirty times: one stands, the other learns of it, one call at most."""
    rules(pay="hold")
    for _ in range(ROUNDS):
        run = driven("payer")
        hold = open_hold(run)
        found = together(lambda: approve(hold), lambda: reject(hold))
        assert [type(f) for f in found].count(HoldClosed) == 1
        stands = Hold.objects.get(pk=hold.pk).resolution
        run.refresh_from_db()
        before = outside.n("pay")
        drive(run)
        assert (run.status, outside.n("pay") - before) == (
            (RunStatus.SUCCEEDED, 1) if stands == "approved" else (RunStatus.FAILED, 0)
        )
        assert [verbs(run).count(v) for v in ("released", "resumed")] == [1, 1]


def test_release_of_two_holds_at_once_strands_nothing(rules: Rules, outside: Outside) -> None:
    """Whoever is second resumes the run, always."""
    rules(pay="hold")
    for _ in range(ROUNDS):
        run = driven("payer")
        holds.pause(run.pk, actor=OPERATOR)
        hold = open_hold(run, Cause.APPROVAL)
        together(lambda: approve(hold), lambda: holds.unpause(run.pk, actor=OPERATOR))
        run.refresh_from_db()
        assert (run.status, verbs(run).count("resumed")) == (RunStatus.QUEUED, 1)
        assert drive(run).status == RunStatus.SUCCEEDED


def test_release_of_three_calls_at_once_starts_each_once(rules: Rules, outside: Outside) -> None:
    rules(pay="hold")
    for _ in range(10):
        run = driven("batch")
        three = [open_hold(run, index=i) for i in range(3)]
        before = outside.n("pay")
        together(*[lambda hold=hold: approve(hold) for hold in three], lambda: elsewhere_drive(run))
        run.refresh_from_db()
        go_on(run)
        assert (run.status, outside.n("pay") - before) == (RunStatus.SUCCEEDED, 3)


def elsewhere_drive(run: Run) -> None:
    from runs import execution

    execution.drive(run.pk)


def test_release_before_expiry(held: Run, outside: Outside) -> None:
    """F36: who commits first stands."""
    hold = open_hold(held)
    later(61)
    first, second = behind(lock(held), lambda: approve(hold), lambda: holds.expire(hold.pk))
    assert (first.resolution, second) == ("approved", False)
    held.refresh_from_db()
    assert (drive(held).status, outside.n("pay")) == (RunStatus.SUCCEEDED, 1)


def test_expiry_before_release(held: Run, outside: Outside) -> None:
    hold = open_hold(held)
    later(61)
    first, second = behind(lock(held), lambda: holds.expire(hold.pk), lambda: approve(hold))
    assert (first, type(second)) == (True, HoldClosed)
    held.refresh_from_db()
    assert (drive(held).status, outside.n("pay")) == (RunStatus.FAILED, 0)


def test_cancel_before_release(held: Run) -> None:
    hold = open_hold(held)
    _, second = behind(lock(held), lambda: endings.cancel(held.pk, actor=CYD), lambda: approve(hold))
    held.refresh_from_db()
    assert (type(second), held.status, verbs(held)[-1]) == (HoldClosed, RunStatus.CANCELLED, "cancelled")


def test_release_before_cancel(held: Run, outside: Outside) -> None:
    hold = open_hold(held)
    behind(lock(held), lambda: approve(hold), lambda: endings.cancel(held.pk, actor=CYD))
    held.refresh_from_db()
    assert (held.status, drive(held).status, outside.n("pay")) == (
        RunStatus.CANCELLED,
        RunStatus.CANCELLED,
        0,
    )


def test_cancel_against_cancel(rules: Rules) -> None:
    rules(pay="hold")
    for _ in range(ROUNDS):
        run = driven("payer")
        found = together(*[lambda: endings.cancel(run.pk, actor=CYD)] * 3)
        assert [type(f) for f in found].count(RunEnded) == 2


def test_cancel_against_expiry_of_the_run(held: Run) -> None:
    later(1000)
    found = together(lambda: endings.cancel(held.pk, actor=CYD), lambda: endings.expire(held.pk, 500))
    held.refresh_from_db()
    assert held.status == (RunStatus.EXPIRED if found[1] else RunStatus.CANCELLED)
    assert isinstance(found[0], RunEnded) == bool(found[1])


def test_pause_against_pause(held: Run) -> None:
    found = together(*[lambda: holds.pause(held.pk, actor=CYD)] * 4)
    assert len({hold.pk for hold in found}) == 1
    held.refresh_from_db()
    assert held.open_holds == 1


def test_pause_before_release(held: Run, outside: Outside) -> None:
    hold = open_hold(held)
    behind(lock(held), lambda: holds.pause(held.pk, actor=CYD), lambda: approve(hold))
    held.refresh_from_db()
    assert (held.status, held.open_holds) == (RunStatus.SUSPENDED, 1)
    assert drive(held).status == RunStatus.SUSPENDED
    holds.unpause(held.pk, actor=CYD)
    held.refresh_from_db()
    drive(held)
    assert outside.n("pay") == 1


def test_release_before_pause(held: Run, outside: Outside) -> None:
    hold = open_hold(held)
    behind(lock(held), lambda: approve(hold), lambda: holds.pause(held.pk, actor=CYD))
    held.refresh_from_db()
    assert held.status == RunStatus.QUEUED
    assert drive(held).status == RunStatus.SUSPENDED
    assert outside.tried("pay") == []


def test_operators_pause_against_a_submitters_resume(rules: Rules) -> None:
    """Whichever is first: an operator's pause is not lifted by a submitter."""
    rules(pay="hold")
    for _ in range(10):
        run = driven("payer")
        holds.pause(run.pk, actor=CYD)
        together(lambda: holds.pause(run.pk, actor=OPERATOR), lambda: holds.unpause(run.pk, actor=CYD))
        standing = Hold.objects.open().filter(run=run, cause=Cause.PERSON).get()
        assert standing.by_operator


def test_expiry_by_many_sweepers_is_one(held: Run) -> None:
    hold = open_hold(held)
    later(61)
    assert sorted(together(*[lambda: holds.expire(hold.pk)] * 4)) == [False, False, False, True]
    held.refresh_from_db()
    assert verbs(held).count("resumed") == 1


def test_look_again_against_evidence(outside: Outside) -> None:
    """The doubt's hold is let go twice at once: the receipt is adopted, and nothing is sent again."""
    from runs import effects
    from runs.actors import Actor
    from runs.invocation import Known
    from tests.factories import step

    for _ in range(10):
        outside.will("pay", "act_then_raise")
        before = len(outside.tried("pay"))
        run = driven("payer")
        row, hold = step(run, 0), open_hold(run)
        known = Known("returned", '"late"')
        told = {"effect_key": row.key, "attempt": 1, "digest": row.arguments_digest, "known": known}
        together(
            lambda: effects.evidence(run.pk, 0, actor=Actor.worker("w1"), **told),  # type: ignore[arg-type]
            lambda: holds.look_again(hold.pk),
        )
        run.refresh_from_db()
        assert result(drive(run)) == "late"
        assert len(outside.tried("pay")) == before + 1


def test_lost_conflicts_write_nothing(held: Run) -> None:
    hold = open_hold(held)
    approve(hold)
    before = verbs(held)
    assert type(elsewhere(lambda: reject(hold))) is HoldClosed
    assert type(attempt(lambda: approve(hold))) is HoldClosed
    assert verbs(held) == before
