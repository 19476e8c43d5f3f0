"""Requests, revisions, decisions, permits, mails and the admin's own log, for looking."""

from typing import Any, ClassVar

from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.db.models import QuerySet
from django.http import HttpRequest

from approvals.models import Decision, Notification, Permit, Request, Revision
from approvals.policies import TIERS
from approvals.presentation import quorum
from runs.admin import looking
from runs.models import JournalEntry, Run


def _ref(request: Request) -> str:
    return request.ref


def _run(run: Run) -> str:
    return f"{run.agent} {run.short_id}"


class OfRequest(looking.ById):
    """Rows that hang on a request: found by its ref, or by the id of its run."""

    id_lookup = "request__run"
    search_help_text = "A request's ref, or the id of its run or its first digits"
    list_select_related: ClassVar[Any] = ("request",)

    of_request = looking.link("Request", "request", _ref)

    def search_words(self, queryset: QuerySet[Any], term: str) -> QuerySet[Any]:
        return queryset.filter(request__ref=term.upper()) if term else queryset


class ByTier(looking.Filter):
    """The tiers there are: asking the table for those in it would read all of it."""

    title = parameter_name = "tier"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(tier, tier) for tier in TIERS]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(tier=self.value()) if self.value() else queryset


@admin.register(Request)
class RequestAdmin(looking.ById):
    id_lookup = "run"
    list_display = ("ref", "kind", "standing", "tier", "of_run", "group", "opened", "until", "number")
    list_filter = ("state", "kind", ByTier, "group")
    list_select_related = ("run", "group")
    search_help_text = "A ref, or the id of its run or its first digits"
    ordering = ("-opened_at", "-ref")
    look_template = "admin/approvals/request/look.html"

    shown = (
        ("Where it stands", ("ref", "kind", "state", "number", "closed_why")),
        ("Who decides", ("tier", "group", "quorum")),
        ("What it is about", ("run", "step", "hold")),
        (
            "When",
            (
                "opened_at",
                "decide_by",
                "decided_at",
                "takes_effect_at",
                "closed_at",
                "looked_at",
                "look_wanted_at",
            ),
        ),
    )

    standing = looking.pill("state", "State")
    of_run = looking.link("Run", "run", _run)
    opened = looking.moment("opened_at", "Opened")
    until = looking.moment("decide_by", "Decide by")

    def search_words(self, queryset: QuerySet[Request], term: str) -> QuerySet[Request]:
        return queryset.filter(ref=term.upper()) if term else queryset

    def related(self, request: Request) -> list[tuple[str, str]]:
        return [
            ("Revisions", looking.list_of(Revision, request__id__exact=request.pk)),
            ("Decisions", looking.list_of(Decision, request__id__exact=request.pk)),
            ("Permits", looking.list_of(Permit, request__id__exact=request.pk)),
            ("Mails", looking.list_of(Notification, request__id__exact=request.pk)),
            ("Journal", looking.list_of(JournalEntry, stream__exact=request.stream)),
        ]


@admin.register(Revision)
class RevisionAdmin(OfRequest):
    list_display = ("number", "of_request", "tool", "reason", "author_name", "policy_version", "created")
    ordering = ("-id",)

    as_json = frozenset({"arguments"})
    as_code = frozenset({"tool_version", "arguments_digest", "digest"})
    shown = (
        ("What is decided on", ("request", "number", "tool", "arguments", "facts")),
        ("Why there is a new one", ("reason", "changes", "author_name", "note")),
        ("What policy said", ("policy_version", "judgement")),
        ("Digests", ("digest", "arguments_digest", "tool_version", "created_at")),
    )

    created = looking.moment("created_at", "Created")

    def title(self, found: Revision) -> str:
        return f"Revision {found.number} of {found.request.ref}"


@admin.register(Decision)
class DecisionAdmin(OfRequest):
    list_display = ("said", "person_name", "of_request", "door", "made")
    list_filter = ("verb",)
    list_select_related = ("request", "revision")
    ordering = ("-made_at", "-id")

    as_json = frozenset({"answer"})
    as_code = frozenset({"digest", "id"})
    shown = (
        ("What was said", ("request", "revision", "verb", "reason", "answer")),
        ("By whom", ("person_name", "person_id", "door", "made_at")),
        ("What they saw", ("digest", "id")),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Decision]:
        """Where reviewers do not see each other, who reads here may be one who has yet to decide."""
        return quorum.told(super().get_queryset(request), str(request.user.pk))

    said = looking.pill("verb", "Decision")
    made = looking.moment("made_at", "Made")


@admin.register(Permit)
class PermitAdmin(OfRequest):
    list_display = ("short", "of_request", "granted", "until", "consumed", "voided", "void_why")
    ordering = ("-granted_at",)

    shown = (
        ("The approval in force", ("id", "request", "revision", "granted_at", "consume_by")),
        ("What came of it", ("consumed_at", "voided_at", "void_why")),
    )

    granted = looking.moment("granted_at", "Granted")
    until = looking.moment("consume_by", "To be used by")
    consumed = looking.moment("consumed_at", "Used")
    voided = looking.moment("voided_at", "Voided")

    @admin.display(description="Permit")
    def short(self, permit: Permit) -> str:
        return str(permit.pk)[:8]


@admin.register(Notification)
class NotificationAdmin(OfRequest):
    list_display = ("kind", "address_of", "of_request", "number", "created", "sent", "attempts", "given_up")
    list_filter = ("given_up",)
    ordering = ("-id",)

    shown = (
        ("The mail", ("request", "kind", "number", "address", "person_id", "subject")),
        ("Sending it", ("created_at", "sent_at", "attempts", "next_try_at", "given_up", "problem")),
    )

    created = looking.moment("created_at", "Created")
    sent = looking.moment("sent_at", "Sent")

    @admin.display(description="To")
    def address_of(self, notification: Notification) -> str:
        return notification.address


@admin.register(LogEntry)
class LogAdmin(looking.Looking):
    """What was done in the admin, by whom: rules, keys, people, verbs."""

    list_display = ("when", "user", "content_type", "object_repr", "said")
    list_filter = ("action_flag",)
    list_select_related = ("user", "content_type")
    ordering = ("-id",)

    shown = (("What was done", ("action_time", "user", "content_type", "object_id", "object_repr", "said")),)

    when = looking.moment("action_time", "When")

    @admin.display(description="What")
    def said(self, entry: LogEntry) -> str:
        return str(entry.get_change_message()) or str(entry.get_action_flag_display())
