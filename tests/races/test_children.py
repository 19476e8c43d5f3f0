"""Pause, resume, cancel and end against a run below, at the same moment and in both orders; events told at once.

`behind` makes the order certain: the second waits for a row that the first has locked.
"""
# ruff: noqa: B023 - what `together` starts has ended before the loop goes on

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from runs import children, endings, events, execution, holds, jobs, lifecycle, points
from runs.exceptions import HoldClosed, RunEnded
from runs.models import Event, Hold, JournalEntry, Run
from runs.states import Cause, RunStatus
from tests.factories import (
    CYD,
    all_go_on,
    approve,
    causes,
    drive,
    driven,
    later,
    only_child,
    open_hold,
    result,
    step,
    submitted,
    verbs,
)
from tests.outside import Outside
from tests.threads import behind, elsewhere, together

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("invariants")]
Rules = Callable[..., None]
ROUNDS = 6


def lock(run: Run) -> Callable[[], object]:
    return lambda: lifecycle.lock(run.pk)


def driving(run: Run) -> Callable[[], None]:
    return lambda: execution.drive(run.pk)


def again(run: Run) -> Run:
    run.refresh_from_db()
    return run


# -- Pause ---------------------------------------------------------------------------------


def test_pause_of_the_root_before_a_grandchilds_call(outside: Outside) -> None:
    run = driven("chief")
    boss = drive(only_child(run))
    payer = only_child(boss)
    behind(lock(run), lambda: holds.pause(run.pk, actor=CYD), driving(payer))
    assert (again(payer).status, causes(payer), outside.tried("pay")) == (
        RunStatus.SUSPENDED,
        ["ancestor"],
        [],
    )
    holds.unpause(run.pk, actor=CYD)
    all_go_on()
    assert (again(run).status, outside.n("pay")) == (RunStatus.SUCCEEDED, 1)


def test_pause_of_the_root_after_a_grandchilds_call_began(outside: Outside) -> None:
    """The call is in flight when Pause answers: it is finished, and nothing after it starts."""
    run = driven("chief")
    boss = only_child(run)
    with points.on("after-intent-before-call", lambda: elsewhere(lambda: holds.pause(run.pk, actor=CYD))):
        drive(boss)
    assert (causes(boss), outside.n("note"), Run.objects.count()) == (["ancestor"], 1, 2)
    holds.unpause(run.pk, actor=CYD)
    all_go_on()
    assert (again(run).status, outside.n("note"), outside.n("pay")) == (RunStatus.SUCCEEDED, 2, 1)


def test_pause_answers_and_nothing_starts_after_it(outside: Outside) -> None:
    """Whoever is first: every call that was made had its intent committed before the pause."""
    for _ in range(ROUNDS):
        run = driven("chief")
        boss = drive(only_child(run))
        payer = only_child(boss)
        together(driving(payer), lambda: holds.pause(run.pk, actor=CYD))
        paused = JournalEntry.objects.get(stream=run.stream, verb="held", detail__contains='"person"').at
        started = step(payer, 0).dispatched_at
        assert (started is None) == (causes(payer) == ["ancestor"])
        assert started is None or started <= paused
        holds.unpause(run.pk, actor=CYD)
        all_go_on()
        assert again(run).status == RunStatus.SUCCEEDED
    assert outside.n("pay") == ROUNDS


def test_pause_before_a_childs_start_of_its_own_child() -> None:
    run = driven("chief")
    boss = only_child(run)

    def pause_it() -> None:
        if step(boss, 0).settled:  # its first note is done: next it starts a child
            elsewhere(lambda: holds.pause(run.pk, actor=CYD))

    with points.on("after-boundary", pause_it):
        drive(boss)
    assert (causes(boss), Run.objects.count()) == (["ancestor"], 2)
    holds.unpause(run.pk, actor=CYD)
    all_go_on()
    assert (again(run).status, Run.objects.count()) == (RunStatus.SUCCEEDED, 3)


def test_pause_of_the_parent_before_it_starts_a_child(outside: Outside) -> None:
    run = submitted("boss")
    with points.on("after-effect-before-record", lambda: elsewhere(lambda: holds.pause(run.pk, actor=CYD))):
        drive(run)
    assert (run.status, causes(run), Run.objects.count()) == (RunStatus.SUSPENDED, ["person"], 1)


