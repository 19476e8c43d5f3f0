"""RQ's entry points of approvals: an id comes in, a room is called."""

import uuid

from approvals import looks
from approvals.models import Request


def look(request_id: str) -> None:
    """Looks at a request's facts again, if a look is still wanted: however often it was rung for, one is made."""
    wanted = uuid.UUID(request_id)
    if Request.objects.looks_wanted().filter(pk=wanted).exists():
        looks.look(wanted)
