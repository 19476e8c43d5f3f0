"""What a text says that is written in another way: base64, a JSON Web Token, URL-encoded. Shown beside it, never
instead; what looks so and is no text is measured. Guesses only where little else could be meant: an identifier of
random letters is left alone.
"""

import base64
import binascii
import re
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

LONGEST = 100_000
SURELY = 64  # characters that look like base64 and are no text: long enough to be something encoded

_BASE64 = re.compile(r"(?=.{16})(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
_MIXED = re.compile(r"(?=.*[A-Z])(?=.*[a-z])(?=.*[0-9+/=])", re.DOTALL)
_TOKEN = re.compile(r"(eyJ[\w-]+)\.([\w-]+)\.[\w-]*", re.ASCII)
_ESCAPED = re.compile(r"%[0-9A-Fa-f]{2}")


@dataclass(frozen=True, slots=True)
class Decoded:
    """`how` it is written, and what it says; where it is no text, `note` has its size."""

    how: str
    says: str = ""
    note: str = ""


def of(text: str) -> Decoded | None:
    """None where it is what it seems."""
    if len(text) > LONGEST or not text.isascii():
        return None
    return _token(text) or _escaped(text) or _base64(text)


def _token(text: str) -> Decoded | None:
    found = _TOKEN.fullmatch(text)
    if found is None:
        return None
    parts = [_said(_bytes(f"{part}{'=' * (-len(part) % 4)}", b"-_")) for part in found.groups()]
    if not all(parts):
        return Decoded("a JSON Web Token", note=_size(len(text)))
    return Decoded("a JSON Web Token", "\n".join(part for part in parts if part))


def _escaped(text: str) -> Decoded | None:
    if len(_ESCAPED.findall(text)) < 2:
        return None
    said = _said(unquote_to_bytes(text))
    return Decoded("URL-encoded", said) if said else Decoded("URL-encoded", note=_size(len(text)))


def _base64(text: str) -> Decoded | None:
    if not (_BASE64.fullmatch(text) and _MIXED.match(text)):
        return None
    found = _bytes(text, b"+/")
    if said := _said(found):
        return Decoded("base64", said)
    return Decoded("base64", note=_size(len(found or b""))) if len(text) >= SURELY else None


def _bytes(text: str, others: bytes) -> bytes | None:
    try:
        return base64.b64decode(text, altchars=others, validate=True)
    except (binascii.Error, ValueError):
        return None


def _said(found: bytes | None) -> str | None:
    """Text that a person can read; None for anything else."""
    try:
        text = (found or b"").decode()
    except UnicodeDecodeError:
        return None
    readable = sum(c.isprintable() or c in "\n\t\r" for c in text)
    return text if text and readable * 10 >= len(text) * 9 else None


def _size(count: int) -> str:
    return f"not decoded ({count:,} bytes)"
