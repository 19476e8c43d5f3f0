"""Settling a doubt: an operator says whether an effect whose outcome is unknown happened.

What they say is kept with the evidence, by whom and why, and goes the way of evidence. Doubt belongs to the
effect and outlives the run: settled after its end, it changes the ledger and what is owed, and nothing else.
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from django.db import transaction

from runs import allowance, claims, compensation, effects, holds, journal, lifecycle, redaction, values
from runs.actors import Actor
from runs.clock import now
from runs.exceptions import BadValue, NotFound, WrongState
from runs.invocation import Known
from runs.models import Hold, Run, Step
from runs.states import Cause, EffectState, StepStatus
from runs.tools import declared

Answer = Literal["happened", "did_not_happen", "compensate"]
ANSWERS: tuple[Answer, ...] = ("happened", "did_not_happen", "compensate")
MAX_REASON = 4000


@dataclass(frozen=True, slots=True)
class Said:
    """What an operator says. `result` is JSON text, of the type the tool returns, where it happened."""

    answer: Answer
    why: str
    result: str | None = None


def settle(run_id: uuid.UUID, index: int, said: Said, *, actor: Actor, owner_id: str = "") -> Step:
    """Settles the doubt about the effect of one step. The same again by the same person changes nothing.

    Raises NotFound; BadValue: no reason, or a result that does not fit, with its place; WrongState: it is not in
    doubt (any more), or the answer cannot be given now (the call may still act, nothing undoes it).
    """
    _check_why(said.why)
    with transaction.atomic():
        run = lifecycle.lock(run_id)
        step = Step.objects.select_for_update(of=("self",)).filter(run=run, index=index).first()
        if step is None:
            raise NotFound(f"run {run_id} has no step {index}")
        said = _fitted(step, said)
        if not _said_before(step, said, actor):
            if why_not := forbids(run, step, said.answer):
                raise WrongState(why_not)
            told = {"index": index, "answer": said.answer, "attempt": step.attempt, "why": said.why}
            journal.write(run, actor, "settled", **told)
            _SETTLE[said.answer](run, step, said, actor, owner_id)
    step.refresh_from_db()
    return step


def _check_why(why: str) -> None:
    if not why.strip():
        raise BadValue("/reason", "say why: it is kept with what is settled")
    if len(why) > MAX_REASON:
        raise BadValue("/reason", f"{len(why):,} characters; at most {MAX_REASON:,}")
    values.check(why, "/reason")


def _fitted(step: Step, said: Said) -> Said:
    """With the result as it is recorded. Raises BadValue with its place, WrongState: nobody here knows its type."""
    if said.answer != "happened":
        if said.result is not None:
            raise BadValue("/result", "only what happened has a result")
        return said
    tool = declared.get(step.tool)
    if tool is None:
        raise WrongState(f"no process here knows the tool {step.tool}, whose result it would be")
    try:
        text = values.canonical(values.parse(said.result or "", limit=values.MAX_RESULT))
        return Said(said.answer, said.why, tool.returns.write(tool.returns.read(redaction.scrub(text))))
    except BadValue as error:
        raise BadValue(f"/result{error.path}", error.message) from None


def _said_before(step: Step, said: Said, actor: Actor) -> bool:
    """Whether this person said just that of this attempt, and nothing was said since, nor came to nothing."""
    if said.answer == "compensate" and step.compensated_by is None and step.effect == EffectState.IN_DOUBT:
        return False
    people = [item for item in step.evidence if "by" in item]
    last = people[-1] if people else None
    return last is not None and (last["answer"], last["attempt"], last["by"]["id"], last.get("text")) == (
        said.answer,
        step.attempt,
        actor.id,
        said.result,
    )


# -- What may be said now -------------------------------------------------------------------


def forbids(run: Run, step: Step, answer: Answer) -> str:
    """Why an answer cannot be given as things stand; empty: it can."""
    if why_not := not_open(step) or _elsewhere(run):
        return why_not
    if answer == "happened":
        return ""
    assert step.may_act_until is not None
    if step.may_act_until > now():
        until = f"{step.may_act_until:%-d %B %Y, %H:%M:%S} UTC"
        return (
            f"step {step.index}: the call may still act until {until}; nobody can say before that it did not"
        )
    waits = _held(step) if answer == "compensate" else Hold.objects.open().filter(step=step)
    if not run.ended and not waits.exists():
        return f"step {step.index} is being looked at at this moment; try again in a few seconds"
    return compensation.part(step).why_not if answer == "compensate" else ""


def _elsewhere(run: Run) -> str:
    return (
        "the run goes on in another installation, and it is settled there"
        if lifecycle.went_elsewhere(run)
        else ""
    )


def not_open(step: Step) -> str:
    """Why nothing can be said of it any more; empty: it is in doubt, and nobody settled it."""
    if step.effect != EffectState.IN_DOUBT:
        state = step.effect.replace("_", " ") or "not one of an effect"
        return f"step {step.index} is not in doubt; it is {state}{_by_whom(step)}"
    if step.compensated_by is not None:
        return f"step {step.index} is being undone by run {step.compensated_by.short_id}{_by_whom(step)}"
    if effects.from_evidence(step):
        return f"step {step.index} is in doubt no more: what came of it is known{_by_whom(step)}"
    return ""


def _by_whom(step: Step) -> str:
    said = [item for item in step.evidence if "by" in item]
    return f" ({said[-1]['by']['name']} settled it)" if said else ""


def _held(step: Step) -> Any:
    return Hold.objects.open().filter(step=step, cause=Cause.IN_DOUBT)


# -- The three answers ----------------------------------------------------------------------


def _happened(run: Run, step: Step, said: Said, actor: Actor, owner_id: str) -> None:
    """Its result is adopted as if it were the receipt."""
    assert said.result is not None
    known = Known("returned", said.result)
    digest = effects.sent_digest(step)
    effects.keep(step, known, attempt=step.attempt, digest=digest, **_account(said, actor))
    if run.ended:
        effects.settle_ledger(step, known)
        claims.owe(run)
    for standing in Hold.objects.open().filter(step=step, cause__in=effects.ANSWERED):
        holds.release_locked(run, standing, actor=actor, resolution=said.answer, answer=said.why)


def _did_not(run: Run, step: Step, said: Said, actor: Actor, owner_id: str) -> None:
    """The call goes through the whole gate again, as the next attempt; what was approved is used up."""
    effects.note(step, attempt=step.attempt, kind=said.answer, **_account(said, actor))
    status = step.status if run.ended else StepStatus.HELD
    Step.objects.filter(pk=step.pk).update(effect=EffectState.REFUSED, status=status)
    allowance.give_back(run, step.index)
    _release(run, step, said, actor)


def _compensate(run: Run, step: Step, said: Said, actor: Actor, owner_id: str) -> None:
    """It stays in doubt, and waits, until the run that undoes it has ended."""
    effects.note(step, attempt=step.attempt, kind=said.answer, **_account(said, actor))
    compensation.start(run, [compensation.part(step)], actor=actor, owner_id=owner_id, why=said.why)
    _held(step).update(look_again_at=None)


def _account(said: Said, actor: Actor) -> dict[str, Any]:
    return {"answer": said.answer, "by": actor.as_json(), "why": said.why}


def _release(run: Run, step: Step, said: Said, actor: Actor) -> None:
    standing = _held(step).first()
    if standing is not None:
        holds.release_locked(run, standing, actor=actor, resolution=said.answer, answer=said.why)


_SETTLE: dict[Answer, Callable[[Run, Step, Said, Actor, str], None]] = {
    "happened": _happened,
    "did_not_happen": _did_not,
    "compensate": _compensate,
}


# -- For those who ask ------------------------------------------------------------------------


def skeleton(schema: dict[str, Any]) -> Any:
    """A value of a JSON Schema's shape with nothing in it, to be filled in."""
    return _empty(schema, schema.get("$defs", {}), 0)


def _empty(schema: dict[str, Any], named: dict[str, Any], depth: int) -> Any:
    if depth > values.MAX_DEPTH // 2:
        return None
    if "$ref" in schema:
        return _empty(named[schema["$ref"].rpartition("/")[2]], named, depth + 1)
    for word in ("default", "const"):
        if word in schema:
            return schema[word]
    if schema.get("enum"):
        return schema["enum"][0]
    for word in ("anyOf", "oneOf", "allOf"):
        if schema.get(word):
            return _empty(schema[word][0], named, depth + 1)
    if schema.get("type") == "object":
        inside = schema.get("properties", {})
        return {name: _empty(inside[name], named, depth + 1) for name in schema.get("required", [])}
    return _EMPTY.get(schema.get("type", ""))


_EMPTY: dict[str, Any] = {"string": "", "integer": 0, "number": 0, "boolean": False, "array": []}
