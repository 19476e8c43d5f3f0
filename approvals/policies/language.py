"""The rules' language: CEL, less what could mislead or stall.

The `cel` module compiles unknown names and functions, and tells which there are but not where. So a rule is
compiled first and its words are then read one by one: every name must be known, comprehensions stay one
deep, and what copies a list at every element, rounds money or overflows silently is refused, each
with its place. `Compiled.cost` bounds the time of an evaluation, which nothing could interrupt.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NoReturn

import cel

from approvals.exceptions import ApprovalsError
from approvals.models.policy import MAX_EXPRESSION
from approvals.policies import money

RuleKind = Literal["tier", "verdict"]

FIELDS = {"agent": ("name", "version"), "tool": ("name", "effect"), "use": ("count", "sum")}
NAMES = ("args", "labels", "submitter", "on_behalf_of")
FUNCTIONS = ("has", "int", "money", "size", "string")
METHODS = ("contains", "endsWith", "matches", "size", "startsWith")
LOOPS = ("all", "exists", "exists_one", "existsOne", "filter")
REFUSED = {
    "map": "it copies the list at every element; use all, exists, exists_one or filter",
    "double": 'it rounds; compare decimals with money("…")',
    "duration": "rules have no clock",
    "timestamp": "rules have no clock",
}
WORDS = ("true", "false", "null", "in")

TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*)
      | (?P<string>[bB]?[rR](?:\"{3}.*?\"{3}|'{3}.*?'{3}|"[^"\n]*"|'[^'\n]*')
          | [bB]?(?:\"{3}(?:\\.|.)*?\"{3}|'{3}(?:\\.|.)*?'{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))
      | (?P<number>0[xX][0-9a-fA-F]+[uU]?|(?:\d*\.\d+|\d+)(?:[eE][+-]?\d+)?[uU]?)
      | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<sign>&&|\|\||[=!<>]=|[-+*/%!<>?:.,()\[\]{}])""",
    re.VERBOSE | re.DOTALL,
)
SYNTAX = re.compile(r"ERROR: <input>:(\d+):(\d+): (.*)")


@dataclass(frozen=True, slots=True)
class Position:
    """Both count from 1, in characters."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}"


class RuleRefused(ApprovalsError):
    """A rule that cannot be saved. `message` says why and what would be right, `position` where."""

    code = "rule_refused"
    status = 422

    def __init__(self, message: str, position: Position) -> None:
        super().__init__(f"{position}: {message}")
        self.message = message
        self.position = position


@dataclass(frozen=True, slots=True)
class Token:
    kind: str
    text: str
    at: int


@dataclass(frozen=True, slots=True)
class Read:
    """One mention of `args` or `labels`. Reaching into it copies what is found there."""

    name: str
    key: str | None
    looped: bool


@dataclass(frozen=True, slots=True)
class Compiled:
    """A rule's expression that may be evaluated, by any number of threads at once."""

    expression: str
    program: cel.Program
    reads: tuple[Read, ...]
    loops: int
    filters: int

    def cost(self, sizes: "Sizes") -> int:
        """An upper bound of the values touched by one evaluation, about 0.1 µs each."""
        times = max(sizes.longest, self.expression.count(","))
        reads = sum(sizes.of(read) * (times if read.looped else 1) for read in self.reads)
        return reads + self.loops * times + self.filters * times * sizes.total


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much a call's arguments hold: values in all, in the longest list or map, under each key."""

    total: int
    longest: int
    keys: Mapping[str, int]
    labels: int

    def of(self, read: Read) -> int:
        if read.name == "labels":
            return self.labels
        return self.total if read.key is None else self.keys.get(read.key, 1)


def compile_rule(expression: str, *, kind: RuleKind = "verdict") -> Compiled:
    """The rule, ready to be evaluated. `tier` may be read by verdict rules only.

    Raises RuleRefused: too long, does not compile, names something unknown, nests comprehensions.
    """
    if len(expression) > MAX_EXPRESSION:
        raise RuleRefused(
            f"a rule has at most {MAX_EXPRESSION:,} characters, this one has {len(expression):,}",
            _position(expression, MAX_EXPRESSION),
        )
    program = _compile(expression)
    reader = _Reader(expression, (*NAMES, "tier") if kind == "verdict" else NAMES)
    reader.read()
    _agree(program, reader)
    return Compiled(expression, program, tuple(reader.reads), reader.loops, reader.filters)


