"""What one run may have done, written a second time and in plain Python: what `test_model` compares with.

It knows nothing of rows. It hears what was done to the run and what the outside saw, and says which holds bind,
how often a call may have been made, and what the agent must be told of each.
"""

from collections import Counter
from dataclasses import dataclass, field

#: What a call of each kind may be held for. The rest binds the whole run.
MAY_WAIT_FOR = {
    "remark": set[str](),
    "keyed": {"in_doubt"},
    "approval": {"approval", "in_doubt"},
    "allowance": {"allowance", "in_doubt"},
    "dependency": {"dependency", "in_doubt"},
    "credential": {"credential", "in_doubt"},
    "in_doubt": {"in_doubt"},
    "question": {"question"},
    "timer": {"timer"},
    "event": {"event"},
    "child": {"child"},
}
#: Released by people only, never by time or by the sweeper.
PEOPLES = {"person", "diverged", "version"}
#: Only the database's time, or what the run waited for, releases these.
BY_ITSELF = {"in_doubt", "dependency", "credential", "allowance", "timer", "child", "ancestor", "event"}
NOT_DONE = {"raise", "not_sent", "refuse", "away", "unauthorised"}
CERTAINLY_NOT = {"not_sent", "refuse", "away", "unauthorised"}
SAYS = {"not_sent": "NotSent", "refuse": "TurnedDown"}
#: Of calls that nobody makes, and of pure ones, whatever happens.
TOLD = {"remark": "said {}", "timer": "None", "event": "yes", "child": "said {}, says the child"}
TOOL = {
    "keyed": "act_keyed",
    "approval": "act_approved",
    "allowance": "act",
    "dependency": "act_there",
    "credential": "act_signed",
    "in_doubt": "act_checked",
}


@dataclass
class Slot:
    """One call of the run."""

    n: int
    kind: str
    words: list[str] = field(default_factory=list)
    approved: list[int] = field(default_factory=list)
    again: int = 0
    says: str = "?"

    @property
    def tool(self) -> str:
        return TOOL.get(self.kind, "")

    def may_be_tried(self) -> int:
        """How often it may have gone out by now."""
        if self.kind == "keyed":
            return 1_000
        certain = sum(word in CERTAINLY_NOT for word in self.words)
        if self.kind == "approval":
            return min(1, len(self.approved)) + certain + self.again if self.approved else 0
        if self.kind == "in_doubt":
            return 1 + sum(word in NOT_DONE for word in self.words)
        return 1 + certain + self.again


class Oracle:
    """`holds` are those it knows of: (n, cause), with n None for the whole run."""

    def __init__(self, stages: list[list[str]]) -> None:
        kinds = [kind for stage in stages for kind in stage]
        self.slots = [Slot(n, kind, says=TOLD.get(kind, "?").format(n)) for n, kind in enumerate(kinds)]
        self.holds: set[tuple[int | None, str]] = set()
        self.wrong: list[str] = []
        self.over = False

    # -- What it hears ----------------------------------------------------------------

    def placed(self, n: int | None, cause: str) -> None:
        self.holds.add((n, cause))

    def released(self, n: int | None, cause: str) -> None:
        self.holds.discard((n, cause))

    def ended(self) -> None:
        """Cancelled: nothing of it waits, and nothing of it may be made any more."""
        self.over = True
        self.holds.clear()

    def bound(self, n: int) -> bool:
        """Whether a hold binds this call."""
        return any(whose in (None, n) for whose, _ in self.holds)

    # -- What it compares ---------------------------------------------------------------

    def saw(self, calls: list[tuple[str, int, str]], *, bound: set[int]) -> None:
        """What went outside since it looked last: tool, `n`, what came of it. `bound`: what may not start."""
        for tool, n, word in calls:
            slot = self.slots[n % 100]
            if tool != slot.tool:
                self.wrong.append(f"{tool} was called with the arguments of {slot}")
            if slot.n in bound or self.over:
                self.wrong.append(
                    f"7: {slot} was called although a hold bound it: {sorted(map(str, self.holds))}"
                )
            if slot.kind == "approval" and n not in slot.approved:
                self.wrong.append(f"4: {slot} was called with {n}, which nobody approved")
            slot.words.append(word)
            slot.says = SAYS.get(word, f"{tool} {n} done")
        for slot in self.slots:
            if len(slot.words) > slot.may_be_tried():
                self.wrong.append(f"2: {slot} went out more often than it may")
            if slot.kind == "in_doubt" and sum(word not in NOT_DONE for word in slot.words) > 1:
                self.wrong.append(f"2: {slot} happened twice")

    def stands(self, found: set[tuple[int | None, str]], *, may_go: set[str], may_come: bool) -> None:
        """The open holds are those it knows of; some may have gone by themselves, and a drive may place some."""
        for n, cause in self.holds - found:
            if cause not in may_go:
                self.wrong.append(f"the {cause} hold of {n} is gone, and nobody released it")
        for n, cause in found - self.holds:
            kind = "" if n is None else self.slots[n].kind
            if not may_come or n is None or cause not in MAY_WAIT_FOR[kind]:
                self.wrong.append(f"a {cause} hold of {n} ({kind}) came from nowhere")
        self.holds = found

    def result(self) -> list[str]:
        """What the agent must have been told, in order."""
        return [slot.says for slot in self.slots]

    def kinds(self) -> Counter[str]:
        return Counter(slot.kind for slot in self.slots)
