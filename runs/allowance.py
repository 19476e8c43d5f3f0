"""Allowance: what a run may use, and has used.

What a call will use is reserved in the transaction of its start and settled with its receipt; a call whose end
nobody knows is charged what it reserved, unless it was certainly not sent. Rows of allowances are locked after the
run's, by id. Amounts are exact decimals.
"""

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from django.db import transaction
from django.db.models import F

from runs import holds, journal, signals
from runs.actors import SYSTEM, Actor
from runs.clock import Now, now
from runs.exceptions import BadValue, HoldClosed, Short, WrongState
from runs.models import Allowance, Draw, Hold, Run
from runs.models.allowance import DIGITS, PLACES
from runs.states import Cause
from runs.tools.declared import Tool

STEPS, SECONDS = "steps", "seconds"


def amount(value: Any, path: str = "") -> Decimal:
    """An amount that can be kept exactly. Raises BadValue: not a number, negative, too large, too fine."""
    try:
        found = Decimal(str(value)) if not isinstance(value, bool) else Decimal("NaN")
    except InvalidOperation:
        raise BadValue(path, f"{value!r} is not an amount") from None
    if not found.is_finite():
        raise BadValue(path, f"{value!r} is not an amount")
    if found < 0:
        raise BadValue(path, f"{value} is negative; amounts are 0 or more")
    if found >= Decimal(10) ** (DIGITS - PLACES):
        raise BadValue(path, f"{value} is too large: at most {DIGITS - PLACES} digits")
    if found != found.quantize(Decimal(1).scaleb(-PLACES)):
        raise BadValue(path, f"{value} is too fine: at most {PLACES} places after the point")
    return found + 0  # -0 is 0


# -- Reserving and settling ---------------------------------------------------------------


def wanted(tool: Tool[..., Any], arguments: str) -> dict[str, Decimal]:
    """What a call will use, by unit: one step, and what its tool estimates."""
    estimate = tool.properties.estimate
    if callable(estimate):
        given = tool.signature.read(arguments)
        names = estimate.__code__.co_varnames[: estimate.__code__.co_argcount]
        estimate = estimate(**{name: given[name] for name in names})
    found = {unit: amount(value, f"/{unit}") for unit, value in (estimate or {}).items()}
    return {STEPS: Decimal(1), **found}


def reserve(run: Run, tool: Tool[..., Any], arguments: str, *, index: int, attempt: int) -> None:
    """Reserves what a call will use, in the transaction of its start. Raises Short."""
    if not run.metered:
        return
    settle(run, index, {}, unsent=False)  # an attempt whose end nobody knows is charged
    want = wanted(tool, arguments)
    rows = list(Allowance.objects.select_for_update(of=("self",)).filter(runs=run).order_by("pk"))
    _refuse_unknown_money(rows, want)
    for row in rows:
        if row.unit in want or row.unit == SECONDS:
            _reserve(run, row, want.get(row.unit, Decimal(0)), index, attempt)


def _refuse_unknown_money(rows: list[Allowance], want: Mapping[str, Decimal]) -> None:
    units = {row.unit for row in rows}
    if any(unit.startswith("money:") for unit in units):
        for unit in want:
            if unit.startswith("money:") and unit not in units:
                why = f"The run has an allowance of money, and none in {unit.removeprefix('money:')}."
                raise Short("", why, {"unit": unit, "need": str(want[unit])})


def _reserve(run: Run, row: Allowance, need: Decimal, index: int, attempt: int) -> None:
    if not fits(row, need):
        left = row.remaining
        why = f"It needs {need.normalize():f} {row.unit} of “{row.name}”, and {left:f} are left."
        raise Short(str(row.pk), why, {"unit": row.unit, "need": str(need)})
    Draw.objects.create(allowance=row, run=run, index=index, attempt=attempt, estimate=need)
    Allowance.objects.filter(pk=row.pk).update(reserved=F("reserved") + need)
    row.reserved += need
    _tell_soft(row)


def fits(row: Allowance, need: Decimal) -> bool:
    """Whether `need` may still be reserved. What cannot be estimated (0) needs something to be left."""
    left = row.remaining
    return left is None or (need <= left if need else left > 0)


