"""What runs need from outside: dependencies with their breakers, and credentials by name."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from runs import credentials, dependencies
from runs.admin import looking
from runs.admin.looking import Looking
from runs.admin.run import actor
from runs.admin.verbs import Verb, WithVerbs
from runs.models import Credential, Dependency, Hold, JournalEntry
from runs.states import Cause, Health


class _Outside(Looking, WithVerbs):
    """Looks, with the verbs on one object's page and on a selection."""

    search_fields = ("name",)
    cause: Cause

    def more(self, request: HttpRequest, found: Any) -> dict[str, Any]:
        return {"buttons": self.buttons(request, found)}

    def related(self, found: Any) -> list[tuple[str, str]]:
        waits = looking.list_of(Hold, cause__exact=str(self.cause), subject__exact=found.name)
        return [
            ("Holds that name it", waits),
            ("Its journal", looking.list_of(JournalEntry, stream__exact=found.stream)),
        ]

    @admin.display(description="Waiting")
    def waiting(self, found: Any) -> str:
        return str(Hold.objects.waiting_for(self.cause, found.name).count())


def _only_away(found: Dependency) -> str:
    return "It is healthy." if found.state == Health.HEALTHY else ""


def _only_troubled(found: Dependency) -> str:
    return "" if found.failures or found.state != Health.HEALTHY else "It is healthy."


def _probe(request: HttpRequest, found: Dependency, why: str) -> str:
    dependencies.ring_now(found.name, actor=actor(request), why=why)
    return "a worker looks at it now."


def _healthy(request: HttpRequest, found: Dependency, why: str) -> str:
    count = dependencies.count_as_healthy(found.name, actor=actor(request), why=why)
    return f"counts as healthy; {count} waiting calls go on, a few a second."


@admin.register(Dependency)
class DependencyAdmin(_Outside):
    cause = Cause.DEPENDENCY
    list_display = ("named", "how", "failures", "probes", "changed", "next_probe", "waiting")
    list_filter = ("state",)
    shown = (
        ("How it is", ("name", "state", "since", "problem", "failures", "waiting")),
        ("Probes", ("probes", "probe_at")),
    )
    verbs = (
        Verb("probe", "Probe now", "A worker looks whether it is back.", _only_away, _probe),
        Verb(
            "healthy",
            "Count as healthy",
            "What waits for it goes on. Calls that fail open the breaker again.",
            _only_troubled,
            _healthy,
        ),
    )

    named = looking.said("name", "Name")
    how = looking.pill("state", "State")
    changed = looking.moment("since", "Since")
    next_probe = looking.moment("probe_at", "Next probe")


def _authorised(request: HttpRequest, found: Credential, why: str) -> str:
    count = credentials.authorised(found.name, actor=actor(request), why=why)
    return f"counts as authorised; {count} waiting calls go on."


def _only_wanted(found: Credential) -> str:
    wanted = found.problem or Hold.objects.waiting_for(Cause.CREDENTIAL, found.name).exists()
    return "" if wanted else "Nothing waits for it."


@admin.register(Credential)
class CredentialAdmin(_Outside):
    cause = Cause.CREDENTIAL
    list_display = ("name", "owner", "wrong", "version", "changed", "waiting")
    shown = (
        ("What is wrong", ("name", "owner", "problem", "needs_url", "waiting")),
        ("Renewals", ("version", "renewing_until", "changed_at")),
    )
    verbs = (
        Verb(
            "authorised",
            "It was authorised again",
            "What waits for it goes on, and is held again if it is still refused.",
            _only_wanted,
            _authorised,
        ),
    )

    wrong = looking.said("problem", "Problem")
    changed = looking.moment("changed_at", "Last change")

    @admin.display(description="Owner", empty_value="operators")
    def owner(self, found: Credential) -> str:
        return credentials.owner(found.name)
