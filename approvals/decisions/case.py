"""What a decision is made from: what a person says, and what it meets under the locks."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User

from approvals import rights
from approvals.models import Decision, Request, Revision
from runs.actors import Actor
from runs.models import Hold, Run
from runs.prepared import Row

MAX_REASON = 4000
DIGEST = re.compile(r"[0-9a-f]{64}")
OTHERS = "Your edit needs somebody else's approval."
NONCE = re.compile(r"[\w-]{1,64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Choice:
    """What a person says. `digest` is the view digest they saw. `edit` is canonical JSON of the arguments
    to run instead; `answer` parsed JSON for a question; `seen` the changed facts they ticked; `basis` their
    answers to the basis questions by id; `session` says in which session they showed again who they are."""

    verb: str
    digest: str
    reason: str = ""
    answer: Any = None
    edit: str | None = None
    seen: frozenset[str] = frozenset()
    basis: Mapping[str, str] = field(default_factory=dict)
    session: str = ""
    nonce: str = ""
    door: str = "page"


@dataclass(frozen=True, slots=True)
class Decided:
    """`decision` is the one that stands for this person. `again`: it was made before, nothing new was written.
    `waits_for` says what else is needed; empty: it is in force (or in its undo window)."""

    request: Request
    decision: Decision | None
    again: bool = False
    waits_for: str = ""


@dataclass
class Case:
    """What a decision is made from, under the locks."""

    request: Request
    run: Run
    hold: Hold
    person: User
    choice: Choice
    revision: Revision
    at: datetime
    given: list[Decision]
    waiting: list[Row]  # the run's pending calls, each with how many holds it has
    actor: Actor = field(init=False)
    basis: list[dict[str, str]] = field(default_factory=list)
    step_up: str = ""

    def __post_init__(self) -> None:
        self.actor = rights.actor(self.person, self.choice.door)

    @property
    def mine(self) -> list[Decision]:
        """What this person said of the request before, oldest first."""
        return [made for made in self.all_mine if not made.taken_back]

    @property
    def all_mine(self) -> list[Any]:
        """Likewise, with what was taken back."""
        return [made for made in self.given if made.person_id == str(self.person.pk)]

    @property
    def nth(self) -> int:
        """How many of theirs on the standing revision were taken back."""
        return sum(made.taken_back for made in self.all_mine if made.revision_id == self.revision.pk)
