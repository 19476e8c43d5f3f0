"""Two operators at once: one word settles a doubt, one run undoes what was done."""

import pytest

from runs import compensation, doubts, endings, lifecycle
from runs.actors import Actor
from runs.exceptions import WrongState
from runs.models import JournalEntry, Run
from tests import undoing_for_tests
from tests.agents_for_tests import SHORT
from tests.factories import causes, driven, go_on, later, step
from tests.outside import Outside
from tests.threads import behind

assert undoing_for_tests
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("invariants", "alone")]
OLU = Actor("person", "1", "olu", "page", operator=True)
ODA = Actor("person", "2", "oda", "api", operator=True)
HAPPENED = doubts.Said("happened", "the receipt is there", '"theirs"')
NOT = doubts.Said("did_not_happen", "there is none")


def in_doubt(outside: Outside) -> Run:
    outside.will("pay", "act_then_raise")
    run = driven("payer")
    later(SHORT + 6)
    go_on(run)
    assert causes(run) == ["in_doubt"]
    return run


@pytest.mark.parametrize(("first", "second"), [(HAPPENED, NOT), (NOT, HAPPENED)])
def test_settle_at_once_takes_the_first_word(
    outside: Outside, first: doubts.Said, second: doubts.Said
) -> None:
    run = in_doubt(outside)
    done, lost = behind(
        lambda: lifecycle.lock(run.pk),
        lambda: doubts.settle(run.pk, 0, first, actor=OLU),
        lambda: doubts.settle(run.pk, 0, second, actor=ODA),
    )
    assert isinstance(lost, WrongState)
    assert "olu settled it" in str(lost)
    said = [item["answer"] for item in step(run, 0).evidence if "by" in item]
    assert (said, done.index) == ([first.answer], 0)


def test_cancel_and_settle_at_once_leave_the_word_in_the_ledger(outside: Outside) -> None:
    """The run ended while somebody wrote how they know: doubt outlives it."""
    run = in_doubt(outside)
    behind(
        lambda: lifecycle.lock(run.pk),
        lambda: endings.cancel(run.pk, actor=OLU),
        lambda: doubts.settle(run.pk, 0, HAPPENED, actor=ODA),
    )
    run.refresh_from_db()
    assert (run.status, step(run, 0).effect) == ("cancelled", "confirmed")


def test_undo_at_once_starts_one_run(outside: Outside) -> None:
    run = driven("charger")
    assert run.ended
    _, lost = behind(
        lambda: lifecycle.lock(run.pk),
        lambda: compensation.compensate(run.pk, actor=OLU, why="x"),
        lambda: compensation.compensate(run.pk, actor=ODA, why="x"),
    )
    assert isinstance(lost, WrongState)
    started = JournalEntry.objects.of(run.stream).filter(verb="compensation_started")
    assert (started.count(), Run.objects.exclude(pk=run.pk).count()) == (1, 1)
