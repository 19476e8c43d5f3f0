"""Allowances in the admin: what runs may use and have used, and the verbs of operators.

Shared ones are made here, topped up and set; those of one run come with the run and are topped up in the same
way. Amounts are typed as text, so that no browser rounds them.
"""

import uuid
from decimal import Decimal
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import ValidationError
from django.db.models import F, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from runs import allowance, callers
from runs.admin import looking
from runs.admin.looking import Filter
from runs.admin.run import actor
from runs.admin.verbs import Verb, Why, WithVerbs
from runs.allowance.amounts import NAME
from runs.exceptions import BadValue, WrongState
from runs.lifecycle import Limit
from runs.models import Allowance, Draw, Hold, JournalEntry
from runs.models.allowance import OWN
from runs.states import Cause


class Amount(forms.CharField):
    """A decimal, exactly as it was typed; nothing typed is None."""

    widget = forms.TextInput(attrs={"inputmode": "decimal", "class": "vTextField", "autocomplete": "off"})

    def clean(self, value: Any) -> Decimal | None:
        text = super().clean(value)
        try:
            return allowance.amount(text) if text else None
        except BadValue as bad:
            raise ValidationError(bad.message) from None


# -- The verbs -------------------------------------------------------------------------------


class TopUp(Why):
    """`once` makes a form that is sent twice one top-up."""

    by = Amount(label="By how much?", help_text="Is added to the limit.")
    once = forms.UUIDField(widget=forms.HiddenInput, required=False)

    def __init__(self, data: Any = None, found: Any = ()) -> None:
        super().__init__(data, found)
        self.fields["once"].initial = uuid.uuid4()


class SetLimit(Why):
    limit = Amount(required=False, label="Limit", help_text="0 is nothing, empty is no limit.")
    soft = Amount(required=False, label="Soft mark", help_text="At so much operators are told. Empty: never.")

    def __init__(self, data: Any = None, found: Any = ()) -> None:
        super().__init__(data, found)
        if len(found) == 1:
            for name in ("limit", "soft"):
                self.fields[name].initial = _figure(getattr(found[0], name))

    def clean(self) -> Any:
        limit, soft = self.cleaned_data.get("limit"), self.cleaned_data.get("soft")
        if limit is not None and soft is not None and soft > limit:
            self.add_error("soft", "The soft mark is at most the limit.")
        return self.cleaned_data


def _figure(value: Decimal | None) -> str:
    return "" if value is None else allowance.plain(value)


def _why_not_top_up(row: Allowance) -> str:
    return "It has no limit." if row.limit is None else ""


def _always(row: Allowance) -> str:
    return ""


def _top_up(request: HttpRequest, row: Allowance, said: dict[str, Any]) -> str:
    once = f"{said['once']}" if said["once"] else ""
    after = allowance.top_up(row.pk, said["by"], actor=actor(request), why=said["reason"], once=once)
    return f"the limit is {_figure(after.limit)} now."


def _set_limit(request: HttpRequest, row: Allowance, said: dict[str, Any]) -> str:
    limit, soft = said["limit"], said["soft"]
    after = allowance.set_limit(row.pk, limit, soft, actor=actor(request), why=said["reason"])
    return "it has no limit now." if after.limit is None else f"the limit is {_figure(after.limit)} now."


VERBS = (
    Verb(
        "top_up",
        "Top up",
        "Adds to the limit. Calls that fit then go on.",
        _why_not_top_up,
        form=TopUp,
        take=_top_up,
    ),
    Verb(
        "set_limit",
        "Set limit",
        "Sets limit and soft mark. Under a lower limit the next call is held; nothing under way stops.",
        _always,
        form=SetLimit,
        take=_set_limit,
    ),
)


# -- Making a shared one ---------------------------------------------------------------------


class Shared(forms.ModelForm):  # type: ignore[type-arg]
    name = forms.CharField(max_length=100, help_text="Runs name it in draws_on, as in: billing, October.")
    unit = forms.CharField(
        max_length=40, help_text="steps, seconds, tokens, money:EUR, or a word of your own."
    )
    limit = Amount(required=False, help_text="0 is nothing, empty is no limit.")
    soft = Amount(required=False, label="Soft mark", help_text="At so much operators are told. Empty: never.")

    class Meta:
        model = Allowance
        fields = ("name", "unit", "limit", "soft")

    def clean_unit(self) -> str:
        try:
            return allowance.unit(self.cleaned_data["unit"])
        except BadValue as bad:
            raise ValidationError(bad.message) from None

    def clean_name(self) -> str:
        name: str = self.cleaned_data["name"]
        if not NAME.fullmatch(name):
            raise ValidationError("A name has no colons, tabs or line ends.")
        return name

    def clean(self) -> Any:
        limit, soft = self.cleaned_data.get("limit"), self.cleaned_data.get("soft")
        if limit is not None and soft is not None and soft > limit:
            self.add_error("soft", "The soft mark is at most the limit.")
        return super().clean()