def settle(run: Run, index: int, usage: Mapping[str, Any], *, unsent: bool) -> None:
    """What a call used, with its receipt: as its tool says, else as estimated; nothing if it was certainly not
    sent. `run` is locked. Bad figures count as not said."""
    if not run.metered:
        return
    said = _said(run, index, usage)
    for draw in Draw.objects.open().filter(run=run, index=index).order_by("allowance_id").select_related():
        used = said.get(draw.allowance.unit, Decimal(0) if unsent else draw.estimate)
        _charge(draw, used)


def _said(run: Run, index: int, usage: Mapping[str, Any]) -> dict[str, Decimal]:
    said: dict[str, Decimal] = {}
    for unit, value in usage.items():
        try:
            said[unit] = amount(value, f"/{unit}")
        except BadValue as bad:
            journal.write(run, SYSTEM, "usage_refused", index=index, why=str(bad)[:500])
    return said


def _charge(draw: Draw, used: Decimal) -> None:
    Draw.objects.filter(pk=draw.pk).update(used=used, settled_at=Now())
    Allowance.objects.filter(pk=draw.allowance_id).update(
        used=F("used") + used, reserved=F("reserved") - draw.estimate
    )
    draw.allowance.refresh_from_db(fields=["used", "reserved"])
    _tell_soft(draw.allowance)


def _tell_soft(row: Allowance) -> None:
    if row.soft is None or row.soft_told_at is not None or row.used + row.reserved < row.soft:
        return
    Allowance.objects.filter(pk=row.pk).update(soft_told_at=now())
    row.soft_told_at = now()
    journal.write(row, SYSTEM, "soft_mark", used=str(row.used), reserved=str(row.reserved))
    signals.allowance_low.send(Allowance, allowance=row)


def close(run: Run) -> None:
    """A run that ends reserves nothing any more: what is open is charged. `run` is locked."""
    for index in Draw.objects.open().filter(run=run).values_list("index", flat=True).distinct():
        settle(run, index, {}, unsent=False)


# -- Limits ----------------------------------------------------------------------------


def top_up(allowance_id: int, by: Decimal, *, actor: Actor, why: str = "") -> Allowance:
    """Raises a limit by so much; two at once add up. What fits now goes on.

    Raises WrongState: nothing is added, or there is no limit.
    """
    with transaction.atomic():
        row = Allowance.objects.select_for_update().get(pk=allowance_id)
        if row.limit is None:
            raise WrongState(f"{row} has no limit")
        if by <= 0:
            raise WrongState(f"{by} adds nothing to the limit of {row.limit}")
        return _set_limit(row, amount(row.limit + by), actor, "topped_up", why)


def set_limit(allowance_id: int, limit: Decimal | None, *, actor: Actor, why: str = "") -> Allowance:
    """Sets a limit; a lower one holds the next call. None: no limit."""
    with transaction.atomic():
        row = Allowance.objects.select_for_update().get(pk=allowance_id)
        return _set_limit(row, limit, actor, "limit_set", why)


def _set_limit(row: Allowance, limit: Decimal | None, actor: Actor, verb: str, why: str) -> Allowance:
    told = {"before": str(row.limit), "limit": str(limit), "why": why}
    Allowance.objects.filter(pk=row.pk).update(limit=limit, soft_told_at=None)
    journal.write(row, actor, verb, **told)
    row.refresh_from_db()
    return row


def release_covered(allowance_id: int) -> int:
    """Lets calls go on that an allowance covers now, the longest waiting first, as many as fit together."""
    row = Allowance.objects.get(pk=allowance_id)
    spare, released = row.remaining, 0
    for hold in Hold.objects.waiting_for(Cause.ALLOWANCE, str(allowance_id)).order_by("opened_at"):
        need = Decimal(hold.detail["need"])
        if spare is not None and (need > spare or (not need and not spare)):
            break
        spare = None if spare is None else spare - need
        try:
            holds.release(hold.pk, actor=SYSTEM, resolution="covered")
            released += 1
        except HoldClosed:
            continue
    return released
