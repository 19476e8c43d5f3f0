"""Allowance: what a run may use, and has used.

`amounts` says how amounts, units and limits are written, `draws` reserves with a call's start and settles with its
receipt, `marks` is what operators set, and what goes on because of it. Amounts are exact decimals, never negative;
null is no limit, 0 is nothing.
"""

from runs.allowance.amounts import (
    MONEY,
    SECONDS,
    STEPS,
    Usage,
    amount,
    figure,
    limits,
    plain,
    unit,
    worded,
)
from runs.allowance.draws import Want, charge, close, fits, give_back, lacking, reserve, settle, wanted
from runs.allowance.marks import asked_for, release_covered, set_limit, share, top_up

__all__ = [
    "MONEY",
    "SECONDS",
    "STEPS",
    "Usage",
    "Want",
    "amount",
    "asked_for",
    "charge",
    "close",
    "figure",
    "fits",
    "give_back",
    "lacking",
    "limits",
    "plain",
    "release_covered",
    "reserve",
    "set_limit",
    "settle",
    "share",
    "top_up",
    "unit",
    "wanted",
    "worded",
]
