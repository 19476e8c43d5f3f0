"""What travels through the API: bodies and query parameters in, runs, steps and problems out.

Everything is a Pydantic model. What comes in is strict and refuses keys it does not know; nothing is trimmed
or converted on the way. What goes out is made here from rows, so that a run looks the same in every answer.
Times are ISO 8601 in UTC with a Z; a run's `version` rises whenever anything in its answer changes.
"""

import json
import uuid
from datetime import datetime
from typing import Annotated, Any, Literal

from django.db.models import Prefetch, QuerySet
from django.urls import reverse
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints

from runs import allowance, stops
from runs.agents import Agent
from runs.models import Allowance, Hold, Run, Step
from runs.states import Cause, EffectState, RunStatus, StepStatus

MAX_WAIT = 60.0
PAGE, MAX_PAGE = 50, 100
CHILDREN = 100  # ids of children that a run's answer names

# -- In ------------------------------------------------------------------------------


class Body(BaseModel):
    """A request's body."""

    model_config = ConfigDict(extra="forbid", strict=True)


LabelKey = Annotated[str, StringConstraints(min_length=1, max_length=100)]
LabelValue = Annotated[str, StringConstraints(max_length=500)]


class Submit(Body):
    """A new run."""

    agent: Annotated[str, Field(min_length=1, max_length=100, description="A name from /api/v1/agents.")]
    input: Annotated[dict[str, Any], Field(description="The agent's arguments, by its input_schema.")]
    labels: Annotated[dict[LabelKey, LabelValue], Field(max_length=50, description="To find it by.")] = {}
    on_behalf_of: Annotated[
        str, Field(max_length=200, description="Whom it acts for; they never decide its requests.")
    ] = ""
    allowance: Annotated[
        dict[str, Any],
        Field(
            max_length=20,
            description="What it may use, by unit (steps, seconds, tokens, money:EUR, your own): an amount, null for"
            " no limit, or an object of `limit` and `soft`, the mark at which operators are told.",
            examples=[{"steps": 100, "money:EUR": {"limit": "12.50", "soft": "10"}, "tokens": None}],
        ),
    ] = {}
    draws_on: Annotated[
        list[Annotated[str, StringConstraints(min_length=1, max_length=100)]],
        Field(max_length=20, description="Names of shared allowances that it draws on as well."),
    ] = []


class Reason(Body):
    """Why a run is paused, resumed or cancelled."""

    reason: Annotated[str, Field(max_length=4000, description="Kept in the run's history.")] = ""


class TellEvent(Body):
    """Something that happened, for a run that waits for it or will."""

    id: Annotated[
        str, Field(min_length=1, max_length=200, description="Your own; the same one again counts once.")
    ]
    name: Annotated[str, Field(min_length=1, max_length=100, description="The name the agent waits for.")]
    payload: Annotated[Any, Field(description="What the agent gets; it must fit the type it waits for.")]


class Settle(Body):
    """What an operator says of an effect in doubt."""

    answer: Annotated[
        Literal["happened", "did_not_happen", "compensate"],
        Field(description="The last two not before the call can certainly not act any more."),
    ]
    result: Annotated[Any, Field(description="What the tool would have returned; only with `happened`.")] = None
    reason: Annotated[str, Field(max_length=4000, description="How you know. Required, and kept.")]


class Compensate(Body):
    """What of an ended run is to be undone."""

    steps: Annotated[
        list[int] | None, Field(max_length=1000, description="Indexes of steps; without it all that can be.")
    ] = None
    reason: Annotated[str, Field(max_length=4000, description="Kept in the run's history.")] = ""


class Query(BaseModel):
    """Query parameters; this one for addresses that take none."""

    model_config = ConfigDict(extra="forbid")


class Paged(Query):
    """`cursor` comes from a page's `next`."""

    limit: Annotated[int, Field(ge=1, le=MAX_PAGE)] = PAGE
    cursor: str = ""


class Filters(Paged):
    """Which runs to list. `label` gathers the parameters `label.KEY=VALUE`."""

    status: list[RunStatus] = []
    agent: str = ""
    created_after: AwareDatetime | None = None
    created_before: AwareDatetime | None = None
    label: dict[str, str] = {}


class Wait(Query):
    """How many seconds to wait for the run to move on from the version `since` (else: the present one)."""

    wait: Annotated[float, Field(ge=0, le=MAX_WAIT, allow_inf_nan=False)] = 0
    since: Annotated[str, StringConstraints(pattern=r"^[0-9]{1,18}$")] | None = None


# -- Out -----------------------------------------------------------------------------


class Place(BaseModel):
    """Where a request is wrong, and what would be right. One of the three names the place."""

    pointer: Annotated[str | None, Field(description="JSON pointer into the body; '' is the whole.")] = None
    parameter: Annotated[str | None, Field(description="Name of a query parameter.")] = None
    header: Annotated[str | None, Field(description="Name of a header.")] = None
    detail: str


