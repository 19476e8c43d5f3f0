"""Calls that nobody makes: a question, a timer, an event, a child run. They wait under a hold, and what released
it is their outcome."""

import json
from collections.abc import Callable
from typing import Any

from runs import children, effects, events
from runs.exceptions import BadPayload, BadValue, Denied
from runs.gate import placing
from runs.gate.contract import Asked, Held, Pass, Proposal, Settled, authority
from runs.holds import Terms, place
from runs.invocation import Known
from runs.lifecycle import Fence
from runs.models import Hold, Step
from runs.states import Cause
from runs.tools.builtin import ASK, SLEEP, START, WAIT_FOR


def begin(fence: Fence, proposal: Proposal) -> Pass | None:
    """The wait of such a call; None: it is another one. Raises AncestorHeld, EpochLost, LostRace."""
    begin_one = _BEGIN.get(proposal.call.tool.name)
    return begin_one(fence, proposal) if begin_one else None


def over(proposal: Proposal, step: Step, hold: Hold) -> Settled | None:
    """The outcome, once `hold` (its last) is released; None: it was held for something else."""
    outcome = _OVER.get(hold.cause)
    return outcome(proposal, step, hold) if outcome else None


# -- Beginning -------------------------------------------------------------------------


def _ask(fence: Fence, proposal: Proposal) -> Pass:
    verdict = authority().judge(proposal)
    if verdict.verdict == "deny":
        return Settled(effects.refused(Denied(verdict.rule, verdict.why), proposal.call.tool))
    asked = Asked(proposal, verdict, form=_given(proposal)["form"])
    placing.ask_people(fence, proposal, Cause.QUESTION, asked, why="The agent asks a question.")
    return Held()


def _sleep(fence: Fence, proposal: Proposal) -> Pass:
    seconds = float(_given(proposal)["seconds"])
    if not seconds:
        return Settled(Known("returned", "null"))
    with placing.committing(fence, proposal.ancestors) as run:
        step = placing.row(run, proposal)
        terms = Terms(expires_in=seconds)
        actor = placing.agent(proposal)
        place(run, cause=Cause.TIMER, actor=actor, step=step, why="It sleeps until then.", terms=terms)
    return Held()


def _wait_for(fence: Fence, proposal: Proposal) -> Pass:
    asked = _given(proposal)
    with placing.committing(fence, proposal.ancestors) as run:
        step = placing.row(run, proposal)
        event = events.take(run, step, asked["event"])
        if event is None:
            place(
                run,
                cause=Cause.EVENT,
                actor=placing.agent(proposal),
                step=step,
                why=f"It waits for the event “{asked['event']}”.",
                subject=asked["event"],
                terms=Terms(expires_in=None if asked["within"] is None else float(asked["within"])),
            )
            return Held()
    return _payload(proposal, event.payload)


def _start(fence: Fence, proposal: Proposal) -> Pass:
    asked = _given(proposal)
    error = children.refuse(asked["agent"], asked["version"], len(proposal.ancestors))
    if error is not None:
        return Settled(effects.refused(error, proposal.call.tool))
    with placing.committing(fence, proposal.ancestors) as run:
        step = placing.row(run, proposal)
        child = children.create(run, step, asked["agent"], asked["version"], asked["arguments"])
        place(
            run,
            cause=Cause.CHILD,
            actor=placing.agent(proposal),
            step=step,
            why=f"It waits for its child, {child.agent} {child.short_id}.",
            child=child,
        )
    return Held()


def _given(proposal: Proposal) -> dict[str, Any]:
    given: dict[str, Any] = json.loads(proposal.arguments)
    return given


# -- What came of it ---------------------------------------------------------------------


def _answered(proposal: Proposal, step: Step, hold: Hold) -> Settled:
    said = json.loads(hold.answer or "{}")
    decision = {"verb": "respond", "by": said["by"], "note": ""}
    try:
        return Settled(_fitting(proposal, json.dumps(said["answer"])), decision=decision)
    except BadValue as error:
        return Settled(effects.refused(error, proposal.call.tool), decision=decision)


def _due(proposal: Proposal, step: Step, hold: Hold) -> Settled:
    return Settled(Known("returned", "null"))


def _told(proposal: Proposal, step: Step, hold: Hold) -> Settled:
    return _payload(proposal, step.events.get().payload)


def _child_ended(proposal: Proposal, step: Step, hold: Hold) -> Settled:
    assert hold.child is not None
    error = children.failure(hold.child)
    if error is not None:
        return Settled(effects.refused(error, proposal.call.tool))
    try:
        return Settled(_fitting(proposal, hold.child.result or "null"))
    except BadValue as problem:
        return Settled(effects.refused(children.unfit(hold.child, str(problem)), proposal.call.tool))


def _payload(proposal: Proposal, payload: str) -> Settled:
    try:
        return Settled(_fitting(proposal, payload))
    except BadValue as error:
        bad = BadPayload(_given(proposal)["event"], error.path, error.message)
        return Settled(effects.refused(bad, proposal.call.tool))


def _fitting(proposal: Proposal, text: str) -> Known:
    """What came, as the type the agent named. Raises BadValue."""
    returns = proposal.call.returns
    return Known("returned", returns.write(returns.read(text)))


_BEGIN: dict[str, Callable[[Fence, Proposal], Pass]] = {
    ASK.name: _ask,
    SLEEP.name: _sleep,
    WAIT_FOR.name: _wait_for,
    START.name: _start,
}
_OVER: dict[str, Callable[[Proposal, Step, Hold], Settled]] = {
    Cause.QUESTION: _answered,
    Cause.TIMER: _due,
    Cause.EVENT: _told,
    Cause.CHILD: _child_ended,
}
