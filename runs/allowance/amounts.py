"""Amounts, units and limits as people and tools write them. What does not fit raises BadValue."""

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from runs.exceptions import BadValue
from runs.lifecycle import Limit
from runs.models.allowance import PLACES
from runs.values import pointer

STEPS, SECONDS, MONEY = "steps", "seconds", "money:"
#: One amount is smaller than this, so that no sum of them leaves the column.
LARGEST = Decimal(10) ** 15
NAME = re.compile(r"[^\s:](?:[^:\n\r\t]{0,98}[^\s:])?")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,6})?", re.ASCII)
_UNIT = re.compile(r"[a-z][a-z0-9_]{0,39}", re.ASCII)
_CURRENCY = re.compile(r"money:[A-Z]{3}", re.ASCII)

#: What a tool said it used: unit and amount, as often as it said so.
Usage = Iterable[tuple[str, Any]]


def amount(value: Any, path: str = "") -> Decimal:
    """An amount that can be kept exactly. Raises BadValue: not a number, negative, too large, too fine."""
    text = "" if isinstance(value, bool) else str(value)
    if len(text) > 100 or not _NUMBER.fullmatch(text):
        raise BadValue(path, f"{text[:40] or value!r} is not an amount; write one like 12.50, in digits")
    found = Decimal(text)
    if found < 0:
        raise BadValue(path, f"{text[:40]} is negative; amounts are 0 or more")
    if found >= LARGEST:
        raise BadValue(path, f"{text[:40]} is too large; amounts are below 10^15")
    if found != found.quantize(Decimal(1).scaleb(-PLACES)):
        raise BadValue(path, f"{text[:40]} is too fine: at most {PLACES} places after the point")
    return found + 0  # -0 is 0


def unit(text: Any, path: str = "") -> str:
    """The name of a unit. Raises BadValue."""
    named = str(text)
    if _CURRENCY.fullmatch(named) or (_UNIT.fullmatch(named) and named != "money"):
        return named
    if named.lower().startswith("money"):
        raise BadValue(path, "money is written with its currency, three capital letters, as in money:EUR")
    takes = "units are steps, seconds, tokens, money:EUR, or names of your own in small letters, digits and _"
    raise BadValue(path, takes)


def plain(value: Decimal) -> str:
    """An amount in digits, without noughts at its end."""
    return f"{value.normalize():f}"


def worded(value: Decimal, of: str) -> str:
    """An amount with its unit, as people read it: 0.60 EUR, 1 step, 812 tokens."""
    if of.startswith(MONEY):
        return f"{figure(value, of)} {of.removeprefix(MONEY)}"
    return f"{plain(value)} {of.removesuffix('s') if value == 1 else of}"


def figure(value: Decimal, of: str) -> str:
    """An amount beside its unit: money has two places at least."""
    digits = plain(value)
    if not of.startswith(MONEY):
        return digits
    whole, _, rest = digits.partition(".")
    return f"{whole}.{rest.ljust(2, '0')}"


def limits(given: Mapping[str, Any]) -> tuple[Limit, ...]:
    """Limits as a submitter writes them: by unit an amount, null for no limit, or an object of `limit` and `soft`.

    Raises BadValue with the place of the first that does not fit.
    """
    return tuple(_limit(text, said, pointer("", text)) for text, said in given.items())


def _limit(text: str, said: Any, path: str) -> Limit:
    named = unit(text, path)
    if not isinstance(said, dict):
        return Limit(named, None if said is None else amount(said, path), None)
    if wrong := sorted(said.keys() - {"limit", "soft"}) or ["limit"] * ("limit" not in said):
        raise BadValue(f"{path}/{wrong[0]}", "an amount, or an object of limit (an amount or null) and soft")
    hard, soft = (None if said.get(k) is None else amount(said[k], f"{path}/{k}") for k in ("limit", "soft"))
    if soft is not None and hard is not None and soft > hard:
        raise BadValue(f"{path}/soft", f"the soft mark is at most the limit, {plain(hard)}")
    return Limit(named, hard, soft)
