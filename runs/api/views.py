"""The API's views: each parses, calls one verb and answers. Runs of others do not exist here."""

import uuid
from typing import Any, TypeVar

from django.db import transaction
from django.db.models import QuerySet
from django.http import Http404, HttpRequest
from django.urls import reverse
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from runs import (
    agents,
    allowance,
    bulk,
    callers,
    endings,
    holds,
    journal,
    lifecycle,
    serializers,
    stops,
    values,
)
from runs.actors import Actor
from runs.api import bodies, description, pages, parameters, problem, throttle, waiting
from runs.api.description import answers
from runs.callers import Caller
from runs.exceptions import BadValue, NotFound, RunEnded, WrongState
from runs.lifecycle import Limit, Submission
from runs.models import Run, Step
from runs.serializers import Place

Q = TypeVar("Q", bound=serializers.Query)


class Door(APIView):
    """What all views of the API share."""

    def initialize_request(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Request:
        bodies.unchunk(request)
        return super().initialize_request(request, *args, **kwargs)

    @property
    def default_response_headers(self) -> dict[str, str]:
        return {**super().default_response_headers, "Cache-Control": "no-store"}

    def query(self, model: type[Q]) -> Q:
        return parameters.read(self.request.query_params, model)


def _find(caller: Caller, run_id: uuid.UUID) -> Run:
    """A run with its open holds. Raises NotFound, the same for unknown and foreign ones."""
    run = serializers.with_holds(caller.visible(Run.objects.all())).filter(pk=run_id).first()
    if run is None:
        raise NotFound(f"there is no run {run_id}")
    return run


def _json(model: Any, code: int = status.HTTP_200_OK, **headers: str) -> Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Response(model.model_dump(mode="json"), status=code, headers=named)


class Runs(Door):
    throttle_classes = (throttle.Submissions,)

    @extend_schema(
        operation_id="runs_list",
        summary="List your runs",
        parameters=description.FILTERS,
        responses=answers(422, s200=serializers.RunsPage),
    )
    def get(self, request: Request) -> Response:
        """Newest first. What went in and came out is in each run's own answer."""
        asked = self.query(serializers.Filters)
        found = _filtered(callers.of(request).visible(Run.objects.all()), asked)
        rows, cursor = pages.runs(serializers.with_holds(found), asked.cursor, asked.limit)
        shown = [serializers.listed(run) for run in rows]
        return _json(serializers.RunsPage(results=shown, next=pages.next_address(request, cursor)))

    @extend_schema(
        operation_id="runs_submit",
        summary="Start a run",
        parameters=[description.IDEMPOTENCY_KEY, *description.CREATED],
        request=serializers.Submit,
        responses=answers(413, 415, 422, 429, s201=serializers.ShownRun, s200=serializers.ShownRun),
    )
    def post(self, request: Request) -> Response:
        """Answers at once; the run starts when a worker takes it."""
        self.query(serializers.Query)
        caller = callers.of(request)
        asked = _submission(request, caller)
        made, new = lifecycle.submit(asked, actor=caller.actor)
        run = _find(caller, made.pk)
        address = reverse("api:run", args=[run.pk])
        if new:
            return _json(serializers.shown(run), status.HTTP_201_CREATED, Location=address)
        return _json(serializers.shown(run), Location=address, Idempotent_Replayed="true")


def _filtered(runs: QuerySet[Run], asked: serializers.Filters) -> QuerySet[Run]:
    """Runs a list shows, without the columns it does not show."""
    if asked.status:
        runs = runs.filter(status__in=asked.status)
    if asked.agent:
        runs = runs.filter(agent=asked.agent)
    if asked.label:
        runs = runs.filter(labels__contains=asked.label)
    if asked.created_after:
        runs = runs.filter(created_at__gte=asked.created_after)
    if asked.created_before:
        runs = runs.filter(created_at__lt=asked.created_before)
    return runs.defer("input", "result", "error")


def _submission(request: Request, caller: Caller) -> Submission:
    key = parameters.idempotency_key(request)
    body = bodies.read(request, serializers.Submit)
    if len(values.canonical(body.input).encode()) > values.MAX_ARGUMENTS:
        at_most = f"at most {values.MAX_ARGUMENTS:,} bytes"
        raise problem.too_large("the input", values.MAX_ARGUMENTS, Place(pointer="/input", detail=at_most))
    return Submission(
        agent=body.agent,
        arguments=body.input,
        labels=body.labels,
        on_behalf_of=body.on_behalf_of,
        idempotency_key=key,
        owner_id=caller.owner_id,
        limits=_limits(body.allowance),
        draws_on=tuple(dict.fromkeys(body.draws_on)),
    )


def _limits(given: dict[str, Any]) -> tuple[Limit, ...]:
    try:
        return allowance.limits(given)
    except BadValue as bad:
        place = ("/allowance" + bad.path, bad.message)
        raise problem.misfit("bad_body", "this is no allowance", [place]) from None


class OneRun(Door):
    @extend_schema(
        operation_id="runs_read",
        summary="Read a run, or wait until it moves",
        parameters=[*description.WAIT, description.RETRY_AFTER],
        responses=answers(404, 422, s200=serializers.ShownRun),
    )
    def get(self, request: Request, run_id: uuid.UUID) -> Response:
        """What is asked for, what came of it, and what it waits for."""
        asked = self.query(serializers.Wait)
        caller = callers.of(request)
        run = _find(caller, run_id)
        known = serializers.version(run)
        if run.ended or not asked.wait or asked.since not in (None, str(known)):
            return _json(serializers.shown(run))
        with waiting.place() as got:
            if not got:
                return _json(serializers.shown(run), Retry_After=str(waiting.RETRY_AFTER))
            waiting.until_moved(run_id, known, asked.wait)
        return _json(serializers.shown(_find(caller, run_id)))


class Steps(Door):
    @extend_schema(
        operation_id="runs_steps",
        summary="List a run's steps",
        parameters=description.PAGED,
        responses=answers(404, 422, s200=serializers.StepsPage),
    )
    def get(self, request: Request, run_id: uuid.UUID) -> Response:
        """The calls the agent made or wants to make, with what came of each."""
        asked = self.query(serializers.Paged)
        run = callers.find(callers.of(request), run_id)
        rows, cursor = pages.steps(Step.objects.filter(run=run), asked.cursor, asked.limit)
        shown = [serializers.step(row) for row in rows]
        return _json(serializers.StepsPage(results=shown, next=pages.next_address(request, cursor)))


# -- Pause, resume, cancel ----------------------------------------------------------------


def journal_refusal(run_id: uuid.UUID, actor: Actor, asked: str, code: str) -> None:
    """Says in a run's journal that somebody who sees it asked for something and was refused."""
    with transaction.atomic():
        run = Run.objects.filter(pk=run_id).first()
        if run is not None:
            journal.write(run, actor, "refused", asked=asked, code=code)


class Control(Door):
    """A verb on a run, with an optional reason; `asked` is its name in the journal."""

    asked: str

    def may(self, caller: Caller, run: Run) -> bool:
        return caller.may_control(run)

    def do(self, caller: Caller, run: Run, why: str) -> object:
        raise NotImplementedError

    def act(self, request: Request, run_id: uuid.UUID) -> Run:
        """Raises NotFound, and Refused: forbidden, or what the verb said together with the run's status."""
        self.query(serializers.Query)
        why = bodies.read(request, serializers.Reason).reason
        caller = callers.of(request)
        run = callers.find(caller, run_id)
        if not self.may(caller, run):
            journal_refusal(run_id, caller.actor, self.asked, "forbidden")
            raise problem.Refused("forbidden", "only its submitter and operators may do that")
        try:
            self.do(caller, run, why)
        except (RunEnded, WrongState) as refused:
            journal_refusal(run_id, caller.actor, self.asked, refused.code)
            standing = callers.find(caller, run_id).status
            raise problem.Refused(refused.code, str(refused), run_status=standing) from refused
        return _find(caller, run_id)


_CONTROLLED = answers(404, 409, 413, 415, 422, s200=serializers.ShownRun)


class Pause(Control):
    asked = "pause"

    def may(self, caller: Caller, run: Run) -> bool:
        return caller.may_control(run) or caller.may_pause(run)

    def do(self, caller: Caller, run: Run, why: str) -> object:
        return holds.pause(run.pk, actor=caller.actor, why=why)

    @extend_schema(
        operation_id="runs_pause",
        summary="Pause a run",
        request=serializers.Reason,
        responses=_CONTROLLED,
    )
    def post(self, request: Request, run_id: uuid.UUID) -> Response:
        """Nothing new starts after the answer; a call in flight is finished. Pausing twice is one pause."""
        return _json(serializers.shown(self.act(request, run_id)))


class Stop(Control):
    asked = "stop"

    def do(self, caller: Caller, run: Run, why: str) -> object:
        return stops.stop_now(run.pk, actor=caller.actor, why=why)

    @extend_schema(
        operation_id="runs_stop",
        summary="Stop a run now",
        request=serializers.Reason,
        responses=_CONTROLLED,
    )
    def post(self, request: Request, run_id: uuid.UUID) -> Response:
        """A pause that does not wait for calls in flight, unless their tools say that they have to be finished
        (`in_flight` names those). Resume it like a pause."""
        return _json(serializers.shown(self.act(request, run_id)))


class Resume(Control):
    asked = "resume"

    def do(self, caller: Caller, run: Run, why: str) -> object:
        return holds.unpause(run.pk, actor=caller.actor, why=why)

    @extend_schema(
        operation_id="runs_resume",
        summary="Resume a run you paused",
        request=serializers.Reason,
        responses=_CONTROLLED,
    )
    def post(self, request: Request, run_id: uuid.UUID) -> Response:
        """Releases your pause, and nothing else that holds the run."""
        return _json(serializers.shown(self.act(request, run_id)))


class Cancel(Control):
    asked = "cancel"

    def do(self, caller: Caller, run: Run, why: str) -> object:
        return endings.cancel(run.pk, actor=caller.actor, why=why)

    @extend_schema(
        operation_id="runs_cancel",
        summary="Cancel a run",
        request=serializers.Reason,
        responses={**_CONTROLLED, 202: serializers.ShownRun},
    )
    def post(self, request: Request, run_id: uuid.UUID) -> Response:
        """Nothing new starts after the answer. 202: a call in flight is finished, then the run ends."""
        run = self.act(request, run_id)
        return _json(serializers.shown(run), status.HTTP_200_OK if run.ended else status.HTTP_202_ACCEPTED)


# -- All runs of an agent ------------------------------------------------------------------


class AllOf(Door):
    """A verb on all live runs of an agent, for keys of operators."""

    verb: str

    def act(self, request: Request, agent: str) -> Response:
        self.query(serializers.Query)
        why = bodies.read(request, serializers.Reason).reason
        actor = callers.of(request).operates()
        if actor is None:
            raise problem.Refused("forbidden", "only keys of operators may do that")
        if "\x00" in agent:
            raise NotFound("there is no agent of that name")
        swept = bulk.sweep(self.verb, agent, actor=actor, why=why)
        return _json(serializers.Swept(runs=swept.runs, changed=swept.changed))


def _all_of(verb: str, summary: str, says: str) -> type[AllOf]:
    """The view of one such verb."""

    @extend_schema(
        operation_id=f"agents_{verb}",
        summary=summary,
        description=f"{says} For keys whose owner is an operator. Runs that start later are not touched.",
        request=serializers.Reason,
        responses=answers(403, 404, 413, 415, 422, s200=serializers.Swept),
    )
    def post(self: AllOf, request: Request, agent: str) -> Response:
        return self.act(request, agent)

    return type(f"{verb.capitalize()}All", (AllOf,), {"verb": verb, "post": post})


PauseAll = _all_of(
    "pause", "Pause all runs of an agent", "Nothing new starts in any of them after the answer."
)
StopAll = _all_of("stop", "Stop all runs of an agent now", "Calls in flight are treated as their tools say.")
CancelAll = _all_of("cancel", "Cancel all runs of an agent", "Calls that have to be finished are.")
ResumeAll = _all_of(
    "resume", "Resume the runs of an agent that were paused together", "Lifts no pause placed on one run."
)


# -- What there is ------------------------------------------------------------------------


class Agents(Door):
    @extend_schema(
        operation_id="agents_list",
        summary="List the agents that can be started",
        responses=answers(422, s200=serializers.AgentsList),
    )
    def get(self, request: Request) -> Response:
        """Each by the version that new runs start on, with the JSON Schema of its input."""
        self.query(serializers.Query)
        versions: dict[str, list[str]] = {}
        for made in agents.offered():
            versions.setdefault(made.name, []).append(made.version)
        shown = [serializers.agent(agents.latest(name), versions[name]) for name in sorted(versions)]
        return _json(serializers.AgentsList(results=shown))


@extend_schema(exclude=True)
class Nothing(APIView):
    """Every other address under /api/, for every method, whoever asks."""

    authentication_classes = ()
    permission_classes = ()

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        raise Http404
