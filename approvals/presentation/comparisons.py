"""What is unusual about a call: beside those of its tool that were approved before, and beside its agent's day.

Read when a page is made, never kept and no part of the digest: it moves by itself. What is read is bounded, however
much there is: the newest calls of a tool, and of them those whose arguments are short. Compared are arguments that
are numbers, lists by how long they are, and choices; a text that is another one each time says nothing.
"""

import json
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

from django.db.models import Case, CharField, Func, IntegerField, JSONField, QuerySet, TextField, When
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast, Coalesce

from approvals.models import Request, Revision
from approvals.presentation import pages, shown
from approvals.states import RequestState
from runs.models import Step

LAST = 30
#: So many of a tool's newest calls are looked through for approved ones, and so many of a day's are counted.
WINDOW, MOST = 500, 1_000
SHORT = 16_384  # bytes of arguments
DAY = timedelta(days=1)
ENOUGH_FOR_P95, ENOUGH_FOR_CHOICES = 20, 4
RARE = 10  # one in so many

_SENT = Coalesce("executed", "arguments", output_field=TextField())
_BYTES = Func(_SENT, function="octet_length", output_field=IntegerField())


@dataclass(frozen=True, slots=True)
class Note:
    """One argument, and what is unusual about it."""

    name: str
    says: str


@dataclass(frozen=True, slots=True)
class Compared:
    """With how many, and what stands out; nothing stands out where `notes` is empty."""

    count: int
    notes: tuple[Note, ...]


@dataclass(frozen=True, slots=True)
class Today:
    """What an agent did with this tool in the last 24 hours. `field` names the argument that `total` adds up."""

    calls: int
    rejected: int
    field: str = ""
    total: Decimal | None = None
    unread: int = 0

    @property
    def is_more(self) -> bool:
        return self.calls > MOST


def before(request: Request, revision: Revision) -> Compared:
    """Beside the last calls of the tool that were approved by the same reviewers and made."""
    past = [json.loads(text, parse_float=Decimal) for text in _approved(request, revision)]
    now, kinds = json.loads(revision.arguments, parse_float=Decimal), pages.kinds(revision)
    notes = [note for name, value in now.items() for note in _noted(name, value, past, kinds.get(name, ""))]
    return Compared(len(past), tuple(notes))


def today(request: Request, revision: Revision, now: datetime) -> Today:
    """What the agent did with this tool up to now, this call not counted."""
    made = _dispatched(revision.tool).filter(run__agent=request.run.agent, dispatched_at__gte=now - DAY)
    field = next((name for name, word in pages.kinds(revision).items() if word == "decimal"), "")
    amounts = list(_amounts(made.exclude(pk=request.step_id), field)[: MOST + 1])
    read = [amount for amount in map(_decimal, amounts[:MOST]) if amount is not None]
    rejected = _rejected(request, revision, now)
    if not field:
        return Today(len(amounts), rejected)
    return Today(len(amounts), rejected, field, sum(read, Decimal(0)), min(len(amounts), MOST) - len(read))


def outside(revision: Revision) -> dict[str, Any]:
    """Arguments that the tool's schema does not have."""
    tool = shown.known(revision.tool, revision.tool_version)
    if tool is None:
        return {}
    properties = tool.signature.schema().get("properties", {})
    return {name: value for name, value in json.loads(revision.arguments).items() if name not in properties}


# -- What is read ------------------------------------------------------------------------------


def _dispatched(tool: str) -> QuerySet[Step]:
    return Step.objects.filter(tool=tool, dispatched_at__isnull=False).exclude(effect="")


def _approved(request: Request, revision: Revision) -> list[str]:
    newest = _dispatched(revision.tool).order_by("-dispatched_at").values("pk")[:WINDOW]
    found = Step.objects.filter(pk__in=newest, request__group=request.group_id)
    found = found.exclude(permit="").exclude(pk=request.step_id)
    short = found.alias(bytes=_BYTES).filter(bytes__lte=SHORT).order_by("-dispatched_at")
    return list(short.annotate(sent_text=_SENT).values_list("sent_text", flat=True)[:LAST])


def _amounts(steps: QuerySet[Step], field: str) -> QuerySet[Step, Any]:
    """The text of one argument of each; null where there is none, or the arguments are long."""
    if not field:
        return steps.order_by().values_list("pk", flat=True)
    value = KeyTextTransform(field, Cast(_SENT, JSONField()), output_field=CharField())
    short = Case(When(bytes__lte=SHORT, then=value), output_field=CharField())
    return steps.alias(bytes=_BYTES).annotate(amount=short).order_by().values_list("amount", flat=True)


def _rejected(request: Request, revision: Revision, now: datetime) -> int:
    newest = Request.objects.filter(opened_at__gte=now - DAY).order_by("-opened_at", "-ref")
    said_no = Request.objects.filter(pk__in=newest.values("pk")[: 2 * MOST], state=RequestState.REJECTED)
    return said_no.filter(run__agent=request.run.agent, step__tool=revision.tool).count()


# -- What stands out ---------------------------------------------------------------------------


def _noted(name: str, value: Any, past: list[dict[str, Any]], kind: str) -> Iterator[Note]:
    there = [one[name] for one in past if name in one]
    if not there:
        return
    number = _number(value, kind)
    if number is not None:
        numbers = [found for found in (_number(one, kind) for one in there) if found is not None]
        yield from _measured(name, number, numbers, isinstance(value, list))
    elif value is None or isinstance(value, bool | str):
        yield from _chosen(name, value, there)


def _measured(name: str, number: Decimal, numbers: list[Decimal], is_list: bool) -> Iterator[Note]:
    if not numbers:
        return
    ordered, count = sorted(numbers), len(numbers)
    p95 = ordered[math.ceil(0.95 * count) - 1]
    if number > ordered[-1]:
        yield Note(name, _most(count, _plain(ordered[-1]), is_list))
    elif count >= ENOUGH_FOR_P95 and number > p95:
        yield Note(name, f"is above 95 % of the last {_times(count)} ({_plain(p95)})")


def _most(count: int, before: str, is_list: bool) -> str:
    more, most = ("longer", "longest") if is_list else ("larger", "largest")
    if count == 1:
        return f"is {more} than in the only call approved before, {before}"
    return f"is the {most} of the last {_times(count)}; before it was at most {before}"


def _chosen(name: str, value: Any, there: list[Any]) -> Iterator[Note]:
    counts, count = Counter(map(json.dumps, (v for v in there if not isinstance(v, list | dict)))), len(there)
    same = counts[json.dumps(value)]
    if count < ENOUGH_FOR_CHOICES or len(counts) > count / 2:
        return
    if not same:
        yield Note(name, f"has a value that none of the last {_times(count)} had")
    elif same * RARE <= count:
        yield Note(name, f"has a value that only {same} of the last {_times(count)} had")


def _number(value: Any, kind: str) -> Decimal | None:
    if isinstance(value, list):
        return Decimal(len(value))
    if isinstance(value, bool):
        return None
    if isinstance(value, int | Decimal):
        return Decimal(value)
    return _decimal(value) if kind == "decimal" else None


def _decimal(text: Any) -> Decimal | None:
    try:
        found = Decimal(text)
    except (InvalidOperation, TypeError, ValueError):
        return None
    return found if found.is_finite() else None


def _times(count: int) -> str:
    return f"{count} approved"


def _plain(number: Decimal) -> str:
    return f"{number:,f}"
