"""Requests: opened with a hold, revised when what would run or what it hangs on changes, closed once.

Everything here runs inside the transaction of what it hears of, with the run's row locked. A new revision
voids the permit and the decisions before it: they were about something else.
"""

import dataclasses
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Protocol

from django.contrib.auth.models import Group, User
from django.db.models import Q

from approvals import notifications, policies, reviewers
from approvals.models import Permit, Request, Revision
from approvals.policies import Judgement
from approvals.presentation import digests
from approvals.states import PENDING, STANDING, RequestKind, RequestState
from runs import journal, prepared, values
from runs.actors import SYSTEM, Actor
from runs.clock import Now
from runs.facts import Change, Reading
from runs.gate import Asked
from runs.models import Hold, JournalEntry, Run, Step
from runs.prepared import Given, Query
from runs.states import Cause

#: Actors whose name says who it was; the others are the machinery.
BY_NAME = frozenset({"person", "key", "command"})


_OF_STEP = Query(lambda: Request.objects.select_for_update().filter(step=Given("step")).order_by())
_GROUP = Query(lambda: Group.objects.filter(pk=Given("group")).order_by())


@dataclasses.dataclass(frozen=True, slots=True)
class Foreseen:
    """Who is asked, read together with the lock of the run: the group (None: the fallback) and its members."""

    group: Group | None
    members: list[User]


def foresee(batch: prepared.Batch, judgement: Judgement) -> Callable[[], Foreseen]:
    """Asks who would be told of a new request."""
    named = judgement.reviewers
    groups = batch.ask(_GROUP, group=named.id if named else 0)
    members = reviewers.asking_members(batch, named.id if named else None)

    def told() -> Foreseen:
        group = groups.first()
        gone = named is not None and group is None
        return Foreseen(group, reviewers.members(None) if gone else members.all())

    return told


def open_or_reopen(run: Run, hold: Hold, step: Step, asked: Asked) -> Request:
    """What a new approval or question hold brings: a request, or the next revision of the one there is."""
    if asked.foreseen is not None:  # the call's first
        return _open(run, hold, step, asked)
    before = _OF_STEP.first(step=step.pk)
    return _reopen(before, hold, asked) if before else _open(run, hold, step, asked)


def _open(run: Run, hold: Hold, step: Step, asked: Asked) -> Request:
    facts = [as_fact(r, hold.opened_at) for r in asked.readings]
    arguments, terms = asked.proposal.arguments, asked.verdict.terms
    return open_first(
        run, hold, step, arguments, facts=facts, judgement=terms, foreseen=asked.foreseen, looked=bool(facts)
    )


def open_first(
    run: Run,
    hold: Hold,
    step: Step,
    arguments: str,
    *,
    facts: list[dict[str, Any]],
    judgement: Judgement,
    looked: bool = True,
    foreseen: Foreseen | None = None,
    **told: Any,
) -> Request:
    """The first request of a call, for an open hold of it. Not `looked`: the facts were seen elsewhere."""
    group = foreseen.group if foreseen else _group(judgement)
    request = Request(
        run=run,
        step=step,
        hold=hold,
        kind=str(RequestKind.QUESTION if hold.cause == Cause.QUESTION else RequestKind.APPROVAL),
        tier=judgement.tier,
        group=group,
        quorum=judgement.quorum,
        decide_by=hold.expires_at,
        looked_at=hold.opened_at if facts and looked else None,
    )
    with prepared.Batch():
        prepared.insert(request)
        revision = _revision(request, arguments, facts, judgement)
        told = {"revision": 1, "digest": revision.digest, "run": str(run.pk), "step": step.index, **told}
        journal.write(request, SYSTEM, "opened", **told)
        notifications.announce(request, "opened", members=foreseen.members if foreseen else None)
    return request


def _reopen(request: Request, hold: Hold, asked: Asked) -> Request:
    """The call came back to the gate and may not go: the facts drifted, the permit lapsed, policy is stricter."""
    standing = request.revision
    judgement = policies.stricter(Judgement.from_json(standing.judgement), asked.verdict.terms)
    Request.objects.filter(pk=request.pk).update(hold=hold, decide_by=hold.expires_at, looked_at=Now())
    request.refresh_from_db()
    readings = [as_fact(r, hold.opened_at) for r in asked.readings]
    kept = asked.reason != "tool"  # an edit was of the tool as it was
    revise(
        request,
        arguments=standing.arguments if kept else asked.proposal.arguments,
        facts=readings if readings or not kept else standing.facts,
        judgement=judgement,
        reason=asked.reason or "again",
        changes=[as_change(c) for c in asked.changes],
        author=(standing.author_id, standing.author_name) if kept else ("", ""),
        note=standing.note if kept else "",
    )
    return request


