"""Asking the agent: a reviewer's question to who submitted the run, and the answer, which is testimony.

The agent's side reads it with its hold (page and API), without a name. The clock runs meanwhile and anybody may
decide. A question is about one revision: where what it is about changed, the request is open again without an
answer, which may still come.
"""

import uuid

from django.contrib.auth.models import User
from django.db import transaction

from approvals import notifications
from approvals.decisions import checks
from approvals.desk import seat
from approvals.exceptions import Closed, NotVisible, Taken
from approvals.models import Inquiry, Request
from approvals.states import RequestState
from runs import holds, journal, lifecycle
from runs.actors import Actor
from runs.clock import Now, now

#: In the run's own history, which its submitter reads (C-26).
SOMEBODY = Actor("person", "", "a reviewer", "page")


def ask(ref: str, *, person: User, text: str, door: str = "page") -> Inquiry:
    """Puts the question; the request *needs info* until it is answered. The same again is the same question.

    Raises NotVisible, NotEligible, Closed, Unfit, and Taken: another question waits for its answer.
    """
    with seat.taken(ref, person=person, verb="ask", door=door) as at:
        at.require_pending()
        at.require_reviewer()
        text, request = checks.words(text, "question"), at.request
        waits = request.inquiries.filter(answered_at=None).first()
        if waits is not None and request.state == RequestState.NEEDS_INFO:
            if (waits.person_id, waits.text) == (at.key, text):
                return waits
            who = seat.ANOTHER if at.is_blind else waits.person_name
            raise Taken(f"{who} asked something already. One question at a time.")
        request.inquiries.filter(answered_at=None).update(answered_at=Now())  # of an older revision: given up
        made = Inquiry.objects.create(
            request=request, number=request.number, person_id=at.key, person_name=at.actor.name, text=text
        )
        made.refresh_from_db()
        told = {"inquiry": made.pk, "revision": request.number, "digest": at.revision.digest}
        journal.move(request, at.actor, "asked", {"state": str(RequestState.NEEDS_INFO)}, **told)
        request.state = RequestState.NEEDS_INFO
        holds.mark(request.hold, inquiry={"id": made.pk, "text": text, "at": made.made_at.isoformat()})
        journal.write(at.run, SOMEBODY, "question_put", index=request.step.index)
        notifications.tell_owner(request, f"asked.{made.pk}")
        return made


def answer(run_id: uuid.UUID, inquiry_id: int, *, text: str, actor: Actor) -> Inquiry:
    """The submitter's side says something; the door has checked that `actor` is of it.

    Raises NotVisible, Unfit, Closed (the request can no longer be decided), Taken (it was answered).
    The same answer again writes nothing.
    """
    text = checks.words(text, "answer")
    with transaction.atomic():
        run = lifecycle.lock(run_id)
        found = (
            Inquiry.objects.filter(pk=inquiry_id, request__run=run).values_list("request", flat=True).first()
        )
        if found is None:
            raise NotVisible("There is no such question.")
        request = Request.objects.select_for_update(of=("self",)).select_related("hold", "step").get(pk=found)
        request.run = run
        inquiry = Inquiry.objects.get(pk=inquiry_id)
        if inquiry.answered_at is not None:
            if inquiry.answer == text:
                return inquiry
            raise Taken(
                "It was answered already." if inquiry.answer else "It was given up: another was asked."
            )
        _require_waiting(request)
        _write(request, inquiry, text, actor)
        return inquiry


def _require_waiting(request: Request) -> None:
    try:
        checks.require_pending(request, request.run, now())
    except Closed as late:
        raise Closed(late.code, "Nobody waits for the answer any more.", at=late.at) from None


def _write(request: Request, inquiry: Inquiry, text: str, actor: Actor) -> None:
    inquiry.answer, inquiry.answered_by = text, actor.name
    Inquiry.objects.filter(pk=inquiry.pk).update(answer=text, answered_by=actor.name, answered_at=Now())
    inquiry.refresh_from_db()
    holds.mark(request.hold, inquiry=None)
    journal.write(request.run, actor, "question_answered", index=request.step.index)
    opens = request.state == RequestState.NEEDS_INFO
    changes = {"state": str(RequestState.OPEN)} if opens else {}
    journal.move(request, actor, "answered", changes, inquiry=inquiry.pk, revision=inquiry.number)
    notifications.announce(request, f"answered.{inquiry.pk}")
