"""Looking at a request's facts again, and what the last look says against what stands.

A page never looks: it asks for a look (a column, and a ring), a worker looks, and the page shows what is
stored. Equal values void nothing; a changed one makes a new revision and says what changed; one that could not be
read blocks approving and voids nothing. Facts for information are shown as last seen and void nothing either.
"""

import json
import uuid
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Subquery

from approvals import requests
from approvals.exceptions import Stale
from approvals.models import Request, Revision
from approvals.policies import Judgement
from approvals.presentation import shown
from approvals.states import PENDING
from runs import facts, lifecycle, points, queues
from runs.clock import Now, now
from runs.facts import Reading
from runs.models import FactReading
from runs.models.fact import Moment

#: A wanted look that nobody made is rung for again after this long.
AGAIN_AFTER = timedelta(seconds=10)


def want(request: Request) -> None:
    """Asks a worker to look. Asking again while one is wanted changes nothing: the sweeper rings again."""
    unwanted = Request.objects.filter(pk=request.pk, look_wanted_at__isnull=True)
    if unwanted.update(look_wanted_at=Now()):
        points.reach("after-look-wanted")
        queues.enqueue("approvals.jobs.look", str(request.pk))


def want_again(request_id: uuid.UUID) -> bool:
    """Rings once more for a look that nobody made; the next time after as long again. False: it was made."""
    late = Request.objects.looks_wanted().filter(pk=request_id, look_wanted_at__lt=Now() - AGAIN_AFTER)
    if not late.update(look_wanted_at=Now()):
        return False
    queues.enqueue("approvals.jobs.look", str(request_id))
    return True


def look(request_id: uuid.UUID) -> bool:
    """In a worker: looks at every fact of a pending request. False: it is not pending, or has none."""
    request = Request.objects.select_related("run", "step").filter(pk=request_id, state__in=PENDING).first()
    if request is None:
        Request.objects.filter(pk=request_id).update(look_wanted_at=None)
        return False
    revision = request.revision
    tool = shown.known(revision.tool, revision.tool_version)
    if tool is None or not tool.properties.facts:
        Request.objects.filter(pk=request_id).update(look_wanted_at=None)
        return False
    readings = facts.look(tool, tool.signature.read(revision.arguments))
    changed = facts.changes(tool, revision.fact_values(), readings)
    return _keep(
        request, revision.number, readings, [c for c in changed if c.now is not None and c.kind != "info"]
    )


def _keep(request: Request, number: int, readings: list[Reading], changed: list[facts.Change]) -> bool:
    """Stores a look; what changed (and could be read) makes the next revision."""
    with transaction.atomic():
        run = lifecycle.lock(request.run_id)
        standing = Request.objects.select_for_update(of=("self",)).get(pk=request.pk)
        Request.objects.filter(pk=request.pk).update(look_wanted_at=None)
        if standing.state not in PENDING or standing.number != number:
            return False
        facts.keep(standing.step, readings, Moment.REQUEST)
        Request.objects.filter(pk=request.pk).update(looked_at=Now())
        if changed:
            _revise(standing, run, readings, changed)
        points.committing("look")
    return True


def _revise(request: Request, run: Any, readings: list[Reading], changed: list[facts.Change]) -> None:
    request.refresh_from_db()
    request.run = run
    before = request.revision
    was, at = {fact["name"]: fact for fact in before.facts}, now()
    told = [
        requests.as_fact(r, at) if r.value is not None else was.get(r.name, requests.as_fact(r, at))
        for r in readings
    ]
    requests.revise(
        request,
        arguments=before.arguments,
        facts=told,
        judgement=Judgement.from_json(before.judgement),
        reason="drift",
        changes=[requests.as_change(c) for c in changed],
        author=(before.author_id, before.author_name),
        note=before.note,
    )


# -- What the last look says -----------------------------------------------------------


