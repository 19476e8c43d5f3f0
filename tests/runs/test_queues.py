"""The doorbell: rung after commit, never in the way of who rings it."""

import logging
from uuid import UUID

import pytest
from django.db import transaction
from rq.job import Job

from runs import queues
from tests.runs.own_valkey import Valkey, running_valkey, valkey

__all__ = ["running_valkey", "valkey"]

RUN = UUID("0f6f0f3e-6d0d-4c53-9d3d-0d7c5a6b8f11")

pytestmark = pytest.mark.django_db(transaction=True)


def waiting(server: Valkey) -> list[Job]:
    ids = [key.decode() for key in server.client.lrange("rq:queue:default", 0, -1)]
    return [Job.fetch(key, connection=server.client) for key in ids]


def test_ring_puts_one_job_with_the_id_on_the_queue(valkey: Valkey) -> None:
    queues.ring(RUN)

    [job] = waiting(valkey)
    assert (job.func_name, job.args, job.kwargs) == ("runs.jobs.drive", (str(RUN),), {})
    assert (job.timeout, job.result_ttl, job.failure_ttl) == (-1, 0, 3600)


def test_ring_waits_for_the_commit(valkey: Valkey) -> None:
    with transaction.atomic():
        queues.ring(RUN)
        assert queues.length() == 0
    assert queues.length() == 1


def test_ring_is_forgotten_with_a_rollback(valkey: Valkey) -> None:
    with transaction.atomic():
        queues.ring(RUN)
        transaction.set_rollback(True)
    assert queues.length() == 0


def test_ring_twice_puts_two_jobs(valkey: Valkey) -> None:
    queues.ring(RUN)
    queues.ring(RUN)

    assert len({job.id for job in waiting(valkey)}) == 2


def test_enqueue_takes_any_job_and_its_ids(valkey: Valkey) -> None:
    queues.enqueue("approvals.jobs.look", "17", "18")

    [job] = waiting(valkey)
    assert (job.func_name, job.args) == ("approvals.jobs.look", ("17", "18"))


def test_ring_while_valkey_is_away_is_a_line_in_the_log(
    valkey: Valkey, caplog: pytest.LogCaptureFixture
) -> None:
    valkey.kill()
    with caplog.at_level(logging.WARNING), transaction.atomic():
        queues.ring(RUN)

    [line] = caplog.messages
    assert line.endswith(f"runs.jobs.drive('{RUN}',) was not rung")
    assert queues.length() == -1


def test_ring_reaches_a_valkey_that_was_restarted(valkey: Valkey, caplog: pytest.LogCaptureFixture) -> None:
    queues.ring(RUN)
    valkey.kill()
    valkey.start()
    queues.ring(RUN)

    assert queues.length() == 1
    assert caplog.messages == []


def test_ring_asks_a_valkey_that_hangs_once_and_not_again_at_once(
    valkey: Valkey, caplog: pytest.LogCaptureFixture
) -> None:
    queues.ring(RUN)
    valkey.freeze()
    try:
        queues.ring(RUN)
        queues.ring(RUN)
        assert queues.length() == -1
    finally:
        valkey.thaw()

    first, second = caplog.messages
    assert first.startswith("The queue does not answer (Timeout")
    assert second.startswith("The queue did not answer a moment ago")
