"""Workers of parents and children killed as by the kernel: one child, one release, nothing lost."""

import pytest
from django.conf import settings

from runs import events
from runs.models import Hold, Run
from runs.states import RunStatus
from tests.crashes.processes import Workers
from tests.factories import (
    CYD,
    all_go_on,
    causes,
    drive,
    driven,
    go_on,
    later,
    only_child,
    result,
    submitted,
    verbs,
)
from tests.outside import Outside

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("invariants")]


def again(run: Run) -> Run:
    run.refresh_from_db()
    return run


@pytest.mark.parametrize(
    ("point", "children"), [("after-effect-before-record", 0), ("before-park", 1), ("after-park", 1)]
)
def test_killed_around_the_start_of_a_child(
    point: str, children: int, workers: Workers, outside: Outside
) -> None:
    """Right before the commit that creates it there is none; after it there is one, and there is never another."""
    run = submitted("boss")
    workers.killed_at(run, point)
    assert Run.objects.filter(parent=run).count() == children
    later(settings.LEASE + 5)
    all_go_on()
    later(3600)
    all_go_on()
    assert (again(run).status, Run.objects.filter(parent=run).count()) == (RunStatus.SUCCEEDED, 1)
    assert (outside.n("pay"), len({c["key"] for c in outside.tried("note")})) == (1, 2)


def test_killed_after_the_end_of_the_child_and_before_its_parent_is_told(workers: Workers) -> None:
    run = driven("boss")
    child = only_child(run)
    workers.killed_at(child, "before-tell-parent")
    assert (again(child).status, causes(run)) == (RunStatus.SUCCEEDED, ["child"])
    all_go_on()
    assert (again(run).status, [h.resolution for h in Hold.objects.filter(run=run)]) == (
        RunStatus.SUCCEEDED,
        ["child_ended"],
    )
    assert verbs(run).count("resumed") == 1


def test_killed_before_the_end_of_the_child(workers: Workers, outside: Outside) -> None:
    run = driven("boss")
    child = only_child(run)
    workers.killed_at(child, "before-finish")
    later(settings.LEASE + 5)
    all_go_on()
    assert (again(run).status, outside.n("pay"), Run.objects.count()) == (RunStatus.SUCCEEDED, 1, 2)


@pytest.mark.parametrize("point", ["before-park", "after-park"])
def test_killed_while_it_begins_to_wait_and_the_event_came(point: str, workers: Workers) -> None:
    """F45: told between the wait and the stop, and nobody is there any more."""
    run = submitted("expectant")
    workers.killed_at(run, point)
    events.tell(run.pk, name="arrived", event_id="e1", payload=5, actor=CYD)
    later(settings.LEASE + 5)
    go_on(again(run))
    assert (run.status, result(run)) == (RunStatus.SUCCEEDED, [5])


def test_every_worker_replaced_between_parent_and_child(workers: Workers, outside: Outside) -> None:
    """Each stretch in a process of its own; the child's process tells the parent, and no sweeper is needed."""
    run = submitted("boss")
    assert workers.drives(run) == 0
    child = only_child(run)
    assert workers.drives(child) == 0
    assert (again(run).status, causes(run)) == (RunStatus.QUEUED, [])
    assert workers.drives(run) == 0
    assert (again(run).status, outside.n("pay")) == (RunStatus.SUCCEEDED, 1)
    assert drive(run).epoch == 2
