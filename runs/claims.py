"""Claims: what a run has reserved outside (an effect whose tool has a `release` tool), and giving it back.

A run that ends owes its claims. A worker gives each back, one at a time: it takes the row first, under a count of
tries, so that no two do; the call goes out under a key of the claim's own, the same at every try. What certainly
was not given back is tried again, later each time. What nobody can tell is stuck, and is a person's.
"""

import hashlib
import json
import uuid
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import F, Q

from runs import (
    clock,
    credentials,
    dependencies,
    effects,
    invocation,
    journal,
    lifecycle,
    points,
    queues,
    recorded,
)
from runs.actors import SYSTEM, Actor
from runs.clock import Now
from runs.exceptions import BadArguments, CredentialRefused, NotFound, Obstacle, Unavailable, WrongState
from runs.invocation import Job, Known
from runs.models import Run, Step
from runs.states import EXCEPTIONAL, ClaimState, EffectState, StepStatus
from runs.tools import declared
from runs.tools.calls import Call
from runs.tools.declared import Tool, ToolContext

RING_AGAIN = timedelta(seconds=10)
PREPARES_WITHIN = timedelta(seconds=60)  # looking and credentials, before the call
FIRST_WAIT, LONGEST_WAIT = 5.0, 3600.0  # seconds between two tries


def key(step: Step) -> str:
    """The idempotency key under which a claim is given back: derived from its own, the same at every try."""
    return hashlib.sha256(f"abeyance:release:{step.key}".encode()).hexdigest()[:40]


def tool_of(step: Step) -> Tool[..., Any] | None:
    """The tool that gives a claim back; None: this process does not know it."""
    made = declared.get(step.tool)
    return made.properties.release if made else None


# -- Owing -------------------------------------------------------------------------------


def travel(run: Run, actor: Actor) -> int:
    """A run that moves elsewhere takes along what it has reserved: nothing of it is owed here. `run` is locked."""
    taken = Step.objects.filter(run=run, claim=ClaimState.HELD).update(claim="", claim_due_at=None)
    if taken:
        journal.write(run, actor, "claims_moved", count=taken)
    return taken


def owe(run: Run) -> int:
    """A run that ends owes what it has reserved. `run` is locked."""
    held = Step.objects.filter(run=run, claim=ClaimState.HELD)
    indexes = list(held.order_by("index").values_list("index", flat=True))
    if indexes:
        held.update(claim=ClaimState.OWED, claim_due_at=Now())
        journal.write(run, SYSTEM, "claims_owed", indexes=indexes)
    return len(indexes)


def owe_ended(run_id: uuid.UUID) -> bool:
    """The same for a run that ended the short way, or whose effect was settled afterwards. False: nothing is held."""
    with transaction.atomic():
        run = lifecycle.lock(run_id)
        return bool(run.ended and owe(run))


def ring(step_id: int) -> bool:
    """Has a worker give back a claim that is due, or says what came of a worker that did not come back. False: it
    is not due."""
    step = Step.objects.get(pk=step_id)
    if step.claim == ClaimState.GIVING:
        return _lapse(step)
    due = Step.objects.claims_due(clock.now()).filter(pk=step_id, claim_tries=step.claim_tries)
    if not due.update(claim_due_at=Now() + RING_AGAIN):
        return False
    points.reach("before-claim-rings")
    queues.enqueue("runs.jobs.give_back", str(step_id), str(step.claim_tries))
    return True


def _lapse(step: Step) -> bool:
    """A worker took the claim and did not come back in time. Repeated only where that cannot do it twice."""
    tool = tool_of(step)
    again = tool is not None and _repeatable(tool)
    state = ClaimState.OWED if again else ClaimState.STUCK
    why = "The worker that gave it back did not say in time what came of it."
    late = Q(claim=ClaimState.GIVING, claim_due_at__lte=Now(), claim_tries=step.claim_tries)
    return _move(step, late, state, SYSTEM, "claim_unanswered", why=why)


def _repeatable(tool: Tool[..., Any]) -> bool:
    return tool.repeatable or not tool.properties.effect


