"""What goes through the gate and what comes out, and the authority it asks.

`approvals` registers the authority: verdicts, permits. Without one every effect is held.
"""

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from runs.exceptions import PermitRefused
from runs.facts import Change, Reading
from runs.invocation import Known
from runs.models import Run, Step
from runs.prepared import Batch
from runs.tools.calls import Call


@dataclass(frozen=True, slots=True)
class Proposal:
    """A call as policy sees it. `arguments` is canonical JSON."""

    run: uuid.UUID
    agent: str
    agent_version: str
    agent_owner: str
    labels: dict[str, str]
    submitter: str
    on_behalf_of: str
    index: int
    call: Call[Any]
    arguments: str
    ancestors: Sequence[uuid.UUID] = ()
    metered: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """What policy says. `terms` is the authority's own account of it and goes to whom it concerns."""

    verdict: Literal["allow", "hold", "deny"]
    rule: str
    why: str
    expires_in: float | None = None
    terms: Any = None


@dataclass(frozen=True, slots=True)
class Permit:
    """An approval in force: what to send, and the facts it was decided on (name → canonical JSON or None).

    `granted` is the authority's own account of it, and comes back to `consume`.
    """

    ref: str
    arguments: str
    edited: bool
    digest: str
    facts: dict[str, str | None]
    decision: dict[str, str]
    granted: Any = None


@dataclass(frozen=True, slots=True)
class Asked:
    """Goes with an approval or a question hold to whoever makes a request of it; `foreseen` is what `foresee` read
    for it."""

    proposal: Proposal
    verdict: Verdict
    readings: Sequence[Reading] = ()
    changes: Sequence[Change] = ()
    reason: str = ""
    form: dict[str, Any] = field(default_factory=dict)
    foreseen: Any = None


class First(Protocol):
    """Something that is written first in the transaction in which people are asked."""

    def write(self, batch: Batch) -> Callable[[], object]:
        """Asked of the transaction's first batch; what comes back is called at its end. It raises EpochLost."""

    def committed(self) -> None:
        """The transaction is."""


class Nothing:
    """Nothing is written first."""

    def write(self, batch: Batch) -> Callable[[], object]:
        return lambda: None

    def committed(self) -> None:
        return None


NOTHING = Nothing()


class Authority(Protocol):
    """What `approvals` registers."""

    def judge(self, proposal: Proposal) -> Verdict:
        """Policy on a call, or on a question. What goes wrong is a *hold* that says so; only a database that went
        away is raised."""

    def foresee(self, batch: Batch, terms: Any) -> Callable[[], Any]:
        """Asks, in the round trip in which the run is locked, for what a call's first request will be made of.
        `terms` are a verdict's; what comes of it goes into `Asked.foreseen`."""

    def permitting(self, batch: Batch, step: int) -> Callable[[], Permit | None]:
        """Asks for the approval in force for the call that has this row."""

    def consume(self, proposal: Proposal, step: Step, permit: Permit, verdict: Verdict) -> None:
        """Uses the permit up, under the run's lock. It may go with the intent in one `Batch`, and raises what it
        raises at that one's end: PermitRefused (lapsed, void, policy stricter)."""

    def revoke(self, step: Step, why: str) -> None:
        """Policy denies a call that was approved, under the run's lock: nothing of it stands any more."""

    def give_back(self, run: Run, step: Step) -> None:
        """The call that used the permit was certainly not sent, under the run's lock: it may be used again."""


class _Nobody:
    """No authority is registered: effects are held, pure tools run."""

    def judge(self, proposal: Proposal) -> Verdict:
        verdict: Literal["allow", "hold"] = "hold" if proposal.call.tool.properties.effect else "allow"
        return Verdict(verdict, "default", "no policy is registered")

    def foresee(self, batch: Batch, terms: Any) -> Callable[[], Any]:
        return lambda: None

    def permitting(self, batch: Batch, step: int) -> Callable[[], Permit | None]:
        return lambda: None

    def consume(self, proposal: Proposal, step: Step, permit: Permit, verdict: Verdict) -> None:
        raise PermitRefused("void", "no policy is registered")

    def revoke(self, step: Step, why: str) -> None:
        return None

    def give_back(self, run: Run, step: Step) -> None:
        return None


_authority: Authority = _Nobody()


def register(authority: Authority) -> None:
    """Called once, by the app that knows people, when it is ready."""
    global _authority
    _authority = authority


def authority() -> Authority:
    """Whoever registered, else one that holds every effect."""
    return _authority


# -- What the loop is told ----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Go:
    """The call may start: a pure tool at once, an effect with an intent.

    `step` is the row's id where there is one (its intent is an update), `arguments` what to send, `attempt`
    the number of this dispatch. With a permit the intent is already committed (`committed`). `unsure`: an earlier
    dispatch may have acted. `waited_for` are the services it was held for.
    """

    arguments: str
    step: int | None = None
    attempt: int = 1
    committed: bool = False
    credentials: Mapping[str, str] = field(default_factory=dict, repr=False)
    unsure: bool = False
    waited_for: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Settled:
    """The call has its outcome without having been made. `revoke`: why an approval of it, which nobody will use,
    is taken back in the commit of the outcome."""

    known: Known
    effect: str = ""
    decision: dict[str, str] | None = None
    revoke: str = ""


@dataclass(frozen=True, slots=True)
class Held:
    """The call waits."""


Pass = Go | Settled | Held
