"""Hears the signals of `runs` inside their transactions, and registers what `approvals` adds: the authority
the gate asks, the callers its doors know, and verbs for the sweeper."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from approvals import authority, decisions, leftovers, looks, moves, notifications, requests, rights
from approvals.models import Permit, Request
from approvals.presentation import stories
from approvals.states import RequestState
from runs import callers, gate, queues, signals, sweeper, views
from runs import moves as runs_move
from runs.actors import Actor
from runs.gate import Asked
from runs.models import Hold, Run, Step
from runs.states import StepStatus

AT_ONCE = 200


def connect() -> None:
    """Called once, when the app is ready."""
    gate.register(authority.Authority())
    runs_move.register("people", moves.People())
    callers.register(rights.identify)
    views.tell_with(stories.tell)
    views.tell_decisions_with(stories.decisions)
    signals.hold_placed.connect(on_hold_placed, dispatch_uid="approvals")
    signals.hold_released.connect(on_hold_released, dispatch_uid="approvals")
    signals.run_ended.connect(on_run_ended, dispatch_uid="approvals")
    sweeper.register("take_effect", _taking_effect, decisions.take_effect)
    sweeper.register("lapse", _permits_due, decisions.lapse)
    sweeper.register("look", _looks_wanted, looks.want_again)
    sweeper.register("mail", _mails_due, notifications.send)
    sweeper.register("clear", leftovers.due, leftovers.clear)


def on_hold_placed(
    sender: Any, *, run: Run, hold: Hold, step: Step | None, context: object, **kwargs: Any
) -> None:
    if isinstance(context, Asked) and step is not None:
        requests.open_or_reopen(run, hold, step, context)


def on_hold_released(sender: Any, *, run: Run, hold: Hold, **kwargs: Any) -> None:
    if hold.resolution == "expired":
        requests.expire(hold)
    elif hold.resolution == "evidence":
        requests.supersede(hold, "it is known now what came of the call")


def on_run_ended(sender: Any, *, run: Run, actor: Actor, why: str, **kwargs: Any) -> None:
    requests.cancel_all(run, actor, why)


def _taking_effect(now: datetime) -> Iterable[Any]:
    due = Request.objects.filter(state=RequestState.DECIDED, takes_effect_at__lte=now)
    return due.values_list("pk", flat=True)[:AT_ONCE]


def _permits_due(now: datetime) -> Iterable[Any]:
    due = Permit.objects.in_force().filter(consume_by__lte=now, request__state=RequestState.IN_FORCE)
    return due.exclude(request__step__status=StepStatus.DISPATCHED).values_list("pk", flat=True)[:AT_ONCE]


def _looks_wanted(now: datetime) -> Iterable[Any]:
    if not 0 <= queues.length() <= sweeper.QUEUE_FULL:  # -1: it does not answer, and ringing is of no use
        return []
    due = Request.objects.looks_wanted().filter(look_wanted_at__lt=now - looks.AGAIN_AFTER)
    return due.values_list("pk", flat=True)[:AT_ONCE]


def _mails_due(now: datetime) -> Iterable[Any]:
    return notifications.due(now).values_list("pk", flat=True)[:AT_ONCE]
