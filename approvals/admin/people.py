"""People and groups, for operators: invite, put into groups, disable, enable. Nobody sets another's password.

What groups somebody is in decides what they may do; being a superuser cannot be given here and gives nothing.
"""

from typing import Any

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.contrib.auth.models import Group, User
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import transaction
from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse

from approvals import accounts, people, rights
from approvals.models import ApiKey, Request, Rule
from approvals.states import PENDING, STANDING
from runs.admin import looking
from runs.admin.looking import ModelAdmin
from runs.admin.verbs import Verb, WithVerbs

admin.site.unregister([User, Group])


class Choices(forms.ModelMultipleChoiceField):  # type: ignore[type-arg]
    """Groups as boxes to tick."""

    widget = forms.CheckboxSelectMultiple


class InvitationForm(forms.Form):
    email = forms.EmailField(max_length=150, label="E-mail address")
    name = forms.CharField(max_length=150)
    groups = Choices(Group.objects.order_by("name"), required=False, help_text="What they may review and do.")


class PersonForm(forms.ModelForm):  # type: ignore[type-arg]
    groups = Choices(Group.objects.order_by("name"), required=False, help_text="What they may review and do.")

    class Meta:
        model = User
        fields = ("first_name", "last_name", "groups")

    def clean_groups(self) -> Any:
        wanted = self.cleaned_data["groups"]
        people.refuse_without_operator(self.instance, wanted)
        return wanted


def _why_not_disable(person: User) -> str:
    return "" if person.is_active else "The account is disabled already."


def _why_not_enable(person: User) -> str:
    return "The account is not disabled." if person.is_active else ""


def _why_not_invite(person: User) -> str:
    if not person.is_active:
        return "The account is disabled."
    chosen = "They have chosen a password, which they can reset where they sign in."
    return chosen if person.has_usable_password() else ""


def _disable(request: HttpRequest, person: User, why: str) -> str:
    if person.pk == request.user.pk:
        raise ValidationError("Somebody else has to disable your account.")
    ended = people.disable(person)
    return f"disabled. {ended} session{'s' * (ended != 1)} ended."


def _enable(request: HttpRequest, person: User, why: str) -> str:
    people.enable(person)
    return "enabled."


def _invite(request: HttpRequest, person: User, why: str) -> str:
    transaction.on_commit(lambda: accounts.send_invitation(person, request=request))
    return f"invited again by a mail to {person.email}."


class ForOperators(ModelAdmin):
    actions = None

    def has_module_permission(self, request: HttpRequest) -> bool:
        return rights.is_operator(request.user)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return rights.is_operator(request.user)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return rights.is_operator(request.user)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return rights.is_operator(request.user)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(User)
