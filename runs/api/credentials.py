"""Credentials at the API: saying that one is authorised again."""

from django.db import transaction
from drf_spectacular.utils import extend_schema
from pydantic import BaseModel
from rest_framework.request import Request
from rest_framework.response import Response

from runs import callers, credentials, journal, serializers
from runs.actors import Actor
from runs.api import bodies, problem
from runs.api.description import answers
from runs.api.views import Door
from runs.exceptions import NotFound
from runs.models import Credential


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
        caller = callers.of(request)
        actor = caller.operates()
        if actor is None:
            _journal_refusal(name, caller.actor)
            raise problem.Refused("forbidden", "only keys of operators may do that")
        if "\x00" in name:
            raise NotFound("no call has asked for a credential of that name")
        waiting = credentials.authorised(name, actor=actor, why=why)
        return Response(Waited(waiting=waiting).model_dump())


def _journal_refusal(name: str, actor: Actor) -> None:
    found = None if "\x00" in name else Credential.objects.filter(pk=name).first()
    if found is not None:
        with transaction.atomic():
            journal.write(found, actor, "refused", asked="authorised", code="forbidden")
