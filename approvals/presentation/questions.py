"""The basis questions of a revision: what a reviewer answers before approving, so that approving is thinking once.

A tool brings its own (`questions=`), filled from the arguments as its headline is; where it brings none, one stands
for them. At R3 the check page adds two: that it was seen, and a number that is typed from what was read.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from approvals.models import Revision
from approvals.presentation import pages, shown
from runs import values
from runs.exceptions import BadValue

DEFAULT = "Does this fit what was asked for?"
#: From this tier on a basis is asked for; from the other on everything is opened, checked and signed for.
ASKED = frozenset({"R2", "R3", "R4"})
HIGH = frozenset({"R3", "R4"})
ANSWERS = {"yes": "Yes", "no": "No", "unsure": "Can’t tell"}
#: What the check page asks: it is there (`check`), and the number is typed again (`retype`).
CHECK, RETYPE = "check", "retype"
#: Every field a page may send with a basis.
FIELDS = frozenset(f"basis-{name}" for name in ("1", "2", "3", CHECK, RETYPE))


def sent(posted: Mapping[str, Any]) -> dict[str, str]:
    """The answers a form sends, by the id of their question: of one no more than a number has digits, and none that
    cannot be kept."""
    found = {name.removeprefix("basis-"): posted.get(name, "")[:100] for name in FIELDS}
    return {question: answer for question, answer in found.items() if answer and _is_kept(answer)}


def _is_kept(answer: str) -> bool:
    try:
        values.check(answer)
    except BadValue:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Question:
    id: str
    text: str
    answer: str = ""


@dataclass(frozen=True, slots=True)
class Retype:
    """A value that is computed from the arguments; `what` names it in a sentence."""

    what: str
    value: Decimal

    def fits(self, typed: str) -> bool:
        """Spaces and thousands' commas are how people write numbers; nothing else is overlooked."""
        try:
            return Decimal(typed.replace(",", "").replace(" ", "").replace("\u202f", "")) == self.value
        except InvalidOperation:
            return False


def tier(revision: Revision) -> str:
    """What is not known counts as high."""
    return str(revision.judgement.get("tier", "R3"))


def of(revision: Revision, answers: dict[str, Any] | None = None) -> list[Question]:
    """The questions about what a revision will run, with what was answered before; none at R1."""
    if tier(revision) not in ASKED:
        return []
    return asked(revision.tool, revision.arguments, answers)


def asked(tool_name: str, arguments: str, answers: dict[str, Any] | None = None) -> list[Question]:
    texts = shown.questions(tool_name, arguments) or [DEFAULT]
    given = answers or {}
    return [Question(str(n), text, given.get(str(n), "")) for n, text in enumerate(texts, 1)]


def answered(basis: list[dict[str, str]]) -> list[tuple[str, str]]:
    """What a decision keeps of its questions, in words."""
    return [(each["question"], ANSWERS.get(each["answer"], each["answer"])) for each in basis]


def retype(revision: Revision) -> Retype | None:
    """How many the longest list of the arguments has; without one of two or more, the one amount there is.

    Amounts are the decimals of the tool's schema. Where there are none or several, nothing is typed: which of two
    amounts was meant would be a riddle, not a check.
    """
    given = json.loads(revision.arguments)
    lists = [
        (len(value), name) for name, value in given.items() if isinstance(value, list) and len(value) > 1
    ]
    if lists:
        count, name = max(lists)
        return Retype(f"the number of {name.replace('_', ' ')}", Decimal(count))
    amounts = [name for name, kind in pages.kinds(revision).items() if kind == "decimal" and given.get(name)]
    if len(amounts) != 1:
        return None
    return Retype(f"the {amounts[0].replace('_', ' ')}", Decimal(str(given[amounts[0]])))
