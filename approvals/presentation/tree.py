"""A JSON value as a tree of things to show: nothing cut without a count, every text revealed.

Owns how values are told apart (`null`, empty text, missing, numbers as text) and how much of a long
list stands open. Numbers keep their literal digits. Knows nothing of HTML.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from approvals.presentation import decoded, reveal

LONG_LIST = 20
ENDS = 5
LONG_TEXT = 120
MOST_NODES = 5_000  # of one tree; a list or group that goes beyond is shown as the JSON it is
#: Texts that a reader would take for a number, a yes or no, or nothing: these are told apart in words.
_AMBIGUOUS = re.compile(r"[-+.,\s]*+\d[-+\d.,\se]*+|true|false|null|None", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Node:
    """One value under its key. `kind` says in a word what it is; `note` counts what is long."""

    key: str | None
    kind: str
    shape: str  # text, token, group or list: how the template draws it
    segments: list[reveal.Segment] = field(default_factory=list)
    note: str = ""
    flags: tuple[str, ...] = ()
    plain: str | None = None
    written_as: str = ""  # base64 and the like; what it says is in `says`, or `says_note` has its size
    says: list[reveal.Segment] = field(default_factory=list)
    says_note: str = ""
    children: tuple["Node", ...] = ()
    depth: int = 0

    @property
    def count(self) -> int:
        return len(self.children)

    @property
    def is_open(self) -> bool:
        """Open to depth two; a long list shows its ends instead."""
        return self.depth < 2

    @property
    def is_long(self) -> bool:
        return self.shape == "list" and self.count > LONG_LIST

    @property
    def first(self) -> tuple["Node", ...]:
        return self.children[:ENDS]

    @property
    def last(self) -> tuple["Node", ...]:
        return self.children[-ENDS:]

    @property
    def between_note(self) -> str:
        """What the two ends leave out."""
        return f"{self.count - 2 * ENDS:,} more in between"


class Literal(str):
    """A number as it was written, so that no digit is lost on the way to the page."""

    __slots__ = ()


def load(text: str) -> Any:
    """The value of canonical JSON, with numbers that have a fraction kept as they were written."""
    return json.loads(text, parse_float=Literal)


def build(value: Any, *, kinds: Mapping[str, str] | None = None) -> Node:
    """The tree of `value`. `kinds` may name a value better than JSON can: {"amount": "decimal"}."""
    return _Builder(kinds or {}).node(None, value, path="", depth=0)


class _Builder:
    """One tree, and how many nodes it may still have."""

    def __init__(self, kinds: Mapping[str, str]) -> None:
        self.kinds, self.left = kinds, MOST_NODES

    def node(self, key: str | None, value: Any, *, path: str, depth: int) -> Node:
        self.left -= 1
        if isinstance(value, Mapping) and len(value) <= self.left:
            pairs = [(str(k), v, f"{path}.{k}" if path else str(k)) for k, v in value.items()]
            children = tuple(self.node(k, v, path=p, depth=depth + 1) for k, v, p in pairs)
            return Node(
                key, "group", "group", note=_count(len(children), "field"), children=children, depth=depth
            )
        if _is_list(value) and _size(value, self.left) <= self.left:
            numbered = [(f"{i:,}", v) for i, v in enumerate(value, 1)]
            items = tuple(self.node(k, v, path=f"{path}[]", depth=depth + 1) for k, v in numbered)
            return Node(key, "list", "list", note=_count(len(items), "item"), children=items, depth=depth)
        if _is_list(value) or isinstance(value, Mapping):
            return _as_json(key, value, depth=depth)
        return _leaf(key, value, kind=self.kinds.get(path), depth=depth)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _size(value: Any, most: int) -> int:
    """How many nodes a value makes; counts no further than just past `most`."""
    total, waiting = 0, [value]
    while waiting and total <= most:
        one = waiting.pop()
        total += 1
        if isinstance(one, Mapping):
            waiting += one.values()
        elif _is_list(one):
            waiting += one
    return total


def _as_json(key: str | None, value: Any, *, depth: int) -> Node:
    """All of a value that is too long to be taken apart, in one text."""
    noun = "field" if isinstance(value, Mapping) else "item"
    text = _written(value)
    noticed = reveal.flags(text)
    return Node(
        key, f"{_count(len(value), noun)}, written as JSON", "text", reveal.drawn(text),
        note=_measure(text), flags=noticed.labels, plain=noticed.plain, depth=depth,
    )  # fmt: skip


def _written(value: Any) -> str:
    """JSON with a space after each comma, so that it can wrap; numbers digit by digit."""
    if isinstance(value, Mapping):
        pairs = (f"{json.dumps(str(k), ensure_ascii=False)}: {_written(v)}" for k, v in value.items())
        return "{" + ", ".join(pairs) + "}"
    if _is_list(value):
        return "[" + ", ".join(map(_written, value)) + "]"
    if isinstance(value, Literal | Decimal):
        return str(value)
    return json.dumps(value, ensure_ascii=False, default=lambda other: _as_text(other)[0])


def _leaf(key: str | None, value: Any, *, kind: str | None, depth: int) -> Node:
    if value is None or isinstance(value, bool):
        token = "null" if value is None else str(value).lower()
        return Node(key, kind or ("nothing" if value is None else "yes or no"), "token", _said(token))
    if isinstance(value, Literal | int | float | Decimal):
        return Node(key, kind or "number", "token", _said(str(value)), depth=depth)
    if isinstance(value, str) and not value:
        return Node(key, kind or "empty text", "token", _said('""'), depth=depth)
    text, word = _as_text(value)
    noticed, other = reveal.flags(text), decoded.of(text)
    return Node(
        key, kind or word, "text", reveal.drawn(text),
        note=_measure(text), flags=noticed.labels, plain=noticed.plain, depth=depth,
        written_as=other.how if other else "", says=reveal.drawn(other.says) if other and other.says else [],
        says_note=other.note if other else "",
    )  # fmt: skip


def _as_text(value: Any) -> tuple[str, str]:
    words = {datetime: "time", date: "date", UUID: "id", bytes: "bytes"}
    if isinstance(value, datetime | date):
        return value.isoformat(), words[type(value)]
    return str(value), words.get(type(value), "text" if _AMBIGUOUS.fullmatch(str(value)) else "")


def _said(token: str) -> list[reveal.Segment]:
    return [reveal.Segment(token)]


def _measure(text: str) -> str:
    lines = text.count("\n") + 1
    if len(text) <= LONG_TEXT and lines == 1:
        return ""
    characters = _count(len(text), "character")
    return characters if lines == 1 else f"{characters}, {_count(lines, 'line')}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