def _move(
    step: Step, still: Q, state: ClaimState, actor: Actor, verb: str, *, why: str = "", wait: float = 0.0
) -> bool:
    """One guarded change of a claim and its journal row. False: it is not as `still` says any more."""
    due = Now() + timedelta(seconds=wait) if state == ClaimState.OWED else None
    with transaction.atomic():
        run = lifecycle.lock(step.run_id)
        moved = Step.objects.filter(still, pk=step.pk).update(
            claim=state, claim_due_at=due, claim_problem=why[:500]
        )
        if moved:
            journal.write(run, actor, verb, index=step.index, tries=step.claim_tries, why=why)
    return bool(moved)


# -- Giving back: a worker's job ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Told:
    """What came of one try. `wait`: seconds until the next, if it is owed still."""

    state: ClaimState
    why: str = ""
    wait: float = 0.0


def give_back(step_id: int, tries: int) -> bool:
    """Gives one claim back, if nobody has tried since `tries`. False: somebody has, or it is owed no more."""
    step = Step.objects.filter(pk=step_id).first()
    if step is None or not _take(step, tries):
        return False
    points.reach("after-claim-taken")
    try:
        job: Job | _Told = _prepare(step)
    except Exception as error:  # a provider's or an author's code; nothing was called
        job = _later(step, f"{type(error).__name__}: {recorded.message(error)}")
    if isinstance(job, _Told):
        return _say(step, job)
    if not _still_ours(step, job.call.tool):
        return False
    points.reach("before-give-back")
    return _say(step, _outcome(step, job, invocation.run(job)))


def _take(step: Step, tries: int) -> bool:
    """Takes the row, so that nobody else tries."""
    owed = Step.objects.filter(
        pk=step.pk, claim=ClaimState.OWED, claim_tries=tries, compensated_by__isnull=True
    )
    limit = PREPARES_WITHIN
    points.reach("before-claim-taken")
    taken = owed.update(claim=ClaimState.GIVING, claim_tries=F("claim_tries") + 1, claim_due_at=Now() + limit)
    step.refresh_from_db()
    return bool(taken)


def _still_ours(step: Step, tool: Tool[..., Any]) -> bool:
    """Right before the call: the row is this try's until the call can certainly not act any more."""
    until = Now() + timedelta(seconds=effects.acts_for(tool))
    ours = Step.objects.filter(pk=step.pk, claim=ClaimState.GIVING, claim_tries=step.claim_tries)
    return bool(ours.update(claim_due_at=until))


def _prepare(step: Step) -> Job | _Told:
    """The call that gives it back, with what it needs; or what is known without calling."""
    tool = tool_of(step)
    if tool is None:
        return _later(step, f"No worker here knows the tool that gives back what {step.tool} reserved.")
    try:
        arguments = undoing(step, tool)
    except BadArguments as error:
        return _Told(ClaimState.STUCK, str(error))
    if own := _by_the_agent(step, tool, arguments):
        return own
    if step.claim_tries > 1 and tool.properties.verify and (found := _verified(step, tool)):
        return found
    try:
        dependencies.check(tool.properties.depends_on)
        given = credentials.obtain(tool.properties.credentials)
    except Obstacle as obstacle:
        return _later(step, obstacle.why)
    context = ToolContext(step.run_id, step.index, key(step), step.claim_tries, given)
    return Job(Call(tool, arguments), arguments, context)


def undoing(step: Step, tool: Tool[..., Any], result: str | None = None) -> str:
    """Arguments for a tool that gives back or undoes a call: by name the call's own, its `result`, its `key`.

    Raises BadArguments: they do not fit, or the result is needed and nobody knows it.
    """
    known = effects.from_evidence(step)
    text = result or step.result or (known.text if known and known.kind == "returned" else None)
    given = {"key": step.key, **json.loads(step.sent)}
    if text is not None and step.status != StepStatus.RAISED:
        given.setdefault("result", json.loads(text))
    wanted = tool.signature.model.model_fields
    return tool.signature.write_json({name: value for name, value in given.items() if name in wanted})


def _by_the_agent(step: Step, tool: Tool[..., Any], arguments: str) -> _Told | None:
    """What the agent did itself: the same tool with the same arguments. None: it did not."""
    own = Step.objects.filter(run=step.run_id, tool=tool.name, index__gt=step.index)
    for made in own:
        if made.sent != arguments:
            continue
        if made.effect == EffectState.CONFIRMED or (not made.effect and made.status == StepStatus.DONE):
            return _Told(ClaimState.GIVEN_BACK, f"The agent gave it back itself, in step {made.index}.")
        if made.effect in EXCEPTIONAL:
            return _later(step, f"Whether the agent gave it back itself, in step {made.index}, is in doubt.")
    return None


