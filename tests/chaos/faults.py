"""What goes wrong, one thing after the other, in an order that the seed decides.

Every choice takes the same numbers from the generator whatever the world is like, so the same seed makes the same
faults; how the machine meets them is never the same twice. What lasts (frozen, away) ends by itself after its time,
while other things go wrong.
"""

import heapq
import itertools
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.chaos.outside import WORDS
from tests.chaos.world import Slot, World

GAP = (0.3, 2.0)  # seconds between two faults
FREEZE = (2.0, 3.0)  # longer than a lease, and shorter than what keeps an effect from being repeated
AWAY = (1.5, 4.0)  # seconds without Valkey
THAWED_FOR = 12.0  # seconds in which one that was frozen is not frozen again
SHIFT = 0.5  # seconds the clock goes ahead each time
BATCH = 6  # calls of the outside that go wrong one after the other


@dataclass(frozen=True)
class Chosen:
    """One fault: its kind; which of several is meant, and how long or how often, from 0 to 1; seconds until the next."""

    kind: str
    which: float
    how_long: float
    gap: float


def choices(seed: str) -> Iterator[Chosen]:
    rng = random.Random(f"{seed} faults")
    weights = [weight for weight, _ in KINDS.values()]
    while True:
        [kind] = rng.choices(list(KINDS), weights)
        yield Chosen(kind, rng.random(), rng.random(), rng.uniform(*GAP))


class Faults:
    """`inject` makes the next one; `end_due` ends those whose time is over; `end_all` ends all."""

    def __init__(self, world: World, seed: str) -> None:
        self.world = world
        self._choices = choices(seed)
        self.made: list[str] = []
        self._ends: list[tuple[float, int, Callable[[], object]]] = []
        self._number = itertools.count()
        self._thawed: dict[str, float] = {}
        self._ahead = 0.0

    @property
    def counts(self) -> Counter[str]:
        return Counter(self.made)

    def inject(self) -> float:
        """Makes one, and says how many seconds later the next one is due."""
        chosen = next(self._choices)
        self.made.append(chosen.kind)
        KINDS[chosen.kind][1](self, chosen.which, chosen.how_long)
        return chosen.gap

    def end_due(self, *, all_of_them: bool = False) -> None:
        while self._ends and (all_of_them or self._ends[0][0] <= time.monotonic()):
            heapq.heappop(self._ends)[2]()

    def _later(self, seconds: float, end: Callable[[], object]) -> None:
        heapq.heappush(self._ends, (time.monotonic() + seconds, next(self._number), end))

    def _one(self, role: str, which: float) -> Slot:
        found = self.world.of(role)
        return found[int(which * len(found))]

    # -- Processes ---------------------------------------------------------------------

    def _kill(self, role: str, which: float, *, top: bool = True, below: bool = True) -> None:
        self._one(role, which).signal(signal.SIGKILL, top=top, below=below)

    def _terminate(self, which: float, times: int) -> None:
        worker = self._one("worker", which)
        worker.signal(signal.SIGTERM, below=False)
        if times == 2:  # RQ takes two within a second for one
            self._later(1.3, lambda: worker.signal(signal.SIGTERM, below=False))

    def _freeze(self, role: str, which: float, how_long: float, *, top: bool = True) -> None:
        slot = self._one(role, which)
        if slot.frozen or time.monotonic() - self._thawed.get(slot.spec.name, -THAWED_FOR) < THAWED_FOR:
            return
        seconds = FREEZE[0] + how_long * (FREEZE[1] - FREEZE[0])
        self._thawed[slot.spec.name] = time.monotonic() + seconds
        slot.freeze(top=top)
        self._later(seconds, slot.thaw)

    # -- Engines -----------------------------------------------------------------------

    def _valkey_away(self, how_long: float) -> None:
        self.world.stop_engine(self.world.valkey, signal.SIGKILL)
        self._later(AWAY[0] + how_long * (AWAY[1] - AWAY[0]), self._valkey_back)

    def _valkey_back(self) -> None:
        if self.world.engines["queue"].poll() is not None:
            self.world.start_engine(self.world.valkey)

    def _valkey_killed(self) -> None:
        self.world.restart(self.world.valkey, signal.SIGKILL)

    def _postgres(self, sign: signal.Signals) -> None:
        self.world.restart(self.world.postgres, sign)

    def _shift(self) -> None:
        """Not while somebody is frozen: both together would let an effect be repeated before he wakes."""
        if not any(slot.frozen for slot in self.world.slots.values()):
            self._ahead += SHIFT
            self.world.shift_clock(self._ahead)

    # -- The outside ---------------------------------------------------------------------

    def _outside(self, which: float, how_long: float) -> None:
        words = list(WORDS)
        word = words[int(which * len(words))]
        self.made[-1] = f"outside: {word}"
        self.world.faults_outside([word] * (1 + int(how_long * BATCH)))


Act = Callable[[Faults, float, float], None]
KINDS: dict[str, tuple[int, Act]] = {
    "worker killed": (3, lambda f, which, _: f._kill("worker", which, below=False)),
    "horse killed": (4, lambda f, which, _: f._kill("worker", which, top=False)),
    "worker and horse killed": (3, lambda f, which, _: f._kill("worker", which)),
    "SIGTERM once": (3, lambda f, which, _: f._terminate(which, 1)),
    "SIGTERM twice": (2, lambda f, which, _: f._terminate(which, 2)),
    "worker and horse frozen": (3, lambda f, which, long: f._freeze("worker", which, long)),
    "horse frozen": (3, lambda f, which, long: f._freeze("worker", which, long, top=False)),
    "sweeper killed": (2, lambda f, which, _: f._kill("sweeper", which)),
    "sweeper frozen": (2, lambda f, which, long: f._freeze("sweeper", which, long)),
    "web killed": (2, lambda f, which, _: f._kill("web", which)),
    "web's process killed": (2, lambda f, which, _: f._kill("web", which, top=False)),
    "submitter killed": (1, lambda f, which, _: f._kill("submit", which)),
    "reviewer killed": (3, lambda f, which, _: f._kill("decide", which)),
    "operator killed": (1, lambda f, which, _: f._kill("operate", which)),
    "Valkey emptied": (3, lambda f, which, _: f.world.empty_valkey()),
    "Valkey killed": (2, lambda f, which, _: f._valkey_killed()),
    "Valkey away": (2, lambda f, which, long: f._valkey_away(long)),
    "PostgreSQL restarted fast": (2, lambda f, which, _: f._postgres(signal.SIGINT)),
    "PostgreSQL stopped at once": (2, lambda f, which, _: f._postgres(signal.SIGQUIT)),
    "backend killed": (1, lambda f, which, _: f.world.kill_backend()),
    "a backend terminated": (3, lambda f, which, _: f.world.end_backends(one=True)),
    "all backends terminated": (2, lambda f, which, _: f.world.end_backends(one=False)),
    "outside killed": (2, lambda f, which, _: f._kill("outside", which)),
    "outside": (14, lambda f, which, long: f._outside(which, long)),
    "clock ahead": (2, lambda f, which, _: f._shift()),
}