def revise(
    request: Request,
    *,
    arguments: str,
    facts: list[dict[str, Any]],
    judgement: Judgement,
    reason: str,
    changes: Sequence[dict[str, Any]] = (),
    author: tuple[str, str] = ("", ""),
    note: str = "",
    actor: Actor = SYSTEM,
    announce: bool = True,
) -> Revision:
    """The next revision of a locked request: open again, nothing decided. Voids a permit in force."""
    void_permits(request, reason)
    Request.objects.filter(pk=request.pk).update(
        state=RequestState.OPEN,
        number=request.number + 1,
        tier=judgement.tier,
        group=_group(judgement),
        quorum=judgement.quorum,
        decided_at=None,
        takes_effect_at=None,
        closed_at=None,
    )
    request.refresh_from_db()
    revision = _revision(
        request, arguments, facts, judgement, reason=reason, changes=list(changes), author=author, note=note
    )
    told = {"revision": request.number, "digest": revision.digest, "reason": reason, "changes": list(changes)}
    journal.write(request, actor, "revised", **told)
    if announce:
        notifications.announce(request, "changed")
    return revision


def void_permits(request: Request, why: str) -> None:
    for permit in Permit.objects.in_force().filter(request=request):
        Permit.objects.filter(pk=permit.pk).update(voided_at=Now(), void_why=why[:200])
        journal.write(request, SYSTEM, "permit_voided", why=why, revision=permit.revision.number)


def _revision(
    request: Request,
    arguments: str,
    facts: list[dict[str, Any]],
    judgement: Judgement,
    *,
    reason: str = "",
    changes: list[dict[str, Any]] | None = None,
    author: tuple[str, str] = ("", ""),
    note: str = "",
) -> Revision:
    told = judgement.as_json()
    step = request.step
    revision = Revision(
        request=request,
        number=request.number,
        tool=step.tool,
        tool_version=step.tool_version,
        arguments=arguments,
        arguments_digest=values.digest(arguments),
        facts=facts,
        changes=changes or [],
        judgement=told,
        policy_version=judgement.policy_version,
        reason=reason,
        author_id=author[0],
        author_name=author[1],
        note=note,
    )
    revision.digest = view_digest(request, revision)
    prepared.insert(revision)
    return revision


class Asking(Protocol):
    """Whose call it is: a run, or a proposal of it."""

    @property
    def agent(self) -> str: ...
    @property
    def agent_version(self) -> str: ...
    @property
    def on_behalf_of(self) -> str: ...


def view_digest(request: Request, revision: Revision, *, asking: Asking | None = None) -> str:
    """The digest of what a page shows of this revision, computed from what is stored. `asking`: the request's run, or
    who says the same of it."""
    whose = asking or request.run
    return digests.view(
        ref=request.ref,
        number=revision.number,
        tool=revision.tool,
        tool_version=revision.tool_version,
        arguments_digest=values.digest(revision.arguments),
        facts=revision.facts,
        judgement=revision.judgement,
        principal=whose.on_behalf_of,
        agent=f"{whose.agent}@{whose.agent_version}",
    )


def _group(judgement: Judgement) -> Group | None:
    if judgement.reviewers is None:
        return None
    return _GROUP.first(group=judgement.reviewers.id)


def as_fact(reading: Reading, at: datetime) -> dict[str, Any]:
    """A reading as a revision keeps it."""
    return {**dataclasses.asdict(reading), "read_at": at.isoformat()}


def as_change(change: Change) -> dict[str, Any]:
    return dataclasses.asdict(change)


# -- Closing -----------------------------------------------------------------------


def close(request: Request, state: RequestState, *, why: str, actor: Actor = SYSTEM) -> bool:
    """Ends a request that is pending or standing; False: it has ended before. Its run's row is locked."""
    moved = Request.objects.filter(pk=request.pk, state__in=PENDING | STANDING).update(
        state=state, closed_at=Now(), closed_why=why[:500]
    )
    if moved:
        void_permits(request, str(state))
        journal.write(request, actor, str(state), why=why)
    return bool(moved)


def expire(hold: Hold) -> None:
    """The request's time was up; its hold has been released."""
    for request in Request.objects.filter(hold=hold, state__in=PENDING):
        close(request, RequestState.EXPIRED, why="nobody decided in time")


def supersede(hold: Hold, why: str) -> None:
    """The world settled it; its hold has been released."""
    for request in Request.objects.filter(hold=hold, state__in=PENDING):
        close(request, RequestState.SUPERSEDED, why=why)


def cancel_all(run: Run, actor: Actor, why: str) -> None:
    """The run has ended: nothing of it can be decided any more. A question whose answer the run was given stays
    as it ended: in force."""
    given = Q(kind=RequestKind.QUESTION, state=RequestState.IN_FORCE, step__settled__isnull=False)
    for request in Request.objects.filter(~given, run=run, state__in=PENDING | STANDING):
        close(request, RequestState.CANCELLED, why=why or f"the run is {run.status}", actor=actor)


def closed_by(request: Request) -> str:
    """The name of who ended it; empty where nobody did: its time was up, or its run ended by itself."""
    last = JournalEntry.objects.of(request.stream).filter(verb=request.state).last()
    return last.actor_name if last is not None and last.actor_kind in BY_NAME else ""
