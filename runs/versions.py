"""Versions: which of them live workers have, and the hold of a queued run whose version nobody has.

Workers tell in Valkey what they have (`queues.fleet`). A run is held only while there are workers and all of
them tell: no worker at all is a deploy, not a missing version. The run stays queued under its hold; it is not
rung, and released as soon as a worker with its version is back, or takes it.
"""

import time
import uuid
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from operator import or_

from django.conf import settings
from django.db import transaction
from django.db.models import Count, Exists, OuterRef, Q, QuerySet

from runs import agents, holds, lifecycle, queues
from runs.actors import SYSTEM
from runs.exceptions import HoldClosed
from runs.lifecycle import Fence
from runs.models import Hold, Run
from runs.states import Cause, RunStatus

AT_ONCE = 500
PASSES = 5  # rings a second that a worker hands on; the sweeper does the rest
SOONER = 2  # a run that was rung for the wrong worker is rung again as after so many rings

Pair = tuple[str, str]  # an agent's name and a version

_missing_since: dict[Pair, float] = {}
_passed: deque[float] = deque(maxlen=PASSES)


def _named(agent: str, version: str) -> str:
    return f"{agent}@{version}"


def _of(pairs: Iterable[Pair], prefix: str = "") -> Q:
    """What is of one of these versions; nothing where there are none."""
    each = (Q(**{f"{prefix}agent": agent, f"{prefix}agent_version": version}) for agent, version in pairs)
    return reduce(or_, each, Q(pk__in=[]))


def unheld(runs: QuerySet[Run]) -> QuerySet[Run]:
    """Those that no `version` hold binds."""
    held = Hold.objects.open().filter(run=OuterRef("pk"), cause=Cause.VERSION)
    return runs.filter(Q(open_holds=0) | ~Exists(held))


# -- Verbs of the sweeper ----------------------------------------------------------------


def lacking(now: datetime) -> list[uuid.UUID]:
    """Queued runs whose version no live worker has had for VERSION_GRACE seconds."""
    queued = unheld(Run.objects.filter(status=RunStatus.QUEUED, stop_requested__isnull=True))
    missed = _missed_for_long(set(queued.order_by().values_list("agent", "agent_version").distinct()))
    if not missed:
        return []
    return list(queued.filter(_of(missed)).order_by("rung_at").values_list("pk", flat=True)[:AT_ONCE])


def _missed_for_long(wanted: set[Pair]) -> list[Pair]:
    """This process remembers since when; a sweeper that starts gives everybody the time to come back."""
    workers = queues.fleet()
    there = {name for has in workers or [] for name in has}
    missing = {pair for pair in wanted if _named(*pair) not in there} if workers else set()
    for pair in [pair for pair in _missing_since if pair not in missing]:
        del _missing_since[pair]
    at = time.monotonic()
    since = {pair: _missing_since.setdefault(pair, at) for pair in missing}
    return [pair for pair in since if at - since[pair] >= settings.VERSION_GRACE]


def hold(run_id: uuid.UUID) -> bool:
    """Holds a queued run whose version nobody has. False: it was taken, ended, or is held for it already."""
    with transaction.atomic():
        run = lifecycle.lock(run_id)
        if run.status != RunStatus.QUEUED or run.stop_requested or _standing(run) is not None:
            return False
        named = _named(run.agent, run.agent_version)
        holds.place(
            run,
            cause=Cause.VERSION,
            actor=SYSTEM,
            why=f"No worker has {named}. It goes on when one with that version is started.",
            detail={"version": named},
        )
    return True


def _standing(run: Run) -> Hold | None:
    return Hold.objects.open().filter(run=run, cause=Cause.VERSION).first()


def found_again(now: datetime) -> Iterable[uuid.UUID]:
    """`version` holds of runs whose version a live worker has."""
    waiting = Hold.objects.open().filter(cause=Cause.VERSION)
    wanted = set(waiting.order_by().values_list("run__agent", "run__agent_version").distinct())
    there = {name for has in queues.fleet() or [] for name in has} if wanted else set()
    back = [pair for pair in wanted if _named(*pair) in there]
    return waiting.filter(_of(back, "run__")).values_list("pk", flat=True)[:AT_ONCE]


def release(hold_id: uuid.UUID) -> bool:
    """A worker has the version again: the run is rung at once. False: it was released before."""
    try:
        with transaction.atomic():
            released = holds.release(hold_id, actor=SYSTEM, resolution="version_is_back")
            lifecycle.ring_sooner(released.run_id)
            queues.ring(released.run_id)
    except HoldClosed:
        return False
    return True


# -- In a worker -------------------------------------------------------------------------


def found(fence: Fence) -> bool:
    """Whoever has taken the run has its version. False: it was not held for it."""
    with transaction.atomic():
        run = lifecycle.lock_fenced(fence)
        standing = _standing(run)
        if standing is not None:
            holds.release_locked(run, standing, actor=fence.actor, resolution="version_is_back")
    return standing is not None


def pass_on(run: Run) -> None:
    """A ring for a run whose version this worker lacks is handed on, if another worker has it: a few a second,
    so that idle workers do not ring each other all day. What is not handed on the sweeper rings soon."""
    if run.status != RunStatus.QUEUED or agents.find(run.agent, run.agent_version) is not None:
        return
    named = _named(run.agent, run.agent_version)
    if not any(named in has for has in queues.fleet() or []):
        return
    at = time.monotonic()
    if len(_passed) == PASSES and at - _passed[0] < 1:
        lifecycle.ring_sooner(run.pk, rings=SOONER)
        return
    _passed.append(at)
    if lifecycle.rung(run.pk, run.rings):
        queues.ring(run.pk)


# -- For operators -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Version:
    """One version of an agent: how many live workers have it (None: unknown), with which code, what waits."""

    named: str
    workers: int | None
    codes: tuple[str, ...]
    queued: int
    held: int
    suspended: int

    @property
    def missing(self) -> bool:
        return self.workers == 0 and bool(self.queued or self.suspended)


def overview() -> tuple[list[Version], int | None]:
    """Every version that a live worker has or a live run is of, and how many workers there are (None: unknown)."""
    workers = queues.fleet()
    live = Run.objects.live().order_by().values_list("agent", "agent_version")
    rows = live.annotate(
        queued=Count("pk", filter=Q(status=RunStatus.QUEUED)),
        held=Count("pk", filter=_is_held()),
        suspended=Count("pk", filter=Q(status=RunStatus.SUSPENDED)),
    )
    counts = {_named(agent, version): tuple(numbers) for agent, version, *numbers in rows}
    names = sorted({*counts, *(name for has in workers or [] for name in has)})
    found = [_version(name, workers, *counts.get(name, (0, 0, 0))) for name in names]
    return found, None if workers is None else len(workers)


def _is_held() -> Q:
    return Q(pk__in=Hold.objects.open().filter(cause=Cause.VERSION).values("run"))


def _version(named: str, workers: list[dict[str, str]] | None, *counts: int) -> Version:
    having = [has[named] for has in workers or [] if named in has]
    codes = tuple(sorted(set(having)))
    return Version(named, None if workers is None else len(having), codes, *counts)
