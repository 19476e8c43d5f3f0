"""Dependencies: outside services by name, each with a breaker that calls look at before they start.

Calls that fail one after another open it; a probe (the author's, or else one call let through) closes it, and
what waited goes on a few at a time. Nothing here is called inside a transaction of a run.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import F

from runs import journal
from runs.actors import SYSTEM
from runs.clock import now
from runs.exceptions import Away
from runs.models import Dependency, Hold
from runs.states import Cause, Health

Probe = Callable[[], None]
_probes: dict[str, Probe] = {}


def register(name: str, probe: Probe) -> None:
    """Who looks whether the service is back: `probe()` raises while it is not."""
    _probes[name] = probe


def check(names: Sequence[str]) -> None:
    """Raises Away when one of them is; lets one call through where it is time to try."""
    if not names:
        return
    for found in Dependency.objects.filter(name__in=names).exclude(state=Health.HEALTHY):
        if found.state == Health.TRIAL and _take_trial(found):
            continue
        raise Away(found.name, f"{found.name} is away: {found.problem}")


def _take_trial(found: Dependency) -> bool:
    """Whether this call is the one that tries."""
    later = now() + timedelta(seconds=settings.LOOK_AGAIN)
    trial = Dependency.objects.filter(pk=found.pk, state=Health.TRIAL)
    return bool(trial.update(state=Health.AWAY, probe_at=later))


def failed(name: str, why: str) -> None:
    """A call found the service away; so many in a row open the breaker."""
    with transaction.atomic():
        Dependency.objects.get_or_create(name=name)
        found = Dependency.objects.select_for_update().get(pk=name)
        found.failures += 1
        found.problem = why[:500]
        if found.state == Health.HEALTHY and found.failures >= settings.BREAKER_AFTER:
            found.state, found.since, found.probes = Health.AWAY, now(), 0
            found.probe_at = found.since + timedelta(seconds=settings.LOOK_AGAIN)
            journal.write(found, SYSTEM, "away", why=found.problem)
        Dependency.objects.filter(pk=name).update(
            failures=found.failures,
            problem=found.problem,
            state=found.state,
            since=found.since,
            probes=found.probes,
            probe_at=found.probe_at,
        )


def succeeded(names: Sequence[str]) -> None:
    """A call got through: the services it depends on are healthy."""
    for name in Dependency.objects.filter(name__in=names).exclude(failures=0).values_list("pk", flat=True):
        _recover(name)


def _recover(name: str) -> None:
    with transaction.atomic():
        found = Dependency.objects.select_for_update().get(pk=name)
        if found.state != Health.HEALTHY:
            journal.write(found, SYSTEM, "healthy")
        Dependency.objects.filter(pk=name).update(
            state=Health.HEALTHY, failures=0, probes=0, problem="", probe_at=None, since=now()
        )
    release_waiting(name)


def probe(name: str) -> bool:
    """Looks whether a service that is away is back: by its probe, else by letting one call through. False: it
    is not due."""
    at = now()
    later = F("probe_at") + timedelta(seconds=settings.LOOK_AGAIN)
    if not Dependency.objects.to_probe(at).filter(pk=name).update(probe_at=later, probes=F("probes") + 1):
        return False
    look = _probes.get(name)
    if look is None:
        Dependency.objects.filter(pk=name, state=Health.AWAY).update(state=Health.TRIAL)
        first = Hold.objects.waiting_for(Cause.DEPENDENCY, name).order_by("opened_at").values("pk")[:1]
        Hold.objects.filter(pk__in=first).update(look_again_at=at)
        return True
    try:
        look()
    except Exception as error:  # an author's code: whatever it raises is "away"
        Dependency.objects.filter(pk=name).update(problem=f"{type(error).__name__}: {error}"[:500])
        return True
    _recover(name)
    return True


def release_waiting(name: str) -> int:
    """Lets what waits for a service go on, a few a second; how many there are."""
    waiting = Hold.objects.waiting_for(Cause.DEPENDENCY, name).order_by("opened_at")
    at = now()
    for place, pk in enumerate(waiting.values_list("pk", flat=True)):
        due = at + timedelta(seconds=place / settings.RELEASE_RATE)
        Hold.objects.filter(pk=pk, released_at__isnull=True).update(look_again_at=due)
    return waiting.count()