def _compile(expression: str) -> cel.Program:
    if not expression.strip():
        raise RuleRefused("write a condition; true matches every call", Position(1, 1))
    try:
        return cel.compile(expression)
    except UnicodeEncodeError as error:
        raise RuleRefused("this character cannot be used", _position(expression, error.start)) from None
    except ValueError as error:
        raise _syntax(str(error)) from None


def _syntax(message: str) -> RuleRefused:
    """The first error of the parser, in fewer words."""
    found = SYNTAX.search(message)
    if not found:
        return RuleRefused("this is not an expression", Position(1, 1))
    text = found[3].removeprefix("Syntax error: ").split(" expecting ")[0]
    word = re.fullmatch(r"(?:mismatched input|extraneous input|token recognition error at:) (.+)", text)
    if "<EOF>" in text:
        text = "something is missing at the end"
    elif "Recursion limit" in text:
        text = "this is nested too deeply"
    elif word:
        text = f"{word[1]} is not expected here"
    return RuleRefused(text, Position(int(found[1]), int(found[2])))


def _position(expression: str, at: int) -> Position:
    before = expression[:at]
    return Position(before.count("\n") + 1, at - (before.rfind("\n") + 1) + 1)


def _tokens(expression: str) -> Iterator[Token]:
    at = 0
    while at < len(expression):
        found = TOKEN.match(expression, at)
        if found is None or found.lastgroup is None:
            raise RuleRefused("this character has no meaning here", _position(expression, at))
        if found.lastgroup != "space":
            yield Token(found.lastgroup, found[0], at)
        at = found.end()


def _agree(program: cel.Program, reader: "_Reader") -> None:
    """What the compiler saw must be what was read: a word we overlooked is a word nobody checked."""
    variables = set(program.variables()) - set(reader.known) - set(FIELDS) - reader.bound
    calls = {name for name in program.functions() if name.isidentifier()}
    strange = sorted(variables | (calls - {*FUNCTIONS, *METHODS, *FIELDS["use"]}))
    if strange:
        raise RuleRefused(f"{strange[0]} cannot be used here", Position(1, 1))


