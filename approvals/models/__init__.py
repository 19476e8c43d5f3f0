"""What is stored of policies, requests, decisions and the mails about them."""

from approvals.models.decision import Decision, Permit, Undo
from approvals.models.desk import Comment, Delegation, Draft, Inquiry, Snooze, StepUp
from approvals.models.key import ApiKey
from approvals.models.notification import Notification
from approvals.models.policy import Policy, PolicyVersion, Rule
from approvals.models.request import Request, Revision

__all__ = [
    "ApiKey",
    "Comment",
    "Decision",
    "Delegation",
    "Draft",
    "Inquiry",
    "Notification",
    "Permit",
    "Policy",
    "PolicyVersion",
    "Request",
    "Revision",
    "Rule",
    "Snooze",
    "StepUp",
    "Undo",
]
