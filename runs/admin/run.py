"""Runs in the admin: a list to find them by, one run with its links, and the verbs of operators."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from django.contrib import admin
from django.db import transaction
from django.db.models import Count, Prefetch, Q, QuerySet
from django.http import HttpRequest
from django.urls import URLPattern

from runs import agents, allowance, callers, endings, holds, journal, lifecycle, stops
from runs.actors import Actor
from runs.admin import looking, undoing, versions
from runs.admin.looking import Filter
from runs.admin.verbs import Verb, WithVerbs
from runs.exceptions import WrongState
from runs.lifecycle import Submission
from runs.models import FactReading, Hold, JournalEntry, Run, Snapshot, Step
from runs.states import Cause, RunStatus


def actor(request: HttpRequest) -> Actor:
    """Who stands at this door, as the journal tells it."""
    return replace(callers.of(request).actor, door="admin")


# -- The verbs -----------------------------------------------------------------------


def _pause(run: Run) -> Hold | None:
    return next((hold for hold in run.standing if hold.cause == Cause.PERSON), None)  # type: ignore[attr-defined]


def _why_not_pause(run: Run) -> str:
    if run.ended:
        return f"It has ended: {run.status}."
    paused = _pause(run)
    return f"{paused.opened_by_name} paused it already." if paused is not None and paused.by_operator else ""


def _why_not_stop(run: Run) -> str:
    if run.ended:
        return f"It has ended: {run.status}."
    paused = _pause(run)
    stopped = paused is not None and paused.by_operator and paused.detail.get("stop_now")
    return f"{paused.opened_by_name} stopped it already." if paused is not None and stopped else ""


def _why_not_resume(run: Run) -> str:
    if run.ended:
        return f"It has ended: {run.status}."
    return "" if _pause(run) else f"It is not paused; it is {run.status}."


def _why_not_cancel(run: Run) -> str:
    if run.ended:
        return f"It has ended: {run.status}."
    return "It is being cancelled already." if run.stop_requested else ""


def _why_not_again(run: Run) -> str:
    return "" if run.ended else f"It has not ended; it is {run.status}."


def _do_pause(request: HttpRequest, run: Run, why: str) -> str:
    holds.pause(run.pk, actor=actor(request), why=why)
    return _stands(run, "paused")


def _do_stop(request: HttpRequest, run: Run, why: str) -> str:
    stops.stop_now(run.pk, actor=actor(request), why=why)
    return _stands(run, "stopped")


def _stands(run: Run, word: str) -> str:
    run.refresh_from_db()
    busy = stops.in_flight(run) if run.status == RunStatus.RUNNING else []
    return f"finishing step {busy[0].index}, then {word}." if busy else f"{word}."


def _do_resume(request: HttpRequest, run: Run, why: str) -> str:
    resumed = holds.unpause(run.pk, actor=actor(request), why=why)
    still = resumed.status == RunStatus.SUSPENDED
    return "the pause is over; something else still holds it." if still else "resumed."


def _do_cancel(request: HttpRequest, run: Run, why: str) -> str:
    ended = endings.cancel(run.pk, actor=actor(request), why=why)
    return "cancelled." if ended.ended else "asked to stop; the call under way is finished first."


def _do_again(request: HttpRequest, run: Run, why: str) -> str:
    """A new run from the same input, on the newest version of the agent. Its submitter is who asks."""
    who = actor(request)
    limits, draws_on = allowance.asked_for(run)
    asked = Submission(
        agent=run.agent,
        arguments=json.loads(run.input),
        labels=run.labels,
        on_behalf_of=run.on_behalf_of,
        owner_id=callers.of(request).owner_id,
        again_of=run,
        limits=limits,
        draws_on=draws_on,
    )
    with transaction.atomic():
        if not lifecycle.lock(run.pk).ended:
            raise WrongState(f"run {run.pk} has not ended")
        made, _ = lifecycle.submit(asked, actor=who)
        journal.write(run, who, "run_again", run=str(made.pk), why=why)
    return f"runs again as {made.pk}, version {made.agent_version} of the agent."


def _effects_made(runs: list[Run]) -> dict[Any, str]:
    """What running again would repeat: a new run has keys of its own."""
    made = Step.objects.effects().filter(run__in=runs).exclude(effect="refused").order_by()
    counts = made.values_list("run").annotate(n=Count("pk"))
    said = "It changed, or may have changed, {} thing{} outside; a new run does it again."
    return {run: said.format(n, "s" * (n > 1)) for run, n in counts}


VERBS = (
    Verb(
        "pause",
        "Pause",
        "The call under way is finished; nothing new starts until an operator resumes it.",
        _why_not_pause,
        _do_pause,
    ),
    Verb(
        "stop",
        "Stop now",
        "A pause that does not wait for calls under way, unless their tools say that they have to be finished.",
        _why_not_stop,
        _do_stop,
    ),
    Verb(
        "resume",
        "Resume",
        "The pause is over. Whatever else holds the run still does.",
        _why_not_resume,
        _do_resume,
    ),
    Verb(
        "cancel",
        "Cancel",
        "The run ends and what it waits for is closed. This cannot be taken back.",
        _why_not_cancel,
        _do_cancel,
        harm=True,
    ),
    Verb(
        "again",
        "Run again",
        "A new run from the same input, submitted by you: you will not review it.",
        _why_not_again,
        _do_again,
        notes=_effects_made,
        harm=True,
    ),
    *versions.VERBS,
    *undoing.VERBS,
)


# -- The list ------------------------------------------------------------------------


class ByAgent(Filter):
    """The agents of this process: asking the table for its agents would read all of it."""

    title = parameter_name = "agent"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(name, name) for name in sorted({made.name for made in agents.all_versions()})]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Run]) -> QuerySet[Run]:
        return queryset.filter(agent=self.value()) if self.value() else queryset


class ByCause(Filter):
    """Runs that something of this cause holds now."""

    title = "held by"
    parameter_name = "cause"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Sequence[tuple[str, str]]:
        return [(str(word), str(label)) for word, label in Cause.choices]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Run]) -> QuerySet[Run]:
        if self.value() not in Cause.values:
            return queryset
        return queryset.filter(pk__in=Hold.objects.open().filter(cause=self.value()).values("run"))


@admin.register(Run)
class RunAdmin(WithVerbs, looking.ById):
    verbs = VERBS
    list_display = (
        "shortly",
        "agent_and_version",
        "where",
        "held_by",
        "steps_settled",
        "started_by",
        "created",
    )
    list_display_links = ("shortly",)
    list_filter = ("status", ByCause, ByAgent)
    search_help_text = "An id or its first digits, an agent, or who started it"
    look_template = "admin/runs/run/look.html"

    as_json = frozenset({"input", "result", "error"})
    as_code = frozenset({"id", "code_digest", "token"})
    shown = (
        ("Where it stands", ("status", "held_by", "stop_requested", "position", "result", "error")),
        (
            "What was asked",
            (
                "id",
                "agent",
                "agent_version",
                "input",
                "labels",
                "submitter_name",
                "on_behalf_of",
                "idempotency_key",
                "again_of",
                "code_digest",
            ),
        ),
        ("When", ("created_at", "started_at", "suspended_at", "ended_at", "changed_at")),
        (
            "The machinery",
            (
                "epoch",
                "taken_by",
                "lease_until",
                "wakes",
                "open_holds",
                "rings",
                "rung_at",
                "record",
                "seq",
                "head",
            ),
        ),
    )

    created = looking.moment("created_at", "Created")
    where = looking.pill("status", "Status")

    @admin.display(description="Steps")
    def steps_settled(self, run: Run) -> int:
        return run.position

    @admin.display(description="Started by")
    def started_by(self, run: Run) -> str:
        return run.submitter_name

    @admin.display(description="Run")
    def shortly(self, run: Run) -> str:
        return run.short_id

    @admin.display(description="Agent")
    def agent_and_version(self, run: Run) -> str:
        return f"{run.agent} {run.agent_version}"

    @admin.display(description="Held by", empty_value="–")
    def held_by(self, run: Run) -> str:
        causes = {hold.cause.replace("_", " ") for hold in run.standing}  # type: ignore[attr-defined]
        return ", ".join(sorted(causes))

    def get_queryset(self, request: HttpRequest) -> QuerySet[Run]:
        standing = Prefetch("holds", Hold.objects.open(), to_attr="standing")
        return super().get_queryset(request).select_related(None).prefetch_related(standing)

    def search_words(self, queryset: QuerySet[Run], term: str) -> QuerySet[Run]:
        asks = (
            Q(agent__istartswith=term) | Q(submitter_name__icontains=term) | Q(on_behalf_of__icontains=term)
        )
        return queryset.filter(asks) if term else queryset

    def get_urls(self) -> list[URLPattern]:
        return [*versions.urls(), *super().get_urls()]

    def more(self, request: HttpRequest, found: Run) -> dict[str, Any]:
        return {"buttons": self.buttons(request, found)}

    def related(self, run: Run) -> list[tuple[str, str]]:
        return [
            ("Steps", looking.list_of(Step, run__id__exact=run.pk)),
            ("Effects", looking.list_of(Step, run__id__exact=run.pk, effect="any")),
            ("Holds", looking.list_of(Hold, run__id__exact=run.pk)),
            ("Snapshots", looking.list_of(Snapshot, run__id__exact=run.pk)),
            ("Facts", looking.list_of(FactReading, q=run.pk)),
            ("Journal", looking.list_of(JournalEntry, stream__exact=run.stream)),
        ]