class PersonAdmin(WithVerbs, ForOperators):
    verbs = (
        Verb(
            "disable",
            "Disable",
            "They cannot sign in, their sessions end, their keys stop working.",
            _why_not_disable,
            _disable,
            harm=True,
        ),
        Verb(
            "enable",
            "Enable",
            "They can sign in again, with the password they had.",
            _why_not_enable,
            _enable,
        ),
        Verb(
            "invite",
            "Send the invitation again",
            "A mail with a link to choose a password. Links sent before work until one is used.",
            _why_not_invite,
            _invite,
        ),
    )
    refusals = (ValidationError,)
    form = PersonForm
    fieldsets = (
        (None, {"fields": ("email", "first_name", "last_name", "groups")}),
        (
            "The account",
            {"fields": ("standing", "enters_admin", "signed_in", "invited", "keys")},
        ),
    )
    readonly_fields = ("email", "standing", "enters_admin", "signed_in", "invited", "keys")
    list_display = ("email", "name", "standing", "in_groups", "signed_in")
    list_filter = ("is_active", "groups")
    search_fields = ("email", "first_name", "last_name")
    ordering = ("email",)
    sortable_by = ()
    change_form_template = "admin/auth/user/change_form.html"

    signed_in = looking.moment("last_login", "Last sign-in")
    invited = looking.moment("date_joined", "Invited")

    @admin.display(description="Enters the admin", boolean=True)
    def enters_admin(self, person: User) -> bool:
        return rights.enters_admin(person)

    @admin.display(description="Name", empty_value="–")
    def name(self, person: User) -> str:
        return person.get_full_name()

    @admin.display(description="State")
    def standing(self, person: User) -> str:
        if not person.is_active:
            return "disabled"
        return "active" if person.has_usable_password() else "invited"

    @admin.display(description="Groups", empty_value="–")
    def in_groups(self, person: User) -> str:
        return ", ".join(sorted(group.name for group in person.groups.all()))

    @admin.display(description="API keys")
    def keys(self, person: User) -> str:
        return "\n".join(f"{key.prefix} {key.name}" for key in ApiKey.objects.filter(owner=person)) or "none"

    def get_queryset(self, request: HttpRequest) -> QuerySet[User]:
        return super().get_queryset(request).prefetch_related("groups")

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        """Inviting: the account is made without a password, and the link to choose one is mailed."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = InvitationForm(request.POST if request.method == "POST" else None, label_suffix="")
        if form.is_valid() and (made := self._invited(request, form)):
            self.message_user(request, f"{made.email} is invited.", messages.SUCCESS)
            return redirect("admin:auth_user_change", made.pk)
        context = {
            **self.admin_site.each_context(request),
            "title": "Invite somebody",
            "opts": self.opts,
            "form": form,
        }
        status = 422 if form.errors else 200
        return TemplateResponse(request, "admin/auth/user/invite.html", context, status=status)

    def _invited(self, request: HttpRequest, form: InvitationForm) -> User | None:
        """None: refused, and the form says why."""
        asked = form.cleaned_data
        try:
            with transaction.atomic():
                made = accounts.invite(
                    email=asked["email"], name=asked["name"], groups=asked["groups"], request=request
                )
                self.log_addition(request, made, f"Invited, into {_names(asked['groups'])}.")
        except ValidationError as refused:
            form.add_error("email" if not hasattr(refused, "error_dict") else None, refused.messages)
            return None
        return made

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        found = self.get_object(request, object_id) if self.may_act(request) else None
        buttons = self.buttons(request, found) if found else []
        return super().change_view(
            request, object_id, form_url, {"buttons": buttons, **(extra_context or {})}
        )

    def save_model(self, request: HttpRequest, obj: User, form: Any, change: bool) -> None:
        obj.save(update_fields=["first_name", "last_name"])

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        super().save_related(request, form, formsets, change)
        people.settle_staff(form.instance)

    def construct_change_message(
        self, request: HttpRequest, form: Any, formsets: Any, add: bool = False
    ) -> Any:
        """Which groups somebody was put into or taken out of stands in the log by name."""
        before, after = set(form.initial.get("groups", [])), set(form.cleaned_data.get("groups", []))
        told = [f"Into {_names(after - before)}."] if after - before else []
        told += [f"Out of {_names(before - after)}."] if before - after else []
        if named := [field.replace("_", " ") for field in form.changed_data if field != "groups"]:
            told.append(f"Changed {' and '.join(named)}.")
        return " ".join(told) or "Nothing changed."


def _names(groups: Any) -> str:
    return ", ".join(sorted(group.name for group in groups)) or "no group"


@admin.register(Group)
class GroupAdmin(ForOperators):
    fields = ("name", "what_for", "members")
    list_display = ("name", "what_for", "size")
    search_fields = ("name",)
    sortable_by = ()

    def get_queryset(self, request: HttpRequest) -> QuerySet[Group]:
        found: QuerySet[Group] = super().get_queryset(request)
        return found.annotate(n=Count("user", filter=Q(user__is_active=True)))

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        fixed = obj is not None and _purpose(obj)
        return ("what_for", "members", "name") if fixed else ("what_for", "members")

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return rights.is_operator(request.user) and obj is not None and not _is_used(obj)

    @admin.display(description="Active members")
    def size(self, group: Any) -> int:
        return int(group.n)

    @admin.display(description="What it is for")
    def what_for(self, group: Group) -> str:
        return _purpose(group) or "reviewing"

    @admin.display(description="Members")
    def members(self, group: Group) -> str:
        found = group.user_set.order_by("email") if group.pk else ()
        told = {True: "", False: " (disabled)"}
        return "\n".join(rights.display_name(each) + told[each.is_active] for each in found) or "nobody"


def _purpose(group: Group) -> str:
    """What the groups are for whose names are settings: they are neither renamed nor deleted."""
    return {
        settings.OPERATORS: "operating: runs, keys, people",
        settings.POLICY_EDITORS: "editing policies",
        settings.AUDITORS: "auditing: sees all, changes nothing",
        settings.FALLBACK_REVIEWERS: "reviewing what nobody else may",
    }.get(group.name, "")


def _is_used(group: Group) -> bool:
    """Deleting it would hand what is pending to other reviewers."""
    waiting = Request.objects.filter(group=group, state__in=PENDING | STANDING)
    return bool(_purpose(group)) or Rule.objects.filter(reviewers=group).exists() or waiting.exists()
