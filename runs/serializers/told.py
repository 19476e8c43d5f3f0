"""What goes out: runs, steps, agents and problems."""

import uuid
from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from runs.states import Cause, EffectState, RunStatus, StepStatus

CHILDREN = 100  # ids of children that a run's answer names


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


class Asked(BaseModel):
    """A question about a held call; whoever submitted the run may answer it."""

    id: int
    text: str
    at: datetime


class WaitingFor(BaseModel):
    """An open hold: one reason why the run, or one step of it, may not go on."""

    id: uuid.UUID
    cause: Cause
    subject: Annotated[
        str, Field(description="The event, dependency or credential by name, the allowance by id; '' else.")
    ]
    why: str
    step: Annotated[int | None, Field(description="Index of the step; null when it binds the whole run.")]
    by: Annotated[str, Field(description="Who or what placed it.")]
    since: datetime
    until: Annotated[datetime | None, Field(description="When it ends by itself.")]
    asked: Annotated[Asked | None, Field(description="What a reviewer wants to know before deciding.")] = None


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
