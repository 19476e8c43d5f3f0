"""RQ's entry points: an id comes in, a room is called.

A job may run twice, late or never, and may carry an id that no row has (any more): that is a line in the log.
Nothing is decided here. What the loop did not expect is logged with the run's id and handed on to RQ, whose
dashboard shows it for an hour; the run itself is found again by its lease.
"""

import logging
from uuid import UUID

from django.db import close_old_connections

from runs import children, claims, dependencies, exceptions, execution

logger = logging.getLogger(__name__)


def drive(run_id: str) -> None:
    """Drive the run through as many steps as its slice allows."""
    try:
        key = UUID(run_id)
    except ValueError:
        logger.warning("Dropped a ring: %r is no id", run_id)
        return
    close_old_connections()  # the server may have closed it since the last job
    try:
        execution.drive(key)
    except exceptions.NotFound:
        logger.warning("Dropped a ring: no run has the id %s", key)
    except Exception:
        logger.exception("The loop failed on run %s", key)
        raise
    finally:
        close_old_connections()


def probe(name: str) -> None:
    """Look whether a dependency that is away is back."""
    close_old_connections()
    try:
        dependencies.probe(name)
    finally:
        close_old_connections()


def cancel_below(run_id: str) -> None:
    """Cancel what is below a run that ended."""
    close_old_connections()
    children.cancel_below(UUID(run_id))


def free_below(run_id: str) -> None:
    """Let what is below a run go on, which is free again."""
    close_old_connections()
    children.free_all_below(UUID(run_id))


def give_back(step_id: str, tries: str) -> None:
    """Give back what a run has reserved, if nobody has tried since that many tries."""
    close_old_connections()
    try:
        claims.give_back(int(step_id), int(tries))
    finally:
        close_old_connections()
