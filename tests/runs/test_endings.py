"""The only way a run ends: what hangs on it is closed, told and kept visible."""

from collections.abc import Callable

import pytest
from django.conf import settings

from runs import effects, endings, holds, lifecycle, points, signals
from runs.actors import Actor
from runs.exceptions import LostRace, NotFound, RunEnded
from runs.invocation import Known
from runs.models import Hold, JournalEntry, Run
from runs.states import Cause, RunStatus
from tests.factories import (
    CYD,
    NO_RUN,
    OPERATOR,
    answer,
    causes,
    drive,
    driven,
    go_on,
    later,
    open_hold,
    step,
    submitted,
    verbs,
)
from tests.outside import Outside

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("invariants")]
Rules = Callable[..., None]


class Killed(BaseException):
    """Raised at a point: as if the process had died there."""


def die() -> None:
    raise Killed


def killed(run: Run, point: str) -> Run:
    """The run as a worker left it that died at `point`, found by its lease."""
    with pytest.raises(Killed), points.on(point, die):
        drive(run)
    later(settings.LEASE + 1)
    assert lifecycle.recover(run.pk)
    run.refresh_from_db()
    return run


# -- cancel --------------------------------------------------------------------------------


def test_cancel_a_queued_run() -> None:
    run = endings.cancel(submitted("adder", n=1).pk, actor=CYD, why="no more")
    assert (run.status, run.rung_at is None, drive(run).epoch) == (RunStatus.CANCELLED, False, 0)
    assert JournalEntry.objects.of(run.stream).get(verb="cancelled").detail == '{"why":"no more"}'


def test_cancel_a_suspended_run_closes_its_holds(rules: Rules) -> None:
    rules(pay="hold")
    run = driven("batch")
    holds.pause(run.pk, actor=CYD)
    run = endings.cancel(run.pk, actor=OPERATOR)
    assert (run.status, run.open_holds, causes(run)) == (RunStatus.CANCELLED, 0, [])
    assert {(h.resolution, h.released_by_id) for h in Hold.objects.filter(run=run)} == {("run_ended", "olu")}
    assert [s.status for s in run.steps.order_by("index")] == ["held"] * 3


def test_cancel_a_running_run_asks_its_worker() -> None:
    run = submitted("adder", n=1)
    fence = lifecycle.take(run.pk, "w1")
    assert fence is not None
    run = endings.cancel(run.pk, actor=CYD, why="first")
    assert (run.status, (run.stop_requested or {})["by"]["id"]) == (RunStatus.RUNNING, "cyd")
    again = endings.cancel(run.pk, actor=OPERATOR, why="second")
    assert (again.stop_requested or {})["why"] == "first"
    endings.stop(fence)
    run.refresh_from_db()
    assert (run.status, verbs(run)) == (
        RunStatus.CANCELLED,
        ["submitted", "taken", "stop_requested", "cancelled"],
    )


def test_cancel_twice() -> None:
    run = endings.cancel(submitted("adder", n=1).pk, actor=CYD)
    with pytest.raises(RunEnded, match="has ended: cancelled"):
        endings.cancel(run.pk, actor=CYD)


def test_cancel_of_what_succeeded() -> None:
    with pytest.raises(RunEnded, match="has ended: succeeded"):
        endings.cancel(driven("adder", n=0).pk, actor=CYD)


def test_cancel_of_an_unknown_run() -> None:
    with pytest.raises(NotFound):
        endings.cancel(NO_RUN, actor=CYD)


def test_cancel_of_a_diverged_run_always_works() -> None:
    """F34: the way out of a run whose code changed."""
    run = driven("questioner")
    Run.objects.filter(pk=run.pk).update(agent="adder", input='{"n":1}')
    answer(open_hold(run), number=1)
    drive(run)
    assert causes(run) == ["diverged"]
    assert endings.cancel(run.pk, actor=CYD).status == RunStatus.CANCELLED


def test_cancel_of_an_agent_whose_code_is_gone() -> None:
    run = submitted("adder", n=1)
    Run.objects.filter(pk=run.pk).update(agent="gone")
    assert endings.cancel(run.pk, actor=CYD).status == RunStatus.CANCELLED


def test_cancel_while_an_effect_is_in_doubt_keeps_the_doubt(outside: Outside) -> None:
    outside.will("pay", "act_then_raise")
    run = driven("payer")
    assert causes(run) == ["in_doubt"]
    run = endings.cancel(run.pk, actor=CYD)
    assert (run.status, step(run, 0).effect, step(run, 0).open_holds) == (RunStatus.CANCELLED, "in_doubt", 0)