# -- Looking -----------------------------------------------------------------------------------


class BySharing(Filter):
    title = "belongs to"
    parameter_name = "of"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("shared", "Many runs"), ("run", "One run")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Allowance]) -> QuerySet[Allowance]:
        own = Q(name__startswith=OWN)
        return {"shared": queryset.exclude(own), "run": queryset.filter(own)}.get(
            self.value() or "", queryset
        )


class ByMark(Filter):
    """Those whose soft mark was passed, and those that are used up."""

    title = "how much is left"
    parameter_name = "left"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("low", "Soft mark passed"), ("none", "Nothing")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Allowance]) -> QuerySet[Allowance]:
        if self.value() == "low":
            return queryset.filter(soft_told_at__isnull=False)
        if self.value() == "none":
            return queryset.filter(limit__lte=F("used") + F("reserved"))
        return queryset


@admin.register(Allowance)
class AllowanceAdmin(WithVerbs, looking.Looking):
    verbs = VERBS
    form = Shared
    fields = ("name", "unit", "limit", "soft")
    list_display = ("named", "unit", "limit_now", "used_now", "reserved_now", "left_now", "waiting")
    list_filter = (BySharing, ByMark, "unit")
    ordering = ("-id",)
    search_fields = ("name",)
    search_help_text = "Its name, or run:ID"
    shown = (
        ("The allowance", ("name", "unit", "limit_now", "soft_now", "soft_told_at")),
        ("Where it stands", ("used_now", "reserved_now", "left_now", "waiting")),
    )

    named = looking.said("name", "Name")

    @admin.display(description="Limit")
    def limit_now(self, row: Allowance) -> str:
        return "none" if row.limit is None else allowance.figure(row.limit, row.unit)

    @admin.display(description="Soft mark")
    def soft_now(self, row: Allowance) -> str:
        return _figure(row.soft)

    @admin.display(description="Used")
    def used_now(self, row: Allowance) -> str:
        return allowance.figure(row.used, row.unit)

    @admin.display(description="Reserved")
    def reserved_now(self, row: Allowance) -> str:
        return allowance.figure(row.reserved, row.unit)

    @admin.display(description="Left")
    def left_now(self, row: Allowance) -> str:
        return "no limit" if row.remaining is None else allowance.figure(row.remaining, row.unit)

    @admin.display(description="Calls that wait")
    def waiting(self, row: Allowance) -> int:
        return Hold.objects.waiting_for(Cause.ALLOWANCE, str(row.pk)).count()

    def more(self, request: HttpRequest, found: Allowance) -> dict[str, Any]:
        return {"buttons": self.buttons(request, found)}

    def related(self, found: Allowance) -> list[tuple[str, str]]:
        return [
            ("Draws", looking.list_of(Draw, allowance__id__exact=found.pk)),
            ("Journal", looking.list_of(JournalEntry, stream__exact=found.stream)),
        ]

    # -- Adding ----------------------------------------------------------------------------------

    def has_add_permission(self, request: HttpRequest) -> bool:
        return callers.of(request).operator

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        one_button = {"show_save_and_add_another": False, "show_save_and_continue": False}
        title = {"title": "A new shared allowance"}
        try:
            return super().add_view(request, form_url, {**one_button, **title, **(extra_context or {})})
        except WrongState as lost:  # somebody else made it in the same moment
            self.message_user(request, f"Nothing was made: {lost}.", messages.WARNING)
            return redirect("admin:runs_allowance_changelist")

    def save_model(self, request: HttpRequest, obj: Allowance, form: Any, change: bool) -> None:
        limit = Limit(obj.unit, obj.limit, obj.soft)
        obj.pk = allowance.share(obj.name, limit, actor=actor(request)).pk


@admin.register(Draw)
class DrawAdmin(looking.Looking):
    """What each call reserved and used."""

    list_display = ("allowance", "run", "index", "attempt", "estimate", "used", "reserved", "settled")
    list_select_related = ("allowance", "run")
    ordering = ("-id",)
    search_help_text = ""
    shown = (
        ("The draw", ("allowance", "run", "index", "attempt", "estimate", "used")),
        ("When", ("reserved_at", "settled_at")),
    )

    reserved = looking.moment("reserved_at", "Reserved")
    settled = looking.moment("settled_at", "Settled")
