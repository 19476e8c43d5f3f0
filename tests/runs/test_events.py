"""Events: told once, early or late; each goes to one wait, in order."""

from typing import Any

import pytest

from runs import endings, events, holds
from runs.exceptions import BadValue, EventReused, NotFound, RunEnded
from runs.models import Event, Run
from runs.states import RunStatus
from tests.factories import (
    CYD,
    NO_RUN,
    causes,
    drive,
    driven,
    go_on,
    later,
    open_hold,
    result,
    step,
    submitted,
    verbs,
)

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("invariants")]


def told(run: Run, payload: Any = 5, *, name: str = "arrived", event_id: str = "e1") -> bool:
    event, new = events.tell(run.pk, name=name, event_id=event_id, payload=payload, actor=CYD)
    assert (event.run_id, event.name, event.event_id) == (run.pk, name, event_id)
    return new


def again(run: Run) -> Run:
    run.refresh_from_db()
    return run


def test_tell_releases_the_wait() -> None:
    run = driven("expectant")
    assert (causes(run), open_hold(run).subject, open_hold(run).expires_at) == (["event"], "arrived", None)
    assert told(run)
    assert (again(run).status, causes(run)) == (RunStatus.QUEUED, [])
    assert (result(drive(run)), Event.objects.get().step) == ([5], step(run, 0))
    assert verbs(run)[-5:] == ["event", "released", "resumed", "taken", "succeeded"]


def test_tell_before_the_wait_counts() -> None:
    run = submitted("expectant")
    assert told(run)
    assert result(drive(run)) == [5]
    assert verbs(run) == ["submitted", "event", "taken", "succeeded"]


def test_tell_twice_counts_once() -> None:
    run = driven("expectant", times=2)
    assert [told(run), told(run)] == [True, False]
    drive(again(run))
    assert [told(run), causes(run), Event.objects.count()] == [False, ["event"], 1]
    assert told(run, 6, event_id="e2")
    assert result(drive(again(run))) == [5, 6]


@pytest.mark.parametrize("other", [{"payload": 6}, {"name": "left"}, {"payload": "5"}, {"payload": None}])
def test_tell_the_same_id_with_something_else(other: dict[str, Any]) -> None:
    run = driven("expectant")
    told(run)
    before = verbs(run)
    with pytest.raises(EventReused, match="the event id 'e1' was told before"):
        told(run, **{"payload": 5, **other})
    assert (verbs(run), Event.objects.count()) == (before, 1)


def test_tell_an_equal_payload_written_otherwise_is_the_same() -> None:
    run = driven("expectant", name="other")
    assert told(run, {"a": 1, "b": [True]})
    assert not told(run, {"b": [True], "a": 1})


def test_tell_two_runs_the_same_id_is_two_events() -> None:
    first, second = driven("expectant"), driven("expectant")
    assert [told(first, 1), told(second, 2)] == [True, True]
    assert [result(drive(again(r))) for r in (first, second)] == [[1], [2]]


def test_tell_an_older_event_after_a_newer_moves_nothing() -> None:
    """F89, in: one transition, and no regression."""
    run = driven("expectant")
    assert [told(run, 2, event_id="new"), told(run, 2, event_id="new"), told(run, 2, event_id="new")] == [
        True,
        False,
        False,
    ]
    assert told(run, 1, event_id="old")
    assert (result(drive(again(run))), verbs(run).count("resumed")) == ([2], 1)
    assert Event.objects.get(event_id="old").step is None


def test_tell_of_other_names_stays() -> None:
    run = driven("expectant")
    assert told(run, name="left")
    assert (again(run).status, causes(run), Event.objects.waiting().count()) == ("suspended", ["event"], 1)
    told(run, 7, event_id="e2")
    assert (result(drive(again(run))), Event.objects.waiting().get().name) == ([7], "left")


def test_tell_in_order_to_waits_in_order() -> None:
    """Two waits of one `together` get one event each; also with both told before, between and after."""
    for early in (0, 1, 2):
        run = submitted("pair")
        for number in range(early):
            told(run, number, event_id=f"e{number}")
        drive(run)
        for number in range(early, 2):
            told(run, number, event_id=f"e{number}")
        assert (result(go_on(again(run))), run.epoch) == ([0, 1], 1 if early == 2 else 2)


def test_tell_three_to_two_waits_leaves_one() -> None:
    run = submitted("pair")
    for number in range(3):
        told(run, number, event_id=f"e{number}")
    assert (result(drive(run)), Event.objects.waiting().get().payload) == ([0, 1], "2")


def test_tell_a_paused_run_releases_the_wait_and_not_the_pause() -> None:
    """F59."""
    run = driven("expectant")
    holds.pause(run.pk, actor=CYD)
    told(run)
    assert (again(run).status, causes(run)) == (RunStatus.SUSPENDED, ["person"])
    assert drive(run).status == RunStatus.SUSPENDED
    holds.unpause(run.pk, actor=CYD)
    assert result(drive(again(run))) == [5]


def test_tell_a_run_that_ended() -> None:
    run = driven("expectant")
    told(run, name="left")
    endings.cancel(run.pk, actor=CYD)
    with pytest.raises(RunEnded):
        told(run, event_id="e2")
    assert not told(run, name="left")  # what was told before it ended is answered as then
    assert Event.objects.count() == 1


def test_tell_no_run() -> None:
    with pytest.raises(NotFound):
        events.tell(NO_RUN, name="arrived", event_id="e1", payload=1, actor=CYD)


def test_tell_what_cannot_be_kept() -> None:
    run = driven("expectant")
    with pytest.raises(BadValue):
        told(run, {"a": float("nan")})
    assert Event.objects.count() == 0


def test_tell_after_the_time_is_up_comes_too_late() -> None:
    """The clock decides, not who was quicker to look."""
    run = driven("expectant", within=60)
    hold = open_hold(run)
    later(61)
    assert told(run)
    assert (again(run).status, Event.objects.get().step) == (RunStatus.SUSPENDED, None)
    assert holds.expire(hold.pk)
    assert drive(again(run)).status == RunStatus.FAILED


def test_take_again_gives_the_same_event() -> None:
    """The worker died after it took the event and before the result was kept."""
    from runs import points

    run = submitted("expectant", times=2)
    told(run, 1)
    told(run, 2, event_id="e2")

    def die() -> None:
        raise SystemExit("killed")

    with points.on("after-boundary", die), pytest.raises(SystemExit):
        drive(run)
    later(3600)
    assert result(go_on(again(run))) == [1, 2]


def test_journal_tells_who_told_what() -> None:
    from runs.models import JournalEntry

    run = driven("expectant")
    told(run)
    entry = JournalEntry.objects.of(run.stream).get(verb="event")
    assert (entry.actor_id, entry.door) == ("cyd", "api")
    assert '"event":"e1"' in entry.detail
    assert '"name":"arrived"' in entry.detail
