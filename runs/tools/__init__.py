"""How agents touch the world: `@tool`, `@fact`, calls, and what is built in.

This is what authors of agents import. Calling a tool makes a `Call[T]`, and nothing runs; awaiting it in
an agent gives `T`, read back from the record, the first time and on every replay. Tools are plain functions;
those of one `together` run side by side in threads and never touch the tables of runs.
"""

from runs.exceptions import (
    AgentError,
    BadPayload,
    ChildFailed,
    Compensated,
    CredentialRefused,
    Denied,
    Expired,
    NeedsAuthorisation,
    NotSent,
    PartlyFailed,
    Rejected,
    Stale,
    TimedOut,
    ToolFailed,
    Unavailable,
)
from runs.tools.builtin import ask, outcomes, remember, sleep, start, together, wait_for
from runs.tools.calls import Call, Decision, Outcome
from runs.tools.declared import Fact, Tool, ToolContext, fact, get, known, tool

__all__ = [
    "AgentError",
    "BadPayload",
    "Call",
    "ChildFailed",
    "Compensated",
    "CredentialRefused",
    "Decision",
    "Denied",
    "Expired",
    "Fact",
    "NeedsAuthorisation",
    "NotSent",
    "Outcome",
    "PartlyFailed",
    "Rejected",
    "Stale",
    "TimedOut",
    "Tool",
    "ToolContext",
    "ToolFailed",
    "Unavailable",
    "ask",
    "fact",
    "get",
    "known",
    "outcomes",
    "remember",
    "sleep",
    "start",
    "together",
    "tool",
    "wait_for",
]
