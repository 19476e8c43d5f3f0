"""The reviewers' pages: each parses, calls one verb, answers.

Pages work without JavaScript; the same view serves htmx with a partial. GET changes nothing and asks nothing
outside.
"""

from approvals.views.afterwards import history, receipt
from approvals.views.deciding import decide
from approvals.views.editing import edit
from approvals.views.page import find
from approvals.views.request import detail, look, pulse
from approvals.views.waiting import inbox, inbox_pulse

__all__ = ["decide", "detail", "edit", "find", "history", "inbox", "inbox_pulse", "look", "pulse", "receipt"]
