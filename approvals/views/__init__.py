"""The reviewers' pages: each parses, calls one verb, answers.

Pages work without JavaScript; the same view serves htmx with a partial. GET changes nothing and asks nothing
outside.
"""

from approvals.views.afterwards import history, receipt
from approvals.views.answering import answer
from approvals.views.bulk import bulk, bulk_do
from approvals.views.checking import open_section
from approvals.views.deciding import decide
from approvals.views.desk import ask, comment, delegate, let_go, more_time, reserve, snooze, undo, wake
from approvals.views.editing import edit
from approvals.views.page import find
from approvals.views.request import detail, look, pulse
from approvals.views.stepping import step_up
from approvals.views.waiting import inbox, inbox_pulse, keys, row

__all__ = [
    "answer",
    "ask",
    "bulk",
    "bulk_do",
    "comment",
    "decide",
    "delegate",
    "detail",
    "edit",
    "find",
    "history",
    "inbox",
    "inbox_pulse",
    "keys",
    "let_go",
    "look",
    "more_time",
    "open_section",
    "pulse",
    "receipt",
    "reserve",
    "row",
    "snooze",
    "step_up",
    "undo",
    "wake",
]
