"""Drawing on allowances: reserving with a call's start, settling with its receipt.

A call whose end nobody knows is charged what it reserved, unless it was certainly not sent. An effect that is
sent again under its key draws once. Everything but `wanted` happens under the run's lock; allowances are
locked after it, by id.
"""

import inspect
import uuid
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any

import structlog
from django.conf import settings
from django.db.models import F

from runs import journal, recorded, signals, timers
from runs.actors import SYSTEM
from runs.allowance.amounts import MONEY, SECONDS, STEPS, Usage, amount, plain, unit, worded
from runs.clock import Now
from runs.exceptions import BadEstimate, BadValue, Short
from runs.models import Allowance, Draw, Run
from runs.tools.declared import Tool

log = structlog.get_logger(__name__)

Want = Mapping[str, Decimal]


# -- Reserving ------------------------------------------------------------------------------


def wanted(run: uuid.UUID, tool: Tool[..., Any], arguments: str, *, index: int) -> Want:
    """What a call will use, by unit: one step, and what its tool estimates. Before the transaction: the
    estimate is an author's code. Nothing where a sent effect's reservation stands. Raises BadEstimate."""
    if _stands(run, tool, index):
        return {}
    try:
        with timers.limit(settings.FACT_TIMEOUT):
            said = _estimate(tool, arguments)
            found = {unit(name): amount(value, f"/{name}") for name, value in said.items()}
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        why = f"what {tool.name} will use cannot be told: {type(error).__name__}: {recorded.message(error)}"
        raise BadEstimate(why[:1000]) from None
    return {**found, STEPS: Decimal(1)}


def _stands(run: uuid.UUID, tool: Tool[..., Any], index: int) -> bool:
    """Whether an effect that was sent already has reserved: sent again under its key, it happens once."""
    return tool.properties.effect and Draw.objects.open().filter(run=run, index=index).exists()


def _estimate(tool: Tool[..., Any], arguments: str) -> Mapping[str, Any]:
    estimate = tool.properties.estimate
    if callable(estimate):
        given = tool.signature.read(arguments)
        return dict(estimate(**{name: given[name] for name in inspect.signature(estimate).parameters}))
    return estimate or {}


def reserve(run: Run, tool: Tool[..., Any], want: Want, *, index: int) -> None:
    """Reserves what `wanted` said, in the transaction of the call's start. `run` is locked. Raises Short."""
    if not run.metered or _stands(run.pk, tool, index):
        return
    charge(run, index)  # an attempt that never came back
    rows = _locked(run)
    _refuse_unknown_money(rows, want)
    number = 1 + Draw.objects.filter(run=run, index=index).count()
    for row in rows:
        if row.unit in want or row.unit == SECONDS:
            _reserve(run, row, want.get(row.unit, Decimal(0)), index, number)


def _locked(run: Run) -> list[Allowance]:
    """What a run draws on, locked by id."""
    return list(run.allowances.select_for_update(of=("self",), no_key=True).order_by("pk"))


def _refuse_unknown_money(rows: list[Allowance], want: Want) -> None:
    """Money in a currency the run has none of, where it has money at all: held, not free."""
    if stray := _stray_money(rows, want):
        why = (
            f"It needs {plain(want[stray])} {stray}, and the run has an allowance of money, but none of that."
        )
        raise Short("", why, {"unit": stray, "need": str(want[stray])})


def _stray_money(rows: list[Allowance], units: Iterable[str]) -> str:
    known = {row.unit for row in rows if row.unit.startswith(MONEY)}
    return next((u for u in units if known and u.startswith(MONEY) and u not in known), "")


def lacking(run: Run, named: str) -> Allowance:
    """The run's own allowance of a unit it had none of: nothing, until an operator tops it up. `run` is locked."""
    row, new = Allowance.objects.get_or_create(
        name=f"run:{run.pk}", unit=named, defaults={"limit": Decimal(0)}
    )
    if new:
        row.runs.add(run)
        journal.write(row, SYSTEM, "limit_set", limit="0", why="the run had none of this unit")
    return row


def _reserve(run: Run, row: Allowance, need: Decimal, index: int, number: int) -> None:
    if not fits(row, need):
        who = f"“{row.name}”" if row.shared else "the run"
        needs = worded(need, row.unit) if need else f"some {row.unit.removeprefix(MONEY)}"
        why = f"It needs {needs}; {who} has {worded(row.remaining or Decimal(0), row.unit)} left."
        raise Short(str(row.pk), why, {"unit": row.unit, "need": str(need)})
    Draw.objects.create(allowance=row, run=run, index=index, attempt=number, estimate=need)
    _move(row, reserved=need)


