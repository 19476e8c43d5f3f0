"""Killed at every point: each process of a scene, at each place it passes, and others finish.

The same transcript, the same effects outside, the same decisions and mails; or the question where the outside
cannot tell. `harness` says how it is done, `stage` what is played. The numbers are in the summary of the tests.
"""

import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from django.conf import settings

from tests.crashes import stage
from tests.crashes.harness import Place, Played, Scene, Theatre, differences
from tests.crashes.nursery import COMMIT

pytestmark = [pytest.mark.points, pytest.mark.django_db(transaction=True), pytest.mark.timeout(1800)]
Record = Callable[[str, object], None]
#: The heartbeat passes when it passes; its scene has one.
BEATS = ("before-renew", "after-renew")
SHARDS = 6
SHARDED = [(scene, shard) for scene in (stage.WHOLE, stage.FREE) for shard in range(SHARDS)]
PAIRS, OF_CAUSE, FROZEN, PAUSED = 40, 6, 16, 16


def named(case: object) -> str:
    return case.name if isinstance(case, Scene) else str(case)


class Tally:
    """Plays one case after the other, compares each with the undisturbed scene, and counts."""

    def __init__(self, theatre: Theatre, scene: Scene, kind: str) -> None:
        self.scene, self.kind = scene, kind
        self.undisturbed = theatre.undisturbed(scene)
        assert self.undisturbed.problems == []
        self.found: list[str] = []
        self.runs = self.lost = self.doubled = self.in_doubt = 0

    @property
    def places(self) -> list[Place]:
        passed = [place for places in self.undisturbed.passed for place in places]
        return [place for place in passed if place.name not in BEATS]

    def add(self, played: Played, what: str) -> None:
        different = differences(played, self.undisturbed)
        self.runs += 1
        self.lost += bool(different)
        self.doubled += any("acted" in said for said in different)
        self.in_doubt += played.asked
        if played.unknowable and not played.asked:
            different.append("nobody can tell what came of a call, and nobody was asked")
        self.found += [f"{self.scene.name} {self.kind} {what}: {said}" for said in different]

    def over(self, record: Record, points: int) -> None:
        told = {"scene": self.scene.name, "how": self.kind, "points": points, "plays": self.runs}
        record(
            "crash_points", {**told, "lost": self.lost, "doubled": self.doubled, "in doubt": self.in_doubt}
        )
        assert self.found == []


@pytest.mark.parametrize(("scene", "shard"), SHARDED, ids=named)
def test_killed_at_every_point(theatre: Theatre, record_property: Record, scene: Scene, shard: int) -> None:
    tally = Tally(theatre, scene, "killed")
    driven = [place for place in tally.places if scene is stage.WHOLE or scene.acts[place.act] == ("work",)]
    places = driven[shard::SHARDS]
    for place in places:
        tally.add(theatre.killed(scene, place), str(place))
    tally.over(record_property, len(places))


@pytest.mark.parametrize("scene", [stage.LONG, stage.UNLUCKY, stage.LOOKED], ids=named)
def test_killed_at_every_other_point(theatre: Theatre, record_property: Record, scene: Scene) -> None:
    """Those that the reference run does not come by."""
    tally = Tally(theatre, scene, "killed")
    places = tally.places
    if (
        scene is stage.LOOKED
    ):  # the decision that finds the facts too old, and the look; the rest is the whole run's
        asked = scene.acts.index(("decide",))
        places = [place for place in places if place.act in (asked, asked + 1)]
    if scene is stage.LONG:
        places += [Place(1, name, 1) for name in BEATS]
    for place in places:
        tally.add(theatre.killed(scene, place), str(place))
    tally.over(record_property, len(places))


@pytest.mark.parametrize("scene", stage.CAUSES, ids=named)
def test_killed_while_held_for_each_cause(theatre: Theatre, record_property: Record, scene: Scene) -> None:
    tally = Tally(theatre, scene, "killed")
    for place in stage.sampled(tally.places, OF_CAUSE, scene.name):
        tally.add(theatre.killed(scene, place), str(place))
    tally.over(record_property, len(tally.places))


