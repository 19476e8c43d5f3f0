"""Statements that the server prepares: the same rows as the ORM's, in one round trip where asked so."""

import uuid
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.db.models import F, Q

from runs import journal, prepared
from runs.clock import Now
from runs.models import Hold, JournalEntry, Run, Step
from runs.prepared import Batch, Given, Query, Rows, Update
from tests.factories import CYD, driven, submitted
from tests.threads import behind

pytestmark = pytest.mark.django_db

RUN = Query(lambda: Run.objects.filter(pk=Given("run")).order_by())
STEPS = Rows(lambda: Step.objects.filter(run=Given("run")).order_by("index").values_list("index", "decision"))


def fields(row: Run) -> dict[str, object]:
    return {field.attname: getattr(row, field.attname) for field in row._meta.concrete_fields}


def test_query_reads_what_the_orm_reads() -> None:
    run = driven("adder", n=1)
    found = RUN.get(run=run.pk)
    assert fields(found) == fields(Run.objects.get(pk=run.pk))
    assert (found._state.adding, found._state.db) == (False, "default")


def test_query_of_nothing() -> None:
    assert RUN.first(run=uuid.uuid4()) is None
    with pytest.raises(LookupError):
        RUN.get(run=uuid.uuid4())


def test_query_with_related_rows_and_annotations(django_assert_num_queries: Any) -> None:
    run = driven("adder", n=1)
    read = Query(
        lambda: (
            Step.objects.filter(run=Given("run"))
            .select_related("run")
            .annotate(agent=F("run__agent"), at=Now())
            .order_by()
        )
    )
    found = read.get(run=run.pk)
    with django_assert_num_queries(0):
        assert (found.run.pk, found.run.agent, found.agent) == (run.pk, "adder", "adder")  # type: ignore[attr-defined]
    assert found.at.tzinfo is not None  # type: ignore[attr-defined]


def test_rows_are_converted() -> None:
    run = driven("adder", n=2)
    Step.objects.filter(run=run, index=1).update(decision={"verb": "approve"})
    assert STEPS.all(run=run.pk) == [(0, None), (1, {"verb": "approve"})]


@pytest.mark.parametrize("word", ["plain", "50 % off", "it's %s", '"'])
def test_constants_are_in_the_text(word: str) -> None:
    """A constant that is a parameter hides partial indexes from the planner."""
    run = submitted("adder", n=1)
    Run.objects.filter(pk=run.pk).update(on_behalf_of=word)
    read = Query(lambda: Run.objects.filter(pk=Given("run"), on_behalf_of=word).order_by())
    assert read.get(run=run.pk).on_behalf_of == word
    assert read.first(run=uuid.uuid4()) is None


def test_update_says_how_many_rows() -> None:
    run = submitted("adder", n=1)
    change = Update(
        lambda: Run.objects.filter(Q(rings__lt=5), pk=Given("run")),
        rings=F("rings") + 1,
        taken_by=Given("who"),
    )
    assert [change.run(run=run.pk, who="w"), change.run(run=uuid.uuid4(), who="x")] == [1, 0]
    run.refresh_from_db()
    assert (run.rings, run.taken_by) == (1, "w")


def test_insert_is_what_save_makes() -> None:
    run = driven("adder", n=1)
    made = Hold(run=run, cause="person", scope="run", opened_by_kind="person", detail={"a": ["ü", 1]})
    prepared.insert(made)
    stored = Hold.objects.get(pk=made.pk)
    assert made.opened_at == stored.opened_at
    assert (stored.detail, stored.cause, stored.step) == ({"a": ["ü", 1]}, "person", None)
    assert not made._state.adding


def test_insert_gets_its_number_from_the_database() -> None:
    run = submitted("adder", n=1)
    made = Step(run=run, index=0, tool="add", arguments="{}", status="proposed")
    prepared.insert(made)
    assert Step.objects.get(run=run).pk == made.pk


def test_batch_answers_in_one_round_trip() -> None:
    run, other = driven("adder", n=2), driven("adder", n=1)
    with Batch() as batch:
        row, steps, none = (
            batch.ask(RUN, run=run.pk),
            batch.ask(STEPS, run=other.pk),
            batch.ask(RUN, run=uuid.uuid4()),
        )
    assert (row.one().pk, len(steps.all()), none.first()) == (run.pk, 1, None)


@pytest.mark.django_db(transaction=True)
def test_batch_waits_for_a_lock_before_what_comes_after_it() -> None:
    """Each statement sees what was committed when it began, not when the batch was sent."""
    run = submitted("adder", n=1)
    locked = Query(lambda: Run.objects.select_for_update().filter(pk=Given("run")).order_by())
    entries = Rows(
        lambda: JournalEntry.objects.filter(stream=Given("stream")).order_by("seq").values_list("verb")
    )

    def read() -> list[Any]:
        with transaction.atomic(), Batch() as batch:
            batch.ask(locked, run=run.pk)
            found = batch.ask(entries, stream=run.stream)
        return found.all()

    _, found = behind(lambda: locked.get(run=run.pk), lambda: journal.write(run, CYD, "noted"), read)
    assert found == [("submitted",), ("noted",)]


def test_prepared_statements_are_counted(django_assert_num_queries: Any) -> None:
    run = submitted("adder", n=1)
    with django_assert_num_queries(2):
        RUN.get(run=run.pk)
        STEPS.all(run=run.pk)


def test_batch_of_what_is_written_fills_in_at_its_end() -> None:
    run = submitted("adder", n=1)
    made = Step(run=run, index=0, tool="add", arguments="{}", status="proposed")
    change = Update(lambda: Run.objects.filter(pk=Given("run")), rings=Given("rings"))
    with Batch() as batch:
        prepared.insert(made)
        journal.write(run, CYD, "noted")
        changed = batch.change(change, run=run.pk, rings=3)
    assert (Step.objects.get(run=run).pk, changed()) == (made.pk, 1)
    assert JournalEntry.objects.filter(stream=run.stream, verb="noted").count() == 1


def test_batch_raises_what_failed_in_it() -> None:
    """The first error, as Django's; what came before it in the transaction is undone with it."""
    run = submitted("adder", n=1)
    twice = [Step(run=run, index=0, tool="add", arguments="{}", status="proposed") for _ in range(2)]

    def insert() -> None:
        with transaction.atomic(), Batch() as batch:
            for step in twice:
                prepared.insert(step)
            batch.ask(RUN, run=run.pk)

    with pytest.raises(IntegrityError, match="step_index_once_a_run"):
        insert()
    assert not Step.objects.filter(run=run).exists()
    assert RUN.get(run=run.pk).pk == run.pk
