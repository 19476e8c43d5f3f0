"""Passing a request on to another reviewer. It gives no right: only who may decide it anyway can be asked to.

It lies with the last one it was passed to, until they have decided or may not decide any more; then it is
everybody's again. Whoever passed it on may still decide.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db.models import F

from approvals import notifications, reviewers, rights
from approvals.decisions import checks
from approvals.desk import seat
from approvals.desk.seat import Seat
from approvals.exceptions import Taken, Unfit
from approvals.models import Decision, Delegation, Request, Revision
from approvals.models.desk import HOPS


@dataclass(frozen=True, slots=True)
class Passed:
    """Where a request lies. `by` are the ids of all who passed it on."""

    by: frozenset[str]
    from_name: str
    to_id: str
    to_name: str
    reason: str
    at: datetime


def delegate(ref: str, *, person: User, to: User, reason: str, door: str = "page") -> Delegation:
    """Asks `to` to decide it. The same again writes nothing.

    Raises NotVisible, NotEligible, Closed, Unfit (no reason; `to` cannot take it), and Taken: it lies with somebody
    else, this person decided it, or it was passed on as often as may be.
    """
    with seat.taken(ref, person=person, verb="delegate", door=door) as at:
        at.require_pending()
        at.require_reviewer()
        reason = checks.words(reason, "reason", needed="Say why, in a word or two: they read it.")
        hops = list(at.request.delegations.all())
        if hops and (hops[-1].from_id, hops[-1].to_id) == (at.key, str(to.pk)):
            return hops[-1]
        _require_theirs(at, hops)
        _require_fit(at, to, hops)
        hop = _written(at, to, reason, len(hops) + 1)
        at.note("delegated", to=hop.to_id, name=hop.to_name, hop=hop.hop, reason=reason)
        notifications.tell(at.request, f"passed_on.{hop.hop}", [to])
        return hop


def _require_theirs(at: Seat, hops: list[Delegation]) -> None:
    """It is this person's to pass on."""
    if at.has_decided(at.person):
        raise Taken("You decided it, so there is nothing to pass on.")
    lies = passed([at.request]).get(at.request.pk)
    if lies is not None and lies.to_id != at.key:
        told = not at.is_blind or at.key in lies.by
        raise Taken(f"It lies with {lies.to_name if told else seat.ANOTHER.lower()} now.")
    if len(hops) >= HOPS:
        raise Taken(f"It was passed on {HOPS} times, which is as often as may be.")


def _require_fit(at: Seat, to: User, hops: list[Delegation]) -> None:
    if to.pk not in {other.pk for other in _others(at.request, at.person, hops)} or _is_done(at, to):
        raise Unfit({"to": "Choose somebody who may decide this now and has not passed it on."})


def _is_done(at: Seat, to: User) -> bool:
    return at.has_decided(to) or reviewers.is_author(to, at.revision)


def may_take(
    request: Request, revision: Revision, person: User, *, said: set[str], hops: list[Delegation]
) -> list[User]:
    """Whom this person may pass it on to; `said` are the ids of those who have decided. Where reviewers do not see
    each other, these are among them."""
    others = _others(request, person, hops)
    said = set() if revision.judgement.get("blind", False) else said
    return [o for o in others if str(o.pk) not in said and not reviewers.is_author(o, revision)]


def _others(request: Request, person: User, hops: list[Delegation]) -> list[User]:
    """Who may decide it, but for this person and those who passed it on: it never comes back."""
    had = {hop.from_id for hop in hops} | {str(person.pk)}
    return [other for other in reviewers.candidates(request) if str(other.pk) not in had]


def _written(at: Seat, to: User, reason: str, hop: int) -> Delegation:
    return Delegation.objects.create(
        request=at.request,
        hop=hop,
        from_id=at.key,
        from_name=at.actor.name,
        to_id=str(to.pk),
        to_name=rights.display_name(to),
        reason=reason,
    )


def passed(requests: Iterable[Request]) -> dict[Any, Passed]:
    """Where those of these requests lie that were passed on and still lie with somebody: three queries at most."""
    by_id = {request.pk: request for request in requests}
    hops: dict[Any, list[Delegation]] = {}
    for hop in Delegation.objects.filter(request__in=by_id).order_by("request", "hop"):
        hops.setdefault(hop.request_id, []).append(hop)
    if not hops:
        return {}
    people = reviewers.known(int(one[-1].to_id) for one in hops.values())
    said = set(
        Decision.objects.standing()
        .filter(request__in=hops, revision__number=F("request__number"))
        .values_list("request_id", "person_id")
    )
    return {
        pk: _passed(one)
        for pk, one in hops.items()
        if (pk, one[-1].to_id) not in said
        and (holder := people.get(int(one[-1].to_id))) is not None
        and reviewers.eligibility(holder, by_id[pk]).decides
    }


def _passed(hops: list[Delegation]) -> Passed:
    last = hops[-1]
    by = frozenset(hop.from_id for hop in hops)
    return Passed(by, last.from_name, last.to_id, last.to_name, last.reason, last.made_at)
