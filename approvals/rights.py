"""What people may do beyond reviewing, by the groups they are in; being a superuser gives none of it.

The groups' names are settings. Whoever is disabled has no right at all. `identify` is what the doors of
`runs` ask: it knows a submitter's key, a signed-in person, and nobody.
"""

from dataclasses import replace
from typing import Any

from allauth.account.models import EmailAddress
from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import Q, QuerySet
from django.http import HttpRequest

from approvals.models import ApiKey, Request
from approvals.states import PENDING
from runs.actors import Actor
from runs.callers import Caller
from runs.models import Run


def group_names(user: Any) -> frozenset[str]:
    """The names of an active person's groups, looked up once a request."""
    if not user.is_authenticated or not user.is_active:
        return frozenset()
    if not hasattr(user, "_group_names"):
        user._group_names = frozenset(user.groups.values_list("name", flat=True))
    return frozenset(user._group_names)


def is_operator(user: Any) -> bool:
    return settings.OPERATORS in group_names(user)


def is_policy_editor(user: Any) -> bool:
    return settings.POLICY_EDITORS in group_names(user)


def is_auditor(user: Any) -> bool:
    return settings.AUDITORS in group_names(user)


def sees_all(user: Any) -> bool:
    return is_operator(user) or is_auditor(user)


def enters_admin(user: Any) -> bool:
    return bool(group_names(user) & {settings.OPERATORS, settings.POLICY_EDITORS, settings.AUDITORS})


def of_groups(user: Any) -> Q:
    """Requests of the groups this person is in; the fallback group has those that name none."""
    mine = Q(group__in=user.groups.all())
    if settings.FALLBACK_REVIEWERS in group_names(user):
        mine |= Q(group__isnull=True)
    return mine


def actor(user: Any, door: str) -> Actor:
    """A person as `runs` knows them."""
    return Actor("person", str(user.pk), display_name(user), door, operator=is_operator(user))


def display_name(user: Any) -> str:
    """As it is kept with what they did: 200 characters at most."""
    return str(user.get_full_name() or user.email or user.get_username())[:200]


def identify(request: HttpRequest) -> Caller:
    """The caller at a door of `runs`: by key, by session, or nobody."""
    auth = getattr(request, "auth", None)
    if isinstance(auth, ApiKey):
        return _submitter(auth)
    if request.user.is_authenticated and request.user.is_active:
        return _person(request.user)
    return Caller(Actor("nobody", "", "nobody"), "", False, lambda runs: runs.none(), lambda run: False)


def _submitter(key: ApiKey) -> Caller:
    owner = str(key.owner_id)
    who = Actor("key", key.prefix, key.name, "api")

    def operates() -> Actor | None:
        return replace(who, operator=True) if is_operator(key.owner) else None

    return Caller(
        who,
        owner,
        False,
        lambda runs: runs.filter(owner_id=owner),
        lambda run: run.owner_id == owner,
        operates=operates,
    )


def _person(user: User) -> Caller:
    who, owner, operator = actor(user, "page"), str(user.pk), is_operator(user)

    def visible(runs: QuerySet[Run]) -> QuerySet[Run]:
        if sees_all(user):
            return runs
        reviewed = Request.objects.filter(of_groups(user)).values("run")
        return runs.filter(Q(owner_id=owner) | Q(pk__in=reviewed))

    def may_pause(run: Run) -> bool:
        return operator or run.owner_id == owner or _reviews(user, run)

    def operates() -> Actor | None:
        return who if operator else None

    def has_address(address: str) -> bool:
        """Theirs, and not one they typed in themselves and never confirmed."""
        typed = EmailAddress.objects.filter(user=user, email__iexact=address, verified=False)
        return bool(user.email) and user.email.lower() == address.lower() and not typed.exists()

    return Caller(
        who,
        owner,
        operator,
        visible,
        may_pause,
        sees_all=sees_all(user),
        operates=operates,
        has_address=has_address,
    )


def _reviews(user: User, run: Run) -> bool:
    """A reviewer may pause a run until its request is decided."""
    return Request.objects.filter(of_groups(user), run=run, state__in=PENDING).exists()
