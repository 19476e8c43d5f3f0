"""How many approvals a request has and still needs, and who gave them: told to everybody, or blind.

Where the policy says blind, nobody reads another's answer before they have given their own: only the count shows.
"""

from dataclasses import dataclass, field
from typing import Any

from django.db.models import Q, QuerySet

from approvals.models import Decision, Request, Revision
from approvals.states import PENDING, Verb


@dataclass(frozen=True, slots=True)
class Quorum:
    """`given`: who approved and when, empty while it is hidden from the reader."""

    needed: int
    count: int
    hidden: bool = False
    given: list[dict[str, Any]] = field(default_factory=list)
    by: str = ""
    edited_by: str = ""

    @property
    def missing(self) -> int:
        return max(0, self.needed - self.count)


def of(request: Request, revision: Revision, reader: str) -> Quorum | None:
    """As this reader may know it; None where one approval is enough."""
    if request.quorum < 2:
        return None
    made = list(revision.decisions.standing().filter(verb=Verb.APPROVE).order_by("made_at"))
    hidden = hides(request, revision, reader)
    return Quorum(
        needed=request.quorum,
        count=len({each.person_id for each in made}),
        hidden=hidden,
        given=[] if hidden else [{"who": each.person_name, "at": each.made_at} for each in made],
        by=request.group.name if request.group else "",
        edited_by=revision.author_name,
    )


def hides(request: Request, revision: Revision, reader: str) -> bool:
    """Whether others' answers and comments are hidden from this reader now: until they have decided themselves."""
    if request.state not in PENDING or not revision.judgement.get("blind"):
        return False
    return not revision.decisions.standing().filter(person_id=reader).exists()


def told(decisions: "QuerySet[Decision]", reader: str) -> "QuerySet[Decision]":
    """Decisions without those that are hidden from this reader."""
    mine = Decision.objects.standing().filter(person_id=reader).values("revision")
    blind = Q(request__state__in=PENDING, revision__judgement__blind=True)
    return decisions.exclude(blind & ~Q(person_id=reader) & ~Q(revision__in=mine))
