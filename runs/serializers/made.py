"""Answers made from rows, so that a run looks the same in each of them."""

import json
import uuid
from typing import Any

from django.db.models import F, Prefetch, QuerySet
from django.urls import reverse

from runs import allowance, stops
from runs.agents import Agent
from runs.models import Allowance, Hold, Run, Step
from runs.serializers.told import (
    CHILDREN,
    Asked,
    Effect,
    Failure,
    ListedRun,
    ShownAgent,
    ShownAllowance,
    ShownRun,
    ShownStep,
    WaitingFor,
)
from runs.states import Cause, EffectState, RunStatus, StepStatus


def version(run: Run) -> int:
    """Rises with every journal entry and every settled step, so with everything a run's answer shows but what
    is left of an allowance, on which others draw too."""
    return run.seq + run.position


def with_holds(runs: QuerySet[Run]) -> QuerySet[Run]:
    """Runs together with their open holds: one query more, however many runs."""
    holds = Hold.objects.open().select_related("step")
    shown = ("run_id", "cause", "subject", "why", "step__index", "opened_by_name", "opened_at", "expires_at")
    holds = holds.only(*shown).annotate(asked=F("detail__inquiry"))
    return runs.prefetch_related(Prefetch("holds", holds, to_attr="standing"))


def listed(run: Run) -> ListedRun:
    """`run` comes from `with_holds`."""
    return ListedRun(**_listed(run))


def shown(run: Run) -> ShownRun:
    """`run` comes from `with_holds`."""
    return ShownRun(
        **_listed(run),
        parent=run.parent_id,
        ancestors=run.ancestors,
        children=list(_children(run)),
        in_flight=_in_flight(run),
        input=json.loads(run.input),
        allowance=[_allowance(row) for row in run.allowances.all()] if run.metered else [],
        result=None if run.result is None else json.loads(run.result),
        error=_failure(run.error),
    )


def _listed(run: Run) -> dict[str, Any]:
    return {
        "id": run.id,
        "agent": run.agent,
        "agent_version": run.agent_version,
        "status": run.status,
        "stopping": run.stop_requested is not None and not run.ended,
        "pausing": _pausing(run),
        "labels": run.labels,
        "on_behalf_of": run.on_behalf_of,
        "version": str(version(run)),
        "created_at": run.created_at,
        "started_at": run.started_at,
        "suspended_at": run.suspended_at,
        "ended_at": run.ended_at,
        "waiting_for": [_waiting(hold) for hold in getattr(run, "standing")],  # noqa: B009 - a prefetched name
        "links": _links(run),
    }


def _children(run: Run) -> QuerySet[Run, uuid.UUID]:
    found = Run.objects.filter(parent=run).order_by("created_at", "id")
    return found.values_list("pk", flat=True)[:CHILDREN]


def _pausing(run: Run) -> bool:
    paused = any(hold.cause == Cause.PERSON for hold in getattr(run, "standing"))  # noqa: B009
    return paused and run.status == RunStatus.RUNNING and run.stop_requested is None


def _in_flight(run: Run) -> list[int]:
    """Only while nothing new starts, so that it changes with the run's `version` and not without it."""
    waits = _pausing(run) or (run.stop_requested is not None and not run.ended)
    return [step.index for step in stops.in_flight(run)] if waits else []


def _links(run: Run) -> dict[str, str]:
    names = {"self": "run"} | {
        verb: verb for verb in ("steps", "events", "pause", "stop", "resume", "cancel")
    }
    return {name: reverse(f"api:{route}", args=[run.id]) for name, route in names.items()}


def _waiting(hold: Hold) -> WaitingFor:
    return WaitingFor(
        id=hold.id,
        cause=Cause(hold.cause),
        subject=hold.subject,
        why=hold.why,
        step=hold.step.index if hold.step else None,
        by=hold.opened_by_name,
        since=hold.opened_at,
        until=hold.expires_at,
        asked=Asked(**asked) if (asked := getattr(hold, "asked", None)) else None,
    )


def _allowance(row: Allowance) -> ShownAllowance:
    marks = {name: getattr(row, name) for name in ("limit", "soft", "used", "reserved", "remaining")}
    told = {name: None if mark is None else allowance.plain(mark) for name, mark in marks.items()}
    return ShownAllowance(unit=row.unit, shared=row.name if row.shared else None, **told)


def _failure(text: str | None) -> Failure | None:
    """A recorded error. `ToolFailed` stands for a type nobody declared, and carries its name."""
    if text is None:
        return None
    kept = json.loads(text)
    kind, args = kept["type"].rpartition(":")[2], kept["args"]
    if kind == "ToolFailed" and len(args) == 2:
        kind, args = args[0], args[1:]
    return Failure(kind=kind, message=", ".join(map(str, args)))


def step(row: Step) -> ShownStep:
    raised = row.status == StepStatus.RAISED
    return ShownStep(
        index=row.index,
        tool=row.tool,
        tool_version=row.tool_version,
        status=StepStatus(row.status),
        arguments=json.loads(row.arguments),
        executed=None if row.executed is None else json.loads(row.executed),
        result=None if raised or row.result is None else json.loads(row.result),
        error=_failure(row.result) if raised else None,
        effect=_effect(row),
        decision=row.decision,
        created_at=row.created_at,
        settled_at=row.settled_at,
    )


def _effect(row: Step) -> Effect | None:
    if not row.effect:
        return None
    return Effect(
        state=EffectState(row.effect),
        key=row.key,
        attempt=row.attempt,
        dispatched_at=row.dispatched_at,
        may_act_until=row.may_act_until,
    )


def agent(latest: Agent[..., Any], versions: list[str]) -> ShownAgent:
    return ShownAgent(
        name=latest.name,
        version=latest.version,
        title=latest.title,
        input_schema=latest.signature.schema(),
        versions=versions,
    )
