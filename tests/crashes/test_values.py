"""Values across a stop and a new process: equal in value and type, or refused by name (F28, F30)."""

import pytest

from tests import values_for_tests
from tests.crashes.processes import Workers
from tests.factories import answer, open_hold, result, submitted

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("invariants")]


WHY = {
    "nul": "contains the character NUL (U+0000), which cannot be stored')",
    "surrogate": "contains half of a surrogate pair, which is not a character')",
}


@pytest.fixture(autouse=True)
def known(workers: Workers) -> None:
    assert values_for_tests.MADE
    workers.env["AGENTS"] = "tests.agents_for_tests,tests.values_for_tests"


def test_values_come_back_in_another_process_as_they_were(workers: Workers) -> None:
    """F28."""
    """F28."""
    run = submitted("keeper-of-all")
    assert (workers.drives(run), run.status, run.error) == (0, "suspended", None)
    answer(open_hold(run), number=1)
    assert workers.drives(run) == 0
    assert result(run) == ["1.10", "2:00:00", "0.10"]


@pytest.mark.parametrize("text", ["nul", "surrogate"])
def test_values_that_cannot_be_kept_are_refused_and_nothing_loops(text: str, workers: Workers) -> None:
    """F30."""
    """F30."""
    run = submitted("maker-of-bad", text=text)
    assert workers.drives(run) == 0
    assert (result(run).partition("(whole value): ")[2], run.epoch) == (WHY[text], 1)
