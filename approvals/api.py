"""What `approvals` adds to the REST interface: the submitter's side answers a reviewer's question."""

import uuid
from typing import Annotated

from drf_spectacular.utils import extend_schema
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from approvals import desk
from approvals.exceptions import ApprovalsError, NotVisible, Unfit
from runs import callers, serializers
from runs.api import bodies, problem
from runs.api.description import answers
from runs.api.views import Door
from runs.exceptions import NotFound
from runs.serializers.asked import Body


class AnswerQuestion(Body):
    """What the submitter says to a question that a run's answer shows as `asked`."""

    question: Annotated[int, Field(ge=1, le=2**62, description="The question's id.")]
    text: Annotated[str, Field(min_length=1, max_length=4000, description="Reviewers read it as your word.")]


class Answered(serializers.Asked):
    """The question with its answer."""

    answer: str


class Answers(Door):
    @extend_schema(
        operation_id="runs_answer",
        summary="Answer a reviewer's question",
        request=AnswerQuestion,
        responses=answers(403, 404, 409, 413, 415, 422, s200=Answered),
    )
    def post(self, request: Request, run_id: uuid.UUID) -> Response:
        """Of a run of yours that has `asked` in what it waits for. The same answer again is the same answer."""
        self.query(serializers.Query)
        said, caller = bodies.read(request, AnswerQuestion), callers.of(request)
        run = callers.find(caller, run_id)
        if not caller.own(run):
            raise problem.Refused("forbidden", "only the run's owner answers for it")
        try:
            found = desk.answer(run.pk, said.question, text=said.text, actor=caller.actor)
        except NotVisible:
            raise NotFound(f"nobody asked {said.question} about run {run_id}") from None
        except Unfit as error:
            raise problem.misfit(
                "bad_body", str(error), [("/text", text) for text in error.errors.values()]
            ) from None
        except ApprovalsError as error:
            raise problem.Refused(error.code, str(error)) from None
        told = Answered(id=found.pk, text=found.text, at=found.made_at, answer=found.answer)
        return Response(told.model_dump(mode="json"))
