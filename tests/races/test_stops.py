"""Nothing new starts after the answer of Pause, Stop now or Cancel: both orders, for every way a call starts."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from runs import bulk, endings, execution, holds, lifecycle, points, stops
from runs.models import Run
from runs.states import Cause, RunStatus
from tests.factories import (
    CYD,
    OPERATOR,
    approve,
    causes,
    drive,
    driven,
    go_on,
    later,
    open_hold,
    result,
    step,
    submitted,
)
from tests.outside import Outside
from tests.threads import attempt, behind, elsewhere, together

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("invariants")]
Rules = Callable[..., None]
Press = Callable[[Run], Any]

PRESSED: dict[str, Press] = {
    "pause": lambda run: holds.pause(run.pk, actor=OPERATOR),
    "stop": lambda run: stops.stop_now(run.pk, actor=OPERATOR),
    "cancel": lambda run: endings.cancel(run.pk, actor=OPERATOR),
    "pause all": lambda run: bulk.sweep("pause", run.agent, actor=OPERATOR),
}


def once(action: Callable[[], Any]) -> Callable[[], None]:
    done: list[int] = []

    def act() -> None:
        if not done:
            done.append(1)
            elsewhere(action)

    return act


def driven_with(run: Run, point: str, press: str) -> Run:
    """Drives the run; the button is pressed, and answers, when the worker is at `point` for the first time."""
    with points.on(point, once(lambda: PRESSED[press](run))):
        return drive(run)


def resumed(run: Run) -> Run:
    holds.unpause(run.pk, actor=OPERATOR)
    run.refresh_from_db()
    return go_on(run)


# -- Pure calls -----------------------------------------------------------------------------


@pytest.mark.parametrize("press", sorted(PRESSED))
def test_first_pure_call_after_the_answer(press: str, outside: Outside) -> None:
    """The run was taken and loaded before the button: nothing has committed since, and still it is seen."""
    run = submitted("page-reader")
    fence = lifecycle.take(run.pk, "w1")
    assert fence is not None
    execution.lease.hold(fence, execution.time.monotonic())
    loaded = execution.Drive.load(fence)
    elsewhere(lambda: PRESSED[press](run))
    attempt(loaded.go)
    loaded.drop()
    execution.lease.let_go()
    run.refresh_from_db()
    assert outside.tried() == []
    assert run.status == (RunStatus.CANCELLED if press == "cancel" else RunStatus.SUSPENDED)


@pytest.mark.parametrize("press", sorted(PRESSED))
def test_second_pure_call_after_the_answer(press: str, outside: Outside) -> None:
    run = driven_with(submitted("page-reader"), "after-call-before-record", press)
    assert [call["arguments"]["name"] for call in outside.tried()] == ["one"]
    if press != "cancel":
        assert (resumed(run).status, len(outside.tried())) == (RunStatus.SUCCEEDED, 2)


@pytest.mark.parametrize("press", sorted(PRESSED))
def test_group_of_pure_calls_after_the_answer(press: str, outside: Outside) -> None:
    """None of them has a row yet; those that were let through are stopped before any begins."""
    run = submitted("three-pages")
    fence = lifecycle.take(run.pk, "w1")
    assert fence is not None
    execution.lease.hold(fence, execution.time.monotonic())
    loaded = execution.Drive.load(fence)
    elsewhere(lambda: PRESSED[press](run))
    attempt(loaded.go)
    loaded.drop()
    execution.lease.let_go()
    run.refresh_from_db()
    assert outside.tried() == []
    if press != "cancel":
        assert (resumed(run).status, result(run)) == (RunStatus.SUCCEEDED, ["ok", "ok", "ok"])


def test_pause_between_two_attempts_of_a_pure_call(outside: Outside) -> None:
    outside.will("read_page", "raise", "ok")
    run = driven_with(submitted("page-reader"), "before-retry", "pause")
    assert (run.status, causes(run), len(outside.tried())) == (RunStatus.SUSPENDED, ["person"], 1)
    assert (resumed(run).status, result(run)) == (RunStatus.SUCCEEDED, ["ok", "ok"])


# -- Effects ----------------------------------------------------------------------------------


@pytest.mark.parametrize("press", sorted(PRESSED))
def test_pressed_between_two_attempts_of_an_effect(press: str, outside: Outside) -> None:
    """It was certainly not sent; the agent hears nothing of it, and after the resume it is tried again."""
    outside.will("pay_retried", "not_sent", "ok")
    run = driven_with(submitted("payer", how="pay_retried"), "before-retry", press)
    assert (outside.n("pay_retried"), step(run, 0).effect) == (0, "refused")
    if press == "cancel":
        assert run.status == RunStatus.CANCELLED
        return
    assert (run.status, causes(run)) == (RunStatus.SUSPENDED, ["person"])
    assert (resumed(run).status, outside.n("pay_retried")) == (RunStatus.SUCCEEDED, 1)


def test_pause_between_two_attempts_of_what_may_have_happened(outside: Outside) -> None:
    """It is not called certainly undone: it is in doubt, and repeated under its key after the resume."""
    outside.will("pay_again", "act_then_raise", "ok")
    run = driven_with(submitted("payer", how="pay_again"), "before-retry", "pause")
    assert (run.status, outside.n("pay_again"), step(run, 0).effect) == (RunStatus.SUSPENDED, 1, "in_doubt")
    later(3600)
    assert (resumed(run).status, outside.n("pay_again"), len(outside.keys("pay_again"))) == (
        RunStatus.SUCCEEDED,
        2,
        1,
    )


def test_pause_between_two_attempts_gives_the_permit_back(rules: Rules, outside: Outside) -> None:
    rules(pay_retried="hold")
    run = driven("payer", how="pay_retried")
    approve(open_hold(run))
    run.refresh_from_db()
    outside.will("pay_retried", "not_sent", "ok")
    driven_with(run, "before-retry", "pause")
    assert (outside.n("pay_retried"), step(run, 0).permit) == (0, "")
    assert (resumed(run).status, outside.n("pay_retried"), causes(run)) == (RunStatus.SUCCEEDED, 1, [])


@pytest.mark.parametrize("press", sorted(PRESSED))
@pytest.mark.parametrize("kind", ["unasked", "approved"])
def test_pressed_while_the_intent_waits_for_the_row(
    kind: str, press: str, rules: Rules, outside: Outside
) -> None:
    run = submitted("payer", how="pay_keyed") if kind == "unasked" else approved_payer(rules)
    fence = lifecycle.take(run.pk, "w1")
    assert fence is not None
    execution.lease.hold(fence, execution.time.monotonic())
    behind(lambda: lifecycle.lock(run.pk), lambda: PRESSED[press](run), lambda: execution._until_still(fence))
    execution.lease.let_go()
    run.refresh_from_db()
    assert outside.tried() == []
    assert run.status == (RunStatus.CANCELLED if press == "cancel" else RunStatus.SUSPENDED)


def approved_payer(rules: Rules) -> Run:
    rules(pay="hold")
    run = driven("payer")
    approve(open_hold(run))
    run.refresh_from_db()
    return run


@pytest.mark.parametrize("how", ["pay", "pay_detached", "pay_cancelled"])
def test_stop_after_the_intent(how: str, outside: Outside) -> None:
    """The call is in flight: made, whatever its tool says; what it brings is a receipt or evidence."""
    run = driven_with(submitted("transfer", how=how), "after-effect-before-record", "stop")
    run = go_on(run)
    assert (run.status, causes(run)) == (RunStatus.SUSPENDED, ["person"])
    assert resumed(run).status == RunStatus.SUCCEEDED
    assert (outside.n(how), outside.n("note")) == (1, 2)


def test_stop_of_a_detached_call_in_flight_and_its_evidence(outside: Outside) -> None:
    """F58 for a call that nobody waits for: the run stands still while it is under way, and goes on with what
    it brought."""
    outside.will("pay_detached", "wait")
    run = submitted("transfer", how="pay_detached")
    worker = threading.Thread(target=lambda: elsewhere(lambda: execution.drive(run.pk)))
    worker.start()
    until((outside.folder / "waiting").exists)
    stops.stop_now(run.pk, actor=OPERATOR)
    assert drive(run).status == RunStatus.SUSPENDED
    (outside.folder / "go").touch()
    worker.join(timeout=20)
    assert not worker.is_alive()
    paid = step(run, 1)
    assert ([e["kind"] for e in paid.evidence], paid.status) == (["returned"], "dispatched")
    assert (resumed(run).status, outside.n("note"), paid.attempt) == (RunStatus.SUCCEEDED, 2, 1)


@pytest.mark.parametrize("press", ["pause", "stop", "cancel"])
def test_pressed_in_a_hanging_call_that_is_to_be_finished(press: str, outside: Outside) -> None:
    """F58: the receipt is recorded, the next step does not start, and the record says that it did happen."""
    outside.will("note", "act_then_wait")
    run = submitted("transfer")
    worker = threading.Thread(target=lambda: elsewhere(lambda: execution.drive(run.pk)))
    worker.start()
    until((outside.folder / "waiting").exists)
    PRESSED[press](run)
    run.refresh_from_db()
    assert [each.index for each in stops.in_flight(run)] == [0]
    (outside.folder / "go").touch()
    worker.join(timeout=20)
    run.refresh_from_db()
    assert run.status == (RunStatus.CANCELLED if press == "cancel" else RunStatus.SUSPENDED)
    assert (step(run, 0).effect, outside.n("note"), len(outside.tried("pay"))) == ("confirmed", 1, 0)


def until(look: Callable[[], bool]) -> None:
    waited = threading.Event()
    for _ in range(2000):
        if look():
            return
        waited.wait(0.01)
    raise AssertionError("not within 20 s")


# -- Several buttons at once --------------------------------------------------------------------


def test_pause_and_stop_at_once_are_one_pause() -> None:
    run = submitted("payer")
    together(
        lambda: holds.pause(run.pk, actor=CYD, why="a"),
        lambda: stops.stop_now(run.pk, actor=CYD, why="b"),
        lambda: stops.stop_now(run.pk, actor=CYD, why="c"),
    )
    assert causes(run) == ["person"]
    assert open_hold(run).detail == {"stop_now": True}


def test_two_sweeps_at_once_are_one() -> None:
    runs = [submitted("payer") for _ in range(4)]
    found = together(*[lambda: bulk.sweep("stop", "payer", actor=OPERATOR)] * 2)
    assert [each.runs for each in found] == [4, 4]
    assert sum(each.changed for each in found) == 4
    assert [causes(run) for run in runs] == [["person"]] * 4


def test_sweep_reaches_a_run_that_is_taken_meanwhile(outside: Outside) -> None:
    run = submitted("payer", how="pay_keyed")
    fence = lifecycle.take(run.pk, "w1")
    assert fence is not None
    execution.lease.hold(fence, execution.time.monotonic())
    behind(
        lambda: lifecycle.lock(run.pk),
        lambda: bulk.sweep("pause", "payer", actor=OPERATOR),
        lambda: execution._until_still(fence),
    )
    execution.lease.let_go()
    run.refresh_from_db()
    assert (run.status, causes(run), outside.tried()) == (RunStatus.SUSPENDED, ["person"], [])


def test_resume_and_pause_at_once_leave_nothing_stranded(outside: Outside) -> None:
    run = driven_with(submitted("page-reader"), "after-call-before-record", "pause")
    together(lambda: holds.unpause(run.pk, actor=OPERATOR), lambda: stops.stop_now(run.pk, actor=OPERATOR))
    run = go_on(run)
    assert run.status == RunStatus.SUCCEEDED or causes(run) == ["person"]


def test_cancel_against_the_park(rules: Rules) -> None:
    rules(pay="hold")
    run = driven_with(submitted("payer"), "before-park", "cancel")
    assert (run.status, causes(run)) == (RunStatus.CANCELLED, [])


# -- Runs below -----------------------------------------------------------------------------------


def test_stop_of_a_parent_leaves_the_calls_of_its_children(outside: Outside) -> None:
    parent = driven("starts-payer", how="pay_detached")
    child = Run.objects.get(parent=parent)
    outside.will("pay_detached", "wait")
    worker = threading.Thread(target=lambda: elsewhere(lambda: execution.drive(child.pk)))
    worker.start()
    until((outside.folder / "waiting").exists)
    stops.stop_now(parent.pk, actor=OPERATOR)
    child.refresh_from_db()
    assert child.status == RunStatus.QUEUED
    (outside.folder / "go").touch()
    worker.join(timeout=20)
    assert causes(parent) == ["child", "person"]
    assert Cause.PERSON not in causes(child)
