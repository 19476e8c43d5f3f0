"""The only writer of `Run.status`: submit, take, park, resume, hand back, recover, finish, close.

Every transition is one guarded UPDATE, a look at the row count and a journal row, in one transaction; the
queue is rung after commit. A worker's writes carry the fence (epoch and token): an old one moves nothing.
"""

import json
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction

from runs import agents, journal, points, prepared, queues, statements, values
from runs.actors import SYSTEM, Actor
from runs.clock import Now, now
from runs.exceptions import EpochLost, KeyReused, LostRace, NotFound, UnknownAllowance
from runs.models import Allowance, JournalEntry, Run
from runs.models.snapshot import NAMED, SCHEMA_VERSION
from runs.states import RunStatus, sources

_LAPSED = prepared.Query(
    lambda: (
        Run.objects.select_for_update(skip_locked=True)
        .filter(pk=prepared.Given("run"))
        .lapsed(Now())  # type: ignore[arg-type]
        .order_by()
    )
)
_LOCKED = prepared.Query(lambda: Run.objects.select_for_update().filter(pk=prepared.Given("run")).order_by())


@dataclass(frozen=True, slots=True)
class Fence:
    """What a worker holds while it has a run: every write of it carries these."""

    run: uuid.UUID
    epoch: int
    token: uuid.UUID
    worker: str

    @property
    def actor(self) -> Actor:
        return Actor.worker(self.worker)

    def parameters(self) -> dict[str, Any]:
        return {"run": self.run, "epoch": self.epoch, "token": self.token}


@dataclass(frozen=True, slots=True)
class Limit:
    """What a run may use of a unit: `hard` None is no limit, 0 is nothing; at `soft` operators are told."""

    unit: str
    hard: Decimal | None
    soft: Decimal | None = None

    def as_json(self) -> list[str | None]:
        marks = (None if mark is None else f"{mark.normalize():f}" for mark in (self.hard, self.soft))
        return [self.unit, *marks]


@dataclass(frozen=True, slots=True)
class Submission:
    """What a submitter asks for. `arguments` are parsed JSON, by name of the agent's parameters."""

    agent: str
    arguments: dict[str, Any]
    labels: dict[str, str]
    on_behalf_of: str = ""
    idempotency_key: str | None = None
    owner_id: str = ""
    again_of: Run | None = None
    limits: tuple[Limit, ...] = ()
    draws_on: tuple[str, ...] = ()

    def metering(self) -> dict[str, Any]:
        """What the run may use, as JSON; empty where nobody said."""
        said = {"allowance": [limit.as_json() for limit in self.limits], "draws_on": list(self.draws_on)}
        return {name: value for name, value in said.items() if value}

    def digest(self) -> str:
        said = [self.agent, self.arguments, self.labels, self.on_behalf_of]
        metering = self.metering()
        return values.digest(values.canonical([*said, metering] if metering else said))


def submit(asked: Submission, *, actor: Actor) -> tuple[Run, bool]:
    """A new queued run, and True; or the one the same key and body made before, and False.

    Raises UnknownAgent, BadArguments, BadValue, UnknownAllowance, and KeyReused when the key came before with
    another body.
    """
    if asked.idempotency_key and (before := _before(asked, actor)):
        return before, False
    made = agents.latest(asked.agent)
    text = made.signature.write_json(asked.arguments)
    try:
        with transaction.atomic():
            run = _create(asked, made, text, actor)
            _meter(run, asked)
            told = {"on_behalf_of": asked.on_behalf_of, **asked.metering()}
            journal.write(run, actor, "submitted", agent=str(made), **told)
            queues.ring(run.id)
    except IntegrityError:
        if not asked.idempotency_key or (before := _before(asked, actor)) is None:
            raise
        return before, False
    return run, True


def _before(asked: Submission, actor: Actor) -> Run | None:
    run = Run.objects.filter(
        submitter_kind=actor.kind, submitter_id=actor.id, idempotency_key=asked.idempotency_key
    ).first()
    if run is not None and run.submission_digest != asked.digest():
        raise KeyReused(
            f"the idempotency key {asked.idempotency_key!r} was used with another body, for run {run.id}"
        )
    return run


def _create(asked: Submission, made: agents.Agent[..., Any], text: str, actor: Actor) -> Run:
    return Run.objects.create(
        agent=made.name,
        agent_version=made.version,
        code_digest=made.code_digest,
        input=text,
        labels=asked.labels,
        on_behalf_of=asked.on_behalf_of,
        submitter_kind=actor.kind,
        submitter_id=actor.id,
        submitter_name=actor.name,
        owner_id=asked.owner_id,
        idempotency_key=asked.idempotency_key or None,
        submission_digest=asked.digest(),
        again_of=asked.again_of,
        metered=bool(asked.limits or asked.draws_on),
    )