class Problem(BaseModel):
    """RFC 9457. `code` is for programs and never changes its meaning; `type` is made from it."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str
    code: str
    instance: str
    errors: list[Place] = []


class Failure(BaseModel):
    """An error as it was recorded: its type's name and what it said."""

    kind: str
    message: str


class WaitingFor(BaseModel):
    """An open hold: one reason why the run, or one step of it, may not go on."""

    id: uuid.UUID
    cause: Cause
    why: str
    step: Annotated[int | None, Field(description="Index of the step; null when it binds the whole run.")]
    by: Annotated[str, Field(description="Who or what placed it.")]
    since: datetime
    until: Annotated[datetime | None, Field(description="When it ends by itself.")]


class ListedRun(BaseModel):
    """A run as lists show it."""

    id: uuid.UUID
    agent: str
    agent_version: str
    status: RunStatus
    stopping: Annotated[bool, Field(description="A cancel was asked for; a call in flight is finished.")]
    pausing: Annotated[bool, Field(description="A pause was asked for; a call in flight is finished.")]
    labels: dict[str, str]
    on_behalf_of: str
    version: Annotated[str, Field(description="An integer as text; rises whenever the run moves.")]
    created_at: datetime
    started_at: datetime | None
    suspended_at: datetime | None
    ended_at: datetime | None
    waiting_for: list[WaitingFor]
    links: dict[str, str]


class ShownEvent(BaseModel):
    """An event as it was told."""

    id: str
    name: str
    told_at: datetime


class Swept(BaseModel):
    """What came of a verb on all live runs of an agent."""

    runs: Annotated[int, Field(description="How many live runs there were.")]
    changed: Annotated[int, Field(description="In how many of them this changed something.")]


class ShownAllowance(BaseModel):
    """What a run may use of a unit, and has used. Amounts are decimals as text."""

    unit: str
    shared: Annotated[str | None, Field(description="Name of the allowance that other runs draw on too.")]
    limit: Annotated[str | None, Field(description="Null: no limit.")]
    soft: Annotated[str | None, Field(description="At so much operators are told.")]
    used: str
    reserved: Annotated[str, Field(description="By calls under way.")]
    remaining: Annotated[str | None, Field(description="What may still be reserved, never below 0.")]


class ShownRun(ListedRun):
    """A run with what went in and what came out."""

    parent: Annotated[uuid.UUID | None, Field(description="The run that started it.")]
    ancestors: Annotated[list[uuid.UUID], Field(description="The runs above it, the first one first.")]
    children: Annotated[
        list[uuid.UUID], Field(description=f"The runs it started, oldest first; at most {CHILDREN}.")
    ]
    in_flight: Annotated[
        list[int], Field(description="While it is pausing or stopping: the steps that are finished first.")
    ]
    input: dict[str, Any]
    allowance: list[ShownAllowance]
    result: Annotated[Any, Field(description="What the agent returned; null until it succeeded.")]
    error: Failure | None


class Effect(BaseModel):
    """What is known of a step's effect in the outside world."""

    state: EffectState
    key: Annotated[str, Field(description="The idempotency key that was sent along.")]
    attempt: int
    dispatched_at: datetime | None
    may_act_until: datetime | None


class ShownStep(BaseModel):
    """One call of the run. `executed` is what was sent, where a person edited it."""

    index: int
    tool: str
    tool_version: str
    status: StepStatus
    arguments: dict[str, Any]
    executed: dict[str, Any] | None
    result: Any
    error: Failure | None
    effect: Effect | None
    decision: dict[str, Any] | None
    created_at: datetime
    settled_at: datetime | None


class RunsPage(BaseModel):
    """Newest first."""

    results: list[ListedRun]
    next: Annotated[str | None, Field(description="Address of the next page; null on the last.")]


class StepsPage(BaseModel):
    """In the order in which the agent asked."""

    results: list[ShownStep]
    next: Annotated[str | None, Field(description="Address of the next page; null on the last.")]


class ShownAgent(BaseModel):
    """An agent by the version that new runs start on."""

    name: str
    version: str
    title: str
    input_schema: Annotated[dict[str, Any], Field(description="JSON Schema of `input`.")]
    versions: Annotated[list[str], Field(description="All that stand registered, oldest first.")]


class AgentsList(BaseModel):
    results: list[ShownAgent]


# -- From rows -------------------------------------------------------------------------


def version(run: Run) -> int:
    """Rises with every journal entry and every settled step, so with everything a run's answer shows but what
    is left of an allowance, on which others draw too."""
    return run.seq + run.position


