"""Dependencies: outside services by name, each with a breaker that calls look at before they start.

Calls that fail one after another open it; a probe (the author's, or else one call let through) closes it, and
what waited goes on a few at a time. While it is open what waits has no date: it is not looked at in between.
Nothing here is called inside a transaction of a run, and probes run in workers.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import F
from django.db.models.functions import Greatest

from runs import holds, journal, points, queues, redaction, timers
from runs.actors import SYSTEM, Actor
from runs.clock import Now, now
from runs.exceptions import Away, NotFound
from runs.models import Dependency, Hold
from runs.states import Cause, Health

Probe = Callable[[], object]
LONGEST = 300.0  # seconds between probes
NAME = 100  # characters

_probes: dict[str, Probe] = {}


def register(name: str, probe: Probe) -> None:
    """Says who looks whether the service is back: `probe()` raises while it is not.

    In a module that AGENTS names. It runs in a worker, for at most PROBE_TIMEOUT seconds.
    """
    if not 0 < len(name) <= NAME:
        raise ValueError(f"{name!r} is no name for a dependency: 1 to {NAME} characters")
    _probes[name] = probe


# -- Before a call ---------------------------------------------------------------------


def check(names: Sequence[str]) -> list[str]:
    """Raises Away when one of them is. Those on trial: one call may try them, see `try_out`."""
    if not names:
        return []
    found = list(Dependency.objects.filter(name__in=names).exclude(state=Health.HEALTHY))
    for one in found:
        if one.state == Health.AWAY:
            raise _away(one.name)
    return [one.name for one in found]


def try_out(names: Iterable[str]) -> None:
    """This call is the one that tries them. Raises Away: another call is. Should it never say what came of it,
    the next probe lets another one through."""
    for name in names:
        later = Greatest(F("probe_at"), Now() + timedelta(seconds=settings.LOOK_AGAIN))
        trial = Dependency.objects.filter(pk=name, state=Health.TRIAL)
        if not trial.update(state=Health.AWAY, probe_at=later) and is_away(name):
            raise _away(name)


def _away(name: str) -> Away:
    problem = Dependency.objects.filter(pk=name).values_list("problem", flat=True).first() or ""
    return Away(name, f"{name} is away: {problem}".rstrip(": "))


def is_away(name: str) -> bool:
    return Dependency.objects.filter(pk=name).exclude(state=Health.HEALTHY).exists()


# -- After it -----------------------------------------------------------------------------


def failed(name: str, why: str) -> Away:
    """A call found the service away; so many in a row open the breaker. What the call waits for."""
    name, why = redaction.kept(name, NAME), redaction.kept(why, 500)
    if _count_failure(name, why):
        holds.hold_back(Hold.objects.waiting_for(Cause.DEPENDENCY, name))
    away = Away(name, f"{name} is away: {why}")
    if not is_away(name):
        away.look_again_in = settings.LOOK_AGAIN
    return away


def _count_failure(name: str, why: str) -> bool:
    """Whether the breaker opened, or a trial failed."""
    with transaction.atomic():
        Dependency.objects.get_or_create(name=name)
        found = Dependency.objects.select_for_update().get(pk=name)
        Dependency.objects.filter(pk=name).update(failures=F("failures") + 1, problem=why)
        if found.state == Health.AWAY or found.failures + 1 < settings.BREAKER_AFTER:
            return False
        again = Now() + timedelta(seconds=backoff(found.probes))
        Dependency.objects.filter(pk=name).update(state=Health.AWAY, probe_at=again)
        if found.state == Health.HEALTHY:
            Dependency.objects.filter(pk=name).update(since=Now())
            journal.write(found, SYSTEM, "away", why=why, failures=found.failures + 1)
    return True


def backoff(probes: int) -> float:
    """Seconds until the next probe: doubled each time, five minutes at most."""
    return float(min(LONGEST, settings.LOOK_AGAIN * 2.0 ** min(probes, 20)))


def succeeded(names: Iterable[str]) -> None:
    """A call got through: the services it depends on are healthy."""
    if wanted := set(names):
        for name in Dependency.objects.troubled().filter(name__in=wanted).values_list("pk", flat=True):
            _recover(name, SYSTEM, "a call got through")


def count_as_healthy(name: str, *, actor: Actor, why: str = "") -> int:
    """An operator knows that the service is back; how many calls go on. Raises NotFound."""
    return _recover(name, actor, why)


def _recover(name: str, actor: Actor, why: str) -> int:
    with transaction.atomic():
        found = Dependency.objects.select_for_update().filter(pk=name).first()
        if found is None:
            raise NotFound(f"there is no dependency {name}")
        if found.state != Health.HEALTHY:
            journal.write(found, actor, "healthy", why=why)
            Dependency.objects.filter(pk=name).update(since=Now())
        Dependency.objects.filter(pk=name).update(
            state=Health.HEALTHY, failures=0, probes=0, problem="", probe_at=None
        )
    return release_waiting(name)


# -- Probing ------------------------------------------------------------------------------


def ring_due(name: str) -> bool:
    """Has a worker probe a service whose time has come, and puts the next time off. False: it is not due."""
    at = now()
    with transaction.atomic():
        found = Dependency.objects.to_probe(at).select_for_update().filter(pk=name).first()
        if found is None:
            return False
        _ring(found, at)
    return True


def ring_now(name: str, *, actor: Actor, why: str = "") -> None:
    """The same at an operator's wish, whenever it is due. Raises NotFound."""
    with transaction.atomic():
        found = Dependency.objects.select_for_update().filter(pk=name).first()
        if found is None:
            raise NotFound(f"there is no dependency {name}")
        journal.write(found, actor, "probe_wanted", why=why)
        _ring(found, now())


