"""What reviewers say to each other; the agent never reads it."""

from django.contrib.auth.models import User

from approvals.decisions import checks
from approvals.desk import seat
from approvals.models import Comment
from approvals.states import PENDING, STANDING


def comment(ref: str, *, person: User, text: str, door: str = "page") -> Comment:
    """Also while its decision waits to be used. The same text again right after it is the same comment.

    Raises NotVisible, NotEligible, Closed, Unfit.
    """
    with seat.taken(ref, person=person, verb="comment", door=door) as at:
        if at.request.state not in PENDING | STANDING:
            raise checks.closed(at.request)
        at.require_reviewer()
        text = checks.words(text, "comment")
        last = at.request.comments.last()
        if last is not None and (last.person_id, last.text) == (at.key, text):
            return last
        at.note("commented", revision=at.request.number)
        return Comment.objects.create(
            request=at.request,
            number=at.request.number,
            person_id=at.key,
            person_name=at.actor.name,
            text=text,
        )