def test_pause_and_resume_against_a_childs_boundary_strand_nothing(outside: Outside) -> None:
    for _ in range(ROUNDS):
        run = driven("boss")
        child = only_child(run)
        holds.pause(run.pk, actor=CYD)
        together(driving(child), lambda: holds.unpause(run.pk, actor=CYD))
        all_go_on()
        assert (again(run).status, causes(child)) == (RunStatus.SUCCEEDED, [])
    assert outside.n("pay") == ROUNDS


def test_resume_rings_for_what_it_frees() -> None:
    """Told right after the commit: no sweeper is needed."""
    run = driven("boss")
    child = only_child(run)
    holds.pause(run.pk, actor=CYD)
    drive(child)
    holds.unpause(run.pk, actor=CYD)
    assert causes(child) == ["ancestor"]
    assert _rung("runs.jobs.free_below") == [str(run.pk)]
    jobs.free_below(str(run.pk))
    assert (causes(child), again(child).status) == ([], RunStatus.QUEUED)


def _rung(path: str) -> list[str]:
    """Arguments of the jobs of this kind that wait."""
    from runs import queues

    return [str(job.args[0]) for job in queues._bell().jobs if job.func_name == path]


# -- Cancel -----------------------------------------------------------------------------------


def test_cancel_of_the_root_before_a_grandchilds_call(outside: Outside) -> None:
    run = driven("chief")
    boss = drive(only_child(run))
    payer = only_child(boss)
    behind(lock(run), lambda: endings.cancel(run.pk, actor=CYD), driving(payer))
    assert outside.tried("pay") == []
    all_go_on()
    assert {r.status for r in Run.objects.all()} == {RunStatus.CANCELLED}


def test_cancel_of_the_root_while_a_grandchild_is_being_created() -> None:
    """Both orders, many times: a child that was created is found, and ends."""
    for _ in range(ROUNDS):
        run = driven("chief")
        boss = only_child(run)
        together(driving(boss), lambda: endings.cancel(run.pk, actor=CYD))
        all_go_on()
        assert set(Run.objects.values_list("status", flat=True)) == {RunStatus.CANCELLED}


def test_cancel_before_a_running_parent_starts_a_child() -> None:
    run = submitted("boss")
    with points.on(
        "after-effect-before-record", lambda: elsewhere(lambda: endings.cancel(run.pk, actor=CYD))
    ):
        drive(run)
    assert (run.status, Run.objects.count()) == (RunStatus.CANCELLED, 1)


def test_cancel_after_a_running_parent_started_a_child() -> None:
    run = submitted("boss")
    with points.on("before-park", lambda: elsewhere(lambda: endings.cancel(run.pk, actor=CYD))):
        drive(run)
    child = only_child(run)
    assert (run.status, child.status) == (RunStatus.CANCELLED, RunStatus.QUEUED)
    assert _rung("runs.jobs.cancel_below") == [str(run.pk)]
    jobs.cancel_below(str(run.pk))
    assert again(child).status == RunStatus.CANCELLED


def test_cancel_against_a_childs_boundary_is_no_deadlock(outside: Outside) -> None:
    """Each takes several locks; PostgreSQL would name a victim, and `together` would raise it."""
    for _ in range(ROUNDS):
        run = driven("crew")
        one, two = Run.objects.filter(parent=run).order_by("created_at")
        together(driving(one), driving(two), lambda: endings.cancel(run.pk, actor=CYD))
        all_go_on()
        assert again(run).status == RunStatus.CANCELLED
        assert all(r.ended for r in Run.objects.all())


def test_cancel_of_a_parent_against_the_end_of_its_child() -> None:
    for _ in range(ROUNDS):
        run = driven("boss")
        child = only_child(run)
        found = together(driving(child), lambda: endings.cancel(run.pk, actor=CYD))
        all_go_on()
        assert (again(run).status, again(child).ended, type(found[1])) == (RunStatus.CANCELLED, True, Run)


