"""Whether this process has been asked to stop.

A plain flag, because a signal handler sets it. The worker's parent raises it on the first SIGTERM or SIGINT,
its horse on SIGUSR1. The loop reads it between steps and hands its run back at the next boundary; nothing is
interrupted by it.
"""

_requested = False


def request() -> None:
    global _requested
    _requested = True


def requested() -> bool:
    return _requested


def forget() -> None:
    """For tests in the same process."""
    global _requested
    _requested = False
