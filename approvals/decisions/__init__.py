"""Deciding: one function whatever the door, and what a decision does when it takes effect.

`decide` writes, under the locks of the run and the request, in the order of `DESIGN.md`; `take_effect`
releases the hold: at once where the undo window is 0, else from the sweeper, with eligibility checked again;
`undo` takes a decision back before that.
"""

from approvals.decisions.case import MAX_REASON, Choice, Decided
from approvals.decisions.deciding import decide
from approvals.decisions.editing import argument_changes, check_edit
from approvals.decisions.effect import take_effect
from approvals.decisions.lapsing import lapse
from approvals.decisions.undoing import Undone, carrying, may_stop, undo

__all__ = [
    "MAX_REASON",
    "Choice",
    "Decided",
    "Undone",
    "argument_changes",
    "carrying",
    "check_edit",
    "decide",
    "lapse",
    "may_stop",
    "take_effect",
    "undo",
]
