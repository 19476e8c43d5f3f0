"""Versions in the admin: which of them workers have and which runs wait for one, and the two verbs of operators on
a run that differs from its record."""

from dataclasses import replace
from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path

from runs import callers, divergence, versions
from runs.actors import Actor
from runs.admin.verbs import Verb, Why
from runs.models import Hold, Run
from runs.states import Cause


def _actor(request: HttpRequest) -> Actor:
    return replace(callers.of(request).actor, door="admin")


def _diverged(run: Run) -> Hold | None:
    return next((hold for hold in run.standing if hold.cause == Cause.DIVERGED), None)  # type: ignore[attr-defined]


def _why_not_look(run: Run) -> str:
    if run.ended:
        return f"It has ended: {run.status}."
    return "" if _diverged(run) else f"It is not diverged; it is {run.status}."


def _why_not_accept(run: Run) -> str:
    hold = _diverged(run)
    if run.ended or hold is None:
        return _why_not_look(run)
    why_not = divergence.not_acceptable(hold)
    return f"{why_not[:1].upper()}{why_not[1:]}." if why_not else ""


def _do_look(request: HttpRequest, run: Run, why: str) -> str:
    divergence.look_again(run.pk, actor=_actor(request), why=why)
    return "it is compared again; a difference that is still there holds it again."


def _do_accept(request: HttpRequest, run: Run, why: str) -> str:
    divergence.accept(run.pk, actor=_actor(request), why=why)
    return "the difference is accepted; nothing of it is called again."


def _differences(runs: list[Run]) -> dict[Any, str]:
    return {run.pk: hold.why[:500] for run in runs if (hold := _diverged(run))}


class WhyItDoesNotMatter(Why):
    reason = forms.CharField(
        max_length=4000,
        label="Why does it not matter?",
        help_text="Kept in the run's journal.",
        widget=forms.Textarea(attrs={"rows": 3, "cols": 60, "class": "vLargeTextField"}),
    )


VERBS = (
    Verb(
        "look_again",
        "Look again",
        "The code is back: the run is compared with its record again.",
        _why_not_look,
        _do_look,
        notes=_differences,
    ),
    Verb(
        "accept",
        "Accept difference",
        "The recorded result is given for the call as it is asked now. Nothing is called again.",
        _why_not_accept,
        _do_accept,
        notes=_differences,
        form=WhyItDoesNotMatter,
        harm=True,
    ),
)


# -- The page ------------------------------------------------------------------------


def page(request: HttpRequest) -> HttpResponse:
    """Every version that is wanted or there. For those who see all runs."""
    caller = callers.of(request)
    if not (caller.operator or caller.sees_all):
        raise PermissionDenied
    found, workers = versions.overview()
    context = {
        **admin.site.each_context(request),
        "title": "Versions",
        "opts": Run._meta,
        "versions": found,
        "missing": [each for each in found if each.missing],
        "workers": workers,
    }
    return TemplateResponse(request, "admin/runs/run/versions.html", context)


def urls() -> list[URLPattern]:
    return [path("versions/", admin.site.admin_view(page), name="runs_run_versions")]
