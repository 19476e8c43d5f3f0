"""What can go wrong, named for the fact.

Three families. *Conflicts* (`RunsError` and its children) are what a verb raises when it loses a race or
refuses. *Agents' errors* (`AgentError`) reach an agent in recorded form, the first time and on every
replay. `BadValue` names the place of a value that cannot be kept.
"""

from typing import Any


class RunsError(Exception):
    """Base of what the rooms of `runs` raise to each other and to doors. `code` is the API's word for it."""

    code = "conflict"


class NotFound(RunsError):
    code = "not_found"


class RunEnded(RunsError):
    """The run has ended; its status says how."""

    code = "run_ended"


class WrongState(RunsError):
    """The verb does not apply in the state the row is in; the message names that state."""

    code = "wrong_state"


class HoldClosed(RunsError):
    """The hold was released before: somebody was first, or its run ended."""

    code = "hold_closed"


class EpochLost(RunsError):
    """The run was taken by another worker, handed back or ended: this writer moves nothing any more."""

    code = "epoch_lost"


class LostRace(RunsError):
    """Something arrived between load and write (a release, a hold): load again."""

    code = "lost_race"


class EventReused(RunsError):
    """The event's id was told before, with another name or payload."""

    code = "event_reused"


class KeyReused(RunsError):
    """The idempotency key was used before with another body."""

    code = "idempotency_key_reused"


class UnknownAgent(RunsError):
    code = "unknown_agent"


class PermitRefused(RunsError):
    """The approval in force does not cover this call now; `why` says what to show."""

    code = "permit_refused"

    def __init__(self, code: str, why: str) -> None:
        super().__init__(why)
        self.reason = code
        self.why = why


class BadValue(RunsError):
    """A value that cannot be kept. `path` is where, as a JSON pointer ('' is the whole)."""

    code = "bad_value"

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path or '(whole value)'}: {message}")
        self.path = path
        self.message = message


class UnknownAllowance(BadValue):
    """No shared allowance has that name."""

    code = "unknown_allowance"


class BadArguments(RunsError):
    """Arguments that do not fit a schema. `errors` is a list of (JSON pointer, message)."""

    code = "bad_arguments"

    def __init__(self, subject: str, errors: list[tuple[str, str]]) -> None:
        super().__init__(f"{subject}: " + "; ".join(f"{path or '(whole)'}: {text}" for path, text in errors))
        self.subject = subject
        self.errors = errors


class Diverged(RunsError):
    """On replay the agent asked for something else than the record says."""

    code = "diverged"

    def __init__(self, index: int, recorded: str, asked: str, call: Any = None) -> None:
        """`call` is what the agent asks for, where that is another call; the sentences are cut to be read."""
        shown = f"{asked[:500]}…" if len(asked) > 500 else asked
        super().__init__(f"step {index}: the record has {recorded}, the agent now asks for {shown}")
        self.index = index
        self.recorded = recorded
        self.asked = shown
        self.call = call


class BadEstimate(RunsError):
    """A tool cannot say what a call will use: it does not start."""

    code = "bad_estimate"


class BadBundle(RunsError):
    """What is to be imported is no bundle of a run, a newer one, or not as it was written."""

    code = "bad_bundle"


class AgentMistake(RunsError):
    """The agent's code used the machinery wrongly (awaited something else than a call)."""

    code = "agent_mistake"


# -- What stands in a call's way --------------------------------------------


class Obstacle(RunsError):
    """A call may not start now, and what it waits for has a name (`subject`).

    `look_again_in`: seconds after which the call tries again by itself, longer each time; None: it waits until
    somebody says that the obstacle is gone.
    """

    code = "obstacle"
    look_again_in: float | None = None

    def __init__(self, subject: str, why: str, detail: dict[str, Any] | None = None) -> None:
        super().__init__(why)
        self.subject = subject
        self.why = why
        self.detail = detail or {}


class Away(Obstacle):
    """A dependency is away."""


