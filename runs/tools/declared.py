"""Declaring tools and facts: their properties, their versions, and the registry of both.

A tool's version is the digest of its schema and properties, so that a changed tool under a waiting call is
a named mismatch. The first paragraph of its docstring is the headline shown to reviewers, filled from typed
arguments; `consequence` says what happens if they approve.
"""

import inspect
import re
import string
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Concatenate, Generic, Literal, ParamSpec, TypeVar, overload

from runs import values
from runs.exceptions import AgentError
from runs.tools.calls import Call

P = ParamSpec("P")
T = TypeVar("T")
V = TypeVar("V")

CREDENTIAL = re.compile(r"[A-Za-z0-9_.-]{1,100}")  # it stands in addresses

Interrupt = Literal["finish", "cancel", "detach"]
Drift = Literal["ask", "replan"]
Kind = Literal["info", "material", "blocking"]
Amount = Decimal | int | str
#: What a call will use, by unit: amounts, or a function of the tool's arguments by name that gives them.
Estimate = Mapping[str, Amount] | Callable[..., Mapping[str, Amount]]


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a tool is told about its call. The key is the same at every attempt: pass it on."""

    run_id: uuid.UUID
    index: int
    idempotency_key: str
    attempt: int
    credentials: Mapping[str, str] = field(default_factory=dict, repr=False)
    usage: list[tuple[str, Amount]] = field(default_factory=list, repr=False)

    def credential(self, name: str) -> str:
        """The value of a credential the tool names in `credentials=`, as obtained for this call."""
        if name not in self.credentials:
            raise LookupError(f"the tool does not name {name!r} in credentials=")
        return self.credentials[name]

    def used(self, **amounts: Amount) -> None:
        """Says what the call really used, by unit (`tokens=812`); money as `money_EUR="0.42"`.

        Said more than once it adds up; without it the estimate is charged. Steps and seconds are counted anyway.
        """
        counted = {name: value for name, value in amounts.items() if name not in ("steps", "seconds")}
        self.usage.extend((name.replace("money_", "money:"), value) for name, value in counted.items())


class Fact(Generic[P, V]):
    """A named observation of the world: a function that looks and does not touch.

    Its parameters are, by name, some of the arguments of the tools that name it. `kind` says what a
    change means: info is shown, material voids decisions, blocking also forbids approving. `tolerance` is the
    largest difference of two numbers that still counts as equal; `fresh_for` is in seconds.
    """

    def __init__(
        self, function: Callable[P, V], *, source: str, kind: Kind, tolerance: float, fresh_for: float
    ) -> None:
        self.function = function
        self.name = function.__name__
        self.title = (inspect.getdoc(function) or self.name.replace("_", " ")).split("\n")[0].rstrip(".")
        self.source = source
        self.kind: Kind = kind
        self.tolerance = tolerance
        self.fresh_for = fresh_for
        self.parameters = tuple(inspect.signature(function).parameters)
        self.values = values.Signature(function).result

    def observe(self, arguments: dict[str, Any]) -> str:
        """Looks, with the tool's arguments by name; the value as canonical text. Raises what the function does."""
        return self.values.write(self.function(**{name: arguments[name] for name in self.parameters}))  # type: ignore[call-arg]


def fact(
    *, source: str, kind: Kind = "material", tolerance: float = 0.0, fresh_for: float = 60.0
) -> Callable[[Callable[P, V]], Fact[P, V]]:
    """Declares a fact; its docstring's first line is its name on pages."""
    return lambda function: Fact(function, source=source, kind=kind, tolerance=tolerance, fresh_for=fresh_for)


#: More of them nobody answers with care.
QUESTIONS = 3


@dataclass(frozen=True)
class Properties:
    """What a tool declares about itself; see `tool`."""

    effect: bool = False
    idempotent: bool = False
    verify: Callable[[str], Any] | None = None
    facts: Sequence[Fact[..., Any]] = ()
    timeout: float = 30.0
    retries: int = 0
    backoff: float = 0.5
    retry_on: tuple[type[Exception], ...] = ()
    raises: tuple[type[Exception], ...] = ()
    refuses: tuple[type[Exception], ...] = ()
    consequence: str = ""
    questions: tuple[str, ...] = ()
    on_interrupt: Interrupt = "finish"
    on_drift: Drift = "ask"
    estimate: Estimate | None = None
    credentials: tuple[str, ...] = ()
    depends_on: tuple[str, ...] = ()
    compensate: "Tool[..., Any] | None" = None
    release: "Tool[..., Any] | None" = None

    def described(self) -> dict[str, Any]:
        """The part that makes the version."""
        return {
            "effect": self.effect,
            "idempotent": self.idempotent,
            "verify": self.verify is not None,
            "facts": [f.name for f in self.facts],
        }


