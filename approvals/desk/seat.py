"""Who acts on which request, under the locks of its run and of itself; and what all verbs of the desk refuse."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from approvals import reviewers, rights
from approvals.decisions import checks
from approvals.exceptions import ApprovalsError, NotEligible, NotVisible
from approvals.models import Request, Revision
from approvals.policies import Judgement
from runs import journal, lifecycle
from runs.actors import Actor
from runs.clock import now
from runs.models import Run

UNKNOWN = "It doesn't exist, or isn't assigned to you."
#: Who is not named where reviewers do not see each other.
ANOTHER = "Another reviewer"


@dataclass
class Seat:
    """`at` was read after the locks."""

    request: Request
    run: Run
    person: User
    revision: Revision
    actor: Actor
    at: datetime

    @property
    def key(self) -> str:
        """The person as rows keep them."""
        return str(self.person.pk)

    @property
    def judgement(self) -> Judgement:
        return Judgement.from_json(self.revision.judgement)

    @property
    def is_blind(self) -> bool:
        """Whether others are hidden from this person: until they have decided themselves."""
        return self.judgement.blind and not self.has_decided(self.person)

    def note(self, verb: str, /, **detail: Any) -> None:
        journal.write(self.request, self.actor, verb, digest=self.revision.digest, **detail)

    def require_pending(self) -> None:
        """Raises Closed."""
        checks.require_pending(self.request, self.run, self.at)

    def require_reviewer(self) -> None:
        """Raises NotEligible."""
        if why := reviewers.eligibility(self.person, self.request).why_not:
            raise NotEligible(why)

    def has_decided(self, person: User) -> bool:
        """Whether a decision of theirs stands on what stands."""
        return self.revision.decisions.standing().filter(person_id=str(person.pk)).exists()


@contextmanager
def taken(ref: str, *, person: User, verb: str, door: str) -> Iterator[Seat]:
    """One transaction. A refusal rolls back what was written in it, and is journalled; one of who may not see the
    request leaves no trace in it. Raises NotVisible."""
    try:
        with transaction.atomic():
            yield _locked(ref, person, door)
    except NotVisible:
        raise
    except ApprovalsError as refused:
        _journal_refusal(ref, rights.actor(person, door), verb, refused)
        raise


def _locked(ref: str, person: User, door: str) -> Seat:
    run_id = Request.objects.filter(ref=ref).values_list("run_id", flat=True).first()
    if run_id is None:
        raise NotVisible(UNKNOWN)
    run = lifecycle.lock(run_id)
    rows = Request.objects.select_for_update(of=("self",)).select_related("hold", "group")
    request, fresh = rows.get(ref=ref), User.objects.filter(pk=person.pk).first()
    request.run = run
    if fresh is None or not reviewers.eligibility(fresh, request).sees:
        raise NotVisible(UNKNOWN)
    revision = request.revision
    revision.request = request
    return Seat(request, run, fresh, revision, rights.actor(fresh, door), now())


def _journal_refusal(ref: str, actor: Actor, verb: str, refused: ApprovalsError) -> None:
    with transaction.atomic():
        request = Request.objects.filter(ref=ref).first()
        if request is not None:
            digest = request.revision.digest
            journal.write(request, actor, "refused", verb=verb, code=refused.code, digest=digest)


def in_words(seconds: int) -> str:
    """A time as people say it, in its largest whole unit."""
    for unit, word in ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second")):
        if seconds >= unit and seconds % unit == 0:
            return f"{seconds // unit} {word}{'s' * (seconds // unit > 1)}"
    return "no time"
