"""The view digest a decision carries, and the fingerprint people compare.

The digest covers exactly what is shown and will run; what moves by itself (times, deadlines) is left out, so
that an equal look or more time voids nothing.
"""

import hashlib
from typing import Any

from approvals.presentation.words import WORDS
from runs import values

VERSION = "abeyance.view.v1"
RENDERER = 1


def view(
    *,
    ref: str,
    number: int,
    tool: str,
    tool_version: str,
    arguments_digest: str,
    facts: list[dict[str, Any]],
    judgement: dict[str, Any],
    principal: str,
    agent: str,
) -> str:
    """SHA-256 over the label, a zero byte and the canonical JSON of what is shown; 64 hexadecimal digits."""
    told = {
        "ref": ref,
        "revision": number,
        "tool": f"{tool}@{tool_version}",
        "renderer": RENDERER,
        "arguments": arguments_digest,
        "facts": [[f["name"], _of_value(f["value"])] for f in facts],
        "tier": judgement.get("tier", ""),
        "policy": judgement.get("policy_version", 0),
        "quorum": judgement.get("quorum", 1),
        "principal": principal,
        "agent": agent,
    }
    return hashlib.sha256(f"{VERSION}\0{values.canonical(told)}".encode()).hexdigest()


def _of_value(value: str | None) -> str:
    return "unreadable" if value is None else values.digest(value)


def fingerprint(ref: str, number: int, arguments_digest: str) -> str:
    """Four words and eight hexadecimal digits, the same on page, mail and receipt while the revision stands."""
    digest = hashlib.sha256(f"{ref}\0{number}\0{arguments_digest}".encode()).digest()
    return f"{'-'.join(WORDS[byte] for byte in digest[:4])} {digest[4:8].hex()}"
