"""The rules of the policy, edited by policy editors: each save and deletion publishes a version, with why.

What is wrong with a rule stands at its field, with the position. A rule that somebody else changed meanwhile
is not overwritten. Operators and auditors look.
"""

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import Count
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from approvals import policies, rights
from approvals.models import PolicyVersion, Request, Rule
from runs.admin import looking
from runs.admin.looking import ModelAdmin

REASON = 4000
HELP = {
    "expression": "CEL, up to 2,000 characters; only true matches. It knows agent.name, agent.version, tool.name, "
    "tool.effect, args, labels, submitter, on_behalf_of and, in verdict rules, tier. Decimals are compared as "
    'money(args.amount) > money("20.00").',
    "decide_within": "Seconds in which a decision can be made: 3600 is an hour, 86400 a day, 259200 three days.",
    "reviewers": "Who decides what is held. Nobody chosen: the group “reviewers”.",
}
CODE = {"rows": 5, "class": "vLargeTextField code", "spellcheck": "false"}


class RuleForm(forms.ModelForm):  # type: ignore[type-arg]
    why = forms.CharField(
        max_length=REASON,
        label="Why this change",
        help_text="Kept with the new version of the policy and in the journal.",
        widget=forms.Textarea(attrs={"rows": 2, "class": "vLargeTextField"}),
    )
    version = forms.IntegerField(required=False, widget=forms.HiddenInput)

    class Meta:
        model = Rule
        fields = (
            "kind",
            "order",
            "name",
            "tool",
            "expression",
            "outcome",
            "enabled",
            "reviewers",
            "quorum",
            "decide_within",
            "consume_within",
            "undo_window",
            "blind",
            "bulk_ok",
            "fixed_because",
        )
        widgets = {"expression": forms.Textarea(attrs=CODE)}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, text in HELP.items():
            if name in self.fields:  # who only looks has none
                self.fields[name].help_text = text
        self.initial["version"] = policies.version()

    def clean_expression(self) -> str:
        return str(self.cleaned_data["expression"]).replace("\r\n", "\n")

    def clean(self) -> dict[str, Any]:
        data: dict[str, Any] = super().clean() or self.cleaned_data
        if {"kind", "expression", "outcome"} <= set(data):
            asked = {name: data.get(name) for name in ("kind", "expression", "outcome", "reviewers")}
            for field, text in policies.refusals(**asked).items():  # type: ignore[arg-type]
                self.add_error(field, text)
        if moved := _published_since(data.get("version")):
            self.add_error(None, moved)
        if others := _refused_beside(self.instance):
            self.add_error(None, others)
        return data


def _published_since(seen: int | None) -> str:
    """What happened to the policy while a form was open; empty when nothing did."""
    number = policies.version()
    if seen is None or seen == number:
        return ""
    made = PolicyVersion.objects.get(number=number)
    return f"{made.by_name} published version {number} while you were editing. Open the rule again to see it."


def _refused_beside(rule: Rule) -> str:
    """Another rule that would be refused today: it has to be put right first, or nothing can be published."""
    for other in Rule.objects.exclude(pk=rule.pk):
        try:
            policies.compile_rule(other.expression, kind="tier" if other.kind == "tier" else "verdict")
        except policies.RuleRefused as refused:
            return f"Nothing can be published before the rule “{other.name}” is put right: {refused}"
    return ""


class PolicyDoor(ModelAdmin):
    """Policy editors, operators and auditors look; who edits is said below."""

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return rights.enters_admin(request.user)


@admin.register(Rule)
class RuleAdmin(PolicyDoor):
    form = RuleForm
    actions = None
    list_display = ("name", "kind", "order", "tool", "condition", "then", "enabled")
    list_filter = ("kind", "outcome", "enabled")
    list_select_related = ("reviewers",)
    search_fields = ("name", "tool")
    sortable_by = ()
    delete_confirmation_template = "admin/approvals/rule/delete_confirmation.html"

    def has_add_permission(self, request: HttpRequest) -> bool:
        return rights.is_policy_editor(request.user)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return rights.is_policy_editor(request.user)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return rights.is_policy_editor(request.user)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        parts = [
            (None, {"fields": ("kind", "order", "name", "enabled")}),
            ("When", {"fields": ("tool", "expression")}),
            ("Then", {"fields": ("outcome", "reviewers", "quorum", "blind", "bulk_ok")}),
            ("Clocks", {"fields": ("decide_within", "consume_within", "undo_window", "fixed_because")}),
        ]
        if self.has_change_permission(request, obj):
            parts.append(("This change", {"fields": ("why", "version")}))
        return parts

    @admin.display(description="When")
    def condition(self, rule: Rule) -> str:
        return rule.expression if len(rule.expression) <= 80 else f"{rule.expression[:80]}…"

    @admin.display(description="Then")
    def then(self, rule: Rule) -> str:
        said = rule.get_outcome_display()
        return f"{said}, by {rule.reviewers}" if rule.reviewers else said

    def save_model(self, request: HttpRequest, obj: Rule, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        self._publish(request, form.cleaned_data["why"])

    def delete_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> HttpResponse:
        why = request.POST.get("why", "").strip()
        if request.method == "POST" and not 0 < len(why.replace("\r\n", "\n")) <= REASON:
            said = f"Nothing was deleted: say why, in at most {REASON:,} characters."
            self.message_user(request, said, messages.ERROR)
            return redirect(request.path)
        return super().delete_view(request, object_id, extra_context)

    def delete_model(self, request: HttpRequest, obj: Rule) -> None:
        super().delete_model(request, obj)
        self._publish(request, request.POST["why"].strip())

    def _publish(self, request: HttpRequest, why: str) -> None:
        """In the transaction that changed the rows: the admin's views are atomic."""
        before = policies.version()
        made = policies.publish(rights.actor(request.user, "admin"), why=why)
        if made.number == before:
            self.message_user(request, f"Nothing differs from version {before}, which stays in force.")
            return
        pending = Request.objects.pending().aggregate(n=Count("pk"))["n"]
        kept = f"{pending} pending request{'s' * (pending != 1)} can only get stricter by it."
        self.message_user(request, f"Version {made.number} of the policy is in force. {kept}")


@admin.register(PolicyVersion)
class PolicyVersionAdmin(looking.Looking):
    list_display = ("number", "why_in_short", "by_name", "door", "made")
    as_json = frozenset({"rules"})
    as_code = frozenset({"digest"})
    shown = (
        ("This version", ("number", "at", "by_name", "by_kind", "door", "why", "digest")),
        ("All rules, as they were", ("rules",)),
    )

    made = looking.moment("at", "Published")

    def may_look(self, request: HttpRequest) -> bool:
        return rights.enters_admin(request.user)

    @admin.display(description="Why")
    def why_in_short(self, version: PolicyVersion) -> str:
        return version.why if len(version.why) <= 80 else f"{version.why[:80]}…"