def _meter(run: Run, asked: Submission) -> None:
    """The allowances a new run draws on: its own, and shared ones by name. Raises UnknownAllowance."""
    for limit in asked.limits:
        row = Allowance.objects.create(name=run.stream, unit=limit.unit, limit=limit.hard, soft=limit.soft)
        row.runs.add(run)
    for place, name in enumerate(asked.draws_on):
        shared = list(Allowance.objects.shared().filter(name=name))
        if not shared:
            raise UnknownAllowance(f"/draws_on/{place}", f"there is no shared allowance {name!r}")
        run.allowances.add(*shared)


def adopt(run: Run) -> None:
    """A run that comes from another installation: suspended, whatever it was there. Its journal comes with it."""
    run.status = RunStatus.SUSPENDED
    run.rings = 0
    run.rung_at = run.changed_at = now()
    run.suspended_at = run.suspended_at or run.changed_at
    run.save(force_insert=True)


def leave(run: Run, actor: Actor) -> None:
    """Notes that a run goes on in another installation, before it ends here. `run` is locked."""
    journal.write(run, actor, "left")


def went_elsewhere(run: Run) -> bool:
    """Whether a run that ended here goes on in another installation: what it did and reserved is that one's."""
    return run.ended and left(run)


def left(run: Run) -> bool:
    """The same while it is ending."""
    return JournalEntry.objects.of(run.stream).filter(verb="left").exists()


def lock(run_id: uuid.UUID) -> Run:
    """The run's row, locked until the transaction ends. Raises NotFound."""
    run = _LOCKED.first(run=run_id)
    if run is None:
        raise NotFound(f"there is no run {run_id}")
    return run


def lock_fenced(fence: Fence) -> Run:
    """The run's row, locked, if this worker still has it. Raises EpochLost."""
    return _fenced(fence, lock(fence.run))


def locking_fenced(batch: prepared.Batch, fence: Fence) -> Callable[[], Run]:
    """The same, asked in a batch: the run when it is called for, which raises EpochLost."""
    asked = batch.ask(_LOCKED, run=fence.run)
    return lambda: _fenced(fence, asked.first())


def _fenced(fence: Fence, run: Run | None) -> Run:
    if run is None:
        raise NotFound(f"there is no run {fence.run}")
    if (run.status, run.epoch, run.token) != (RunStatus.RUNNING, fence.epoch, fence.token):
        raise EpochLost(f"run {fence.run} is not under epoch {fence.epoch} any more")
    return run


def take(run_id: uuid.UUID, worker: str) -> Fence | None:
    """Takes a queued run. None: not queued, of a version this process does not have, or somebody was first."""
    with prepared.Batch() as batch:
        taken = taking(batch, run_id, worker)
    return taken()


def taking(batch: prepared.Batch, run_id: uuid.UUID, worker: str) -> Callable[[], Fence | None]:
    """The same, and what is asked of the batch after it sees the run as it was taken."""
    token = uuid.uuid4()
    told = {
        "run": run_id,
        "token": token,
        "worker": worker[:100],
        "lease": settings.LEASE,
        "versions": [str(made) for made in agents.all_versions()],
        **journal.parameters(Actor.worker(worker), "taken", {}),
    }
    points.reach("before-take")
    found = batch.row(statements.TAKE, told)

    def taken() -> Fence | None:
        points.reach("after-take")
        row = found.first()
        return None if row is None else Fence(run_id, row[0], token, worker)

    return taken


def renew(fence: Fence) -> bool:
    """Prolongs the lease; False when the run is no longer this worker's."""
    points.reach("before-renew")
    renewed = Run.objects.filter(
        pk=fence.run, status=RunStatus.RUNNING, epoch=fence.epoch, token=fence.token
    ).update(lease_until=Now() + timedelta(seconds=settings.LEASE))
    points.reach("after-renew")
    return bool(renewed)


def park(fence: Fence, wakes: int, *, credentials: Sequence[str] = ()) -> None:
    """Running → suspended, with a snapshot; `credentials` are names for it. Raises LostRace: a release or a stop
    came since `wakes` was read, or the epoch is lost; load again."""
    row = prepared.row(
        statements.PARK,
        {
            **fence.parameters(),
            "wakes": wakes,
            "schema_version": SCHEMA_VERSION,
            "credentials": json.dumps(credentials[:NAMED]),
            "named": NAMED,
            **journal.parameters(fence.actor, "suspended", {}),
        },
    )
    points.committing("suspended")
    if row is None:
        raise LostRace(f"run {fence.run} was woken while it was being parked")


def resume(run: Run, actor: Actor) -> bool:
    """Suspended → queued, the one way back for every cause. `run` is locked. False: it was not suspended."""
    told = {"run": run.pk, **journal.parameters(actor, "resumed", {})}
    if prepared.row(statements.RESUME, told) is None:
        return False
    points.committing("resumed")
    queues.ring(run.pk)
    return True


