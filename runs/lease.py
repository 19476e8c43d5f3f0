"""The heartbeat of the run this process drives, and the worker's own fence.

One thread with its own connection renews the lease while the loop is busy, until the deadline of the call in
flight: a hung call does not keep its run for ever. The worker fences itself by its own monotonic clock,
started before it took the run, so that it stops before anybody else may begin.

While all calls in flight are of tools that may be left (`on_interrupt`), the thread also looks, each quarter of a
heartbeat, whether a person stopped the run; it then lets go of it, and ends the process where all say `cancel`.
"""

import threading
import time

import structlog
from django.conf import settings
from django.db import DatabaseError, close_old_connections, connection

from runs import endings, invocation, lifecycle
from runs.exceptions import EpochLost
from runs.lifecycle import Fence

log = structlog.get_logger(__name__)


class Lease:
    """Renews one run's lease at a time. One per process; `hold` and `let_go` are called by the loop."""

    def __init__(self) -> None:
        self._changed = threading.Lock()
        self._fence: Fence | None = None
        self._until = 0.0
        self._renew_at = 0.0
        self._busy_until = 0.0
        self._thread: threading.Thread | None = None

    def hold(self, fence: Fence, started: float) -> None:
        """From now on `fence` is kept alive. `started`: monotonic time before the run was taken."""
        with self._changed:
            self._fence = fence
            self._until = started + settings.LEASE
            self._renew_at = started + settings.HEARTBEAT
            self._busy_until = started + settings.LEASE
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._beat, name="lease", daemon=True)
                self._thread.start()

    def busy(self, seconds: float) -> None:
        """What starts now may take so long; renewing goes on until the latest that was said."""
        self._busy_until = max(self._busy_until, time.monotonic() + seconds + settings.LEASE)

    def let_go(self) -> None:
        with self._changed:
            self._fence = None

    def alive(self) -> bool:
        """Whether nobody else can have taken the run yet, by this process's own clock."""
        return time.monotonic() < self._until

    def require(self) -> None:
        """Raises EpochLost when somebody else may have the run: before an intent, and again before its call."""
        if not self.alive():
            raise EpochLost("this worker's lease may have run out")

    def _beat(self) -> None:
        while True:
            fence, at = self._due()
            self._leave_if_stopped()
            if fence is not None and at < self._busy_until:
                self._renew(fence, at)
            elif self._fence is None:
                connection.close()  # nothing to keep alive: no connection either

    def _due(self) -> tuple[Fence | None, float]:
        """Sleeps a part of a heartbeat: no work and no connection for runs that end sooner."""
        time.sleep(settings.HEARTBEAT / 4)
        with self._changed:
            now = time.monotonic()
            return (self._fence if now >= self._renew_at else None), now

    def _leave_if_stopped(self) -> None:
        fence, words = self._fence, invocation.under_way()
        if fence is None or not words or "finish" in words:
            return
        try:
            close_old_connections()
            if not endings.leave(fence):
                return
        except DatabaseError:
            connection.close()
            return
        with self._changed:
            if self._fence == fence and words == {"cancel"}:
                log.warning("calls_cancelled", run=str(fence.run))
                invocation.end_process()

    def _renew(self, fence: Fence, started: float) -> None:
        self._renew_at = started + settings.HEARTBEAT
        try:
            close_old_connections()
            renewed = lifecycle.renew(fence)
        except DatabaseError:
            connection.close()
            return
        with self._changed:
            if renewed and self._fence == fence:
                self._until = started + settings.LEASE


lease = Lease()
