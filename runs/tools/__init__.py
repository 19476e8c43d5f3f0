"""How agents touch the world: `@tool`, `@fact`, calls, and what is built in.

This is what authors of agents import. Calling a tool makes a `Call[T]`, and nothing runs; awaiting it in
an agent gives `T`, read back from the record, the first time and on every replay. Tools are plain functions;
those of one `together` run side by side in threads and never touch the tables of runs.
"""

from runs.exceptions import (
    AgentError,
    Denied,
    Expired,
    NotSent,
    PartlyFailed,
    Rejected,
    TimedOut,
    ToolFailed,
)
from runs.tools.builtin import ask, outcomes, remember, together
from runs.tools.calls import Call, Decision, Outcome
from runs.tools.declared import Fact, Tool, ToolContext, fact, get, known, tool

__all__ = [
    "AgentError",
    "Call",
    "Decision",
    "Denied",
    "Expired",
    "Fact",
    "NotSent",
    "Outcome",
    "PartlyFailed",
    "Rejected",
    "TimedOut",
    "Tool",
    "ToolContext",
    "ToolFailed",
    "ask",
    "fact",
    "get",
    "known",
    "outcomes",
    "remember",
    "together",
    "tool",
]
