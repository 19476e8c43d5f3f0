"""What these tests stand on: the fixtures of `runs`, and workers that can be killed."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crashes.processes import Workers
from tests.fixtures import alone, in_its_own_time, invariants, outside, registries, rules
from tests.outside import FOLDER, Outside

__all__ = ["alone", "in_its_own_time", "invariants", "outside", "registries", "rules"]


@pytest.fixture
def workers(child_env: dict[str, str], outside: Outside, tmp_path: Path) -> Iterator[Workers]:
    made = Workers(child_env | {FOLDER: os.environ[FOLDER]}, tmp_path)
    yield made
    made.end()
