"""More time: a press adds the policy's time once more, ten times at most."""

from datetime import timedelta

from django.contrib.auth.models import User

from approvals.desk import seat
from approvals.exceptions import Taken, Unfit
from approvals.models import Request
from runs import holds, journal
from runs.actors import SYSTEM

MOST = 10


def more_time(ref: str, *, person: User, seen: int, door: str = "page") -> Request:
    """Moves `decide_by` and the end of the hold. The digest is the same, so what was decided stands.

    `seen`: how often it had been asked for on the page that was pressed; where it was asked for since, nothing is
    added. Raises NotVisible, NotEligible, Closed, Unfit (it has no deadline, or a fixed one), Taken (ten times).
    """
    with seat.taken(ref, person=person, verb="more_time", door=door) as at:
        at.require_pending()
        at.require_reviewer()
        request, judgement = at.request, at.judgement
        if request.decide_by is None:
            raise Unfit({"": "It has no deadline."})
        if judgement.fixed_because:
            raise Unfit({"": f"The deadline is fixed: {judgement.fixed_because}"})
        if seen < request.extensions:
            return request
        if request.extensions >= MOST:
            raise Taken(f"It was given more time {MOST} times, which is as often as may be.")
        until = request.decide_by + timedelta(seconds=judgement.decide_within)
        changes = {"decide_by": until, "extensions": request.extensions + 1}
        told = {"until": until.isoformat(), "times": request.extensions + 1, "digest": at.revision.digest}
        journal.move(request, at.actor, "more_time", changes, **told)
        holds.set_expiry(at.run, request.hold, until, actor=SYSTEM)  # the run’s history names no reviewer
        request.decide_by, request.extensions = until, request.extensions + 1
        return request