@dataclass(slots=True)
class _Reader:
    """Reads a rule that compiles, word by word, and refuses at the first word it cannot vouch for."""

    expression: str
    known: Sequence[str]
    reads: list[Read] = field(default_factory=list)
    loops: int = 0
    filters: int = 0
    bound: set[str] = field(default_factory=set)
    tokens: list[Token] = field(default_factory=list)
    #: One entry an open bracket: the name its comprehension binds, or "".
    open: list[str] = field(default_factory=list)

    def read(self) -> None:
        self.tokens = list(_tokens(self.expression))
        for index, token in enumerate(self.tokens):
            if token.kind == "name" and token.text not in WORDS:
                self._name(index, token)
            elif token.text in ("(", "[", "{"):
                self._opened(index)
            elif token.text in (")", "]", "}"):
                self.open.pop()

    def _at(self, index: int) -> str:
        return self.tokens[index].text if 0 <= index < len(self.tokens) else ""

    def _refuse(self, token: Token, message: str) -> NoReturn:
        raise RuleRefused(message, _position(self.expression, token.at))

    @property
    def _looping(self) -> bool:
        return any(self.open)

    def _is_loop(self, index: int) -> bool:
        """Is this the name of a comprehension: `.exists(`?"""
        return self._at(index) in LOOPS and self._at(index - 1) == "." and self._at(index + 1) == "("

    def _opened(self, index: int) -> None:
        if not (self._at(index) == "(" and self._is_loop(index - 1)):
            self.open.append("")
            return
        name = self.tokens[index + 1]
        if name.text in (*NAMES, *FIELDS, "tier") or name.text.startswith("_"):
            self._refuse(name, f"{name.text} cannot be the element's name; take another")
        self.bound.add(name.text)
        self.open.append(name.text)

    def _name(self, index: int, token: Token) -> None:
        dotted, called = self._at(index - 1) == ".", self._at(index + 1) == "("
        if self._at(index + 1) == "{":
            self._refuse(token, "types cannot be built in a rule")
        if dotted:
            self._owned(index, token)
        if dotted and called:
            self._method(index, token)
        elif called:
            self._function(index, token)
        elif not dotted:
            self._variable(index, token)

    def _owned(self, index: int, token: Token) -> None:
        owner = self.tokens[index - 2] if index > 1 else None
        if owner is None or (owner.kind == "sign" and owner.text not in (")", "]", "}")):
            self._refuse(token, "a name cannot begin with a dot")

    def _method(self, index: int, token: Token) -> None:
        if self._at(index - 2) == "use" and self._at(index - 3) != "." and token.text in FIELDS["use"]:
            return
        if token.text in LOOPS:
            self._loop(token)
        elif token.text not in METHODS:
            self._unknown_function(token)
        elif token.text == "matches":
            self._pattern(index, token)

    def _loop(self, token: Token) -> None:
        if self._looping:
            self._refuse(token, f"{token.text} stands inside another comprehension; only one deep is allowed")
        self.loops += 1
        self.filters += token.text == "filter"

    def _pattern(self, index: int, token: Token) -> None:
        """Every evaluation compiles the pattern again, so not for each element, and none from outside."""
        if self._looping:
            self._refuse(token, "matches is too slow for every element; use startsWith, endsWith or contains")
        pattern = self.tokens[index + 2]
        if pattern.kind != "string" or self._at(index + 3) != ")":
            self._refuse(pattern, "matches takes one pattern, written out in quotes")
        try:
            cel.evaluate(f"''.matches({pattern.text})")
        except (RuntimeError, TypeError, ValueError):
            self._refuse(pattern, "this is not a regular expression")

    def _function(self, index: int, token: Token) -> None:
        if token.text not in FUNCTIONS:
            self._unknown_function(token)
        if token.text == "money":
            self._amount(self.tokens[index + 2])

    def _amount(self, token: Token) -> None:
        if token.kind == "number" and "." in token.text:
            self._refuse(token, f'write the amount in quotes: money("{token.text}")')
        if token.kind == "string" and (problem := money.read(cel.evaluate(token.text))[1]):
            self._refuse(token, problem)

    def _variable(self, index: int, token: Token) -> None:
        name = token.text
        if name in self.open:
            return
        if name in FIELDS:
            self._part(index, token)
        elif name not in self.known:
            self._unknown_name(token)
        elif name in ("args", "labels"):
            key = self._at(index + 2) if self._at(index + 1) == "." else None
            self.reads.append(Read(name, key, self._looping))

    def _part(self, index: int, token: Token) -> None:
        """`agent`, `tool` and `use` are written with one of their parts, and never alone."""
        parts = FIELDS[token.text]
        call = self._at(index + 3) == "("
        if self._at(index + 1) == "." and self._at(index + 2) in parts and call == (token.text == "use"):
            return
        after = f".{self._at(index + 2)}" if self._at(index + 1) == "." else ""
        known = " and ".join(f"{token.text}.{part}" for part in parts)
        self._refuse(token, f"{token.text}{after} is not known; there are {known}")

    def _unknown_name(self, token: Token) -> NoReturn:
        if token.text == "tier":
            self._refuse(token, "tier can be read by verdict rules only; a tier rule is what decides it")
        parts = [f"{owner}.{part}" for owner in ("agent", "tool") for part in FIELDS[owner]]
        self._refuse(token, f"{token.text} is not known; there are {', '.join([*parts, *self.known])}")

    def _unknown_function(self, token: Token) -> NoReturn:
        if token.text in REFUSED:
            self._refuse(token, f"{token.text} cannot be used: {REFUSED[token.text]}")
        known = sorted({*FUNCTIONS, *METHODS, *LOOPS[:3], "filter", "use.count", "use.sum"})
        self._refuse(token, f"{token.text}() is not known; there are {', '.join(known)}")
