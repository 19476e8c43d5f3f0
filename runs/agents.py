"""`@agent`, what an agent is given, and the registry of versions.

An agent is an `async def` whose first parameter is a `RunContext`; the others are the run's input. Several
versions may stand side by side: a run stays on the version it started with. Authors' modules are named in
the setting `AGENTS`, and every process imports the same list.
"""

import hashlib
import importlib
import inspect
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from runs import values
from runs.exceptions import UnknownAgent

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RunContext:
    """What an agent may know of its run: nothing that moves without being recorded."""

    id: uuid.UUID
    agent: str
    version: str
    on_behalf_of: str
    labels: dict[str, str]


@dataclass(frozen=True)
class Agent(Generic[P, T]):
    """One version of an agent. `owner` is the e-mail address of who answers for it; they never review it."""

    name: str
    version: str
    function: Callable[..., Coroutine[Any, Any, Any]]
    owner: str = ""

    @cached_property
    def signature(self) -> values.Signature:
        return values.Signature(self.function, skip=1)

    @property
    def title(self) -> str:
        return (inspect.getdoc(self.function) or self.name).split("\n")[0]

    @cached_property
    def code_digest(self) -> str:
        """SHA-256 of the function's source: kept and shown, never compared."""
        try:
            return hashlib.sha256(inspect.getsource(self.function).encode()).hexdigest()
        except OSError:
            return ""

    @property
    def builtin(self) -> bool:
        return self.name.startswith("abeyance.")

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"


_registry: dict[tuple[str, str], Agent[..., Any]] = {}


def agent(
    *, name: str = "", version: str = "1", owner: str = ""
) -> Callable[[Callable[Concatenate[RunContext, P], Coroutine[Any, Any, T]]], Agent[P, T]]:
    """Registers an agent under `name` (else the function's, with hyphens) and `version`."""

    def declare(function: Callable[Concatenate[RunContext, P], Coroutine[Any, Any, T]]) -> Agent[P, T]:
        if not inspect.iscoroutinefunction(function):
            raise TypeError(f"{function.__name__}: an agent is written `async def`")
        return register(Agent(name or function.__name__.replace("_", "-"), version, function, owner))

    return declare


def register(made: Agent[P, T]) -> Agent[P, T]:
    before = _registry.get((made.name, made.version))
    if before and before.function.__module__ != made.function.__module__:
        raise TypeError(
            f"{made} is declared twice: in {before.function.__module__} and {made.function.__module__}"
        )
    made.signature  # noqa: B018 - a parameter that cannot be recorded is refused at import
    _registry[made.name, made.version] = made
    return made


def load() -> None:
    """Imports the modules of the setting `AGENTS`; every process does, web and workers alike."""
    for module in settings.AGENTS:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{module}.".startswith(f"{error.name}."):
                raise  # the module is there, and lacks something itself
            raise ImproperlyConfigured(f"AGENTS: there is no module {module!r}.") from None


def find(name: str, version: str) -> Agent[..., Any] | None:
    return _registry.get((name, version))


def latest(name: str) -> Agent[..., Any]:
    """The version new runs start on: the one registered last. Raises UnknownAgent, naming those there are."""
    versions = [made for made in offered() if made.name == name]
    if not versions:
        names = ", ".join(sorted({made.name for made in offered()})) or "none are registered"
        raise UnknownAgent(f"no agent is called {name!r}; there are: {names}")
    return versions[-1]


def offered() -> list[Agent[..., Any]]:
    """All that anybody may start: not those built in, which are started by a verb."""
    return [made for made in _registry.values() if not made.builtin]


def all_versions() -> list[Agent[..., Any]]:
    return list(_registry.values())
