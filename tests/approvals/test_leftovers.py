"""Drafts, step-ups and counters go when nobody needs them, and not before."""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.cache import cache, caches
from django.db import connection

from approvals import leftovers
from approvals.leftovers import Leftover
from approvals.models import Draft, Request, StepUp
from runs import clock, endings, sweeper
from tests.approvals import desk

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("whole")]


@pytest.fixture
def large(people: SimpleNamespace) -> Request:
    """Of R3, begun by ana and ben."""
    cache.clear()
    request = desk.opened("approvals-wirer", amount="2000.00")
    for who in (people.ana, people.ben):
        desk.open_all(request.revision, who)
        desk.step_up(request.revision, who)
    return request


def swept(name: str) -> list[bool]:
    verb = sweeper._verbs[name]
    return [verb.act(item) for item in verb.find(clock.now())]


def kept() -> tuple[int, int]:
    return Draft.objects.count(), StepUp.objects.count()


def test_what_waits_keeps_everything(large: Request) -> None:
    assert (swept("clear"), kept()) == ([], (2, 2))


@pytest.mark.parametrize("end", ["rejected", "approved", "expired", "cancelled"])
def test_what_is_over_is_cleared_once(people: SimpleNamespace, large: Request, end: str) -> None:
    other = desk.opened("approvals-wirer", amount="3000.00")
    desk.open_all(other.revision, people.ana)
    if end in ("rejected", "approved"):
        desk.decide(large, people.ana, "reject" if end == "rejected" else "approve")
    elif end == "expired":
        desk.later(3601)
        swept("expire_holds")
        large.refresh_from_db()
        assert large.state == "expired"
    else:
        endings.cancel(large.run_id, actor=desk.EDITOR, why="a test")
    assert swept("clear").count(True) >= 1
    left = Draft.objects.filter(revision__request=large).count(), StepUp.objects.filter(request=large).count()
    assert left == (0, 0)
    assert leftovers.clear(Leftover("request", str(large.pk))) is False
    assert end == "expired" or Draft.objects.filter(revision__request=other).count() == 1


def test_within_the_undo_window_drafts_stay(people: SimpleNamespace, large: Request) -> None:
    desk.change_rule("desk", undo_window=60)
    other = desk.opened("approvals-wirer", amount="2000.00")
    desk.open_all(other.revision, people.ben)
    desk.decide(other, people.ana)
    assert (swept("clear"), Draft.objects.filter(revision__request=other).count()) == ([], 1)


def test_old_step_up_goes_also_while_its_request_waits(people: SimpleNamespace, large: Request) -> None:
    desk.change_rule("desk", decide_within=7 * 86400)
    waits = desk.opened("approvals-wirer", amount="2000.00")
    desk.step_up(waits.revision, people.ana)
    desk.step_up(waits.revision, people.ana, made_at=clock.now() - leftovers.OLD - timedelta(seconds=1))
    swept("clear")
    assert StepUp.objects.filter(request=waits).count() == 1


def test_so_many_at_once(people: SimpleNamespace, large: Request, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers, "AT_ONCE", 1)
    other = desk.opened("approvals-wirer", amount="2000.00")
    desk.open_all(other.revision, people.ana)
    for request in (large, other):
        desk.decide(request, people.ben, "reject")
    rounds = 0
    while swept("clear"):
        rounds += 1
    assert (rounds >= 2, kept()) == (True, (0, 0))


def counted() -> Any:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM approvals_counter")
        return cursor.fetchone()[0]


def test_counters_go_when_their_time_is_up() -> None:
    cache.clear()
    cache.set("new", 1, timeout=60)
    cache.set("old", 1, timeout=-5)
    swept("clear")
    assert (counted(), cache.get("new")) == (1, 1)
    assert swept("clear") == []
    assert leftovers.clear(Leftover("counter", cache.make_key("new"))) is False


def test_what_is_counted_is_counted_by_all_processes_together() -> None:
    """Another web process has a cache object of its own: what one adds, no other adds again."""
    cache.clear()
    other = caches.create_connection("default")
    assert (cache.add("used", "y", timeout=90), other.add("used", "y", timeout=90)) == (
        True,
        False,
    )
