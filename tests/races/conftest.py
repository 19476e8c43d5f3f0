"""What these tests stand on."""

from collections.abc import Iterator

import pytest
from django.db import connection

from tests.fixtures import alone, in_its_own_time, invariants, outside, registries, rules

__all__ = ["alone", "in_its_own_time", "invariants", "outside", "registries", "rules"]


@pytest.fixture(autouse=True)
def no_deadlock(request: pytest.FixtureRequest, in_its_own_time: None) -> Iterator[None]:
    """PostgreSQL counts them; one that the product would survive is one too many."""
    if request.node.get_closest_marker("django_db") is None:
        yield
        return
    before = _deadlocks()
    yield
    assert _deadlocks() == before


def _deadlocks() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
        return int(cursor.fetchone()[0])
