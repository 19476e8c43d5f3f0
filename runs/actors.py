"""Who did something, and through which door: all that `runs` knows of people."""

import getpass
import os
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Actor:
    """`kind` is person, key, agent, worker or system; `id` is that kind's own; `name` is kept for ever.

    `door` says how it came in: page, api, admin, command, worker, sweeper. `operator` is set by a door
    that has checked the right.
    """

    kind: str
    id: str
    name: str
    door: str = ""
    operator: bool = False

    def __str__(self) -> str:
        return self.name or f"{self.kind} {self.id}"

    def as_json(self) -> dict[str, str]:
        return {"kind": self.kind, "id": self.id, "name": self.name, "door": self.door}

    @classmethod
    def worker(cls, name: str) -> Self:
        return cls("worker", name, name, "worker")

    @classmethod
    def command(cls) -> Self:
        """Whoever stands at the command line."""
        try:
            name = getpass.getuser()
        except (KeyError, OSError):  # an account without a name, as in some containers
            name = str(os.getuid())
        return cls("command", name, f"{name} at the command line", "command")


SYSTEM = Actor("system", "", "Abeyance", "sweeper")
