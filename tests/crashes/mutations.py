"""Faults put into processes on purpose, so that a test can see the harness notice them. Of tests only.

`TEST_MUTATION` names one; `tests.crashes.nursery` puts it in before it forks.
"""

from collections.abc import Callable
from typing import Any

from django.db import connection

from approvals import requests
from runs import statements
from runs.execution.record import Record

MUTATION = "TEST_MUTATION"


def apply(name: str) -> None:
    if name:
        MUTATIONS[name]()


def no_fence() -> None:
    """The commits of steps are a run's, whoever writes them: no status, no epoch, no token."""
    _in_boundaries(statements._FENCE, "runs_run.id = %(run)s")


def no_guard() -> None:
    """An intent is committed although a hold binds the run, or somebody stopped it."""
    _in_boundaries(statements._GO, "true")


def _in_boundaries(part: str, instead: str) -> None:
    assert any(part in text for text in statements.BOUNDARY.values())
    statements.BOUNDARY.update(
        {key: text.replace(part, instead) for key, text in statements.BOUNDARY.items()}
    )


def no_intent() -> None:
    """What a step commits before its call is committed after it, with the receipt."""
    committed = Record._commit

    def later(self: Record, pending: Any, settles: str, starts: str, parameters: dict[str, Any]) -> Any:
        if starts and connection.get_autocommit():
            connection.set_autocommit(False)
        row = committed(self, pending, settles, starts, parameters)
        if not starts and not connection.get_autocommit():
            connection.commit()
            connection.set_autocommit(True)
        return row

    Record._commit = later  # type: ignore[method-assign]


def in_two_commits() -> None:
    """A hold that people are asked about is committed first, and then what they are asked."""
    opened = requests.open_or_reopen

    def apart(*given: Any) -> Any:
        connection.connection.commit()
        return opened(*given)

    requests.open_or_reopen = apart


MUTATIONS: dict[str, Callable[[], None]] = {
    act.__name__: act for act in (no_fence, no_guard, no_intent, in_two_commits)
}
