"""What a decision does: the permit where there is one, and the hold released.

At once where the undo window is 0, else from the sweeper, with eligibility checked again.
"""

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from approvals import authority, requests, reviewers
from approvals.models import Decision, Permit, Request, Revision
from approvals.policies import Judgement
from approvals.states import RequestState, Verb
from runs import holds, journal, lifecycle, prepared, values
from runs.actors import SYSTEM, Actor
from runs.clock import now
from runs.models import Run


def standing(request: Request, revision: Revision, verb: str) -> list[bool]:
    """For each decision of a revision: whether who made it may still decide."""
    ids = (
        request.decisions.standing().filter(revision=revision, verb=verb).values_list("person_id", flat=True)
    )
    people = User.objects.in_bulk([int(each) for each in ids])
    return [int(i) in people and reviewers.eligibility(people[int(i)], request).decides for i in ids]


def take_effect(request_id: Any) -> bool:
    """From the sweeper: a decision whose undo window has ended. False: undone, closed, or not due."""
    with transaction.atomic():
        run_id = Request.objects.filter(pk=request_id).values_list("run_id", flat=True).get()
        run = lifecycle.lock(run_id)
        request = Request.objects.select_for_update(of=("self",)).select_related("group").get(pk=request_id)
        if (
            request.state != RequestState.DECIDED
            or not request.takes_effect_at
            or request.takes_effect_at > now()
        ):
            return False
        request.run = run
        said = request.decisions.standing().filter(revision__number=request.number)
        decision = said.order_by("made_at").last()
        if decision is None or not _enough(request, decision):
            _reopen(request)
            holds.set_expiry(run, request.hold, request.decide_by, actor=SYSTEM)
            return True
        apply(request, run, decision, at=now(), waiting=holds.waiting(run))
    return True


def _enough(request: Request, decision: Decision) -> bool:
    """Whether those who decided may still decide, and are as many as it takes."""
    still = sum(standing(request, decision.revision, decision.verb))
    return still >= (request.quorum if decision.verb == Verb.APPROVE else 1)


def _reopen(request: Request) -> None:
    standing = request.revision
    judgement = Judgement.from_json(standing.judgement)
    author = (standing.author_id, standing.author_name)
    requests.revise(
        request,
        arguments=standing.arguments,
        facts=standing.facts,
        judgement=judgement,
        reason="role_lost",
        author=author,
        note=standing.note,
    )


def apply(
    request: Request,
    run: Run,
    decision: Decision,
    *,
    at: datetime,
    waiting: Sequence[prepared.Row],
) -> None:
    """In force from now, which is `at`: the permit where there is one, and the hold released. `waiting`: as
    `holds.waiting`."""
    effect: dict[str, Callable[[Request, Decision, datetime], tuple[RequestState, str, str | None]]] = {
        Verb.APPROVE: _approve,
        Verb.REJECT: _reject,
        Verb.RESPOND: _respond,
    }
    told = {"verb": decision.verb, "revision": decision.revision.number}
    actor = Actor("person", decision.person_id, decision.person_name, decision.door)
    with prepared.Batch():
        state, resolution, answer = effect[decision.verb](request, decision, at)
        ended = {"closed_at": journal.AT} if state == RequestState.REJECTED else {}
        changes = {"state": str(state), "decided_at": journal.AT, "takes_effect_at": None, **ended}
        journal.move(request, SYSTEM, "in_force", changes, **told)
        holds.release_locked(
            run, request.hold, actor=actor, resolution=resolution, answer=answer, waiting=waiting
        )
    request.state = state


def _approve(request: Request, decision: Decision, at: datetime) -> tuple[RequestState, str, str | None]:
    until = at + authority.consume_by(decision.revision.judgement)
    prepared.insert(Permit(request=request, revision=decision.revision, consume_by=until))
    return RequestState.IN_FORCE, "approved", None


def _reject(request: Request, decision: Decision, at: datetime) -> tuple[RequestState, str, str | None]:
    said = values.canonical({"reason": decision.reason, "by": decision.person_name})
    return RequestState.REJECTED, "rejected", said


def _respond(request: Request, decision: Decision, at: datetime) -> tuple[RequestState, str, str | None]:
    said = values.canonical({"answer": json.loads(decision.answer or "null"), "by": decision.person_name})
    return RequestState.IN_FORCE, "answered", said
