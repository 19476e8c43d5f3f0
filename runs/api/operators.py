"""The API's doors for operators: settling a doubt, undoing what an ended run did, and a run that differs from its
record.

An operator stands behind a key whose owner is one. Who is none learns no more of a run than elsewhere: 404 for
one that is not theirs, 403 for their own.
"""

import uuid
from typing import Any

from django.urls import reverse
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from runs import callers, compensation, divergence, doubts, serializers, values
from runs.actors import Actor
from runs.api import bodies, description, problem
from runs.api.description import answers
from runs.api.views import Door, journal_refusal
from runs.callers import Caller
from runs.exceptions import HoldClosed, RunEnded, RunsError, WrongState
from runs.models import Run


class ForOperators(Door):
    """A verb with its own body, on a run that operators see whoever it belongs to."""

    asked: str

    def operator(self, caller: Caller, run_id: uuid.UUID) -> Actor:
        """Who acts. Raises NotFound for a run that is not theirs, and Refused for their own: journalled."""
        actor = caller.operates()
        if actor is not None:
            return actor
        self.refused(callers.find(caller, run_id).pk, caller.actor, "forbidden")
        raise problem.Refused("forbidden", "only operators may do that")

    def refused(self, run_id: uuid.UUID, actor: Actor, code: str) -> None:
        journal_refusal(run_id, actor, self.asked, code)

    def conflict(self, run_id: uuid.UUID, actor: Actor, refused: RunsError) -> problem.Refused:
        """What the verb said together with the run's status."""
        self.refused(run_id, actor, refused.code)
        standing = Run.objects.values_list("status", flat=True).get(pk=run_id)
        return problem.Refused(refused.code, str(refused), run_status=standing)


class Settle(ForOperators):
    asked = "settle"

    @extend_schema(
        operation_id="steps_settle",
        summary="Settle an effect in doubt",
        request=serializers.Settle,
        responses=answers(403, 404, 409, 413, 415, 422, s200=serializers.ShownStep),
    )
    def post(self, request: Request, run_id: uuid.UUID, index: int) -> Response:
        """For keys whose owner is an operator. The same answer again by the same key changes nothing."""
        self.query(serializers.Query)
        body = bodies.read(request, serializers.Settle)
        caller = callers.of(request)
        actor = self.operator(caller, run_id)
        try:
            step = doubts.settle(run_id, index, _said(body), actor=actor, owner_id=caller.owner_id)
        except WrongState as refused:
            raise self.conflict(run_id, actor, refused) from refused
        return Response(serializers.step(step).model_dump(mode="json"))


def _said(body: serializers.Settle) -> doubts.Said:
    """A result that was sent is one, also null; where it happened it is needed."""
    given = "result" in body.model_fields_set
    if body.answer == "happened" and not given:
        raise problem.misfit("bad_body", "what happened has a result", [("/result", "this is missing")])
    return doubts.Said(body.answer, body.reason, values.canonical(body.result) if given else None)


class Compensate(ForOperators):
    asked = "compensate"

    @extend_schema(
        operation_id="runs_compensate",
        summary="Undo what an ended run did",
        parameters=description.CREATED[:1],
        request=serializers.Compensate,
        responses=answers(403, 404, 409, 413, 415, 422, s201=serializers.ShownRun),
    )
    def post(self, request: Request, run_id: uuid.UUID) -> Response:
        """For keys whose owner is an operator. Starts a run that calls, in reverse order, the tools that undo its
        effects; policy is asked about each. The answer is that run."""
        self.query(serializers.Query)
        body = bodies.read(request, serializers.Compensate)
        caller = callers.of(request)
        actor = self.operator(caller, run_id)
        try:
            made = compensation.compensate(
                run_id, actor=actor, owner_id=caller.owner_id, why=body.reason, indexes=body.steps
            )
        except WrongState as refused:
            raise self.conflict(run_id, actor, refused) from refused
        headers = {"Location": reverse("api:run", args=[made.pk])}
        return Response(_shown(made.pk), status=status.HTTP_201_CREATED, headers=headers)


def _shown(run_id: uuid.UUID) -> dict[str, Any]:
    run = serializers.with_holds(Run.objects.all()).get(pk=run_id)
    return serializers.shown(run).model_dump(mode="json")


# -- A run that differs from its record ----------------------------------------------------


class _OnDiverged(ForOperators):
    """A verb with a reason, which `asks_why` says is needed."""

    asks_why = ""

    def do(self, run_id: uuid.UUID, actor: Actor, why: str) -> object:
        raise NotImplementedError

    def act(self, request: Request, run_id: uuid.UUID) -> Response:
        self.query(serializers.Query)
        why = bodies.read(request, serializers.Reason).reason
        actor = self.operator(callers.of(request), run_id)
        if self.asks_why and not why.strip():
            raise problem.misfit("bad_body", self.asks_why, [("/reason", "this is missing")])
        try:
            self.do(run_id, actor, why)
        except (HoldClosed, RunEnded, WrongState) as refused:
            raise self.conflict(run_id, actor, refused) from refused
        return Response(_shown(run_id))


_ANSWERS = answers(403, 404, 409, 413, 415, 422, s200=serializers.ShownRun)


class LookAgain(_OnDiverged):
    asked = "look_again"

    def do(self, run_id: uuid.UUID, actor: Actor, why: str) -> object:
        return divergence.look_again(run_id, actor=actor, why=why)

    @extend_schema(
        operation_id="runs_look_again",
        summary="Compare a diverged run again",
        request=serializers.Reason,
        responses=_ANSWERS,
    )
    def post(self, request: Request, run_id: uuid.UUID) -> Response:
        """For keys whose owner is an operator. A difference that is still there holds the run again."""
        return self.act(request, run_id)


class Accept(_OnDiverged):
    asked = "accept"
    asks_why = "say why this difference does not matter"

    def do(self, run_id: uuid.UUID, actor: Actor, why: str) -> object:
        return divergence.accept(run_id, actor=actor, why=why)

    @extend_schema(
        operation_id="runs_accept",
        summary="Accept a diverged run's other arguments",
        request=serializers.Reason,
        responses=_ANSWERS,
    )
    def post(self, request: Request, run_id: uuid.UUID) -> Response:
        """For keys whose owner is an operator, with a reason: only where tool and index agree and the step has
        ended. Nothing is called again."""
        return self.act(request, run_id)