def _ring(found: Dependency, at: datetime) -> None:
    later = at + timedelta(seconds=backoff(found.probes + 1))
    Dependency.objects.filter(pk=found.pk).update(probe_at=later, probes=F("probes") + 1)
    queues.enqueue("runs.jobs.probe", found.pk)


def probe(name: str) -> bool:
    """Looks whether a service that is away is back: by its probe, else by letting one call through. False: it is
    healthy. Twice is harmless."""
    if not is_away(name):
        return False
    look = _probes.get(name)
    points.reach("before-probe")
    if look is None:
        _let_one_through(name)
    elif problem := _seen(look):
        Dependency.objects.filter(pk=name).update(problem=problem)
    else:
        _recover(name, SYSTEM, "its probe found it healthy")
    points.reach("after-probe")
    return True


def _seen(look: Probe) -> str:
    """What is wrong, as an author's probe says; empty: nothing."""
    try:
        with timers.limit(settings.PROBE_TIMEOUT):
            look()
    except timers.OutOfTime:
        return f"no answer in {settings.PROBE_TIMEOUT:g} s"
    except Exception as error:  # whatever it raises is "away"
        return redaction.said(error, 500)
    return ""


def _let_one_through(name: str) -> None:
    """The next call may try: the longest waiting one of a run that nothing else holds is woken for it."""
    Dependency.objects.filter(pk=name, state=Health.AWAY).update(state=Health.TRIAL)
    waiting = Hold.objects.waiting_for(Cause.DEPENDENCY, name).filter(run__open_holds=0, step__open_holds=1)
    first = waiting.order_by("opened_at", "pk").values_list("pk", flat=True)[:1]
    Hold.objects.open().filter(pk__in=list(first)).update(look_again_at=Now())


def release_waiting(name: str) -> int:
    """Lets what waits for a service go on, RELEASE_RATE calls a second; how many there are."""
    return holds.let_go(Hold.objects.waiting_for(Cause.DEPENDENCY, name))


def forgotten() -> set[str]:
    """Names that calls wait for, without a date, although nothing is known to be wrong with them: placed just
    after the recovery, or a row that is gone."""
    waiting = Hold.objects.open().filter(cause=Cause.DEPENDENCY, look_again_at__isnull=True)
    named = set(waiting.values_list("subject", flat=True).distinct())
    away = Dependency.objects.exclude(state=Health.HEALTHY).filter(pk__in=named)
    return named - set(away.values_list("pk", flat=True))
