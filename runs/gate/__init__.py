"""The gate every call passes, whether it gets there first or for the fifth time.

`contract` says what goes in and out and whom it asks; `passing` decides; `waits` are calls that nobody makes;
`placing` writes what a call leaves behind.
"""

from runs.gate.contract import (
    Asked,
    Authority,
    Go,
    Held,
    Pass,
    Permit,
    Proposal,
    Settled,
    Verdict,
    register,
)
from runs.gate.passing import Back, arrive, back, come_back, go_again
from runs.gate.placing import (
    below,
    draw_again,
    free,
    intent,
    note_not_sent,
    obstructed,
    put_back,
    put_off,
    start,
    take_back,
    turned_back,
    wait,
)

__all__ = [
    "Asked",
    "Authority",
    "Back",
    "Go",
    "Held",
    "Pass",
    "Permit",
    "Proposal",
    "Settled",
    "Verdict",
    "arrive",
    "back",
    "below",
    "come_back",
    "draw_again",
    "free",
    "go_again",
    "intent",
    "note_not_sent",
    "obstructed",
    "put_back",
    "put_off",
    "register",
    "start",
    "take_back",
    "turned_back",
    "wait",
]
