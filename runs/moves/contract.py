"""What another app brings along with a run that moves, and where it says so."""

from dataclasses import dataclass
from typing import Any, Protocol

from runs.actors import Actor
from runs.models import Run


@dataclass(frozen=True, slots=True)
class Who:
    """Ids here of those who asked for the run there; empty where nobody here is that person."""

    owner_id: str
    submitter_id: str


class Part(Protocol):
    """An app's part of a bundle: JSON values, made and read under the run's lock."""

    def leave(self, run: Run) -> dict[str, Any]:
        """What the app knows. Raises WrongState: the run cannot be moved."""

    def who(self, told: dict[str, Any], run: Run) -> Who:
        """Who asked for a run that arrives. Raises KeyError, TypeError, ValueError: that is no such part."""

    def arrive(self, run: Run, told: dict[str, Any], *, actor: Actor) -> None:
        """Makes what hangs on the run, whose rows are all there. Raises as `who`."""


_parts: dict[str, Part] = {}


def register(name: str, part: Part) -> None:
    """The same name replaces the one before."""
    _parts[name] = part


def parts() -> dict[str, Part]:
    return dict(_parts)
