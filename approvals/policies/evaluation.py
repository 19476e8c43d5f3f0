"""One call's facts put before compiled rules: true, false, or a problem that says why it is neither.

Arguments go in as they are recorded; only integers beyond 64 bits become text, since CEL would turn them into
floats. Functions never raise (CEL absorbs errors beside `||` and prints them): they note the problem, and a
rule in which one was noted has no result, whatever it came to. No problem repeats a value of the call.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol, Self

import cel

from approvals.policies import money
from approvals.policies.language import Compiled, Sizes

#: Values touched; measured at about 0.1 µs each, while nothing else in the process runs.
BUDGET = 2_000_000
INT_LIMIT = 2**63 - 1
STRING_WEIGHT = 100

WINDOW = re.compile(r"([1-9]\d{0,4})([smhd])", re.ASCII)
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}

FAILURES = (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError)


class RuleFailed(Exception):
    """A rule that is neither true nor false of this call; the message says why, without the call's values."""


class Usage(Protocol):
    """What was used before this call, in the last `seconds`; decimals as text."""

    def count(self, tool: str, seconds: int) -> int: ...

    def sum(self, tool: str, field: str, seconds: int) -> str: ...


@dataclass(frozen=True, slots=True)
class CallFacts:
    """A call as rules see it. `args` is the parsed JSON of the recorded arguments: decimals are strings."""

    agent_name: str
    agent_version: str
    tool_name: str
    tool_effect: bool
    tool_has_consequence: bool
    tool_known: bool
    args: Any
    labels: Mapping[str, str]
    submitter: str
    on_behalf_of: str
    usage: Usage | None = None


class Scope:
    """What one call's rules are evaluated in. Made when the first rule asks; used by one thread."""

    def __init__(self, call: CallFacts) -> None:
        self._call = call
        self._context: cel.Context | None = None
        self._sizes = Sizes(0, 0, {}, 0)
        self._problems: list[str] = []
        self._unreadable = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        """CEL's context keeps our functions, which keep this; no garbage collection sees through it."""
        self._context = None

    def ask(self, rule: Compiled, *, tier: str = "") -> bool:
        """Is the rule true of this call? Raises RuleFailed, also for a result that is not true or false."""
        context = self._ready()
        if rule.cost(self._sizes) > BUDGET:
            raise RuleFailed("the arguments are too long for it")
        if tier:
            context.add_variable("tier", tier)
        self._problems.clear()
        try:
            result = rule.program.execute(context)
        except FAILURES as error:
            problem = self._problems[0] if self._problems else _in_words(error, rule)
            raise RuleFailed(problem) from None
        if self._problems:
            raise RuleFailed(self._problems[0])
        if not isinstance(result, bool):
            raise RuleFailed("its result is neither true nor false")
        return result

    def _ready(self) -> cel.Context:
        if self._unreadable:
            raise RuleFailed(self._unreadable)
        if self._context is None:
            try:
                self._context = self._fill()
            except FAILURES:
                self._unreadable = "the call cannot be read by rules"
                raise RuleFailed(self._unreadable) from None
        return self._context

    def _fill(self) -> cel.Context:
        call = self._call
        args, self._sizes = measured(call.args, labels=len(call.labels))
        variables = {
            "agent": {"name": call.agent_name, "version": call.agent_version},
            "tool": {"name": call.tool_name, "effect": call.tool_effect},
            "args": args,
            "labels": dict(call.labels),
            "submitter": call.submitter,
            "on_behalf_of": call.on_behalf_of,
        }
        functions: dict[str, Callable[..., object]] = {
            "money": self._money,
            "use.count": self._count,
            "use.sum": self._sum,
        }
        return cel.Context(variables, functions)

    def _problem(self, text: str) -> None:
        self._problems.append(text)

    def _money(self, *values: object) -> timedelta | None:
        amount, problem = money.read(values[0]) if len(values) == 1 else (None, "money() takes one amount")
        if amount is None:
            self._problem(problem)
        return amount

    def _count(self, *values: object) -> int | None:
        match values:
            case (str(tool), str(window)) if seconds := _seconds(window):
                used: int | None = self._used(lambda usage: usage.count(tool, seconds))
                return used
        self._problem('use.count() takes a tool and a window, like "24h"')
        return None

    def _sum(self, *values: object) -> timedelta | None:
        match values:
            case (str(tool), str(field), str(window)) if seconds := _seconds(window):
                used: str | None = self._used(lambda usage: usage.sum(tool, field, seconds))
                return None if used is None else self._money(used)
        self._problem('use.sum() takes a tool, an argument and a window, like "24h"')
        return None

    def _used(self, look: Callable[[Usage], Any]) -> Any:
        """The problem is noted first and taken back after, so that it stands if the look raises."""
        if self._call.usage is None:
            self._problem("what was used before cannot be looked at here")
            return None
        self._problem("what was used before could not be looked at")
        found = look(self._call.usage)
        self._problems.pop()
        return found


def _seconds(window: str) -> int:
    found = WINDOW.fullmatch(window)
    return int(found[1]) * UNITS[found[2]] if found else 0


def _in_words(error: Exception, rule: Compiled) -> str:
    """What CEL said, less anything that could be a value of the call."""
    if isinstance(error, KeyError):
        name = str(error).strip("'")
        in_rule = re.search(rf"\b{re.escape(name)}\b", rule.expression) if name.isidentifier() else None
        return f"{name} is missing" if in_rule else "something it looks for is missing"
    if isinstance(error, IndexError):
        return "a list is shorter than it needs"
    if isinstance(error, ArithmeticError):
        return "a calculation has no result"
    if isinstance(error, TypeError):
        return "it compares or combines values of different types"
    return "a function cannot work with what it was given"


# -- Arguments --------------------------------------------------------------------


@dataclass(slots=True)
class _Measure:
    total: int = 0
    longest: int = 0

    def copy(self, value: Any) -> Any:
        self.total += 1
        if isinstance(value, str):
            self.total += len(value) // STRING_WEIGHT
            return value
        if isinstance(value, dict):
            self.longest = max(self.longest, len(value))
            return {key: self.copy(item) for key, item in value.items()}
        if isinstance(value, list):
            self.longest = max(self.longest, len(value))
            return [self.copy(item) for item in value]
        return _number(value)


def _number(value: Any) -> Any:
    """-2**63 goes too: CEL negates it to itself."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > INT_LIMIT:
        return str(value)
    return value


def measured(args: Any, *, labels: int) -> tuple[Any, Sizes]:
    """A copy that CEL reads exactly, and how much it holds."""
    whole = _Measure()
    if not isinstance(args, dict):
        copy = whole.copy(args)
        return copy, Sizes(whole.total, max(whole.longest, labels), {}, 1 + labels)
    keys, found = {}, {}
    for key, value in args.items():
        before = whole.total
        found[key] = whole.copy(value)
        keys[key] = whole.total - before
    longest = max(whole.longest, len(args), labels)
    return found, Sizes(1 + whole.total, longest, keys, 1 + labels)
