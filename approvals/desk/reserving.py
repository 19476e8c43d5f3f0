"""“I’m on it”: tells the others that somebody is reading. It lapses by itself and keeps nobody from deciding."""

from datetime import timedelta

from django.contrib.auth.models import User

from approvals.desk import seat
from approvals.exceptions import Taken, Unfit
from approvals.models import Request

LASTS = timedelta(minutes=10)
BLIND = "Reviewers do not see each other here, so nobody can say that they are on it."


def reserve(ref: str, *, person: User, door: str = "page") -> Request:
    """For ten minutes from now; again begins them anew.

    Raises NotVisible, NotEligible, Closed, Unfit (reviewers do not see each other here), and Taken: somebody else is.
    """
    with seat.taken(ref, person=person, verb="reserve", door=door) as at:
        at.require_pending()
        at.require_reviewer()
        request = at.request
        if at.judgement.blind:
            raise Unfit({"": BLIND})
        if request.reserved_by_id != at.key and request.reserved_until and request.reserved_until > at.at:
            raise Taken(f"{request.reserved_by_name} is on it.")
        _write(request, at.key, at.actor.name, at.at + LASTS)
        at.note("reserved", until=(at.at + LASTS).isoformat())
        return request


def let_go(ref: str, *, person: User, door: str = "page") -> bool:
    """Ends one's own. False: there is none. Raises NotVisible."""
    with seat.taken(ref, person=person, verb="let_go", door=door) as at:
        if at.request.reserved_by_id != at.key:
            return False
        _write(at.request, "", "", None)
        at.note("let_go")
        return True


def _write(request: Request, by_id: str, by_name: str, until: object) -> None:
    now = {"reserved_by_id": by_id, "reserved_by_name": by_name, "reserved_until": until}
    Request.objects.filter(pk=request.pk).update(**now)
    for name, value in now.items():
        setattr(request, name, value)
