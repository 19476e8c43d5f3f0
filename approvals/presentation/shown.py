"""Headline, consequence and the names of verbs, filled from typed arguments.

A tool's headline and consequence are sentences with `{argument}` in them. Lists are told by their count, long
texts are cut with theirs; the full values stand below, in the tree.
"""

import json
import re
import string
from typing import Any

from runs import tools
from runs.tools.builtin import ASK
from runs.tools.declared import Tool

LONGEST = 80


def headline(tool_name: str, arguments: str) -> str:
    """One line that says what the call does; the tool's name where there is no such sentence."""
    tool = tools.get(tool_name)
    if tool is ASK:
        return f"Question: {_cut(json.loads(arguments)['question'].strip().partition(chr(10))[0])}"
    return _fill(tool.headline, arguments).rstrip(".") if tool else tool_name


def consequence(tool_name: str, arguments: str) -> str:
    """What happens on approval; empty where the tool does not say."""
    tool = tools.get(tool_name)
    return _fill(tool.properties.consequence, arguments) if tool else ""


def approve_label(tool_name: str, arguments: str) -> str:
    """The button's words: the verb and its object, never OK or Yes."""
    said = headline(tool_name, arguments)
    return f"Approve: {said[:1].lower()}{said[1:]}" if tools.get(tool_name) else f"Approve {tool_name}"


def questions(tool_name: str, arguments: str) -> list[str]:
    """What the tool wants a reviewer to answer; empty where it asks nothing."""
    tool = tools.get(tool_name)
    return [_fill(text, arguments) for text in tool.properties.questions] if tool else []


def known(tool_name: str, tool_version: str) -> Tool[..., Any] | None:
    """The tool as this process has it, if it is the version that was asked for."""
    tool = tools.get(tool_name)
    return tool if tool is not None and tool.version == tool_version else None


def in_short(value: Any) -> str:
    """A value in one line: lists and groups by their count, long texts cut with theirs."""
    if isinstance(value, list | dict):
        return f"{len(value):,} {'items' if isinstance(value, list) else 'entries'}"
    return _cut(value if isinstance(value, str) else json.dumps(value))


def _fill(sentence: str, arguments: str) -> str:
    values = json.loads(arguments)
    parts = []
    for text, field, _, _ in string.Formatter().parse(sentence):
        parts.append(text)
        if field:
            parts.append(_told(field, _reached(values, field)))
    return "".join(parts)


def _reached(values: Any, field: str) -> Any:
    """The value of `case.id` or `items[0].name`; None where there is no such thing."""
    for key in re.findall(r"[^.\[\]]+", field):
        if isinstance(values, list):
            values = dict(enumerate(values)).get(int(key)) if key.isdecimal() else None
        else:
            values = values.get(key) if isinstance(values, dict) else None
    return values


def _told(name: str, value: Any) -> str:
    """A value in a sentence."""
    words = name.replace("_", " ")
    if isinstance(value, list):
        return f"{len(value):,} {words}"
    if isinstance(value, dict):
        return f"{words} ({len(value):,} entries)"
    if value is None:
        return f"no {words}"
    if isinstance(value, bool):
        return words if value else f"no {words}"
    return _cut(value if isinstance(value, str) else json.dumps(value))


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text):,} characters)"
