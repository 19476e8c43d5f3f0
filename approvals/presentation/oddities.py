"""What is odd about the texts of what will run: told in sentences on a page, in two words in the inbox."""

import json
from typing import Any

from approvals.models import Revision
from approvals.presentation import reveal, shown

MOST_FLAGS = 20
LONG_ODD, MANY_MARKS = 20_000, 5_000  # characters; revisions

_marks: dict[str, list[str]] = {}


def flags(revision: Revision) -> list[str]:
    """Warnings about the text of what will run."""
    found = [
        f"{name}: {said}" for name, text in _texts(json.loads(revision.arguments)) for said in _warnings(text)
    ]
    if shown.known(revision.tool, revision.tool_version) is None:
        found.append(
            "This tool is not the version that was proposed; its arguments are shown as they are, not decoded"
        )
    return found if len(found) <= MOST_FLAGS else [*found[:MOST_FLAGS], f"and {len(found) - MOST_FLAGS} more"]


def marks(revision: Revision) -> list[str]:
    """Marks for texts that want a second look. An inbox has many rows, and a text may be made to take long: so
    what is not plain is read up to a length, and each revision's once by a process."""
    key = revision.arguments_digest
    if key not in _marks:
        if len(_marks) >= MANY_MARKS:
            _marks.clear()
        odd = [text for _, text in _texts(json.loads(revision.arguments)) if not _is_plain(text)]
        long = sum(map(len, odd)) > LONG_ODD
        found = any(reveal.flags(text) for text in odd) if not long else False
        _marks[key] = ["long text"] if long else ["hidden text"] if found else []
    return _marks[key]


def _warnings(text: str) -> list[str]:
    """What is odd about a text, in words."""
    return [] if _is_plain(text) else list(reveal.flags(text))


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable() and "    " not in text


def _texts(value: Any, path: str = "") -> list[tuple[str, str]]:
    """Every text in a value with where it stands; a name in it that is no plain word is such a text too."""
    if isinstance(value, str):
        return [(path or "value", value)]
    if isinstance(value, dict):
        names = [(f"a name in {path or 'the arguments'}", key) for key in value if not key.isidentifier()]
        return names + [
            each for key, one in value.items() for each in _texts(one, f"{path}.{key}".lstrip("."))
        ]
    if isinstance(value, list):
        return [each for place, one in enumerate(value) for each in _texts(one, f"{path}[{place}]")]
    return []