def test_cancel_after_a_worker_died_in_a_call_leaves_the_effect_in_doubt(outside: Outside) -> None:
    """10: an effect nobody wrote down is not forgotten with its run."""
    run = killed(submitted("payer"), "after-call-before-record")
    run = endings.cancel(run.pk, actor=CYD)
    assert (step(run, 0).effect, verbs(run)[-2:]) == ("in_doubt", ["in_doubt", "cancelled"])


def test_evidence_settles_the_doubt_of_a_run_that_ended(outside: Outside) -> None:
    outside.will("pay", "act_then_raise")
    run = driven("payer")
    endings.cancel(run.pk, actor=CYD)
    row = step(run, 0)
    known = Known("returned", '"receipt"')
    assert effects.evidence(
        run.pk,
        0,
        effect_key=row.key,
        attempt=1,
        digest=row.arguments_digest,
        known=known,
        actor=Actor.worker("w1"),
    )
    row.refresh_from_db()
    run.refresh_from_db()
    assert (row.effect, row.status, run.status) == ("confirmed", "dispatched", RunStatus.CANCELLED)


# -- stop ------------------------------------------------------------------------------------


def test_stop_when_nobody_asked() -> None:
    run = submitted("adder", n=1)
    fence = lifecycle.take(run.pk, "w1")
    assert fence is not None
    with pytest.raises(LostRace):
        endings.stop(fence)


def test_stop_lapsed_ends_what_its_worker_could_not() -> None:
    run = submitted("adder", n=1)
    assert lifecycle.take(run.pk, "w1")
    endings.cancel(run.pk, actor=CYD)
    assert not endings.stop_lapsed(run.pk)
    later(settings.LEASE + 1)
    lifecycle.recover(run.pk)
    assert (endings.stop_lapsed(run.pk), endings.stop_lapsed(run.pk)) == (True, False)
    run.refresh_from_db()
    assert run.status == RunStatus.CANCELLED


def test_stop_of_a_recovered_run_by_the_worker_that_takes_it() -> None:
    run = submitted("adder", n=1)
    assert lifecycle.take(run.pk, "w1")
    endings.cancel(run.pk, actor=CYD)
    later(settings.LEASE + 1)
    lifecycle.recover(run.pk)
    run.refresh_from_db()
    assert (drive(run).status, run.position) == (RunStatus.CANCELLED, 0)


# -- expire ----------------------------------------------------------------------------------


def test_expire_after_standing_still_too_long() -> None:
    run = driven("questioner")
    later(101)
    assert (endings.expire(run.pk, 100), endings.expire(run.pk, 100)) == (True, False)
    run.refresh_from_db()
    assert (run.status, causes(run)) == (RunStatus.EXPIRED, [])


def test_expire_too_early() -> None:
    run = driven("questioner")
    later(98)
    assert not endings.expire(run.pk, 100)


def test_expire_of_what_is_not_suspended() -> None:
    later(101)
    assert not endings.expire(submitted("adder", n=1).pk, 100)


def test_expire_of_a_paused_run_waits() -> None:
    run = driven("questioner")
    holds.pause(run.pk, actor=CYD)
    later(101)
    assert not endings.expire(run.pk, 100)


def test_expire_of_a_doubt_waits(outside: Outside) -> None:
    outside.will("pay", "act_then_raise")
    run = driven("payer")
    later(101)
    assert (endings.expire(run.pk, 100), causes(run)) == (False, [Cause.IN_DOUBT])


# -- end ---------------------------------------------------------------------------------------


def test_end_is_heard_inside_the_transaction() -> None:
    heard = []

    def hear(sender: object, *, run: Run, **kwargs: object) -> None:
        heard.append((run.status, Hold.objects.open().filter(run=run).count()))

    run = driven("questioner")
    signals.run_ended.connect(hear)
    endings.cancel(run.pk, actor=CYD)
    signals.run_ended.disconnect(hear)
    assert heard == [(RunStatus.CANCELLED, 0)]


def test_end_that_a_listener_refuses_does_not_happen() -> None:
    def refuse(sender: object, **kwargs: object) -> None:
        raise LookupError

    run = driven("questioner")
    signals.run_ended.connect(refuse)
    with pytest.raises(LookupError):
        endings.cancel(run.pk, actor=CYD)
    signals.run_ended.disconnect(refuse)
    run.refresh_from_db()
    assert (run.status, causes(run)) == (RunStatus.SUSPENDED, ["question"])


def test_end_of_a_run_that_went_on_to_succeed_says_so() -> None:
    run = driven("questioner")
    answer(open_hold(run), number=1)
    go_on(run)
    answer(open_hold(run), number=2)
    go_on(run)
    assert (run.status, verbs(run)[-1]) == (RunStatus.SUCCEEDED, "succeeded")
