"""C-27, C-28, C-33: no door decides at R3 without the server's own record of it, and nobody is locked out by tries."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.cache import cache
from django.db import connection

from approvals import decisions
from approvals.decisions import Choice
from approvals.exceptions import ApprovalsError, StepUpRequired
from approvals.models import Decision, Request, StepUp
from tests.approvals import desk

pytestmark = [pytest.mark.django_db]


@pytest.fixture
def large(people: SimpleNamespace) -> Request:
    cache.clear()
    return desk.opened("approvals-wirer", amount="2000.00")


@pytest.mark.parametrize("door", ["page", "api", "admin", "command", "mail"])
def test_no_door_goes_around_it(people: SimpleNamespace, large: Request, door: str) -> None:
    standing = large.revision
    everything = {**desk.YES, "check": "yes", "retype": "2000"}
    for session in ("", "a session", "0" * 64):
        choice = Choice("approve", standing.digest, basis=everything, session=session, door=door)
        with pytest.raises(ApprovalsError):
            decisions.decide(large.ref, person=people.ana, choice=choice)
        desk.open_all(standing, people.ana)
        with pytest.raises(StepUpRequired):
            decisions.decide(large.ref, person=people.ana, choice=choice)
    assert desk.counts(large) == ("open", 0, 0)


def test_superuser_without_it_is_refused_too(people: SimpleNamespace, large: Request) -> None:
    people.ana.is_superuser = True
    people.ana.save()
    desk.open_all(large.revision, people.ana)
    choice = Choice("approve", large.revision.digest, basis={**desk.YES, "check": "yes", "retype": "2000"})
    with pytest.raises(StepUpRequired):
        decisions.decide(large.ref, person=people.ana, choice=choice)


def test_two_posts_with_one_step_up_are_one_decision(people: SimpleNamespace, large: Request) -> None:
    given = desk.care(large.revision, people.ana)
    choice = Choice("approve", large.revision.digest, **given)
    first, again = (decisions.decide(large.ref, person=people.ana, choice=choice) for _ in range(2))
    assert (first.again, again.again, Decision.objects.count()) == (False, True, 1)
    assert StepUp.objects.filter(used_at=None).count() == 0


@pytest.mark.django_db(transaction=True)
def test_one_step_up_in_two_hands_at_once_is_one_decision(people: SimpleNamespace, large: Request) -> None:
    """C-28: both have the same proof; it is used once, and both are told of one decision."""
    given = desk.care(large.revision, people.ana)
    choice = Choice("approve", large.revision.digest, **given)
    start, found = threading.Barrier(2), []

    def decide() -> None:
        start.wait(30)
        found.append(decisions.decide(large.ref, person=people.ana, choice=choice))
        connection.close()

    both: list[Any] = [threading.Thread(target=decide) for _ in range(2)]
    for each in both:
        each.start()
    for each in both:
        each.join(30)
    assert sorted(each.again for each in found) == [False, True]
    assert desk.counts(large) == ("in_force", 1, 1)
