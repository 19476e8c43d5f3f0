"""An agent's coroutine rebuilt from the record, and the comparison of what it asks with what it asked.

No event loop: the coroutine is driven by hand, one awaited thing at a time. To suspend, nothing is thrown into
it: it is dropped, and calls made while it unwinds reach nobody. The first difference between a call and the
recorded one raises `Diverged`, and nothing runs.
"""

from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from runs import recorded, timers, values
from runs.agents import Agent, RunContext
from runs.exceptions import AgentMistake, BadValue, Diverged
from runs.states import StepStatus
from runs.tools.calls import Call, Decision, Outcome, Wanted


@dataclass(frozen=True, slots=True)
class Entry:
    """One step as loaded for replay: a row, not a model object. Digests instead of arguments."""

    id: int
    index: int
    tool: str
    tool_version: str
    digest: str
    status: str
    result: str | None
    settled: int | None
    open_holds: int
    effect: str
    executed: str | None
    executed_digest: str
    decision: dict[str, str] | None
    accepted_digest: str = ""

    @property
    def is_settled(self) -> bool:
        return self.settled is not None


@dataclass(frozen=True, slots=True)
class Returned:
    value: Any


@dataclass(frozen=True, slots=True)
class Raised:
    error: BaseException


class Conversation:
    """The agent's side of a run: start it, answer what it waits for, drop it."""

    def __init__(self, agent: Agent[..., Any], context: RunContext, text: str, *, limit: float) -> None:
        arguments = agent.signature.read(text)
        self._coroutine: Coroutine[Any, Any, Any] = agent.function(context, **arguments)
        self._limit = limit

    def advance(self, outcomes: Sequence[Outcome[Any]] | None = None) -> Wanted | Returned | Raised:
        """Sends outcomes (None: the start); what the agent wants next, or how it ended."""
        try:
            with timers.limit(self._limit):
                wanted = self._coroutine.send(outcomes)
        except StopIteration as stop:
            return Returned(stop.value)
        except timers.OutOfTime:
            return Raised(
                AgentMistake(f"the agent's own code ran for more than {self._limit:g} s between two calls")
            )
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # also SystemExit and CancelledError: a record comes of it
            if "no running event loop" in str(error):
                error.add_note(
                    "An agent awaits calls of tools only; put waiting and outside things into a tool."
                )
            return Raised(error)
        if not isinstance(wanted, Wanted):
            self.drop()
            return Raised(
                AgentMistake(
                    f"the agent awaited {type(wanted).__name__}; it can await calls of tools, `together`,"
                    " `outcomes`, `ask`, `remember`, `sleep`, `wait_for` and `start`. Put anything else into a tool."
                )
            )
        return wanted

    def drop(self) -> None:
        """Lets go of the coroutine. Its `finally` blocks run without effect."""
        try:
            with timers.limit(self._limit):
                self._coroutine.close()
        except (Exception, timers.OutOfTime):  # an await inside `finally`, or code that swallows the close
            return


def compare(index: int, call: Call[Any], entry: Entry) -> None:
    """Raises Diverged unless `call` is the recorded one: same tool, same arguments as proposed, or others that
    an operator accepted."""
    digest = values.digest(call.arguments)
    if call.tool.name != entry.tool or digest not in (entry.digest, entry.accepted_digest):
        raise Diverged(
            index,
            f"{entry.tool} {entry.digest[:12]}",
            f"{call.tool.name} {digest[:12]}: {call.arguments}",
            call,
        )


def outcome(call: Call[Any], entry: Entry) -> Outcome[Any]:
    """What came of a settled call, read back from the record, with its decision on the call.

    Raises Diverged when the value no longer fits the tool's type, or would be written otherwise today.
    """
    assert entry.result is not None
    if entry.decision:
        call.decision = Decision(**entry.decision)
    if entry.executed is not None:
        call.sent = entry.executed
    if entry.status == StepStatus.RAISED:
        return Outcome(error=recorded.read(entry.result, call.tool.recorded_errors))
    return Outcome(value=_read_back(call, entry, entry.result))


def _read_back(call: Call[Any], entry: Entry, text: str) -> Any:
    try:
        value = call.returns.read(text)
        same = entry.tool_version == call.tool.version or call.returns.write(value) == text
    except BadValue as error:
        raise Diverged(entry.index, f"a result of {entry.tool}", f"a type it does not fit: {error}") from None
    if not same:
        raise Diverged(entry.index, f"a result of {entry.tool}", "a type that would write it otherwise")
    return value