@pytest.mark.parametrize("shard", range(4))
def test_killed_and_killed_again(theatre: Theatre, record_property: Record, shard: int) -> None:
    """Who recovers dies too, at a place of its own."""
    scene = stage.WHOLE
    tally = Tally(theatre, scene, "killed twice")
    first = stage.sampled(tally.places, PAIRS, "the first")[shard::4]
    tried = died_again = 0
    for place in first:
        played = theatre.killed(scene, place)
        after = [p for places in played.passed[place.act + 1 :] for p in places if p.name not in BEATS]
        for second in stage.sampled(
            after, 1, f"the second after {place}"
        ):  # none where nothing was left to do
            twice = theatre.killed(scene, place, second)
            tally.add(twice, f"{place} and {second}")
            tried, died_again = tried + 1, died_again + twice.died_again
    tally.over(record_property, len(first))
    assert died_again * 4 >= tried * 3, f"only {died_again} of {tried} second places were come by"


@pytest.mark.parametrize("scene", [stage.WHOLE, stage.FREE], ids=named)
def test_frozen_until_others_have_gone_on(theatre: Theatre, record_property: Record, scene: Scene) -> None:
    """Its lease runs out, others do what there is to do, and it wakes: it moves nothing."""
    tally = Tally(theatre, scene, "frozen")
    free = [place for place in tally.places if not place.in_transaction]
    for place in stage.sampled(free, FROZEN, scene.name):
        tally.add(theatre.frozen(scene, place), str(place))
    tally.over(record_property, len(free))


@pytest.mark.parametrize("scene", [stage.WHOLE, stage.FREE], ids=named)
def test_paused_at_a_point_starts_nothing_more(
    theatre: Theatre, record_property: Record, scene: Scene
) -> None:
    tally = Tally(theatre, scene, "paused")
    driven = [n for n, act in enumerate(scene.acts) if act == ("work",)][:2]
    free = [place for place in tally.places if place.act in driven and not place.in_transaction]
    for place in stage.sampled(free, PAUSED, scene.name):
        tally.add(theatre.paused(scene, place), str(place))
    tally.over(record_property, len(free))


# -- The points themselves -----------------------------------------------------------------


def test_every_point_of_the_source_is_passed(theatre: Theatre) -> None:
    """A point nobody passes is a point nobody is killed at."""
    passed = {
        place.name for scene in stage.ALL for places in theatre.undisturbed(scene).passed for place in places
    }
    in_call = next(
        p for p in _places(theatre, stage.WHOLE) if p.name == "after-call-before-record" and p.nth == 3
    )
    passed |= {place.name for places in theatre.killed(stage.WHOLE, in_call).passed for place in places}
    assert _named_in_source() - passed == set()


def _places(theatre: Theatre, scene: Scene) -> list[Place]:
    return [place for places in theatre.undisturbed(scene).passed for place in places]


def _named_in_source() -> set[str]:
    found = set()
    for app in ("runs", "approvals"):
        for file in Path(settings.BASE_DIR, app).rglob("*.py"):
            text = file.read_text()
            found |= set(re.findall(r'points\.reach\("([^"]+)"\)', text))
            for what in re.findall(r'points\.committing\("([^"]+)"\)', text):
                found |= {f"committing-{what}", f"committed-{what}"}
    return found


@pytest.mark.parametrize("scene", [stage.WHOLE, stage.FREE, stage.UNLUCKY, stage.LOOKED], ids=named)
def test_points_stand_before_and_after_each_commit(theatre: Theatre, scene: Scene) -> None:
    """However a process commits: a statement by itself, or a transaction. So none can be left out."""
    theatre.nursery.commits = True
    bare = []
    for act, places in zip(scene.acts, theatre.undisturbed(scene).passed, strict=False):
        names = [place.name for place in places if place.name not in BEATS]
        around = ["the start", *names, "the end"]
        bare += [
            f"{act}: {a} then {b}" for a, b in pairwise(around) if b == COMMIT and a in (COMMIT, "the start")
        ]
        bare += [f"{act}: {a} then {b}" for a, b in pairwise(around) if a == COMMIT and b == "the end"]
    assert bare == [], theatre.nursery.said()