def fits(row: Allowance, need: Decimal) -> bool:
    """Whether `need` may still be reserved. What cannot be estimated (0) needs something to be left."""
    left = row.remaining
    return left is None or (need <= left if need else left > 0)


# -- Settling -------------------------------------------------------------------------------


def settle(run: Run, index: int, usage: Usage = (), *, unsent: bool = False) -> None:
    """What a call used, with its receipt: as its tool says, else as estimated. Of one that was certainly not
    done (`unsent`) only the step counts, and what the tool says. `run` is locked. Bad figures count as not said."""

    def unsaid(draw: Draw) -> Decimal:
        free = unsent and draw.allowance.unit != STEPS
        return Decimal(0) if free else draw.estimate

    if run.metered:
        _settle(run, index, _said(run, index, usage), unsaid)


def give_back(run: Run, index: int) -> None:
    """What a call reserved that was turned back before it did anything. `run` is locked."""
    if run.metered:
        _settle(run, index, {}, lambda draw: Decimal(0))


def charge(run: Run, index: int, usage: Usage = ()) -> None:
    """What an attempt used of which nobody knows the end, or that is made again. `run` is locked."""
    if run.metered:
        _settle(run, index, _said(run, index, usage), lambda draw: draw.estimate)


def close(run: Run) -> None:
    """A run that ends reserves nothing any more: what is open is charged. `run` is locked."""
    for index in Draw.objects.open().filter(run=run).values_list("index", flat=True).distinct():
        charge(run, index)


def _said(run: Run, index: int, usage: Usage) -> dict[str, Decimal]:
    """What was said, added up by unit; what is no amount is journalled and left out."""
    said: dict[str, Decimal] = {}
    for name, value in usage:
        try:
            said[unit(name)] = amount(said.get(name, Decimal(0)) + amount(value), f"/{name}")
        except BadValue as bad:
            why = f"{name}: {bad.message}"[:500]
            journal.write(run, SYSTEM, "usage_refused", index=index, why=why)
    return said


def _settle(run: Run, index: int, said: Mapping[str, Decimal], unsaid: Callable[[Draw], Decimal]) -> None:
    draws = {d.allowance_id: d for d in Draw.objects.open().filter(run=run, index=index)}
    if not draws and not said:
        return
    rows = _locked(run)
    while stray := _stray_money(rows, said):
        rows.append(lacking(run, stray))
    for row in rows:
        if row.pk in draws:
            draw = draws[row.pk]
            draw.allowance = row
            _close(draw, said.get(row.unit, None), unsaid)
        elif row.unit in said:
            _unforeseen(run, row, index, said[row.unit])


def _close(draw: Draw, said: Decimal | None, unsaid: Callable[[Draw], Decimal]) -> None:
    used = unsaid(draw) if said is None else said
    Draw.objects.filter(pk=draw.pk).update(used=used, settled_at=Now())
    _move(draw.allowance, used=used, reserved=-draw.estimate)


def _unforeseen(run: Run, row: Allowance, index: int, used: Decimal) -> None:
    """What a tool used without having estimated it."""
    number = 1 + Draw.objects.filter(run=run, index=index).count()
    Draw.objects.create(
        allowance=row, run=run, index=index, attempt=number, estimate=0, used=used, settled_at=Now()
    )
    _move(row, used=used)


def _move(row: Allowance, *, used: Decimal = Decimal(0), reserved: Decimal = Decimal(0)) -> None:
    """Changes what is used and reserved of a locked row, and tells once when that passes its soft mark."""
    Allowance.objects.filter(pk=row.pk).update(used=F("used") + used, reserved=F("reserved") + reserved)
    row.used += used
    row.reserved += reserved
    if row.soft is None or row.soft_told_at is not None or row.used + row.reserved < row.soft:
        return
    Allowance.objects.filter(pk=row.pk).update(soft_told_at=Now())
    row.refresh_from_db(fields=["soft_told_at"])
    told = {"soft": plain(row.soft), "used": plain(row.used), "reserved": plain(row.reserved)}
    journal.write(row, SYSTEM, "soft_mark", **told)
    signals.allowance_low.send(Allowance, allowance=row)
    log.warning("allowance_low", allowance=row.name, unit=row.unit, **told)
