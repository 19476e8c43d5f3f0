"""Divergence: the hold of a run whose agent asks for something else than the record says, and its three ways out.

The hold keeps both calls, bounded, so that people see them side by side. The code comes back and somebody (or
the sweeper, when no worker has the code that differed any more) lets the run be tried again; or an operator
accepts the other arguments, where tool and index agree and the step has ended; or the run is cancelled. What
is not as the snapshot remembers can never be accepted.
"""

import uuid
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.db import transaction

from runs import holds, journal, lifecycle, queues, redaction, values
from runs.actors import SYSTEM, Actor
from runs.exceptions import Diverged, HoldClosed, RunEnded, WrongState
from runs.lifecycle import Fence
from runs.models import Hold, Run, Step
from runs.states import Cause
from runs.tools.calls import Call

SHOWN = 20_000  # characters of arguments that a hold keeps of each side
NEAR = 120  # characters shown around the first that differs


# -- Placing -----------------------------------------------------------------------------


def place(fence: Fence, difference: Exception, code: str) -> int:
    """Holds the run, with both sides where there are two; the `wakes` to park with. `code` is the digest of the
    code that asked. Raises EpochLost."""
    with transaction.atomic():
        run = lifecycle.lock_fenced(fence)
        if _standing(run) is None:
            detail = _detail(run, difference, code) if isinstance(difference, Diverged) else {}
            why = str(difference)[:4000]
            holds.place(run, cause=Cause.DIVERGED, actor=fence.actor, why=why, detail=detail)
        return run.wakes


def _standing(run: Run) -> Hold | None:
    return Hold.objects.open().filter(run=run, cause=Cause.DIVERGED).first()


def _detail(run: Run, difference: Diverged, code: str) -> dict[str, Any]:
    said = {"recorded": difference.recorded[:SHOWN], "asked": difference.asked[:SHOWN]}
    detail: dict[str, Any] = {"index": difference.index, **said, "code": code}
    step = Step.objects.filter(run=run, index=difference.index).first()
    if step is not None:
        detail["was"] = _side(step.tool, step.arguments)
        detail["ended"] = step.settled is not None
    if difference.call is not None:
        call: Call[Any] = difference.call
        detail["now"] = _side(call.tool.name, call.arguments)
        if step is not None and step.tool == call.tool.name:
            detail["near"] = _near(step.arguments, call.arguments)
    return detail


def _side(tool: str, arguments: str) -> dict[str, Any]:
    """One of the two calls. Arguments that are too long to keep are cut, and their digest is of the whole."""
    kept = redaction.scrub(arguments)[:SHOWN]
    return {"tool": tool, "digest": values.digest(arguments), "arguments": kept, "length": len(arguments)}


def _near(was: str, now: str) -> dict[str, Any]:
    """Where the two texts begin to differ, and what stands around it."""
    was, now = redaction.scrub(was), redaction.scrub(now)
    pairs = enumerate(zip(was, now, strict=False))
    at = next((i for i, (a, b) in pairs if a != b), min(len(was), len(now)))
    first = max(0, at - NEAR)
    return {"at": at, "was": was[first : at + NEAR], "now": now[first : at + NEAR]}


# -- Ways out ----------------------------------------------------------------------------


def not_acceptable(hold: Hold) -> str:
    """Why the difference cannot be accepted; empty: it can."""
    was, now = hold.detail.get("was"), hold.detail.get("now")
    if "index" not in hold.detail:
        return "what is stored is not what the snapshot remembers, and that cannot be accepted"
    index = hold.detail["index"]
    if now is None:
        return f"at step {index} the agent does not make another call that could be accepted in its place"
    if was is None or was["tool"] != now["tool"]:
        recorded = was["tool"] if was else "nothing"
        return f"step {index} is {recorded} in the record and {now['tool']} now; only other arguments can be accepted"
    if not hold.detail.get("ended"):
        return f"step {index} has not ended: what it would do is not what was recorded and decided on"
    return ""


def accept(run_id: uuid.UUID, *, actor: Actor, why: str, hold_id: uuid.UUID | None = None) -> Run:
    """Takes the arguments asked for now as those of the recorded call, which has ended, and lets the run go on.
    Nothing is called again, and the record stays as it is. `hold_id`: the difference that was seen.

    Raises RunEnded, HoldClosed (another difference stands, or none of those seen), WrongState: it is not
    diverged, the difference cannot be accepted, or no reason is given.
    """
    with transaction.atomic():
        run, standing = _diverged(run_id, hold_id)
        if why_not := not_acceptable(standing):
            raise WrongState(why_not)
        if not why.strip():
            raise WrongState("say why this difference does not matter")
        index, was, now = (standing.detail[name] for name in ("index", "was", "now"))
        steps = Step.objects.settled().filter(run=run, index=index, arguments_digest=was["digest"])
        if not steps.update(accepted_digest=now["digest"]):
            raise WrongState(f"step {index} is not what it was when the difference was found")
        told = {"index": index, "was": was["digest"], "now": now["digest"], "why": why}
        journal.write(run, actor, "difference_accepted", **told)
        holds.release_locked(run, standing, actor=actor, resolution="accepted", answer=why)
        run.refresh_from_db()
    return run


def look_again(run_id: uuid.UUID, *, actor: Actor, why: str = "", hold_id: uuid.UUID | None = None) -> Run:
    """Lets the run be compared again, because the code is back. A difference that is still there holds it again.

    Raises RunEnded, HoldClosed, WrongState.
    """
    with transaction.atomic():
        run, standing = _diverged(run_id, hold_id)
        holds.release_locked(run, standing, actor=actor, resolution="look_again", answer=why or None)
        run.refresh_from_db()
    return run


def _diverged(run_id: uuid.UUID, hold_id: uuid.UUID | None) -> tuple[Run, Hold]:
    run = lifecycle.lock(run_id)
    if run.ended:
        raise RunEnded(f"run {run_id} has ended: {run.status}")
    standing = _standing(run)
    if standing is None:
        raise WrongState(f"run {run_id} is not diverged; it is {run.status}")
    if hold_id not in (None, standing.pk):
        raise HoldClosed("it differs in another way now than when you looked")
    return run, standing


# -- The sweeper's: other code is there --------------------------------------------------


def with_other_code(now: datetime) -> Iterable[uuid.UUID]:
    """Holds whose code no live worker has any more, while some worker has other code of the same version."""
    waiting = (
        Hold.objects.open().filter(cause=Cause.DIVERGED).exclude(detail__code=None).exclude(detail__code="")
    )
    found = waiting.values_list("pk", "run__agent", "run__agent_version", "detail__code")
    workers = (queues.fleet() or []) if found else []
    codes: dict[str, set[str]] = {}
    for has in workers:
        for named, code in has.items():
            codes.setdefault(named, set()).add(code)
    return [pk for pk, name, version, code in found if _is_gone(codes.get(f"{name}@{version}"), code)]


def _is_gone(there: set[str] | None, code: str) -> bool:
    return bool(there) and not {"", code} & (there or set())


def try_again(hold_id: uuid.UUID) -> bool:
    """Compares again, with the code that came. False: it was released before."""
    try:
        holds.release(hold_id, actor=SYSTEM, resolution="other_code")
    except HoldClosed:
        return False
    return True