def test_cancel_by_many_sweepers_is_one() -> None:
    run = driven("boss")
    endings.cancel(run.pk, actor=CYD)
    child = only_child(run)
    assert sorted(together(*[lambda: children.cancel_orphan(child.pk)] * 4)) == [False, False, False, True]
    assert verbs(child).count("cancelled") == 1


# -- The end of a child ----------------------------------------------------------------------


def test_end_of_a_child_tells_its_parent_at_once() -> None:
    run = driven("boss")
    drive(only_child(run))
    assert (again(run).status, causes(run)) == (RunStatus.QUEUED, [])
    assert [h.resolution for h in Hold.objects.filter(run=run)] == ["child_ended"]


def test_end_of_a_child_by_cancel_tells_its_parent_at_once() -> None:
    run = driven("boss")
    endings.cancel(only_child(run).pk, actor=CYD, why="not needed")
    assert again(run).status == RunStatus.QUEUED
    assert result(drive(run)) == "cancelled: : not needed"


def test_end_of_a_child_is_committed_before_its_parent_is_locked() -> None:
    """Whoever tells holds nothing: somebody else can lock both at that moment."""
    run = driven("boss")
    child = only_child(run)
    seen: list[str] = []

    def look() -> None:
        with transaction.atomic():
            seen.extend([lifecycle.lock(run.pk).status, lifecycle.lock(child.pk).status])

    with points.on("before-tell-parent", lambda: elsewhere(look)):
        drive(child)
    assert (seen, again(run).status) == ([RunStatus.SUSPENDED, RunStatus.SUCCEEDED], RunStatus.QUEUED)


def test_end_of_a_child_while_its_parent_parks(outside: Outside) -> None:
    """The child is faster than its parent's parking: no lost wake-up, and no second child."""
    run = submitted("boss")
    done: list[Any] = []

    def let_it_end() -> None:
        if not done:
            done.append(elsewhere(driving(only_child(run))))

    with points.on("before-park", let_it_end):
        drive(run)
    assert (run.status, Run.objects.count(), outside.n("pay")) == (RunStatus.SUCCEEDED, 2, 1)


def test_end_of_a_child_told_by_many_is_one_release() -> None:
    """Its own worker and four sweepers at the same moment."""
    run = driven("boss")
    hold = open_hold(run)
    found: list[bool] = []

    def tell() -> None:
        found.extend(together(*[lambda: children.tell_parent(hold.pk)] * 4))

    with points.on("before-tell-parent", tell):
        drive(only_child(run))
    assert sorted(found) == [False, False, False, True]
    assert [verbs(again(run)).count(v) for v in ("released", "resumed")] == [1, 1]


def test_ends_of_two_children_at_once_resume_the_parent_once(outside: Outside) -> None:
    for _ in range(ROUNDS):
        run = driven("crew")
        one, two = Run.objects.filter(parent=run).order_by("created_at")
        together(driving(one), driving(two))
        all_go_on()
        assert (again(run).status, len(result(run))) == (RunStatus.SUCCEEDED, 3)
        assert [verbs(run).count("released"), Run.objects.filter(parent=run).count()] == [2, 2]


# -- Approvals below -------------------------------------------------------------------------


def test_approval_of_a_childs_call_against_the_pause_of_its_parent(rules: Rules, outside: Outside) -> None:
    rules(pay="hold")
    for number in range(ROUNDS):
        run = driven("boss")
        child = drive(only_child(run))
        hold = open_hold(child)

        def approve_and_drive() -> None:
            approve(hold)
            execution.drive(child.pk)

        together(approve_and_drive, lambda: holds.pause(run.pk, actor=CYD))
        made = step(child, 0).dispatched_at is not None
        assert (outside.n("pay") - number) == int(made)
        assert causes(child) == ([] if made else ["ancestor"])
        holds.unpause(run.pk, actor=CYD)
        all_go_on()
        assert (again(run).status, outside.n("pay")) == (RunStatus.SUCCEEDED, number + 1)


# -- Events ----------------------------------------------------------------------------------


def told(run: Run, number: int = 5, event_id: str = "e1") -> bool:
    return events.tell(run.pk, name="arrived", event_id=event_id, payload=number, actor=CYD)[1]


