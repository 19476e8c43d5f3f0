"""RQ's entry points: what they do with ids that lead nowhere."""

import logging
from uuid import UUID

import pytest

from runs import jobs

NOBODY = UUID("0f6f0f3e-6d0d-4c53-9d3d-0d7c5a6b8f11")

pytestmark = pytest.mark.django_db(transaction=True)  # a job closes connections


def test_drive_drops_an_id_that_no_run_has(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        jobs.drive(str(NOBODY))

    assert caplog.messages == [f"Dropped a ring: no run has the id {NOBODY}"]


def test_drive_drops_what_is_no_id(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        jobs.drive("17")

    assert caplog.messages == ["Dropped a ring: '17' is no id"]