class Tool(Generic[P, T]):
    """A registered callable: the only way an agent touches the world."""

    def __init__(self, function: Callable[..., T], properties: Properties, *, name: str = "") -> None:
        first = next(iter(inspect.signature(function).parameters.values()), None)
        self.takes_context = first is not None and first.annotation in (ToolContext, "ToolContext")
        self.function = function
        self.name = name or function.__name__
        self.properties = properties
        self.signature = values.Signature(function, skip=1 if self.takes_context else 0)
        self.returns = self.signature.result
        self.headline = (inspect.getdoc(function) or self.name).split("\n\n")[0].replace("\n", " ")
        self.version = values.digest(
            values.canonical(
                {"name": self.name, "schema": self.signature.schema(), "properties": properties.described()}
            )
        )
        self.builtin = self.name.startswith("abeyance.")
        self._refuse_misfits()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Call[T]:
        """A call with these arguments; nothing runs. Raises BadArguments when they do not fit."""
        return Call(self, self.signature.write(*args, **kwargs))

    def __repr__(self) -> str:
        return f"<tool {self.name}>"

    @property
    def repeatable(self) -> bool:
        """Whether a lost receipt can be found again: by verifying, or by calling again with the same key."""
        return self.properties.idempotent or self.properties.verify is not None

    @property
    def recorded_errors(self) -> tuple[type[Exception], ...]:
        return (*self.properties.raises, *self.properties.refuses)

    def _refuse_misfits(self) -> None:
        """Everything a declaration can get wrong is refused when the module is imported."""
        names = set(self.signature.model.model_fields)
        for found in self.properties.facts:
            if missing := set(found.parameters) - names:
                raise TypeError(
                    f"{self.name}: the fact {found.name} needs {sorted(missing)}, no arguments here"
                )
        if missing := self._estimates_from() - names:
            raise TypeError(f"{self.name}: estimate= needs {sorted(missing)}, no arguments here")
        for text in (self.headline, self.properties.consequence, *self.properties.questions):
            fields = {f.split(".")[0].split("[")[0] for _, f, _, _ in string.Formatter().parse(text) if f}
            if unknown := fields - names:
                raise TypeError(f"{self.name}: {text!r} names {sorted(unknown)}, which are no arguments")
        if not self.properties.effect and (self.properties.verify or self.properties.refuses):
            raise TypeError(f"{self.name}: verify= and refuses= are for tools with effect=True")
        if len(self.properties.questions) > QUESTIONS:
            raise TypeError(f"{self.name}: {len(self.properties.questions)} questions; at most {QUESTIONS}")
        self._refuse_misnamed()
        for word in ("compensate", "release"):
            self._refuse_unfit_undo(word, getattr(self.properties, word))

    def _refuse_misnamed(self) -> None:
        for name in self.properties.credentials:
            if not CREDENTIAL.fullmatch(name):
                raise TypeError(f"{self.name}: {name!r} is no name for a credential")
        for name in self.properties.depends_on:
            if not 0 < len(name) <= 100:
                raise TypeError(f"{self.name}: {name!r} is no name for a dependency")

    def _estimates_from(self) -> set[str]:
        estimate = self.properties.estimate
        return set(inspect.signature(estimate).parameters) if callable(estimate) else set()

    def _refuse_unfit_undo(self, word: str, undo: "Tool[..., Any] | None") -> None:
        """What undoes a call is given, by name, the call's arguments, its `result` and its `key`."""
        if undo is None:
            return
        if not self.properties.effect:
            raise TypeError(f"{self.name}: {word}= is for tools with effect=True")
        given = {*self.signature.model.model_fields, "result", "key"}
        if missing := set(undo.signature.model.model_fields) - given:
            raise TypeError(
                f"{self.name}: {undo.name} needs {sorted(missing)}; {word}= tools take arguments of"
                " the tool they undo, its `result` and its `key`"
            )


_registry: dict[str, Tool[..., Any]] = {}


