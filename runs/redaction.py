"""Secrets that this process has handed out, kept out of what it records, logs and shows.

A value is found as it stands and as it is commonly written: inside JSON (also JSON in JSON), as Python shows it,
quoted for an address, in base64. Parts of one are not found, and neither is what a tool prints to its own
standard output. Text is scrubbed before it is cut, so that no cut leaves a part of one behind.
"""

import base64
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, quote_plus

SHOWN = "[{name} removed]"
#: Characters. `credentials` refuses shorter values: they could not be told from words that only look like them.
SHORTEST = 6
#: Written forms that are remembered, the newest: providers that make a new value for each call make many.
REMEMBERED = 2000
DEEP = 3  # texts within texts within texts, each quoted in its own way

_secrets: dict[str, str] = {}  # what may be written, and the name of what it is


def keep_out(name: str, value: str) -> None:
    """From now on `value` is replaced wherever `scrub` is asked."""
    for written in _forms(value):
        if len(written) >= SHORTEST and written not in _secrets:
            _secrets[written] = name
    while len(_secrets) > REMEMBERED:
        del _secrets[next(iter(_secrets))]


def _forms(value: str) -> Iterator[str]:
    written = {value}
    for _ in range(DEEP):
        yield from written
        written = {quoted for text in written for quoted in _quoted(text)}
    yield from written
    data = value.encode("utf-8", "surrogatepass")
    yield from (quote(data), quote(data, safe=""), quote_plus(data))
    yield base64.b64encode(data).decode()
    yield base64.urlsafe_b64encode(data).decode().rstrip("=")


def _quoted(text: str) -> Iterator[str]:
    yield repr(text)[1:-1]
    yield json.dumps(text)[1:-1]
    yield json.dumps(text, ensure_ascii=False)[1:-1]  # as logfmt does


def scrub(text: str) -> str:
    """`text` without any secret, in whichever form; the longest first: one may contain another."""
    for written, name in sorted(_secrets.items(), key=lambda secret: -len(secret[0])):
        if written in text:
            text = text.replace(written, SHOWN.format(name=name))
    return text


def scrub_value(value: Any) -> Any:
    """The same of a JSON value."""
    if not _secrets:
        return value
    text = json.dumps(value)
    clean = scrub(text)
    return value if clean == text else json.loads(clean)


def kept(text: str, limit: int) -> str:
    """Text of somebody else's as it may be stored: no secret, nothing the database refuses, at most so long."""
    clean = scrub(text).replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode()
    return clean[:limit]


def said(error: BaseException, limit: int) -> str:
    """An error of somebody else's code, as it may be stored: its type and its text."""
    try:
        text = str(error)
    except Exception as broken:  # an error whose own __str__ raises
        text = f"(its text could not be read: {type(broken).__name__})"
    return kept(f"{type(error).__name__}: {text}".rstrip(": "), limit)