class Short(Obstacle):
    """An allowance does not cover the call. `subject` is the allowance's id."""


class AncestorHeld(Obstacle):
    """A run above this one is held, or is to stop. `subject` is its id."""


class NeedsAuthorisation(Obstacle):
    """A provider raises this when a person has to authorise the credential again, at `url`."""

    def __init__(self, url: str, why: str = "") -> None:
        super().__init__("", why or "It has to be authorised again.", {"url": url})
        self.url = url


# -- What tools raise, and agents never see -----------------------------------


class Unavailable(RunsError):
    """A tool raises this when a service is away and certainly nothing was done there."""

    code = "unavailable"

    def __init__(self, dependency: str, why: str = "") -> None:
        super().__init__(why or f"{dependency} is not available")
        self.dependency = dependency


class CredentialRefused(RunsError):
    """A tool raises this when the outside did not accept a credential (a 401): certainly nothing was done."""

    code = "credential_refused"

    def __init__(self, credential: str, why: str = "") -> None:
        super().__init__(why or f"the credential {credential} was refused")
        self.credential = credential


# -- What agents catch --------------------------------------------------------


class AgentError(Exception):
    """Base of the recorded errors an agent can catch. Every argument is a JSON value."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.args == getattr(other, "args", None)

    def __hash__(self) -> int:
        return hash((type(self), repr(self.args)))


class Rejected(AgentError):
    """A person said no. `reason` is what they wrote, `by` who it was."""

    def __init__(self, reason: str, by: str = "") -> None:
        super().__init__(reason, by)
        self.reason = reason
        self.by = by


class Expired(AgentError):
    """Nobody decided in time. Not a rejection: no person said anything. `at` is an ISO time."""

    def __init__(self, at: str) -> None:
        super().__init__(at)
        self.at = at


class Denied(AgentError):
    """Policy does not allow the call. `rule` names the rule."""

    def __init__(self, rule: str, why: str) -> None:
        super().__init__(rule, why)
        self.rule = rule
        self.why = why


class ToolFailed(AgentError):
    """A tool raised something it did not declare in `raises=`. `kind` is the type's name."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(kind, message)
        self.kind = kind
        self.message = message


class TimedOut(AgentError):
    """A pure tool did not answer within its `timeout` (seconds)."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


class NotSent(AgentError):
    """A tool raises this when the connection was never made: certainly not done."""

    def __init__(self, why: str = "") -> None:
        super().__init__(why)
        self.why = why


class Stale(AgentError):
    """The facts a call was approved on have changed, and its tool says `on_drift="replan"`. `changed` names them."""

    def __init__(self, changed: list[str]) -> None:
        super().__init__(changed)
        self.changed = changed


class Compensated(AgentError):
    """It was unknown whether the call had happened, and a person had it undone. `why` is what they wrote."""

    def __init__(self, why: str = "") -> None:
        super().__init__(why)
        self.why = why


class BadPayload(AgentError):
    """An event came whose payload does not fit the type the agent named. `path` is where, as a JSON pointer."""

    def __init__(self, event: str, path: str, message: str) -> None:
        super().__init__(event, path, message)
        self.event = event
        self.path = path
        self.message = message


class ChildFailed(AgentError):
    """A child run gave no result. `run` is its id and `status` how it ended: failed, cancelled or expired;
    succeeded, with a result that does not fit; or `not_started`. `kind` and `message` are its error's, or why."""

    def __init__(self, run: str, status: str, kind: str = "", message: str = "") -> None:
        super().__init__(run, status, kind, message)
        self.run = run
        self.status = status
        self.kind = kind
        self.message = message


class PartlyFailed(AgentError):
    """Some calls of a `together` raised. `outcomes` has every outcome, in order."""

    def __init__(self, outcomes: Any) -> None:
        super().__init__(f"{sum(1 for o in outcomes if o.error)} of {len(outcomes)} calls failed")
        self.outcomes = outcomes
