"""What a run's page says of the runs above and below it, and of the events it was told."""

from typing import Any

import pytest
from django.db.models import QuerySet

from runs import children, events
from runs.actors import Actor
from runs.agents import RunContext, agent
from runs.callers import Caller
from runs.models import Run
from runs.tools import start, together
from runs.views import family
from tests.agents_for_tests import payer
from tests.factories import CYD, drive, driven, only_child, submitted

pytestmark = pytest.mark.django_db


def caller(*seen: Run) -> Caller:
    """Somebody who may see these runs and no others."""

    def visible(runs: QuerySet[Run]) -> QuerySet[Run]:
        return runs.filter(pk__in=[run.pk for run in seen])

    return Caller(Actor("person", "rea", "rea"), "rea", False, visible, lambda run: False)


def test_family_of_a_run_in_the_middle() -> None:
    root = driven("chief")
    boss = drive(only_child(root))
    payer = only_child(boss)
    told = family.of(caller(root, boss, payer), boss)
    assert [(one.agent, one.url) for one in told.above] == [("chief", root.get_absolute_url())]
    assert [(one.agent, one.status, one.url) for one in told.below] == [
        ("payer", "queued", payer.get_absolute_url())
    ]
    assert (told.below_total, told.events) == (1, [])


def test_family_links_only_what_the_reader_may_see() -> None:
    root = driven("boss")
    child = only_child(root)
    told = family.of(caller(child), child)
    assert [(one.agent, one.url) for one in told.above] == [("boss", "")]
    assert [one.url for one in family.of(caller(root), root).below] == [""]


def test_family_of_a_run_alone_says_nothing() -> None:
    run = submitted("adder", n=1)
    assert family.of(caller(run), run) == family.Family()


def test_family_shows_the_newest_events_and_counts_all() -> None:
    run = submitted("expectant")
    for number in range(family.NEWEST + 2):
        events.tell(run.pk, name="arrived", event_id=f"e{number}", payload=number, actor=CYD)
    drive(run)
    told = family.of(caller(run), run)
    assert (len(told.events), told.events_total) == (family.NEWEST, family.NEWEST + 2)
    assert [event.event_id for event in told.events[:2]] == ["e51", "e50"]


def test_family_asks_as_often_for_three_children_as_for_one(django_assert_num_queries: Any) -> None:
    @agent()
    async def busy(run: RunContext) -> None:
        await together(*(start(payer) for _ in range(3)))

    one, three = driven("boss"), driven("busy")
    assert [run.children.count() for run in (one, three)] == [1, 3]
    for run in (one, three):
        with django_assert_num_queries(3):
            family.of(caller(run), run)


def test_chain_is_read_once_for_many(django_assert_num_queries: Any) -> None:
    root = driven("chief")
    boss = drive(only_child(root))
    runs = list(Run.objects.order_by("created_at"))
    with django_assert_num_queries(1):
        children.know_chains(runs)
        found = [[one.agent for one in children.chain(run)] for run in runs]
    assert found == [["chief"], ["chief", "boss"], ["chief", "boss", "payer"]]
    assert boss.ancestors == [root.pk]