def register(made: Tool[P, T]) -> Tool[P, T]:
    before = _registry.get(made.name)
    if before is not None and before.function.__module__ != made.function.__module__:
        raise TypeError(
            f"two tools are called {made.name}: in {before.function.__module__} and {made.function.__module__}"
        )
    _registry[made.name] = made
    return made


def get(name: str) -> Tool[..., Any] | None:
    """The tool of that name in this process, or None."""
    return _registry.get(name)


def known() -> dict[str, Tool[..., Any]]:
    """All tools of this process, by name."""
    return dict(_registry)


class _Declare:
    """`@tool` and `@tool(...)`: typed so that a leading `ToolContext` is not asked of the caller."""

    def __init__(self, properties: Properties, name: str) -> None:
        self._properties = properties
        self._name = name

    @overload
    def __call__(self, function: Callable[Concatenate[ToolContext, P], T]) -> Tool[P, T]: ...
    @overload
    def __call__(self, function: Callable[P, T]) -> Tool[P, T]: ...
    def __call__(self, function: Callable[..., T]) -> Tool[..., T]:
        return register(Tool(function, self._properties, name=self._name))


def tool(
    *,
    name: str = "",
    effect: bool = False,
    idempotent: bool = False,
    verify: Callable[[str], Any] | None = None,
    facts: Sequence[Fact[..., Any]] = (),
    timeout: float = 30.0,
    retries: int = 0,
    backoff: float = 0.5,
    retry_on: tuple[type[Exception], ...] = (),
    raises: tuple[type[Exception], ...] = (),
    refuses: tuple[type[Exception], ...] = (),
    consequence: str = "",
    questions: Sequence[str] = (),
    on_interrupt: Interrupt = "finish",
    on_drift: Drift = "ask",
    estimate: Estimate | None = None,
    credentials: Sequence[str] = (),
    depends_on: Sequence[str] = (),
    compensate: "Tool[..., Any] | None" = None,
    release: "Tool[..., Any] | None" = None,
) -> _Declare:
    """Declares a tool.

    effect: it changes the world; its intent is committed before the call, its receipt after.
    idempotent: the outside honours the key, so that calling again with it is harmless.
    verify: `verify(key)` gives the result if it happened, None if it did not, and raises if it cannot tell.
    facts: what the call depends on, looked at again before it.
    timeout: seconds until the call counts as unanswered; backoff: seconds before the first retry, doubled.
    retries, retry_on: for pure and idempotent tools on these types, and for any effect on `NotSent`.
    raises: types an agent may catch; they must be rebuildable from their `args`.
    refuses: types that say "certainly not done", given to the agent, never retried.
    consequence: what happens if a reviewer approves: effect, target, timing, reversibility.
    questions: what a reviewer answers before approving at R2 and above, three at most, each answered by yes, no or
        "can't tell"; with `{argument}` in them as in the headline.
    on_interrupt: what *Stop now* does to a call in flight: finish it, cancel it (its process is ended), or
        detach from it (the run goes on without it, its result arrives as evidence).
    on_drift: what comes of changed facts after an approval: ask again, or raise `Stale` in the agent to replan.
    estimate: what a call will use of the run's allowance, by unit, or a function of some of its arguments by
        name that says so; 0 where it cannot be told before. What it did use, `context.used` says.
    credentials: names of what `context.credential` gives; obtained before each call, renewed once if refused.
    depends_on: services without which the call does not start.
    compensate: the tool that undoes a call that happened. release: the tool that gives back what was reserved;
        it is called when the run ends. Both take arguments of this tool, its `result` and its `key`, by name.
    """
    return _Declare(
        Properties(
            effect=effect,
            idempotent=idempotent,
            verify=verify,
            facts=tuple(facts),
            timeout=timeout,
            retries=retries,
            backoff=backoff,
            retry_on=retry_on,
            raises=raises,
            refuses=refuses,
            consequence=consequence,
            questions=tuple(questions),
            on_interrupt=on_interrupt,
            on_drift=on_drift,
            estimate=estimate,
            credentials=tuple(credentials),
            depends_on=tuple(depends_on),
            compensate=compensate,
            release=release,
        ),
        name,
    )


def rebuildable(error: Exception, kinds: Sequence[type[Exception]]) -> bool:
    """Whether `error` may be recorded as itself: its exact type is declared, or it is one of ours."""
    return type(error) in kinds or isinstance(error, AgentError)
