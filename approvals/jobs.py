"""RQ's entry points of approvals: an id comes in, a room is called."""

import uuid

from approvals import looks


def look(request_id: str) -> None:
    """Looks at a request's facts again."""
    looks.look(uuid.UUID(request_id))