def last(request: Request) -> list[FactReading]:
    """The readings of the newest look."""
    newest = FactReading.objects.filter(step_id=request.step_id).order_by("-id").values("look")[:1]
    return list(FactReading.objects.filter(step_id=request.step_id, look=Subquery(newest)))


def require_fresh(readings: list[FactReading], at: datetime) -> None:
    """Raises Stale(checking) when a fact of the last look is older than its `fresh_for`."""
    if old := _old(readings, at):
        raise Stale(f"{old[0].name} was looked at too long ago to decide on.", checking=True)


def too_old(request: Request, at: datetime) -> bool:
    return bool(_old(last(request), at))


def _old(readings: list[FactReading], at: datetime) -> list[FactReading]:
    return [r for r in readings if (at - r.read_at).total_seconds() > r.fresh_for]


def moved(
    request: Request, revision: Revision, readings: list[FactReading] | None = None
) -> list[dict[str, Any]]:
    """The facts that are not what they were when the call was first proposed, or cannot be read now.

    Each: name, title, kind, then, now (canonical JSON or None). `readings`: the last look, where it is at hand.
    """
    if not revision.facts:
        return []
    first = _first(request, revision)
    return [
        {**told, "then": first[told["name"]]["value"], "now": told["value"]}
        for told in current(request, revision, readings)
        if told["name"] in first and told["kind"] != "info" and differs(told, first[told["name"]], revision)
    ]


def _first(request: Request, standing: Revision) -> dict[str, dict[str, Any]]:
    """Each fact as it was when the call was first proposed; a blocking one that could not be read then, as it
    was when it first could: it must not change from there."""
    found: dict[str, dict[str, Any]] = {}
    before = request.revisions.order_by("number").values_list("facts", flat=True)
    for then in [standing.facts] if standing.number == 1 else before:
        for fact in then:
            known = found.setdefault(fact["name"], fact)
            if known["value"] is None and fact["kind"] == "blocking":
                found[fact["name"]] = fact
    return found


def current(
    request: Request, revision: Revision, readings: list[FactReading] | None = None
) -> list[dict[str, Any]]:
    """The standing revision's facts; those the newest look could not read are marked as unreadable, and those
    for information are as it saw them."""
    if not revision.facts:
        return []
    newest = {r.name: r for r in (last(request) if readings is None else readings)}
    return [_seen(fact, newest.get(fact["name"])) for fact in revision.facts]


def _seen(fact: dict[str, Any], newest: FactReading | None) -> dict[str, Any]:
    if newest is None or (newest.value is not None and fact["kind"] != "info"):
        return fact
    return {**fact, "value": newest.value, "problem": newest.problem}


def differs(told: dict[str, Any], first: dict[str, Any], revision: Revision) -> bool:
    if told["value"] is None:
        return True
    tool = shown.known(revision.tool, revision.tool_version)
    tolerances = {f.name: f.tolerance for f in tool.properties.facts} if tool else {}
    return not facts.equal(first["value"], told["value"], tolerances.get(told["name"], 0.0))


#: Tiers at which a reviewer may go ahead although a material fact could not be read.
KNOWINGLY = frozenset({"R1", "R2"})


def blocks(request: Request, moved_facts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The moved facts that forbid approving: blocking ones, and what could not be read, where the tier does not
    let a reviewer accept that knowingly."""
    return [fact for fact in moved_facts if fact["kind"] == "blocking" or _unreadable(fact, request)]


def _unreadable(moved_fact: dict[str, Any], request: Request) -> bool:
    return moved_fact["now"] is None and request.tier not in KNOWINGLY


def sentence(moved_fact: dict[str, Any]) -> str:
    """One changed fact in words."""
    title = moved_fact.get("title") or moved_fact["name"]
    if moved_fact["now"] is None:
        return f"{title} could not be checked"
    return f"{title} was {plain(moved_fact['then'])} and is {plain(moved_fact['now'])} now"


def plain(value: str | None) -> str:
    """A canonical value as a person would say it."""
    if value is None:
        return "not known"
    parsed = json.loads(value)
    return parsed if isinstance(parsed, str) else value
