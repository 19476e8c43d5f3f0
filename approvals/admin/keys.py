"""Submitters' keys: issued by operators, shown once, revoked for good. Only the hash is stored."""

from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from approvals import people, rights
from approvals.models import ApiKey
from runs import clock
from runs.admin import looking
from runs.admin.verbs import Verb, WithVerbs


class Owner(forms.ModelChoiceField):  # type: ignore[type-arg]
    """People who may sign in, by name and address."""

    def label_from_instance(self, obj: Any) -> str:
        name = obj.get_full_name()
        return f"{name} ({obj.email})" if name else obj.email or obj.get_username()


class KeyForm(forms.ModelForm):  # type: ignore[type-arg]
    owner = Owner(
        User.objects.filter(is_active=True).order_by("first_name", "email"),
        help_text="Answers for what the key starts. Neither they nor you review any of it.",
    )

    class Meta:
        model = ApiKey
        fields = ("name", "owner", "expiry_date")

    def clean_expiry_date(self) -> Any:
        at = self.cleaned_data["expiry_date"]
        if at is not None and at <= clock.now():
            raise ValidationError("This is in the past.")
        return at


def state(key: ApiKey) -> str:
    """usable, or why it is not: revoked, expired, owner_disabled."""
    if key.revoked:
        return "revoked"
    if key.expiry_date is not None and key.expiry_date <= clock.now():
        return "expired"
    return "usable" if key.owner.is_active else "owner_disabled"


def _why_not_revoke(key: ApiKey) -> str:
    return "It was revoked before." if key.revoked else ""


def _revoke(request: HttpRequest, key: ApiKey, why: str) -> str:
    people.revoke(key)
    return "revoked. What it started goes on."


@admin.register(ApiKey)
class KeyAdmin(WithVerbs, looking.Looking):
    verbs = (
        Verb(
            "revoke",
            "Revoke",
            "The key stops working at once. This cannot be taken back.",
            _why_not_revoke,
            _revoke,
            harm=True,
        ),
    )
    refusals = (ValidationError,)
    form = KeyForm
    fields = ("name", "owner", "expiry_date")
    list_display = ("prefix", "name", "owner", "where", "made", "expires")
    list_filter = ("revoked",)
    list_select_related = ("owner",)
    search_fields = ("prefix", "name", "owner__email")
    search_help_text = "The key's first eight characters, its name, or its owner"
    shown = (("The key", ("prefix", "name", "owner", "where", "created", "expiry_date")),)

    made = looking.moment("created", "Created")
    expires = looking.moment("expiry_date", "Expires")

    def may_look(self, request: HttpRequest) -> bool:
        return rights.is_operator(request.user)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return rights.is_operator(request.user)

    @admin.display(description="State")
    def where(self, key: ApiKey) -> str:
        return state(key).replace("_", " ")

    def more(self, request: HttpRequest, found: ApiKey) -> dict[str, Any]:
        return {"buttons": self.buttons(request, found)}

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        one_button = {"show_save_and_add_another": False, "show_save_and_continue": False}
        return super().add_view(request, form_url, {**one_button, **(extra_context or {})})

    def save_model(self, request: HttpRequest, obj: ApiKey, form: Any, change: bool) -> None:
        obj.issuer_id = str(request.user.pk)
        obj.shown_once = ApiKey.objects.assign_key(obj)  # type: ignore[attr-defined]
        obj.save(force_insert=True)

    def response_add(
        self, request: HttpRequest, obj: ApiKey, post_url_continue: str | None = None
    ) -> HttpResponse:
        """Not a redirect: a message would keep the key in a cookie or the database until it is read."""
        context = {
            **self.admin_site.each_context(request),
            "title": "The new key",
            "opts": self.opts,
            "object": obj,
            "key": obj.shown_once,  # type: ignore[attr-defined]
        }
        return TemplateResponse(request, "admin/approvals/apikey/created.html", context, status=201)
