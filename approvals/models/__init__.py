"""What is stored of policies, requests, decisions and the mails about them."""

from approvals.models.decision import Decision, Permit
from approvals.models.key import ApiKey
from approvals.models.notification import Notification
from approvals.models.policy import Policy, PolicyVersion, Rule
from approvals.models.request import Request, Revision

__all__ = [
    "ApiKey",
    "Decision",
    "Notification",
    "Permit",
    "Policy",
    "PolicyVersion",
    "Request",
    "Revision",
    "Rule",
]