def _verified(step: Step, tool: Tool[..., Any]) -> _Told | None:
    """Whether an earlier try got through. None: it certainly did not."""
    known = effects.verified(tool, key(step))
    if isinstance(known, effects.Doubt):
        return _later(step, known.why)
    return _Told(ClaimState.GIVEN_BACK, "An earlier try got through.") if known else None


def _outcome(step: Step, job: Job, known: Known) -> _Told:
    tool = job.call.tool
    if known.kind == "returned" or (known.kind == "raised" and tool.properties.effect):
        dependencies.succeeded(tool.properties.depends_on)
        return _Told(ClaimState.GIVEN_BACK)
    said = _said(known)
    if isinstance(known.error, Unavailable):
        dependencies.failed(known.error.dependency, said)
    if isinstance(known.error, CredentialRefused):
        _renew(job, known.error)
    if known.kind != "unknown":
        return _later(step, said)
    if _repeatable(tool):
        return _later(step, f"No answer: {said}", at_least=effects.acts_for(tool))
    return _Told(ClaimState.STUCK, f"Nobody can tell whether it was given back: {said}")


def _renew(job: Job, refused: CredentialRefused) -> None:
    try:
        credentials.renewed(job.call.tool.properties.credentials, refused, job.context.credentials)
    except Obstacle:
        return  # the next try says what it needs


def _said(known: Known) -> str:
    kept = json.loads(known.text)
    return f"{kept['type'].rpartition(':')[2]}: {', '.join(map(str, kept['args']))}"[:400]


def _later(step: Step, why: str, *, at_least: float = 0.0) -> _Told:
    wait = min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(20, step.claim_tries - 1))
    return _Told(ClaimState.OWED, why, max(wait, at_least))


def _say(step: Step, told: _Told) -> bool:
    """Writes what came of this try. That it was given back counts however late; anything else only while the
    claim is this try's."""
    still = Q(claim=ClaimState.GIVING, claim_tries=step.claim_tries)
    if told.state == ClaimState.GIVEN_BACK:
        return _move(step, _NOT_BACK, told.state, SYSTEM, "claim_given_back", why=told.why)
    verb = "claim_stuck" if told.state == ClaimState.STUCK else "claim_not_given_back"
    return _move(step, still, told.state, SYSTEM, verb, why=told.why, wait=told.wait)


_NOT_BACK = Q(claim__in=[ClaimState.OWED, ClaimState.GIVING, ClaimState.STUCK])
_AT_REST = Q(claim__in=[ClaimState.OWED, ClaimState.STUCK])


# -- Operators ------------------------------------------------------------------------------


def count_as_given_back(run_id: uuid.UUID, index: int, *, actor: Actor, why: str) -> Step:
    """A person looked: it is given back. Again by the same person changes nothing.

    Raises NotFound, WrongState (it is held by a live run, being given back at this moment, or back already).
    """
    step = _claim(run_id, index)
    if not _move(step, _AT_REST, ClaimState.GIVEN_BACK, actor, "claim_counted_as_given_back", why=why):
        _refuse(step)
    step.refresh_from_db()
    return step


def try_again(run_id: uuid.UUID, index: int, *, actor: Actor, why: str = "") -> Step:
    """A person looked: it was not given back, and is tried again now. Raises NotFound, WrongState."""
    step = _claim(run_id, index)
    if not _move(step, _AT_REST, ClaimState.OWED, actor, "claim_tried_again", why=why):
        _refuse(step)
    step.refresh_from_db()
    return step


def _claim(run_id: uuid.UUID, index: int) -> Step:
    step = Step.objects.filter(run=run_id, index=index).exclude(claim="").first()
    if step is None:
        raise NotFound(f"step {index} of run {run_id} has reserved nothing")
    return step


def _refuse(step: Step) -> None:
    step.refresh_from_db()
    said = {
        ClaimState.HELD: "its run has not ended, and holds it",
        ClaimState.GIVING: "a worker is giving it back at this moment",
        ClaimState.GIVEN_BACK: "it is given back already",
    }
    raise WrongState(f"step {step.index}: {said.get(ClaimState(step.claim), step.claim)}")
