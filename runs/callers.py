"""Who stands at a door, and what they may do with runs.

`runs` does not know people: the app that does registers `identify`, which turns a request into a `Caller`.
Without one nobody may see anything.
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass

from django.db.models import QuerySet
from django.http import HttpRequest

from runs.actors import Actor
from runs.exceptions import NotFound
from runs.models import Run


@dataclass(frozen=True, slots=True)
class Caller:
    """`visible` narrows runs to those this caller may see; `own` says whether one is theirs.

    `operator` may pause, resume and cancel any run; `may_pause` says whether a reviewer may pause this one;
    `operates` gives the actor of verbs on what is nobody's own, if a person stands behind this caller who is an
    operator: them, or a key of theirs, which is a submitter's elsewhere. `sees_all` is for the doors that show
    everything there is.
    """

    actor: Actor
    owner_id: str
    operator: bool
    visible: Callable[[QuerySet[Run]], QuerySet[Run]]
    may_pause: Callable[[Run], bool]
    sees_all: bool = False
    operates: Callable[[], Actor | None] = lambda: None
    has_address: Callable[[str], bool] = lambda address: False  #: whether an e-mail address is this person's

    def own(self, run: Run) -> bool:
        return bool(self.owner_id) and run.owner_id == self.owner_id

    def may_control(self, run: Run) -> bool:
        """Cancel it, resume their own pause of it."""
        return self.operator or self.own(run)


def _nobody(request: HttpRequest) -> Caller:
    return Caller(Actor("nobody", "", "nobody"), "", False, lambda runs: runs.none(), lambda run: False)


_identify: Callable[[HttpRequest], Caller] = _nobody


def register(identify: Callable[[HttpRequest], Caller]) -> None:
    global _identify
    _identify = identify


def of(request: HttpRequest) -> Caller:
    """The caller of a request (of Django or of REST framework)."""
    return _identify(request)


def find(caller: Caller, run_id: uuid.UUID) -> Run:
    """A run this caller may see. Raises NotFound, the same for unknown and foreign ones."""
    run = caller.visible(Run.objects.all()).filter(pk=run_id).first()
    if run is None:
        raise NotFound(f"there is no run {run_id}")
    return run
