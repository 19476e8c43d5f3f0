"""One verb a kind of due work, and the loop that passes over them.

The queue is a doorbell; this finds what nobody rang for. Each verb *finds* due rows with a time handed down (so
that indexes serve) and *acts* on one item, checking again under the lock: it may run twice, late, and side by
side with other sweepers. `approvals` registers verbs of its own.
"""

import signal
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import FrameType
from typing import Any

import structlog
from django.conf import settings
from django.db import close_old_connections, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.db.models import Exists, OuterRef
from psycopg.errors import LockNotAvailable

from runs import (
    allowance,
    checkpoints,
    children,
    claims,
    clock,
    compensation,
    credentials,
    dependencies,
    divergence,
    endings,
    holds,
    lifecycle,
    points,
    queues,
    versions,
)
from runs.actors import SYSTEM
from runs.models import Dependency, Hold, Run, Step
from runs.states import ENDED, Cause, ClaimState, RunStatus

log = structlog.get_logger(__name__)

AT_ONCE = 500
#: A pass that did so many items may have left some.
MANY = 100
#: Seconds a sweeper waits for a row that somebody else has. Whoever is frozen in a transaction, as a machine that
#: is moved can be, holds up this one item, and none of the others.
LOCK_TIMEOUT = 1.0
#: So many suspended runs a pass are looked at for whether anything still holds them.
LOOKED_AT = 2000
_looked_from: datetime | None = None  # where the next pass goes on; None: at the start
#: While so many jobs wait, queued runs are not rung again: they are due to be taken anyway.
QUEUE_FULL = 2000


@dataclass(frozen=True, slots=True)
class Verb:
    """`find(now)` gives ids of what is due; `act(id)` does one and says whether there was work."""

    name: str
    find: Callable[[datetime], Iterable[Any]]
    act: Callable[[Any], bool]


_verbs: dict[str, Verb] = {}


def register(name: str, find: Callable[[datetime], Iterable[Any]], act: Callable[[Any], bool]) -> None:
    """Adds a verb; the same name replaces the one before."""
    _verbs[name] = Verb(name, find, act)


def sweep() -> dict[str, int]:
    """One pass: how many items each verb did. A verb that fails is logged and the others go on."""
    done: dict[str, int] = {}
    for verb in _verbs.values():
        try:
            now = clock.now()
            done[verb.name] = sum(_act(verb, item) for item in verb.find(now))
        except Exception:
            log.exception("sweep_failed", verb=verb.name)
            close_old_connections()
    return {name: count for name, count in done.items() if count}


def _act(verb: Verb, item: Any) -> bool:
    points.reach("before-act")
    try:
        done = verb.act(item)
        points.reach("after-act")
        return done
    except Exception as error:
        if isinstance(error.__cause__, LockNotAvailable):
            log.info("sweep_item_locked", verb=verb.name, item=str(item))
            return False
        log.exception("sweep_item_failed", verb=verb.name, item=str(item))
        close_old_connections()
        return False


def loop() -> None:
    """Passes every SWEEP_EVERY seconds, at once after one that did much, until SIGTERM or SIGINT."""
    stop = threading.Event()

    def ask_to_stop(signum: int, frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, ask_to_stop)
    signal.signal(signal.SIGINT, ask_to_stop)
    connection_created.connect(_wait_shortly)
    connections.close_all()  # those that were made before
    while not stop.is_set():
        close_old_connections()
        if done := sweep():
            log.info("swept", **done)
        if sum(done.values()) < MANY:
            stop.wait(settings.SWEEP_EVERY)


def _wait_shortly(connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"SET lock_timeout = '{LOCK_TIMEOUT}s'")


# -- Verbs of runs --------------------------------------------------------------


def _unrung(now: datetime) -> list[tuple[Any, int]]:
    """Queued runs nobody took; each ring of one waits twice as long as the one before, a minute at most.

    An empty queue has lost what it held: then only a run that loses its workers waits longer.
    """
    waiting = queues.length()
    if not 0 <= waiting <= QUEUE_FULL:  # -1: it does not answer, and ringing is of no use
        return []
    rung = Run.objects.unrung(now - timedelta(seconds=settings.SWEEP_EVERY))
    due = versions.unheld(rung).order_by("rung_at")[:AT_ONCE]
    found = due.values_list("pk", "rings", "recoveries", "rung_at")
    return [
        (pk, rings)
        for pk, rings, recoveries, at in found
        if at and now - at >= _patience(rings if waiting else recoveries)
    ]


def _patience(rings: int) -> timedelta:
    return timedelta(seconds=min(60.0, settings.SWEEP_EVERY * 2 ** min(rings, 10)))


def _ring_again(item: tuple[Any, int]) -> bool:
    run_id, rings = item
    if not lifecycle.rung(run_id, rings):
        return False
    queues.ring(run_id)
    return True


def _lapsed(now: datetime) -> Iterable[Any]:
    return Run.objects.lapsed(now).values_list("pk", flat=True)[:AT_ONCE]


