"""The loop: take, replay, gate, call, record, again, until nothing the run wants may start.

One job drives a run through many steps. The same way in serves the first run, a resume and a recovery: the
agent is rebuilt from the record and asks again. `drive` talks with the agent, `calls` makes what it wants, `retries`
tries it again, `record` keeps what came of it.
"""

import os
import socket
import time
import uuid

import structlog

from runs import lifecycle, versions
from runs.exceptions import EpochLost, LostRace, NotFound
from runs.execution.drive import Drive
from runs.lease import lease
from runs.lifecycle import Fence
from runs.models import Run
from runs.prepared import Batch

log = structlog.get_logger(__name__)


def worker_name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


def drive(run_id: uuid.UUID) -> None:
    """Takes a run and drives it until it parks, ends or is handed back. Nothing happens if it is not queued.

    Raises NotFound for an id that no row has.
    """
    started = time.monotonic()
    with Batch() as batch:
        taken = lifecycle.taking(batch, run_id, worker_name())
        loaded = Drive.asked(batch, run_id)
    fence = taken()
    if fence is None:
        run = Run.objects.only("agent", "agent_version", "status", "rings").filter(pk=run_id).first()
        if run is None:
            raise NotFound(f"no run {run_id}")
        versions.pass_on(run)
        return
    lease.hold(fence, started)
    try:
        _until_still(fence, Drive.first(fence, loaded))
    except EpochLost as lost:
        log.warning("epoch_lost", run=str(run_id), why=str(lost))
    finally:
        lease.let_go()


def _until_still(fence: Fence, first: Drive | None = None) -> None:
    """Loads and drives; a release or a stop that comes in between means: load again."""
    drive_on = first or Drive.load(fence)
    while True:
        try:
            drive_on.go()
            return
        except LostRace as race:
            log.info("loading_again", run=str(fence.run), why=str(race))
        finally:
            drive_on.drop()
        drive_on = Drive.load(fence)
