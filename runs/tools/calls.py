"""Calls: what an agent asks for, what came of it, and several at once.

Awaiting a call yields it to the loop that drives the agent, and gives back what the loop sends. A call made
while an agent unwinds (a `finally` after it was dropped) is inert: nothing drives it.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from runs.exceptions import PartlyFailed

if TYPE_CHECKING:
    from runs.tools.declared import Tool

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Decision:
    """What a person decided about a call: approve, edit or reject; who, and their note."""

    verb: str
    by: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """What came of one call: a value, or the recorded error."""

    value: T | None = None
    error: Exception | None = None

    def get(self) -> T:
        """The value; raises the recorded error instead when there is one."""
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]


class Call(Generic[T]):
    """One call of a tool, with arguments that fit. Await it in an agent.

    After it was awaited, `decision` says what a person decided about it (None: nobody was asked) and
    `executed` the arguments that were sent, which differ from `proposed` where the person edited them.
    """

    def __init__(self, tool: "Tool[..., T]", arguments: str, perform: Any = None) -> None:
        self.tool = tool
        self.arguments = arguments
        self.perform = perform
        self.returns = tool.returns
        self.decision: Decision | None = None
        self.sent = arguments

    @property
    def proposed(self) -> dict[str, Any]:
        return self.tool.signature.read(self.arguments)

    @property
    def executed(self) -> dict[str, Any]:
        return self.tool.signature.read(self.sent)

    def __await__(self) -> Generator["Wanted", Any, T]:
        outcomes = yield Wanted((self,))
        return outcomes[0].get()  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"{self.tool.name}({self.arguments[:200]})"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an agent waits for: one call, or several at once. The loop answers with their outcomes, in order."""

    calls: Sequence[Call[Any]]


class Together:
    """Several calls at once; `strict` raises `PartlyFailed` when one of them raised."""

    def __init__(self, calls: Sequence[Call[Any]], *, strict: bool) -> None:
        for call in calls:
            if not isinstance(call, Call):
                raise TypeError(f"together takes calls of tools, not {type(call).__name__}: {call!r}")
        if len({id(call) for call in calls}) != len(calls):
            raise TypeError("together was given the same call twice; make a call for each")
        self._calls = tuple(calls)
        self._strict = strict

    def __await__(self) -> Generator[Wanted, Any, Any]:
        found: tuple[Outcome[Any], ...] = tuple((yield Wanted(self._calls)) if self._calls else ())
        if not self._strict:
            return found
        if any(outcome.error for outcome in found):
            raise PartlyFailed(found)
        return tuple(outcome.value for outcome in found)