def test_event_told_many_times_at_once_counts_once() -> None:
    for _ in range(ROUNDS):
        run = driven("expectant", times=2)
        found = together(*[lambda: told(run)] * 5)
        assert sorted(found) == [False] * 4 + [True]
        drive(again(run))
        assert (causes(run), Event.objects.filter(run=run).count()) == (["event"], 1)


def test_event_told_with_two_payloads_at_once_counts_as_the_first() -> None:
    for _ in range(ROUNDS):
        run = driven("expectant")
        found = together(lambda: told(run, 1), lambda: told(run, 2))
        assert sorted(type(f).__name__ for f in found) == ["EventReused", "bool"]
        stands = 1 if found[0] is True else 2
        assert result(drive(again(run))) == [stands]


def test_event_between_arrival_and_park_is_not_lost() -> None:
    run = submitted("expectant")
    done: list[Any] = []

    def tell_it() -> None:
        if not done:
            done.append(elsewhere(lambda: told(run)))

    with points.on("before-park", tell_it):
        drive(run)
    assert (done, run.status, result(run)) == ([True], RunStatus.SUCCEEDED, [5])


def test_event_against_the_waits_arrival_is_never_lost() -> None:
    for _ in range(ROUNDS):
        run = submitted("expectant")
        together(driving(run), lambda: told(run))
        all_go_on()
        assert result(again(run)) == [5]


def test_event_before_the_end_of_its_time() -> None:
    run = driven("expectant", within=60)
    hold = open_hold(run)
    later(59)

    def expire_late() -> bool:
        return holds.expire(hold.pk)

    first, second = behind(lock(run), lambda: told(run), expire_late)
    assert (first, second, result(drive(again(run)))) == (True, False, [5])


def test_event_after_the_end_of_its_time_is_kept_for_another_wait() -> None:
    """Due, and nobody has noticed: the clock decides, whoever comes first."""
    for round_ in range(ROUNDS):
        later(0)
        run = driven("expectant", within=60)
        hold = open_hold(run)
        later(61)
        work = [lambda: told(run), lambda: holds.expire(hold.pk)]
        found = together(*(work if round_ % 2 else work[::-1]))
        assert found == [True, True]
        hold.refresh_from_db()
        assert (hold.resolution, Event.objects.get(run=run).step_id) == ("expired", None)
        assert drive(again(run)).status == RunStatus.FAILED


def test_event_against_cancel() -> None:
    for _ in range(ROUNDS):
        run = driven("expectant")
        found = together(lambda: told(run), lambda: endings.cancel(run.pk, actor=CYD))
        assert found[0] is True or isinstance(found[0], RunEnded)
        assert again(run).status == RunStatus.CANCELLED
        assert Event.objects.filter(run=run).count() == int(found[0] is True)


def test_two_events_at_once_go_to_two_waits_one_each() -> None:
    for _ in range(ROUNDS):
        run = driven("pair")
        together(lambda: told(run, 1, "a"), lambda: told(run, 2, "b"))
        order = list(Event.objects.filter(run=run).order_by("id").values_list("payload", flat=True))
        all_go_on()
        assert [str(n) for n in result(again(run))] == order


def test_timer_by_many_sweepers_is_one() -> None:
    run = driven("dozer", seconds=60)
    hold = open_hold(run, Cause.TIMER)
    later(61)
    assert sorted(together(*[lambda: holds.expire(hold.pk)] * 4)) == [False, False, False, True]
    assert verbs(again(run)).count("resumed") == 1
    assert type(elsewhere(lambda: holds.release(hold.pk, actor=CYD, resolution="due"))) is HoldClosed


def test_shares_are_taken_from_the_root_down() -> None:
    """The plan locks what it has sorted: the order of the tree."""
    run = driven("boss")
    with CaptureQueriesContext(connection) as asked, transaction.atomic():
        children.share([only_child(run).pk])  # one that nothing holds
    [shared] = [each["sql"] for each in asked.captured_queries if "FOR SHARE" in each["sql"]]
    with connection.cursor() as cursor:
        cursor.execute("EXPLAIN " + shared)
        plan = [row[0].strip(" ->") for row in cursor.fetchall()]
    assert [line.split(" ")[0] for line in plan[:2]] == ["LockRows", "Sort"]
    assert plan[2] == "Sort Key: (cardinality(ancestors))"