def resume_known(run: Run, actor: Actor) -> None:
    """`resume` of a run of which is known, under its lock, that it is suspended and nothing holds it."""
    told = {"run": run.pk, **journal.parameters(actor, "resumed", {})}

    def resumed(row: prepared.Row | None) -> None:
        assert row is not None, f"run {run.pk} was not what it was under its lock"
        points.committing("resumed")

    prepared.write(statements.RESUME, told, then=resumed)
    queues.ring(run.pk)


def hand_back(fence: Fence, why: str) -> None:
    """Running → queued at a boundary: the worker is stopping, or others are due. Raises EpochLost."""
    with transaction.atomic():
        run = lock_fenced(fence)
        _requeue(run, fence.actor, "handed_back", why)
        queues.ring(run.pk)


def recover(run_id: uuid.UUID) -> bool:
    """Running under a lease that ran out → queued, with the epoch raised so that the old worker moves nothing.

    A run that loses worker after worker without a step in between is rung later each time, so that one that
    kills its workers does not take them all. False: the lease was renewed, or somebody else did it.
    """
    with transaction.atomic():
        run = _LAPSED.first(run=run_id)
        if run is None:
            return False
        again = run.recoveries + 1
        _requeue(
            run, SYSTEM, "recovered", f"the lease of {run.taken_by} ran out", recoveries=again, rings=again
        )
        if again == 1:
            queues.ring(run.pk)
    return True


def interrupt(run: Run, actor: Actor, why: str) -> None:
    """Running → queued with the epoch raised, because somebody stopped it and no call in flight has to be
    finished: the worker that had it moves nothing any more. `run` is locked and running."""
    _requeue(run, actor, "interrupted", why)
    run.refresh_from_db()
    queues.ring(run.pk)


def _requeue(run: Run, actor: Actor, verb: str, why: str, *, recoveries: int = 0, rings: int = 0) -> None:
    """`run` is locked and running."""
    changes = {
        "status": str(RunStatus.QUEUED),
        "epoch": run.epoch + 1,
        "token": None,
        "lease_until": None,
        "wakes": run.wakes + 1,
        "rung_at": journal.AT,
        "rings": rings,
        "recoveries": recoveries,
        "changed_at": journal.AT,
    }
    journal.move(run, actor, verb, changes, why=why)


def finish(fence: Fence, status: RunStatus, *, result: str | None = None, error: str | None = None) -> bool:
    """Running → succeeded or failed, in one statement. False: a hold or a stop stands in the way, or the
    epoch is lost; `endings` takes the long way then."""
    row = prepared.row(
        statements.FINISH,
        {
            **fence.parameters(),
            "status": str(status),
            "result": result,
            "error": error,
            **journal.parameters(fence.actor, str(status), {}),
        },
    )
    points.committing("finish")
    return row is not None


def close(
    run: Run, status: RunStatus, actor: Actor, *, result: str | None, error: str | None, why: str
) -> None:
    """Any live status → ended. Only `endings` calls it, with the run locked and its holds closed.

    Raises LostRace when the run may not go to `status` from where it is.
    """
    moved = Run.objects.filter(pk=run.pk, status__in=sources(status), open_holds=0).update(
        status=status,
        result=result,
        error=error,
        ended_at=Now(),
        token=None,
        lease_until=None,
        suspended_at=None,
        changed_at=Now(),
    )
    if not moved:
        raise LostRace(f"run {run.pk} is {run.status} and cannot become {status}")
    journal.write(run, actor, str(status), why=why)


def request_stop(run: Run, actor: Actor, *, why: str) -> bool:
    """Asks the worker that has the run to end it as cancelled at its next boundary. `run` is locked.
    False: it was asked before."""
    asked = {"end": RunStatus.CANCELLED, "by": actor.as_json(), "why": why}
    moved = Run.objects.filter(pk=run.pk, stop_requested__isnull=True).update(
        stop_requested=asked, changed_at=Now()
    )
    if moved:
        journal.write(run, actor, "stop_requested", why=why)
    return bool(moved)


def ring_sooner(run_id: uuid.UUID, *, rings: int = 0) -> None:
    """The next ring of a queued run does not wait longer than after so many."""
    Run.objects.filter(pk=run_id, status=RunStatus.QUEUED, rings__gt=rings).update(rings=rings)


def rung(run_id: uuid.UUID, rings: int) -> bool:
    """Notes that a queued run was rung again, so that the next ring waits longer. False: it moved."""
    return bool(
        Run.objects.filter(pk=run_id, status=RunStatus.QUEUED, rings=rings).update(
            rung_at=Now(), rings=rings + 1
        )
    )
