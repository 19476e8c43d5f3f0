"""News that goes up, in the past tense, sent inside the transaction with `send()`.

A receiver that raises undoes the transition it heard of: a run never waits for a request that could
not be created.
"""

from django.dispatch import Signal

#: A hold was placed. Arguments: run (locked row), hold, step (or None), context (`gate.Asked` or None).
hold_placed = Signal()
#: A hold was released. Arguments: run (locked row), hold.
hold_released = Signal()
#: A hold outlasted its time and goes on waiting. Arguments: run (locked row), hold.
hold_overdue = Signal()
#: A run has ended; holds are closed. Arguments: run (locked row).
run_ended = Signal()
#: An allowance reached its soft mark. Arguments: allowance.
allowance_low = Signal()
