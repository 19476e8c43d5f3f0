"""Undoing in the admin: the verb on an ended run, which says what would be undone and what cannot."""

from dataclasses import replace
from typing import Any

from django.http import HttpRequest

from runs import callers, compensation
from runs.admin.verbs import Verb
from runs.models import Run, Step
from runs.states import EffectState

SHOWN = 20


def _why_not(run: Run) -> str:
    if not run.ended:
        return f"It has not ended; it is {run.status}."
    if any(part.call for part in compensation.plan(run)):
        return ""
    doubts = Step.objects.in_doubt().filter(run=run).exists()
    return "Nothing it did can be undone." + (" What is in doubt is settled on its own page." * doubts)


def _do(request: HttpRequest, run: Run, why: str) -> str:
    caller = callers.of(request)
    who = replace(caller.actor, door="admin")
    made = compensation.compensate(run.pk, actor=who, owner_id=caller.owner_id, why=why)
    return f"run {made.pk} undoes it; you will not review that one."


def _parts(runs: list[Run]) -> dict[Any, str]:
    """By run: the calls that would be made, in order, and the effects that stay with the reason."""
    return {run.pk: _told(compensation.plan(run)) for run in runs if _has_effects(run)}


def _has_effects(run: Run) -> bool:
    return Step.objects.filter(run=run, effect=EffectState.CONFIRMED).exists()


def _told(parts: list[compensation.Part]) -> str:
    undone = [f"{part.call.tool} (step {part.step.index})" for part in parts if part.call]
    stays = [f"step {part.step.index}: {part.why_not}" for part in parts if not part.call]
    first = f"Would call {', '.join(undone[:SHOWN])}{_more(undone)}." if undone else ""
    second = f" Stays as it is: {' '.join(stays[:SHOWN])}{_more(stays)}" if stays else ""
    return f"{first}{second}".strip()


def _more(several: list[str]) -> str:
    return f" and {len(several) - SHOWN} more" if len(several) > SHOWN else ""


VERBS = (
    Verb(
        "compensate",
        "Undo its effects…",
        "Starts a run, submitted by you, that calls in reverse order the tools that undo its effects. Policy is"
        " asked about each, and you will not review it.",
        _why_not,
        _do,
        notes=_parts,
        harm=True,
    ),
)
