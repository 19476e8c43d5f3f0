"""What is played in the crash points: the scenes, the people, and the rules."""

import random

from approvals import policies
from tests.approvals import desk
from tests.crashes import reference
from tests.crashes.causes import SCENES
from tests.crashes.harness import Act, Place, Scene

assert reference  # its tools are known here too
AGENTS = "tests.agents_for_tests,tests.agents_of_causes,tests.crashes.reference"
#: People have time: nothing expires because somebody died.
CLOCKS = {"decide_within": 10**6, "consume_within": 10**6}
HELD = ("reference.remit", "act_approved", "abeyance.ask")
RULES = [
    *({**desk._verdict(f"hold {name}", name, "true", "hold", group="refunds"), **CLOCKS} for name in HELD),
    desk._verdict("the rest", "*", "true", "allow"),
]
REST: list[Act] = [("work",), ("sweep",), ("decide",), ("work",), ("sweep",), ("work",)]
A_DAY = 90000.0

#: Everything, on an allowance; the same without one, whose commits are others.
WHOLE = Scene("whole", [("submit", "reference", {}, {"tokens": "100"}), *REST])
FREE = Scene("free", [("submit", "reference", {}, {}), *REST])
#: What the reference run does not come by: a renewed lease; another try and a renewed credential; another look.
LONG = Scene("long", [("submit", "lingerer", {}, {}), ("work",)])
UNLUCKY = Scene("unlucky", [("trouble",), ("submit", "unlucky", {}, {}), ("work",)])
LOOKED = Scene(
    "looked",
    [FREE.acts[0], ("work",), ("later", A_DAY), ("decide",), ("work",), *REST[1:]],
)
CAUSES = [Scene(str(cause), acts) for cause, acts in SCENES.items()]
ALL = [WHOLE, FREE, LONG, UNLUCKY, LOOKED, *CAUSES]


def seat() -> None:
    """The people and the rules."""
    policies.seed(RULES)
    for name in ("ana", "ben"):
        desk.person(name, "refunds")


def shard(places: list[Place], number: int, of: int) -> list[Place]:
    return places[number::of]


def sampled(places: list[Place], count: int, seed: str) -> list[Place]:
    """A seeded sample, in order."""
    return sorted(random.Random(seed).sample(places, min(count, len(places))))
