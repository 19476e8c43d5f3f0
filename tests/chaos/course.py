"""The course of it: load and faults, then answers until all is quiet, then the reckoning. Needs Django."""

import random
import time
from collections import Counter

from django.db import DatabaseError, InterfaceError, close_old_connections, connection
from django.db.models import Count

from approvals.models import Decision, Request
from runs import agents, holds
from runs.models import Run
from runs.states import ENDED
from tests.chaos import people, reckoning
from tests.chaos.faults import Faults
from tests.chaos.world import PEOPLE, World

LINE_EVERY = 10.0  # seconds
#: Seconds in which something must move, or it never will: the longest wait between two rings is a minute.
STILL_FOR = 90.0


def run(world: World, seconds: float) -> bool:
    """Whether the zeros are zeros."""
    agents.load()
    world.start(people.prepare())
    world.wait_for(lambda: Run.objects.filter(status__in=ENDED).exists(), "the first run ends")
    faults = Faults(world, world.seed)
    lines = Lines(faults)
    _break(world, faults, lines, seconds)
    _heal(world, faults)
    lines.say("nothing fails any more; everybody answers")
    _until_quiet(world, lines)
    world.dismiss("web", "worker", "sweeper", "outside")
    lines.say("the reckoning")
    table = reckoning.reckon(world.folder, faults.counts)
    table.wrong["broken"].extend(world.raised)
    (world.folder / "table.txt").write_text(
        "\n".join([table.text(), *table.sentences(), *faults.made]) + "\n"
    )
    print(
        f"\nseed {world.seed}, {seconds / 60:g} min of faults, {lines.seconds:.0f} s in all\n{table.text()}"
    )
    for sentence in table.sentences():
        print(sentence)
    return table.passes


class Lines:
    """One line every while: how far it is, and what went wrong since the last one."""

    def __init__(self, faults: Faults) -> None:
        self._faults, self._told = faults, 0
        self._began = self._last = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def due(self, news: str = "") -> None:
        if time.monotonic() - self._last >= LINE_EVERY:
            self.say(news)

    def say(self, news: str = "") -> None:
        self._last = time.monotonic()
        since = Counter(self._faults.made[self._told :])
        self._told = len(self._faults.made)
        what = news or ", ".join(f"{count} × {kind}" if count > 1 else kind for kind, count in since.items())
        print(f"{self.seconds:5.0f} s  {_standing()}  {what}", flush=True)


def _standing() -> str:
    for _ in range(2):  # the first may find its connection cut
        try:
            counts = dict(Run.objects.order_by().values_list("status").annotate(Count("pk")))
            ended = sum(count for status, count in counts.items() if status in ENDED)
            live = sum(counts.values()) - ended
            return f"{ended:5d} runs ended, {live:3d} live, {Decision.objects.count():4d} decisions"
        except (DatabaseError, InterfaceError):
            close_old_connections()
    return "the database does not answer"


def _break(world: World, faults: Faults, lines: Lines, seconds: float) -> None:
    until, next_at = time.monotonic() + seconds, time.monotonic()
    while time.monotonic() < until:
        world.supervise()
        faults.end_due()
        if time.monotonic() >= next_at:
            next_at = time.monotonic() + faults.inject()
        lines.due()
        time.sleep(0.05)


def _heal(world: World, faults: Faults) -> None:
    """Nobody asks for more; whoever was frozen or away is back."""
    faults.end_due(all_of_them=True)
    world.supervise()
    world.heal()
    world.dismiss(*PEOPLE)
    close_old_connections()


# -- Until it is quiet ------------------------------------------------------------------------------


def _until_quiet(world: World, lines: Lines) -> None:
    """Returns when every run has ended and nothing is in doubt, or when nothing has moved for long."""
    account = people.Account(world.folder / "decide-last.jsonl")
    rng = random.Random(f"{world.seed} last")
    moved, before = time.monotonic(), ()
    while time.monotonic() - moved < STILL_FOR:
        world.supervise()
        doubts = _answer_all(world, rng, account)
        now = _moving()
        if now != before:
            moved, before = time.monotonic(), now
        if not Run.objects.live().exists() and not doubts and not world.under_way_outside():
            return
        lines.due("until all is quiet")
        time.sleep(0.3)


def _answer_all(world: World, rng: random.Random, account: people.Account) -> int:
    """Everybody says what there is to say. How many effects were in doubt."""
    for run in people.paused():
        people.refused(lambda run=run: holds.unpause(run, actor=people.OPERATOR))
    for request in Request.objects.filter(state="open").order_by("opened_at"):
        for who in (
            people.REVIEWERS[-1],
            people.REVIEWERS[0],
        ):  # who edited last may not be the one who approves
            people.decide(request, who, rng, account)
    people.answer_events()
    people.top_up()
    return people.settle(world.folder / "outside.jsonl")


def _moving() -> tuple[object, ...]:
    """What changes while anything goes on."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT sum(seq), sum(position), count(*) FILTER (WHERE status = 'queued') FROM runs_run"
        )
        return tuple(cursor.fetchone())
