"""What stands on a request's page beside the decision: questions to the agent, comments, who looks after it, and
which of the verbs of `desk` this reader is offered. Nothing is offered that its verb would refuse.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import User

from approvals import decisions, desk, rights
from approvals.desk.seat import ANOTHER
from approvals.models import Delegation, Inquiry, Request, Revision, Snooze
from approvals.presentation import quorum, reveal
from approvals.reviewers import Eligibility
from approvals.states import PENDING, STANDING, RequestState

NAPS = (
    (1800, "half an hour"),
    (7200, "two hours"),
    (28800, "eight hours"),
    (86400, "a day"),
    (3 * 86400, "three days"),
)


def of(
    request: Request,
    revision: Revision,
    person: User,
    allowed: Eligibility,
    now: datetime,
    typed: Mapping[str, Any],
) -> dict[str, Any]:
    """Everything `_talk.html` and `_more_verbs.html` need, under one name."""
    reader = str(person.pk)
    hidden = quorum.hides(request, revision, reader)
    waits = request.state in PENDING and (request.decide_by is None or request.decide_by > now)
    reads = allowed.decides or rights.sees_all(person)
    hops = list(request.delegations.all())
    lies = _lies(request, reader, hidden) if hops else None
    offered = waits and allowed.decides
    comments = request.comments.all() if reads else []
    return {
        "inquiries": [_inquiry(each, request, hidden, reader) for each in request.inquiries.all()],
        "comments": [each for each in comments if not hidden or each.person_id == reader],
        "comments_hidden": hidden and reads,
        "may_comment": allowed.decides and request.state in PENDING | STANDING,
        "lies": lies,
        "on_it": _on_it(request, reader, now, hidden),
        "asleep": _asleep(request, reader) if waits else None,
        "stop": _stop(request, person, now),
        "offered": offered,
        **(_offered(request, revision, person, now, lies, hops) if offered else {}),
        "typed": {} if "view_digest" in typed else typed,  # a decision's form is kept elsewhere
    }


def _offered(
    request: Request,
    revision: Revision,
    person: User,
    now: datetime,
    lies: dict[str, Any] | None,
    hops: list[Delegation],
) -> dict[str, Any]:
    said = set(revision.decisions.standing().values_list("person_id", flat=True))
    theirs = str(person.pk) not in said and (lies is None or lies["mine"])
    others = desk.may_take(request, revision, person, said=said, hops=hops) if theirs else []
    fixed = str(revision.judgement.get("fixed_because", ""))
    more = request.decide_by is not None and not fixed and request.extensions < desk.MOST_EXTENSIONS
    last = desk.latest(request, now)
    return {
        "may_ask": request.state == RequestState.OPEN,
        "nobody_answers": not request.run.owner_id.isdecimal(),
        "to": [(each.pk, _plainly(rights.display_name(each))) for each in others],
        "naps": [(seconds, word) for seconds, word in NAPS if now + timedelta(seconds=seconds) < last],
        "may_reserve": not revision.judgement.get("blind", False),
        "more_time": desk.in_words(int(revision.judgement.get("decide_within", 0))) if more else "",
        "extensions": request.extensions,
        "fixed": fixed,
        "most": request.extensions >= desk.MOST_EXTENSIONS,
    }


def _plainly(name: str) -> str:
    """A name where no marks can stand, in a list to choose from."""
    return "".join(f"⟦{reveal.name(char)}⟧" if reveal.is_hidden(char) else char for char in name)


def _inquiry(each: Inquiry, request: Request, hidden: bool, reader: str) -> dict[str, Any]:
    waits = each.answered_at is None
    lost = (not waits and not each.answer) or (waits and request.state not in PENDING)
    return {
        "who": "You" if each.person_id == reader else (ANOTHER if hidden else each.person_name),
        "at": each.made_at,
        "text": each.text,
        "revision": each.number,
        "before": each.number < request.number,
        "answer": each.answer,
        "by": each.answered_by,
        "answered_at": each.answered_at,
        "state": "lost" if lost else "waits" if waits else "answered",
    }


def _lies(request: Request, reader: str, hidden: bool) -> dict[str, Any] | None:
    """Where it lies, told to who passed it on, to who has it, and to others where reviewers see each other."""
    found = desk.passed([request]).get(request.pk) if request.state in PENDING else None
    if found is None:
        return None
    mine, passed_on = found.to_id == reader, reader in found.by
    if hidden and not mine and not passed_on:
        return None
    return {
        "mine": mine,
        "passed_on": passed_on,
        "from": found.from_name,
        "to": found.to_name,
        "reason": found.reason if mine or passed_on else "",
        "at": found.at,
    }


def _on_it(request: Request, reader: str, now: datetime, hidden: bool) -> dict[str, Any] | None:
    if request.state not in PENDING or request.reserved_until is None or request.reserved_until <= now:
        return None
    mine = request.reserved_by_id == reader
    if hidden and not mine:
        return None
    return {"mine": mine, "who": request.reserved_by_name, "until": request.reserved_until}


def _asleep(request: Request, reader: str) -> datetime | None:
    """Until when this reader put it off."""
    return Snooze.objects.filter(request=request, person_id=reader).values_list("until", flat=True).first()


def _stop(request: Request, person: User, now: datetime) -> dict[str, Any] | None:
    """A decision that is not in force yet, and that this reader may take back or stop."""
    until = request.takes_effect_at
    if request.state != RequestState.DECIDED or until is None or until <= now:
        return None
    last = decisions.carrying(request)
    if last is None:
        return None
    made = (
        request.decisions.standing().filter(revision=last.revision, verb=last.verb).select_related("revision")
    )
    mine = [each for each in made if each.person_id == str(person.pk)]
    last = mine[-1] if mine else last
    if not (mine or decisions.may_stop(person, last, request)):
        return None
    return {"decision": last.pk, "mine": bool(mine), "until": until, "by": last.person_name}
