"""The operators', policy editors' and auditors' door to approvals, policies, keys and people.

Requests, decisions, permits and mails are only looked at, by everybody. Policy editors edit rules, and each
save or deletion is a new version; keys and people are the operators'. What other apps would show here (their
own keys, second factors, addresses) is taken out.
"""

from django.contrib import admin
from django.db.models import Model

from approvals.admin.history import (
    DecisionAdmin,
    LogAdmin,
    NotificationAdmin,
    PermitAdmin,
    RequestAdmin,
    RevisionAdmin,
)
from approvals.admin.keys import KeyAdmin
from approvals.admin.people import GroupAdmin, PersonAdmin
from approvals.admin.policy import PolicyVersionAdmin, RuleAdmin

__all__ = [
    "DecisionAdmin",
    "GroupAdmin",
    "KeyAdmin",
    "LogAdmin",
    "NotificationAdmin",
    "PermitAdmin",
    "PersonAdmin",
    "PolicyVersionAdmin",
    "RequestAdmin",
    "RevisionAdmin",
    "RuleAdmin",
]

OURS = ("runs", "approvals", "auth", "admin")


def _leave_ours_only() -> None:
    """This app is the last installed one, so everything that registers itself has done so."""
    strangers: list[type[Model]] = [
        model for model in admin.site._registry if model._meta.app_label not in OURS
    ]
    admin.site.unregister(strangers)


_leave_ours_only()
