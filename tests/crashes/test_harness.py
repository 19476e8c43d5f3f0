"""The harness of the crash points notices what it is there for: four faults, put in on purpose.

Each is played at one of the places that `test_every_point` plays, with the fault and without it.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.crashes import stage
from tests.crashes.harness import Place, Scene, Theatre, differences

pytestmark = [pytest.mark.points, pytest.mark.django_db(transaction=True), pytest.mark.timeout(600)]


@dataclass(frozen=True)
class Fault:
    name: str
    scene: Scene
    play: Callable[[Theatre, Scene, Place], object]
    act: int
    point: str
    nth: int
    noticed: str


FAULTS = [
    Fault("no_fence", stage.FREE, Theatre.frozen, 1, "before-boundary", 4, "position is"),
    Fault("no_intent", stage.FREE, Theatre.killed, 1, "after-call-before-record", 3, "post acted 2 times"),
    Fault(
        "no_guard", stage.FREE, Theatre.paused, 1, "before-boundary", 2, "was called while the run was paused"
    ),
    Fault("in_two_commits", stage.WHOLE, Theatre.killed, 1, "committing-opened", 1, "it never ends"),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault_is_noticed(opened: Callable[..., Theatre], fault: Fault) -> None:
    assert _found(opened(), fault) == []
    found = _found(opened(fault.name), fault)
    assert any(fault.noticed in said for said in found), found


def _found(theatre: Theatre, fault: Fault) -> list[str]:
    undisturbed = theatre.undisturbed(fault.scene)
    assert undisturbed.problems == []
    passed = [place for places in undisturbed.passed for place in places]
    place = next(p for p in passed if (p.act, p.name, p.nth) == (fault.act, fault.point, fault.nth))
    return differences(fault.play(theatre, fault.scene, place), undisturbed)  # type: ignore[arg-type]
