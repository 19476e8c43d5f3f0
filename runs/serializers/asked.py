"""What comes in: bodies and query parameters. Strict; unknown keys are refused, nothing is trimmed or converted."""

from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints

from runs.states import RunStatus

MAX_WAIT = 60.0
PAGE, MAX_PAGE = 50, 100


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
    result: Annotated[Any, Field(description="What the tool would have returned; only with `happened`.")] = (
        None
    )
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
