"""The words for where a run, a step, an effect and a hold stand, and the edges between a run's.

Data only. `lifecycle` is the only writer of `Run.status` and asks `EDGES`; the database holds the
same words as named constraints, so that neither can drift from the other unnoticed.
"""

from django.db.models import TextChoices


class RunStatus(TextChoices):
    QUEUED = "queued"
    RUNNING = "running"
    SUSPENDED = "suspended"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


class StepStatus(TextChoices):
    PROPOSED = "proposed"
    HELD = "held"
    DISPATCHED = "dispatched"
    DONE = "done"
    RAISED = "raised"


class EffectState(TextChoices):
    DISPATCHED = "dispatched"
    CONFIRMED = "confirmed"
    REFUSED = "refused"
    IN_DOUBT = "in_doubt"
    COMPENSATED = "compensated"


class Scope(TextChoices):
    RUN = "run"
    CALL = "call"


class Cause(TextChoices):
    APPROVAL = "approval"
    QUESTION = "question"
    PERSON = "person"
    ANCESTOR = "ancestor"
    ALLOWANCE = "allowance"
    DEPENDENCY = "dependency"
    CREDENTIAL = "credential"
    IN_DOUBT = "in_doubt", "In doubt"
    DIVERGED = "diverged"
    VERSION = "version"
    TIMER = "timer"
    EVENT = "event"
    CHILD = "child"


class Then(TextChoices):
    """What comes of a hold whose time is up."""

    CALL = "call", "the call ends Expired"
    RELEASE = "release", "it is released"
    CANCEL = "cancel", "the run is cancelled"
    WAIT = "wait", "it waits, and operators are told"


class ClaimState(TextChoices):
    """Something a run has reserved outside. Owed: its run has ended, and it is not given back yet. Stuck: nobody
    can tell whether it was given back; a person looks."""

    HELD = "held"
    OWED = "owed"
    GIVING = "giving", "being given back"
    STUCK = "stuck"
    GIVEN_BACK = "given_back", "given back"


class Health(TextChoices):
    """Of a dependency. Trial: one call is let through to see."""

    HEALTHY = "healthy"
    AWAY = "away"
    TRIAL = "trial"


RUN_SCOPED = frozenset({Cause.PERSON, Cause.ANCESTOR, Cause.DIVERGED, Cause.VERSION})
#: Causes that wait for as long as it takes: they never expire a run; people are told instead.
WAITING = frozenset(
    {
        Cause.PERSON,
        Cause.ANCESTOR,
        Cause.DEPENDENCY,
        Cause.IN_DOUBT,
        Cause.DIVERGED,
        Cause.VERSION,
        Cause.TIMER,
        Cause.CHILD,
    }
)

ENDED = frozenset({RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.CANCELLED, RunStatus.EXPIRED})
LIVE = frozenset(RunStatus) - ENDED
SETTLED = frozenset({StepStatus.DONE, StepStatus.RAISED})
EXCEPTIONAL = frozenset({EffectState.DISPATCHED, EffectState.IN_DOUBT})

EDGES: dict[RunStatus, frozenset[RunStatus]] = {
    RunStatus.QUEUED: frozenset({RunStatus.RUNNING, RunStatus.CANCELLED}),
    RunStatus.RUNNING: frozenset(
        {
            RunStatus.SUSPENDED,
            RunStatus.QUEUED,
            RunStatus.SUCCEEDED,
            RunStatus.FAILED,
            RunStatus.CANCELLED,
        }
    ),
    RunStatus.SUSPENDED: frozenset({RunStatus.QUEUED, RunStatus.CANCELLED, RunStatus.EXPIRED}),
    **{ended: frozenset() for ended in ENDED},
}


def sources(target: RunStatus) -> list[str]:
    """The statuses from which a run may move to `target`."""
    return sorted(str(source) for source, targets in EDGES.items() if target in targets)
