"""Claims: what a run has reserved outside (an effect whose tool has a `release` tool), and giving it back.

A run that ends owes its claims; they are given back from then on until it works, and shown as owed meanwhile.
"""

from typing import Any

from runs.clock import Now
from runs.models import Run, Step
from runs.states import ClaimState, EffectState
from runs.tools.declared import Tool


def after(tool: Tool[..., Any], effect: str) -> str:
    """What a settled effect leaves the run with."""
    return ClaimState.HELD if tool.properties.release and effect == EffectState.CONFIRMED else ""


def owe(run: Run) -> int:
    """A run that ends owes what it has reserved. `run` is locked."""
    return Step.objects.filter(run=run, claim=ClaimState.HELD).update(
        claim=ClaimState.OWED, claim_due_at=Now()
    )
