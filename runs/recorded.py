"""Errors in recorded form: written once, rebuilt equal on every replay.

Our own `AgentError`s and the types a tool declares (`raises=`, `refuses=`) come back as themselves, with
their `args`; everything else becomes `ToolFailed(kind, message)`. Whatever a tool does, a record comes of it.
"""

import json
from collections.abc import Sequence
from typing import Any

from runs import exceptions, redaction, values
from runs.exceptions import AgentError, ToolFailed

MESSAGE = 4000


def write(error: BaseException, declared: Sequence[type[Exception]]) -> str:
    """Canonical JSON `{"type", "args"}` of an error."""
    if isinstance(error, AgentError) or type(error) in declared:
        try:
            text = values.canonical({"type": _name(type(error)), "args": list(error.args)})
            rebuilt = read(text, declared)
            if type(rebuilt) is type(error) and rebuilt.args == error.args:
                clean = redaction.scrub(text)
                read(clean, declared)
                return clean
        except Exception:  # its class is an author's, and cannot be rebuilt from `args`
            return _as_failure(error)
    return _as_failure(error)


def _as_failure(error: BaseException) -> str:
    return values.canonical({"type": "ToolFailed", "args": [type(error).__name__, message(error)]})


def read(text: str, declared: Sequence[type[Exception]]) -> Exception:
    """The error of a recorded text; `ToolFailed` when its type is no longer declared, or made otherwise."""
    kept = json.loads(text)
    name, args = kept["type"], kept["args"]
    kind = _ours(name) or next((found for found in declared if _name(found) == name), None)
    try:
        return kind(*args) if kind else _unknown(name, args)
    except Exception:  # the class is an author's, and may have changed since
        return _unknown(name, args)


def _unknown(name: str, args: list[Any]) -> ToolFailed:
    return ToolFailed(name, ", ".join(map(str, args)))


def _name(kind: type[BaseException]) -> str:
    return kind.__name__ if _ours(kind.__name__) is kind else f"{kind.__module__}:{kind.__qualname__}"


def _ours(name: str) -> type[AgentError] | None:
    found: Any = getattr(exceptions, name, None)
    return found if isinstance(found, type) and issubclass(found, AgentError) else None


def message(error: BaseException) -> str:
    """The error's text, with what the database refuses shown as an escape."""
    try:
        text = "\n".join([str(error), *getattr(error, "__notes__", [])])
    except Exception as broken:  # an error whose own __str__ raises
        text = f"(its text could not be read: {type(broken).__name__})"
    text = redaction.scrub(text)
    return text.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode()[:MESSAGE]
