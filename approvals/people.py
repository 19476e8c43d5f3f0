"""What operators do to accounts and keys: disable, enable, end sessions, revoke.

Who may enter the admin follows from groups; `is_staff` is only kept in step with them. An installation keeps
an operator: the last one is neither disabled nor taken out of the group. Nobody's password is set here.
"""

from collections.abc import Iterable

from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.contrib.auth.models import Group, User
from django.contrib.sessions.models import Session
from django.core.exceptions import ValidationError
from django.db import transaction

from approvals.models import ApiKey
from runs.clock import Now


def settle_staff(user: User) -> None:
    """`is_staff` says whether one of their groups may enter the admin."""
    entering = (settings.OPERATORS, settings.POLICY_EDITORS, settings.AUDITORS)
    user.is_staff = user.groups.filter(name__in=entering).exists()
    User.objects.filter(pk=user.pk).update(is_staff=user.is_staff)


def is_last_operator(user: User) -> bool:
    """Whether nobody else, who may sign in, is an operator."""
    operators = User.objects.filter(is_active=True, groups__name=settings.OPERATORS)
    return operators.filter(pk=user.pk).exists() and not operators.exclude(pk=user.pk).exists()


def refuse_without_operator(user: User, groups: Iterable[Group]) -> None:
    """Raises ValidationError when these groups would leave the installation without an operator."""
    if settings.OPERATORS not in {group.name for group in groups} and is_last_operator(user):
        raise ValidationError("This is the last operator; make somebody else one first.", code="last")


def disable(user: User) -> int:
    """They cannot sign in, their sessions end and their keys do not work. How many sessions there were.

    Raises ValidationError: they are disabled already, or the last operator.
    """
    with transaction.atomic():
        # Of two last operators who are disabled side by side, one stays.
        Group.objects.select_for_update().filter(name=settings.OPERATORS).first()
        if is_last_operator(user):
            raise ValidationError("This is the last operator; make somebody else one first.", code="last")
        if not User.objects.filter(pk=user.pk, is_active=True).update(is_active=False):
            raise ValidationError("The account is disabled already.", code="disabled")
        return end_sessions(user)


def enable(user: User) -> None:
    """They can sign in again, with the password they had. Raises ValidationError: nothing to enable."""
    if not User.objects.filter(pk=user.pk, is_active=False).update(is_active=True):
        raise ValidationError("The account is not disabled.", code="enabled")


def end_sessions(user: User) -> int:
    """Signs them out everywhere. Sessions are sealed, so each is opened to see whose it is."""
    theirs = [
        session.pk
        for session in Session.objects.filter(expire_date__gt=Now()).iterator()
        if session.get_decoded().get(SESSION_KEY) == str(user.pk)
    ]
    return Session.objects.filter(pk__in=theirs).delete()[0]


def revoke(key: ApiKey) -> None:
    """From now on the key is unknown; what it started goes on. Raises ValidationError: revoked before."""
    if not ApiKey.objects.filter(pk=key.pk, revoked=False).update(revoked=True):
        raise ValidationError("The key was revoked before.", code="revoked")
