"""What an inbox is narrowed down to, as it stands in the address."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self
from urllib.parse import urlencode

from approvals.policies.judgement import TIERS

LONGEST, MOST_WORDS = 200, 10


@dataclass(frozen=True, slots=True)
class Filters:
    """`q`: each of its words is in the reference, the tool, the agent, on whose behalf, or an argument. `mine`:
    passed on to this person, or reserved by them."""

    q: str = ""
    tool: str = ""
    tier: str = ""
    agent: str = ""
    mine: str = ""

    @classmethod
    def read(cls, asked: Mapping[str, Any]) -> Self:
        given = {f.name: str(asked.get(f.name, ""))[:LONGEST].replace("\x00", "") for f in fields(cls)}
        return cls(**given)

    def __bool__(self) -> bool:
        return any(value.strip() for value in self.as_dict().values())

    def as_dict(self) -> dict[str, str]:
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def address(self, **more: str) -> str:
        """For links: what is set, and what the link adds."""
        said = {name: value for name, value in {**self.as_dict(), **more}.items() if value}
        return f"?{urlencode(said)}" if said else ""

    @property
    def words(self) -> list[str]:
        return self.q.split()[:MOST_WORDS]

    @property
    def reads_more(self) -> bool:
        """Whether more is asked than an index has: then only the first of each lane are searched."""
        return bool(self.words or self.tool or self.agent or self.mine)

    def tiers(self, of: tuple[str, ...]) -> list[str]:
        wanted = [self.tier] if self.tier else list(TIERS)
        return [tier for tier in of if tier in wanted]

    def conditions(self) -> tuple[str, dict[str, Any]]:
        """SQL over `c` (the request), `run` and `v` (the standing revision), and what it is given."""
        found, given = ["true"], dict[str, Any]()
        if self.agent:
            found.append("run.agent = %(agent)s")
            given["agent"] = self.agent
        if self.tool:
            found.append("v.tool = %(tool)s")
            given["tool"] = self.tool
        if self.mine:
            found.append(_TO_ME)
        for place, word in enumerate(self.words):
            found.append(_SAYS.format(word=f"%(word{place})s"))
            given[f"word{place}"] = f"%{_plain(word)}%"
        return " AND ".join(found), given


_TO_ME = """(c.reserved_by_id = %(person)s OR %(person)s = (SELECT d.to_id FROM approvals_delegation d
  WHERE d.request_id = c.id ORDER BY d.hop DESC LIMIT 1))"""
_SAYS = """(c.ref ILIKE {word} OR v.tool ILIKE {word} OR run.agent ILIKE {word} OR run.on_behalf_of ILIKE {word}
  OR v.arguments ILIKE {word})"""


def _plain(word: str) -> str:
    """What means something in a pattern, taken as it is."""
    return word.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
