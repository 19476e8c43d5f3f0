"""Where a request stands, and what a person may say of it."""

from django.db.models import TextChoices


class RequestState(TextChoices):
    OPEN = "open"
    NEEDS_INFO = "needs_info"
    DECIDED = "decided"
    IN_FORCE = "in_force"
    CONSUMED = "consumed"
    REJECTED = "rejected"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"
    SUPERSEDED = "superseded"
    CANCELLED = "cancelled"


class RequestKind(TextChoices):
    APPROVAL = "approval"
    QUESTION = "question"


class Verb(TextChoices):
    APPROVE = "approve"
    REJECT = "reject"
    RESPOND = "respond"


#: A reviewer can still say something.
PENDING = frozenset({RequestState.OPEN, RequestState.NEEDS_INFO})
#: Decided, and still waiting for its run: drift or a lapsed permit may reopen it.
STANDING = frozenset({RequestState.DECIDED, RequestState.IN_FORCE})
