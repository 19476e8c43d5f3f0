"""Telling a run of an event: something outside happened, and the agent waits for it or will."""

import uuid

from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from runs import callers, events, serializers, values
from runs.api import bodies, problem
from runs.api.description import REPLAYED, answers
from runs.api.views import Door
from runs.callers import Caller
from runs.exceptions import RunEnded
from runs.models import Event
from runs.serializers import Place, ShownEvent, TellEvent


class Events(Door):
    @extend_schema(
        operation_id="runs_tell",
        summary="Tell a run of an event",
        parameters=[REPLAYED],
        request=TellEvent,
        responses=answers(404, 409, 413, 415, 422, s201=ShownEvent, s200=ShownEvent),
    )
    def post(self, request: Request, run_id: uuid.UUID) -> Response:
        """The first wait for this name goes on; an event that nobody waits for yet is kept for the next one. The
        same id again counts once: 200 with the first answer, 409 `event_reused` when name or payload differ."""
        self.query(serializers.Query)
        body = bodies.read(request, TellEvent)
        event, new = _tell(callers.of(request), run_id, body)
        shown = ShownEvent(id=event.event_id, name=event.name, told_at=event.told_at).model_dump(mode="json")
        if new:
            return Response(shown, status=status.HTTP_201_CREATED)
        return Response(shown, headers={"Idempotent-Replayed": "true"})


def _tell(caller: Caller, run_id: uuid.UUID, body: TellEvent) -> tuple[Event, bool]:
    run = callers.find(caller, run_id)
    if not caller.may_control(run):
        raise problem.Refused("forbidden", "only its submitter and operators may do that")
    if len(values.canonical(body.payload).encode()) > values.MAX_ARGUMENTS:
        at_most = f"at most {values.MAX_ARGUMENTS:,} bytes"
        place = Place(pointer="/payload", detail=at_most)
        raise problem.too_large("the payload", values.MAX_ARGUMENTS, place)
    try:
        return events.tell(run.pk, name=body.name, event_id=body.id, payload=body.payload, actor=caller.actor)
    except RunEnded as ended:
        standing = callers.find(caller, run_id).status
        raise problem.Refused(ended.code, str(ended), run_status=standing) from ended
