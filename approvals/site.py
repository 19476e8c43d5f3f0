"""The admin site: people sign in at the same page as everywhere, and enter by their groups.

Staff who are operators, policy editors or auditors may enter; being a superuser gives nothing here. Where the
installation is not local, a second factor is asked of them first. Imported before anything is registered, so
it imports no admin module.
"""

from typing import Any

from allauth.mfa.utils import is_mfa_enabled
from django.conf import settings
from django.contrib import messages
from django.contrib.admin import AdminSite
from django.contrib.auth import REDIRECT_FIELD_NAME
from django.contrib.auth.models import User
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse

from approvals import rights

APPS = {"runs": "Runs", "approvals": "Approvals and policy", "auth": "People", "admin": "Log"}
MODELS = [
    "Run",
    "Step",
    "Effects",
    "In doubt and owed",
    "Hold",
    "Snapshot",
    "FactReading",
    "Allowance",
    "Draw",
    "Dependency",
    "Credential",
    "JournalEntry",
    "Versions",
    "Queue",
    "Request",
    "Revision",
    "Decision",
    "Permit",
    "Notification",
    "Rule",
    "PolicyVersion",
    "ApiKey",
    "User",
    "Group",
    "LogEntry",
]


class Site(AdminSite):
    site_header = "Abeyance"
    site_title = "Abeyance"
    index_title = "Administration"

    def has_permission(self, request: HttpRequest) -> bool:
        return _is_ours(request.user) and not _lacks_factor(request.user)

    def login(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """To the site's own sign-in, and back. Who is signed in and may not enter sees nothing here."""
        if not request.user.is_authenticated:
            wanted = request.GET.get(REDIRECT_FIELD_NAME) or reverse("admin:index", current_app=self.name)
            return redirect_to_login(wanted)
        if self.has_permission(request):
            return redirect("admin:index")
        if _is_ours(request.user):
            messages.warning(request, "The administration needs a second factor. Set one up, then come back.")
            return redirect("mfa_index")
        return render(request, "404.html", status=404)

    def password_change(self, request: HttpRequest, extra_context: Any = None) -> Any:
        return redirect("account_change_password")

    def get_app_list(self, request: HttpRequest, app_label: str | None = None) -> list[Any]:
        apps: list[Any] = super().get_app_list(request, app_label)
        for app in apps:
            app["name"] = APPS.get(app["app_label"], app["name"])
            if app["app_label"] == "runs":
                app["models"] += _more_of_runs(request)
            app["models"].sort(key=lambda model: _place(MODELS, model["object_name"]))
        return sorted(apps, key=lambda app: _place(list(APPS), app["app_label"]))


def _is_ours(user: Any) -> bool:
    return bool(user.is_active and user.is_staff and rights.enters_admin(user))


def _lacks_factor(user: Any) -> bool:
    return not settings.LOCAL and isinstance(user, User) and not is_mfa_enabled(user)


def _place(order: list[str], name: str) -> int:
    """What people look for first stands first; what nobody thought of last."""
    return order.index(name) if name in order else len(order)


def _more_of_runs(request: HttpRequest) -> list[dict[str, Any]]:
    """Entries without a model of their own: the ledger is steps with an effect; the queue is RQ's."""
    more = [_entry("Effects", reverse("admin:runs_step_changelist") + "?effect=any")]
    if rights.sees_all(request.user):
        more.append(_entry("Versions", reverse("admin:runs_run_versions")))
        more.append(_entry("In doubt and owed", reverse("runs_doubts")))
    if rights.is_operator(request.user):
        more.append(_entry("Queue", reverse("django_rq:home")))
    return more


def _entry(name: str, url: str) -> dict[str, Any]:
    perms = {"add": False, "change": False, "delete": False, "view": True}
    links = {"admin_url": url, "add_url": None, "view_only": True}
    return {"name": name, "object_name": name, "perms": perms, **links}
