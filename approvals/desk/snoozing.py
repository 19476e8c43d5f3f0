"""Putting a request off: one person does not see it among their own until a time; others still do."""

from datetime import datetime, timedelta

from django.contrib.auth.models import User

from approvals.desk import seat
from approvals.exceptions import Unfit
from approvals.models import Request, Snooze

#: The part of the time left that may be slept through. The rest stays for deciding.
SLEEPS = 0.8
#: As long, where a request has no deadline.
LONGEST = timedelta(days=7)


def latest(request: Request, at: datetime) -> datetime:
    """Until when it may be put off."""
    return at + ((request.decide_by - at) * SLEEPS if request.decide_by else LONGEST)


def snooze(ref: str, *, person: User, until: datetime, door: str = "page") -> Snooze:
    """Puts it off for this person; again moves the time.

    Raises NotVisible, NotEligible, Closed, and Unfit: the time is past, or leaves less than a fifth for deciding.
    """
    with seat.taken(ref, person=person, verb="snooze", door=door) as at:
        at.require_pending()
        at.require_reviewer()
        if until <= at.at:
            raise Unfit({"until": "That time is past."})
        if until > latest(at.request, at.at):
            raise Unfit({"until": "That is too late: a fifth of the time that is left is kept for deciding."})
        if standing := Snooze.objects.filter(request=at.request, person_id=at.key, until=until).first():
            return standing
        row, _ = Snooze.objects.update_or_create(
            request=at.request, person_id=at.key, defaults={"until": until}
        )
        at.note("snoozed", until=until.isoformat())
        return row


def wake(ref: str, *, person: User, door: str = "page") -> bool:
    """Shows it again. False: it was not put off. Raises NotVisible."""
    with seat.taken(ref, person=person, verb="wake", door=door) as at:
        found, _ = Snooze.objects.filter(request=at.request, person_id=at.key).delete()
        if found:
            at.note("woken")
        return bool(found)
