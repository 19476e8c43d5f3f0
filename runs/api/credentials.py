"""Credentials at the API: saying that one is authorised again."""

from drf_spectacular.utils import extend_schema
from pydantic import BaseModel
from rest_framework.request import Request
from rest_framework.response import Response

from runs import callers, credentials, serializers
from runs.api import bodies, problem
from runs.api.description import answers
from runs.api.views import Door


class Waited(BaseModel):
    """What came of it."""

    waiting: int


class Authorised(Door):
    @extend_schema(
        operation_id="credentials_authorised",
        summary="Say that a credential is authorised again",
        request=serializers.Reason,
        responses=answers(403, 404, 413, 415, 422, s200=Waited),
    )
    def post(self, request: Request, name: str) -> Response:
        """For keys whose owner is an operator. What waits for it (`waiting`) goes on, a few calls a second, and is
        held again if it is still refused. Saying it twice is saying it once."""
        self.query(serializers.Query)
        why = bodies.read(request, serializers.Reason).reason
        actor = callers.of(request).operates()
        if actor is None:
            raise problem.Refused("forbidden", "only keys of operators may do that")
        waiting = credentials.authorised(name.replace("\x00", ""), actor=actor, why=why)
        return Response(Waited(waiting=waiting).model_dump())
