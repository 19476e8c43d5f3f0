"""Who may see and decide a request, now; computed at page, at decision and at taking effect.

A reviewer is an active member of the request's group (or, where it has none, of the fallback group). The
requester never decides: the owner of the key that started the run, whom it acts for, the agent's owner.
"""

from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.contrib.auth.models import Group, User

from approvals import rights
from approvals.models import Request, Revision
from approvals.models.request import RequestQuerySet
from runs import agents

#: From this tier on, whoever edited an action is an author and cannot be its only approver.
AUTHORS_EXCLUDED = frozenset({"R3", "R4"})


@dataclass(frozen=True, slots=True)
class Eligibility:
    """`why_not` says why a person may not decide; empty: they may."""

    sees: bool
    why_not: str = ""

    @property
    def decides(self) -> bool:
        return self.sees and not self.why_not


HIDDEN = Eligibility(False, "It is not assigned to you.")


def visible_to(user: Any) -> RequestQuerySet:
    """Requests this person may see: their groups', and all of them for operators and auditors."""
    if not user.is_authenticated or not user.is_active:
        return Request.objects.none()
    if rights.sees_all(user):
        return Request.objects.all()
    return Request.objects.filter(rights.of_groups(user))


def assigned_to(user: Any) -> RequestQuerySet:
    """Requests of the groups this person is in, whether or not they are excluded from one."""
    if not user.is_authenticated or not user.is_active:
        return Request.objects.none()
    return Request.objects.filter(rights.of_groups(user))


def eligibility(user: Any, request: Request, *, fresh: bool = False) -> Eligibility:
    """Whether this person may see and decide this request. `fresh`: read their groups again."""
    if fresh and user.is_authenticated:
        user = User.objects.filter(pk=user.pk).first() or user
    if not user.is_authenticated or not user.is_active:
        return HIDDEN
    member = _is_member(user, request)
    if not member:
        return Eligibility(True, "You may see this, but you don't review it.") if rights.sees_all(user) else HIDDEN
    return Eligibility(True, _excluded(user, request))


def _is_member(user: Any, request: Request) -> bool:
    names = rights.group_names(user)
    return (request.group.name if request.group else settings.FALLBACK_REVIEWERS) in names


def _excluded(user: Any, request: Request) -> str:
    run = request.run
    if run.owner_id == str(user.pk):
        return "You started this run, so somebody else decides."
    if run.on_behalf_of.strip().casefold() in _names_of(user):
        return "The run acts for you, so somebody else decides."
    made = agents.find(run.agent, run.agent_version)
    if made is not None and made.owner and made.owner.strip().casefold() in _names_of(user):
        return "You own this agent, so somebody else decides."
    return ""


def _names_of(user: Any) -> set[str]:
    return {name.casefold() for name in (user.email, user.get_username()) if name}


def is_author(user: Any, revision: Revision) -> bool:
    """Whether this person edited the revision, and is excluded from completing it alone."""
    return revision.author_id == str(user.pk) and revision.judgement.get("tier", "R3") in AUTHORS_EXCLUDED


def candidates(request: Request) -> list[User]:
    """Active people who may decide it, for the mails."""
    group = request.group or Group.objects.filter(name=settings.FALLBACK_REVIEWERS).first()
    if group is None:
        return []
    people = group.user_set.filter(is_active=True).order_by("pk")
    return [person for person in people if not _excluded(person, request)]
