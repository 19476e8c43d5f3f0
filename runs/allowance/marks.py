"""Limits: shared allowances made, limits raised and set by operators, and calls that go on because of it."""

import json
from decimal import Decimal

from django.db import transaction
from django.db.models import Exists, OuterRef

from runs import holds, journal
from runs.actors import SYSTEM, Actor
from runs.allowance.amounts import NAME, amount, plain, unit
from runs.exceptions import BadValue, HoldClosed, KeyReused, NotFound, WrongState
from runs.lifecycle import Limit
from runs.models import Allowance, Draw, Hold, JournalEntry, Run
from runs.states import Cause, RunStatus, StepStatus

#: So many calls go on in the request that tops up.
AT_ONCE = 20


def asked_for(run: Run) -> tuple[tuple[Limit, ...], tuple[str, ...]]:
    """The limits of its own and the shared names of a run, for another one like it."""
    rows = list(run.allowances.order_by("pk"))
    own = tuple(Limit(row.unit, row.limit, row.soft) for row in rows if not row.shared)
    return own, tuple(dict.fromkeys(row.name for row in rows if row.shared))


# -- Limits, by operators --------------------------------------------------------------------


def share(name: str, limit: Limit, *, actor: Actor, why: str = "") -> Allowance:
    """A new allowance that many runs may draw on by its name. Raises BadValue, WrongState: there is one."""
    if not NAME.fullmatch(name):
        raise BadValue(
            "/name", "a name of 1 to 100 characters, without colons and without blanks at its ends"
        )
    with transaction.atomic():
        row, new = Allowance.objects.get_or_create(
            name=name, unit=unit(limit.unit, "/unit"), defaults={"limit": limit.hard, "soft": limit.soft}
        )
        if not new:
            raise WrongState(f"there is an allowance “{name}” of {row.unit} already")
        journal.write(row, actor, "shared", limit=_told(limit.hard), soft=_told(limit.soft), why=why)
        row.refresh_from_db()
    return row


def top_up(allowance_id: int, by: Decimal, *, actor: Actor, why: str = "", once: str = "") -> Allowance:
    """Raises a limit by so much; two at once add up, the same `once` again adds nothing. What fits goes on.

    Raises NotFound, BadValue; WrongState: nothing is added, or there is no limit; KeyReused.
    """
    with transaction.atomic():
        row = _lock(allowance_id)
        if once and _topped_up_before(row, once, by):
            return row
        if row.limit is None:
            raise WrongState("there is no limit to raise")
        if by <= 0:
            raise WrongState(f"{plain(by)} adds nothing to the limit of {plain(row.limit)}")
        told = {"by": plain(by), "once": once} if once else {"by": plain(by)}
        return _set(row, amount(row.limit + by), row.soft, actor, "topped_up", why, **told)


def _topped_up_before(row: Allowance, once: str, by: Decimal) -> bool:
    said = JournalEntry.objects.of(row.stream).filter(verb="topped_up")
    for detail in said.values_list("detail", flat=True):
        known = json.loads(detail)
        if known.get("once") == once:
            if known["by"] != plain(by):
                raise KeyReused("this form was sent before with another amount; open it again")
            return True
    return False


def set_limit(
    allowance_id: int, limit: Decimal | None, soft: Decimal | None, *, actor: Actor, why: str = ""
) -> Allowance:
    """Sets limit and soft mark (None: there is none). A lower limit holds the next call; a higher one lets go on.

    Raises NotFound; WrongState: it is that already.
    """
    with transaction.atomic():
        row = _lock(allowance_id)
        if (row.limit, row.soft) == (limit, soft):
            raise WrongState(f"the limit is {_told(limit)} already")
        return _set(row, limit, soft, actor, "limit_set", why)


def _lock(allowance_id: int) -> Allowance:
    row = Allowance.objects.select_for_update(no_key=True).filter(pk=allowance_id).first()
    if row is None:
        raise NotFound(f"there is no allowance {allowance_id}")
    return row


def _set(
    row: Allowance,
    limit: Decimal | None,
    soft: Decimal | None,
    actor: Actor,
    verb: str,
    why: str,
    **more: str,
) -> Allowance:
    told = {"before": _told(row.limit), "limit": _told(limit), "soft": _told(soft), "why": why, **more}
    again = {} if row.soft == soft else {"soft_told_at": None}
    Allowance.objects.filter(pk=row.pk).update(limit=limit, soft=soft, **again)
    journal.write(row, actor, verb, **told)
    row.refresh_from_db()
    transaction.on_commit(lambda: _release_now(row.pk), robust=True)
    return row


def _told(value: Decimal | None) -> str:
    return "none" if value is None else plain(value)


# -- Going on -------------------------------------------------------------------------------


def _release_now(allowance_id: int) -> None:
    """At once what the sweeper would find in its next pass; the rest of many is the sweeper's."""
    release_covered(allowance_id, at_most=AT_ONCE)


def release_covered(allowance_id: int, *, at_most: int | None = None) -> int:
    """Lets calls go on that an allowance covers now, the longest waiting first, as many as fit together. One
    that is too large does not stop smaller ones behind it. How many were let go."""
    left = Allowance.objects.get(pk=allowance_id).remaining
    if left is not None and left <= 0:  # nothing fits, however many wait
        return 0
    # Read in this order, what another pass lets go meanwhile is counted twice, never not at all.
    waiting = list(Hold.objects.waiting_for(Cause.ALLOWANCE, str(allowance_id)).order_by("opened_at"))
    promised = _promised(allowance_id)
    left = Allowance.objects.get(pk=allowance_id).remaining
    spare, released = None if left is None else left - promised, 0
    for hold in waiting:
        if released == at_most or (spare is not None and spare <= 0):
            break
        need = Decimal(hold.detail["need"])
        if spare is not None and need > spare:
            continue
        spare = None if spare is None else spare - need
        released += _release(hold)
    return released


def _promised(allowance_id: int) -> Decimal:
    """What calls need that were let go for this allowance and have not reserved yet: nobody else gets it."""
    drawn = Draw.objects.open().filter(
        allowance=allowance_id, run=OuterRef("run"), index=OuterRef("step__index")
    )
    waiting = Hold.objects.filter(
        cause=Cause.ALLOWANCE,
        subject=str(allowance_id),
        resolution="covered",
        run__status__in=(RunStatus.QUEUED, RunStatus.RUNNING),
        run__open_holds=0,
        step__status=StepStatus.HELD,
        step__open_holds=0,
    ).exclude(Exists(drawn))
    latest = {hold.step_id: Decimal(hold.detail["need"]) for hold in waiting.order_by("released_at")}
    return sum(latest.values(), Decimal(0))


def _release(hold: Hold) -> bool:
    try:
        holds.release(hold.pk, actor=SYSTEM, resolution="covered")
    except HoldClosed:
        return False
    return True
