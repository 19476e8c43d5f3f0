"""What every agent has without declaring it: `together`, `outcomes`, `ask`, `remember`, `sleep`, `wait_for`,
`start`."""

import inspect
import typing
from collections.abc import Awaitable, Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any, ParamSpec, TypeVar, overload

from pydantic import BaseModel

from runs import values
from runs.agents import Agent
from runs.tools.calls import Call, Outcome, Together
from runs.tools.declared import Properties, Tool, register

LONGEST = 10 * 366 * 86400  # seconds that a run may be asked to wait
MAX_EVENT_NAME = 100

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")
Form = TypeVar("Form", bound=BaseModel)


@overload
def together(a: Call[A], b: Call[B], /) -> Awaitable[tuple[A, B]]: ...
@overload
def together(a: Call[A], b: Call[B], c: Call[C], /) -> Awaitable[tuple[A, B, C]]: ...
@overload
def together(a: Call[A], b: Call[B], c: Call[C], d: Call[D], /) -> Awaitable[tuple[A, B, C, D]]: ...
@overload
def together(
    a: Call[A], b: Call[B], c: Call[C], d: Call[D], e: Call[E], /
) -> Awaitable[tuple[A, B, C, D, E]]: ...
@overload
def together(*calls: Call[T]) -> Awaitable[tuple[T, ...]]: ...
def together(*calls: Call[Any]) -> Awaitable[Any]:
    """Several calls side by side: their results in order, or one `PartlyFailed` with every outcome."""
    return Together(calls, strict=True)


@overload
def outcomes(a: Call[A], b: Call[B], /) -> Awaitable[tuple[Outcome[A], Outcome[B]]]: ...
@overload
def outcomes(
    a: Call[A], b: Call[B], c: Call[C], /
) -> Awaitable[tuple[Outcome[A], Outcome[B], Outcome[C]]]: ...
@overload
def outcomes(*calls: Call[T]) -> Awaitable[tuple[Outcome[T], ...]]: ...
def outcomes(*calls: Call[Any]) -> Awaitable[Any]:
    """Several calls side by side: what came of each, in order; nothing is raised."""
    return Together(calls, strict=False)


def _asked(question: str, form: dict[str, Any]) -> Any:
    """{question}"""
    raise AssertionError("a question is answered by a person, never called")


def _remembered(name: str) -> Any:
    """Remember {name}"""
    raise AssertionError("what to remember travels with the call")


def _slept(seconds: Decimal) -> None:
    """Sleep {seconds} seconds"""
    raise AssertionError("the gate waits; nothing is called")


def _waited(event: str, within: Decimal | None) -> Any:
    """Wait for {event}"""
    raise AssertionError("the gate waits; nothing is called")


def _started(agent: str, version: str, arguments: dict[str, Any]) -> Any:
    """Start {agent}"""
    raise AssertionError("the gate starts the child; nothing is called")


ASK: Tool[..., Any] = register(Tool(_asked, Properties(), name="abeyance.ask"))
REMEMBER: Tool[..., Any] = register(Tool(_remembered, Properties(), name="abeyance.remember"))
SLEEP: Tool[..., Any] = register(Tool(_slept, Properties(), name="abeyance.sleep"))
WAIT_FOR: Tool[..., Any] = register(Tool(_waited, Properties(), name="abeyance.wait_for"))
START: Tool[..., Any] = register(Tool(_started, Properties(), name="abeyance.start"))


class Question(Call[Form]):
    """A question to a person; the answer is an instance of `form`."""

    def __init__(self, question: str, form: type[Form]) -> None:
        super().__init__(ASK, ASK.signature.write(question=question, form=form.model_json_schema()))
        self.returns = values.of(form)


class Remembered(Call[T]):
    """A value taken once and kept. It must be JSON, or of the type `take` is annotated to return."""

    def __init__(self, name: str, take: Callable[[], T]) -> None:
        super().__init__(REMEMBER, REMEMBER.signature.write(name=name), perform=take)
        hints = typing.get_type_hints(take) if inspect.isfunction(take) else {}
        self.returns = values.of(hints.get("return", Any))


def ask(question: str, form: type[Form]) -> Call[Form]:
    """Asks a person. Raises `Expired` in the agent when nobody answers in time."""
    return Question(question, form)


def remember(name: str, take: Callable[[], T]) -> Call[T]:
    """Takes a value once (`take()`), keeps it, and gives it again on every replay."""
    return Remembered(name, take)


class Waited(Call[T]):
    """A wait for an event; its payload is an instance of `form`."""

    def __init__(self, event: str, form: type[T], within: Decimal | None) -> None:
        if not 1 <= len(event) <= MAX_EVENT_NAME:
            raise ValueError(f"an event's name has 1 to {MAX_EVENT_NAME} characters, not {len(event)}")
        super().__init__(WAIT_FOR, WAIT_FOR.signature.write(event=event, within=within))
        self.returns = values.of(form)  # type: ignore[arg-type]


class Child(Call[T]):
    """A run of another agent below this one; its value is the child's result."""

    def __init__(self, agent: Agent[..., T], arguments: str) -> None:
        given = {"agent": agent.name, "version": agent.version, "arguments": values.parse(arguments)}
        super().__init__(START, START.signature.write(**given))
        self.returns = agent.signature.result


def sleep(duration: timedelta | float) -> Call[None]:
    """Waits for `duration` (seconds, or a timedelta) without a worker; 0 goes on at once."""
    return Call(SLEEP, SLEEP.signature.write(seconds=_seconds(duration)))


def wait_for(event: str, form: type[T], *, within: timedelta | float | None = None) -> Call[T]:
    """Waits for an event told to this run under that name; its payload must fit `form`. One that came before
    counts. Raises `Expired` in the agent when none comes `within` that time, `BadPayload` when it does not fit."""
    return Waited(event, form, None if within is None else _seconds(within))


def start(agent: Agent[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Call[T]:
    """Starts a child run and waits for its result. Raises `ChildFailed` in the agent when it does not succeed."""
    return Child(agent, agent.signature.write(*args, **kwargs))


def _seconds(duration: timedelta | float) -> Decimal:
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if not 0 <= seconds <= LONGEST:
        raise ValueError(f"{duration!r} is no time to wait: from 0 to {LONGEST} seconds")
    return Decimal(str(seconds))