def _unheld(now: datetime) -> Iterable[Any]:
    """Suspended with nothing holding them: somebody died between release and resume, or a row was taken away.

    No row tells of these, so the suspended ones are looked through: a part a pass, those that have stood longest
    first, and from the start again after the last. A pass costs the same however many stand still."""
    global _looked_from
    settled = now - timedelta(seconds=settings.SWEEP_EVERY)
    suspended = Run.objects.filter(status=RunStatus.SUSPENDED, suspended_at__lt=settled)
    rest = suspended if _looked_from is None else suspended.filter(suspended_at__gte=_looked_from)
    ends = rest.order_by("suspended_at").values_list("suspended_at", flat=True)
    upto = next(iter(ends[LOOKED_AT : LOOKED_AT + 1]), None)
    if upto == _looked_from:  # the last part; or all of one moment, which has no parts
        upto = None
    part = rest if upto is None else rest.filter(suspended_at__lt=upto)
    _looked_from = upto
    held = Hold.objects.open().filter(run=OuterRef("pk"))
    return part.filter(~Exists(held)).order_by("suspended_at").values_list("pk", flat=True)[:AT_ONCE]


def _resume_unheld(run_id: Any) -> bool:
    with transaction.atomic():
        run = lifecycle.lock(run_id)
        if run.holds.open().exists() or not holds.may_start(run):
            return False
        return lifecycle.resume(run, SYSTEM)


def _stopping(now: datetime) -> Iterable[Any]:
    due = Run.objects.filter(status=RunStatus.QUEUED, stop_requested__isnull=False)
    return due.values_list("pk", flat=True)[:AT_ONCE]


def _expired_holds(now: datetime) -> Iterable[Any]:
    return Hold.objects.expired(now).values_list("pk", flat=True)[:AT_ONCE]


def _to_look_at(now: datetime) -> Iterable[Any]:
    return Hold.objects.to_look_at(now).values_list("pk", flat=True)[:AT_ONCE]


def _children_ended(now: datetime) -> Iterable[Any]:
    ended = Hold.objects.open().filter(cause=Cause.CHILD, child__status__in=sorted(ENDED))
    return ended.values_list("pk", flat=True)[:AT_ONCE]


def _held_below(now: datetime) -> Iterable[Any]:
    return Hold.objects.free_above().values_list("pk", flat=True)[:AT_ONCE]


def _orphans(now: datetime) -> Iterable[Any]:
    due = Run.objects.orphaned().filter(stop_requested__isnull=True)
    return due.values_list("pk", flat=True)[:AT_ONCE]


def _waited_for(now: datetime) -> Iterable[Any]:
    waiting = Hold.objects.open().filter(cause=Cause.ALLOWANCE).exclude(subject="")
    named = waiting.order_by().values_list("subject", flat=True).distinct()
    return [int(subject) for subject in named if subject.isdecimal()]


def _unowed(now: datetime) -> Iterable[Any]:
    """Runs that ended the short way, or whose effect was settled afterwards, and hold something still."""
    held = Step.objects.filter(claim=ClaimState.HELD, run__status__in=sorted(ENDED))
    return held.values_list("run", flat=True).distinct()[:AT_ONCE]


def _claims_due(now: datetime) -> Iterable[Any]:
    return Step.objects.claims_due(now).values_list("pk", flat=True)[:AT_ONCE]


def _to_probe(now: datetime) -> Iterable[Any]:
    return Dependency.objects.to_probe(now).values_list("pk", flat=True)


def _long_suspended(now: datetime) -> Iterable[Any]:
    limit = now - timedelta(seconds=settings.MAX_SUSPENDED)
    due = Run.objects.filter(status=RunStatus.SUSPENDED, suspended_at__lt=limit)
    # Not exclude(): over a relation its two conditions may be met by two different holds.
    waits = Hold.objects.outlasting().filter(run=OuterRef("pk"))
    return due.filter(~Exists(waits)).values_list("pk", flat=True)[:AT_ONCE]


register("recover", _lapsed, lifecycle.recover)
register("stop", _stopping, endings.stop_lapsed)
register("ring", _unrung, _ring_again)
register("miss_versions", versions.lacking, versions.hold)
register("find_versions", versions.found_again, versions.release)
register("try_other_code", divergence.with_other_code, divergence.try_again)
register("resume", _unheld, _resume_unheld)
register("expire_holds", _expired_holds, endings.expire_hold)
register("look_again", _to_look_at, lambda hold_id: holds.look_again(hold_id, only_due=True))
register("tell_parents", _children_ended, children.tell_parent)
register("free_below", _held_below, children.free_below)
register("cancel_orphans", _orphans, children.cancel_orphan)
register("cover", _waited_for, lambda pk: bool(allowance.release_covered(pk)))
register("owe", _unowed, claims.owe_ended)
register("give_back", _claims_due, claims.ring)
register("hear_undone", compensation.undone_now, compensation.hear)
register("probe", _to_probe, dependencies.ring_due)
register(
    "services_back", lambda now: dependencies.forgotten(), lambda it: bool(dependencies.release_waiting(it))
)
register(
    "credentials_back", lambda now: credentials.forgotten(), lambda it: bool(credentials.release_waiting(it))
)
register("checkpoint", checkpoints.due, checkpoints.write)
register("expire_runs", _long_suspended, lambda run_id: endings.expire(run_id, settings.MAX_SUSPENDED))
