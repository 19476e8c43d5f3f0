"""What every agent has without declaring it: `together`, `outcomes`, `ask`, `remember`."""

import inspect
import typing
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

from pydantic import BaseModel

from runs import values
from runs.tools.calls import Call, Outcome, Together
from runs.tools.declared import Properties, Tool, register

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


ASK: Tool[..., Any] = register(Tool(_asked, Properties(), name="abeyance.ask"))
REMEMBER: Tool[..., Any] = register(Tool(_remembered, Properties(), name="abeyance.remember"))


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
