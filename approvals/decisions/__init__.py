"""Deciding: one function whatever the door, and what a decision does when it takes effect.

`decide` writes, under the locks of the run and the request, in the order of `DESIGN.md`; `take_effect`
releases the hold: at once where the undo window is 0, else from the sweeper, with eligibility checked again.
"""

from approvals.decisions.case import MAX_REASON, Choice, Decided
from approvals.decisions.deciding import decide
from approvals.decisions.editing import argument_changes, check_edit
from approvals.decisions.effect import take_effect
from approvals.decisions.lapsing import lapse

__all__ = [
    "MAX_REASON",
    "Choice",
    "Decided",
    "argument_changes",
    "check_edit",
    "decide",
    "lapse",
    "take_effect",
]
