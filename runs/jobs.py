"""RQ's entry points: an id comes in, a room is called.

A job may run twice, late or never, and may carry an id that no row has (any more): that is a line in the log.
Nothing is decided here. What the loop did not expect is logged with the run's id and handed on to RQ, whose
dashboard shows it for an hour; the run itself is found again by its lease.
"""

import logging
from uuid import UUID

from django.db import close_old_connections

from runs import exceptions, execution

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