def with_holds(runs: QuerySet[Run]) -> QuerySet[Run]:
    """Runs together with their open holds: one query more, however many runs."""
    holds = Hold.objects.open().select_related("step")
    shown = ("run_id", "cause", "why", "step__index", "opened_by_name", "opened_at", "expires_at")
    return runs.prefetch_related(Prefetch("holds", holds.only(*shown), to_attr="standing"))


def listed(run: Run) -> ListedRun:
    """`run` comes from `with_holds`."""
    return ListedRun(**_listed(run))


def shown(run: Run) -> ShownRun:
    """`run` comes from `with_holds`."""
    return ShownRun(
        **_listed(run),
        parent=run.parent_id,
        ancestors=run.ancestors,
        children=list(_children(run)),
        in_flight=_in_flight(run),
        input=json.loads(run.input),
        allowance=[_allowance(row) for row in run.allowances.all()] if run.metered else [],
        result=None if run.result is None else json.loads(run.result),
        error=_failure(run.error),
    )


def _listed(run: Run) -> dict[str, Any]:
    return {
        "id": run.id,
        "agent": run.agent,
        "agent_version": run.agent_version,
        "status": run.status,
        "stopping": run.stop_requested is not None and not run.ended,
        "pausing": _pausing(run),
        "labels": run.labels,
        "on_behalf_of": run.on_behalf_of,
        "version": str(version(run)),
        "created_at": run.created_at,
        "started_at": run.started_at,
        "suspended_at": run.suspended_at,
        "ended_at": run.ended_at,
        "waiting_for": [_waiting(hold) for hold in getattr(run, "standing")],  # noqa: B009 - a prefetched name
        "links": _links(run),
    }


def _children(run: Run) -> QuerySet[Run, uuid.UUID]:
    found = Run.objects.filter(parent=run).order_by("created_at", "id")
    return found.values_list("pk", flat=True)[:CHILDREN]


def _pausing(run: Run) -> bool:
    paused = any(hold.cause == Cause.PERSON for hold in getattr(run, "standing"))  # noqa: B009
    return paused and run.status == RunStatus.RUNNING and run.stop_requested is None


def _in_flight(run: Run) -> list[int]:
    """Only while nothing new starts, so that it changes with the run's `version` and not without it."""
    waits = _pausing(run) or (run.stop_requested is not None and not run.ended)
    return [step.index for step in stops.in_flight(run)] if waits else []


def _links(run: Run) -> dict[str, str]:
    names = {"self": "run"} | {verb: verb for verb in ("steps", "events", "pause", "stop", "resume", "cancel")}
    return {name: reverse(f"api:{route}", args=[run.id]) for name, route in names.items()}


def _waiting(hold: Hold) -> WaitingFor:
    return WaitingFor(
        id=hold.id,
        cause=Cause(hold.cause),
        why=hold.why,
        step=hold.step.index if hold.step else None,
        by=hold.opened_by_name,
        since=hold.opened_at,
        until=hold.expires_at,
    )


def _allowance(row: Allowance) -> ShownAllowance:
    marks = {name: getattr(row, name) for name in ("limit", "soft", "used", "reserved", "remaining")}
    told = {name: None if mark is None else allowance.plain(mark) for name, mark in marks.items()}
    return ShownAllowance(unit=row.unit, shared=row.name if row.shared else None, **told)


def _failure(text: str | None) -> Failure | None:
    """A recorded error. `ToolFailed` stands for a type nobody declared, and carries its name."""
    if text is None:
        return None
    kept = json.loads(text)
    kind, args = kept["type"].rpartition(":")[2], kept["args"]
    if kind == "ToolFailed" and len(args) == 2:
        kind, args = args[0], args[1:]
    return Failure(kind=kind, message=", ".join(map(str, args)))


def step(row: Step) -> ShownStep:
    raised = row.status == StepStatus.RAISED
    return ShownStep(
        index=row.index,
        tool=row.tool,
        tool_version=row.tool_version,
        status=StepStatus(row.status),
        arguments=json.loads(row.arguments),
        executed=None if row.executed is None else json.loads(row.executed),
        result=None if raised or row.result is None else json.loads(row.result),
        error=_failure(row.result) if raised else None,
        effect=_effect(row),
        decision=row.decision,
        created_at=row.created_at,
        settled_at=row.settled_at,
    )


def _effect(row: Step) -> Effect | None:
    if not row.effect:
        return None
    return Effect(
        state=EffectState(row.effect),
        key=row.key,
        attempt=row.attempt,
        dispatched_at=row.dispatched_at,
        may_act_until=row.may_act_until,
    )


def agent(latest: Agent[..., Any], versions: list[str]) -> ShownAgent:
    return ShownAgent(
        name=latest.name,
        version=latest.version,
        title=latest.title,
        input_schema=latest.signature.schema(),
        versions=versions,
    )
