"""Addresses of runs: `urlpatterns` are the pages under /runs/, `api_urlpatterns` stand under /api/, where the
last answers whatever no other does."""

from django.urls import URLPattern, path, re_path
from drf_spectacular.views import (
    SpectacularAPIView,
    SpectacularJSONAPIView,
    SpectacularSwaggerSplitView,
    SpectacularYAMLAPIView,
)

from runs.api import views
from runs.views import pages

urlpatterns: list[URLPattern] = [
    path("", pages.index, name="runs"),
    path("<uuid:run_id>/", pages.detail, name="run"),
    path("<uuid:run_id>/snapshots/<int:number>/", pages.snapshot, name="run_snapshot"),
    path("<uuid:run_id>/pause/", pages.pause, name="run_pause"),
    path("<uuid:run_id>/resume/", pages.resume, name="run_resume"),
    path("<uuid:run_id>/cancel/", pages.cancel, name="run_cancel"),
]

_docs = SpectacularSwaggerSplitView.as_view(template_name="api/docs.html", url_name="api:schema")

api_urlpatterns: list[URLPattern] = [
    path("v1/agents", views.Agents.as_view(), name="agents"),
    path("v1/runs", views.Runs.as_view(), name="runs"),
    path("v1/runs/<uuid:run_id>", views.OneRun.as_view(), name="run"),
    path("v1/runs/<uuid:run_id>/steps", views.Steps.as_view(), name="steps"),
    path("v1/runs/<uuid:run_id>/pause", views.Pause.as_view(), name="pause"),
    path("v1/runs/<uuid:run_id>/resume", views.Resume.as_view(), name="resume"),
    path("v1/runs/<uuid:run_id>/cancel", views.Cancel.as_view(), name="cancel"),
    path("schema/", SpectacularAPIView.as_view(), name="schema"),
    path("schema/openapi.json", SpectacularJSONAPIView.as_view(), name="schema-json"),
    path("schema/openapi.yaml", SpectacularYAMLAPIView.as_view(), name="schema-yaml"),
    path("docs/", _docs, name="docs"),
    re_path("", views.Nothing.as_view(), name="nothing"),
]
