"""What belongs to runs, for looking: steps with their effects, holds, snapshots, facts, the journal."""

from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest

from runs.admin import looking
from runs.admin.looking import Filter, Looking
from runs.models import FactReading, Hold, JournalEntry, Run, Snapshot, Step
from runs.states import EffectState


def _run_of(found: Any) -> str:
    return f"{found.agent} {found.short_id}"


def _number_of(step: Step) -> str:
    return f"step {step.index}"


class ByEffect(Filter):
    """The ledger: steps that went, or may have gone, outside."""

    title = parameter_name = "effect"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Sequence[tuple[str, str]]:
        return [("any", "Any"), *((str(word), str(label)) for word, label in EffectState.choices)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() == "any":
            return queryset.exclude(effect="")
        return queryset.filter(effect=self.value()) if self.value() in EffectState.values else queryset


@admin.register(Step)
class StepAdmin(looking.ById):
    """With `?effect=any` this is the ledger of effects."""

    id_lookup = "run"
    list_display = ("number", "of_run", "tool", "where", "outside", "attempt", "created")
    list_filter = ("status", ByEffect, "claim")
    list_select_related = ("run",)
    search_help_text = "The id of its run or its first digits, a tool, or an idempotency key"
    ordering = ("-id",)

    as_json = frozenset({"arguments", "executed", "result"})
    as_code = frozenset({"tool_version", "arguments_digest", "executed_digest", "key", "permit"})
    shown = (
        ("The call", ("run", "index", "tool", "status", "arguments", "result", "decision", "open_holds")),
        ("Its effect", ("effect", "key", "attempt", "may_act_until", "executed", "evidence", "permit")),
        (
            "What it has reserved, and what undoes it",
            ("claim", "claim_tries", "claim_due_at", "claim_problem", "compensated_by"),
        ),
        ("When", ("created_at", "dispatched_at", "settled_at")),
        ("Digests", ("tool_version", "arguments_digest", "executed_digest", "settled")),
    )

    of_run = looking.link("Run", "run", _run_of)
    where = looking.pill("status", "Status")
    outside = looking.pill("effect", "Effect")
    created = looking.moment("created_at", "Created")

    @admin.display(description="Step")
    def number(self, step: Step) -> str:
        return str(step.index)

    def search_words(self, queryset: QuerySet[Step], term: str) -> QuerySet[Step]:
        return queryset.filter(Q(tool=term) | Q(key=term)) if term else queryset

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> Any:
        title = {"title": "Effects"} if request.GET.get("effect") else {}
        return super().changelist_view(request, {**title, **(extra_context or {})})

    def related(self, step: Step) -> list[tuple[str, str]]:
        return [
            ("Holds", looking.list_of(Hold, step__id__exact=step.pk)),
            ("Facts", looking.list_of(FactReading, step__id__exact=step.pk)),
            (
                "Journal of its run",
                looking.list_of(JournalEntry, stream__exact=f"{Run.stream_prefix}{step.run_id}"),
            ),
        ]


class ByOpen(Filter):
    """Open holds, or released ones."""

    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Sequence[tuple[str, str]]:
        return [("open", "Open"), ("released", "Released")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        wanted = {"open": True, "released": False}.get(self.value() or "")
        return queryset if wanted is None else queryset.filter(released_at__isnull=wanted)


@admin.register(Hold)
class HoldAdmin(looking.ById):
    id_lookup = "run"
    list_display = (
        "cause_in_words",
        "of_run",
        "of_step",
        "opened",
        "opened_by_name",
        "released",
        "resolution",
    )
    list_filter = (ByOpen, "cause")
    list_select_related = ("run", "step")
    search_help_text = "The id of its run or its first digits"
    ordering = ("-opened_at", "-id")

    as_json = frozenset({"answer"})
    shown = (
        ("What it holds, and why", ("id", "run", "step", "cause", "scope", "why", "detail", "by_operator")),
        (
            "Opened",
            (
                "opened_at",
                "opened_by_name",
                "opened_by_kind",
                "opened_through",
                "expires_at",
                "look_again_at",
            ),
        ),
        (
            "Released",
            (
                "released_at",
                "released_by_name",
                "released_by_kind",
                "released_through",
                "resolution",
                "answer_as_said",
            ),
        ),
    )

    of_run = looking.link("Run", "run", _run_of)
    of_step = looking.link("Step", "step", _number_of)
    opened = looking.moment("opened_at", "Opened")
    released = looking.moment("released_at", "Released")

    @admin.display(description="Cause")
    def cause_in_words(self, hold: Hold) -> str:
        return str(hold.get_cause_display())

    @admin.display(description="Answer")
    def answer_as_said(self, hold: Hold) -> str:
        """JSON where a request was answered, a person's words where a pause was lifted."""
        return hold.answer or ""


@admin.register(Snapshot)
class SnapshotAdmin(looking.ById):
    id_lookup = "run"
    list_display = ("number", "of_run", "taken", "steps", "effects", "epoch")
    list_select_related = ("run",)
    search_help_text = "The id of its run or its first digits"
    ordering = ("-id",)

    as_code = frozenset({"effects_digest", "code_digest"})
    shown = (
        ("Why it stopped", ("run", "number", "taken_at", "open_holds", "why")),
        (
            "Where it stood",
            (
                "steps",
                "attempted",
                "effects",
                "claims",
                "used",
                "credentials",
                "record",
                "effects_digest",
                "epoch",
            ),
        ),
        ("Versions", ("agent", "agent_version", "code_digest", "schema_version")),
    )

    of_run = looking.link("Run", "run", _run_of)
    taken = looking.moment("taken_at", "Taken")


@admin.register(FactReading)
class FactReadingAdmin(looking.ById):
    id_lookup = "step__run"
    list_display = ("name", "of_run", "of_step", "source", "kind", "moment", "is_readable", "read")
    list_filter = ("kind", "moment")
    list_select_related = ("step__run",)
    search_help_text = "The id of its run or its first digits"
    ordering = ("-id",)

    as_json = frozenset({"value"})
    as_code = frozenset({"look"})
    shown = (
        ("The look", ("step", "name", "source", "kind", "moment", "read_at", "look", "fresh_for")),
        ("What was seen", ("value", "problem")),
    )

    of_step = looking.link("Step", "step", _number_of)
    read = looking.moment("read_at", "Read")

    @admin.display(description="Run")
    def of_run(self, reading: FactReading) -> str:
        return looking.link("Run", "run", _run_of)(self, reading.step)

    @admin.display(description="Readable", boolean=True)
    def is_readable(self, reading: FactReading) -> bool:
        return reading.readable


@admin.register(JournalEntry)
class JournalAdmin(Looking):
    list_display = ("seq", "when", "verb", "actor_name", "door", "stream")
    list_display_links = ("seq", "verb")
    search_fields = ("stream",)
    search_help_text = "A stream: run:ID, request:ID, policy:1; or the id of a run"
    ordering = ("-id",)

    as_json = frozenset({"detail"})
    shown = (
        ("What was done", ("stream", "seq", "at", "verb", "detail")),
        ("By whom", ("actor_name", "actor_kind", "actor_id", "door")),
        ("Its place in the chain", ("hash",)),
    )

    when = looking.moment("at", "When")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[JournalEntry], search_term: str
    ) -> tuple[QuerySet[JournalEntry], bool]:
        """By whole streams, which the index serves."""
        term = search_term.strip()
        if not term:
            return queryset, False
        return queryset.filter(stream=term if ":" in term else f"{Run.stream_prefix}{term}"), False
