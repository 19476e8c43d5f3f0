"""Secrets that this process has handed out, kept out of what it records, logs and shows."""

import json

SHOWN = "[{name} removed]"
SHORTEST = 6  # characters; shorter values would be removed from words that only look like them

_secrets: dict[str, str] = {}


def keep_out(name: str, value: str) -> None:
    """From now on `value` is replaced wherever `scrub` is asked."""
    if len(value) >= SHORTEST:
        _secrets[value] = name


def scrub(text: str) -> str:
    """`text` without any secret, whether it stands there as it is or as in JSON."""
    for value, name in _secrets.items():
        for written in {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}:
            text = text.replace(written, SHOWN.format(name=name))
    return text
