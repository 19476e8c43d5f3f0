"""Addresses of runs: `urlpatterns` are the pages under /runs/, `api_urlpatterns` stand under /api/, where the
last answers whatever no other does."""

from django.urls import URLPattern, path, re_path
from drf_spectacular.views import (
    SpectacularAPIView,
    SpectacularJSONAPIView,
    SpectacularSwaggerSplitView,
    SpectacularYAMLAPIView,
)

from runs.api import events, operators, views
from runs.api.credentials import Authorised
from runs.views import allowance, controls, credentials, doubt, listing, pages

urlpatterns: list[URLPattern] = [
    path("", listing.index, name="runs"),
    path("doubts/", doubt.open_doubts, name="runs_doubts"),
    path("<uuid:run_id>/", pages.detail, name="run"),
    path("<uuid:run_id>/steps/<int:index>/doubt/", doubt.doubt, name="run_doubt"),
    path("<uuid:run_id>/steps/<int:index>/given-back/", doubt.count_given_back, name="run_given_back"),
    path("<uuid:run_id>/steps/<int:index>/try-again/", doubt.try_again, name="run_claim_again"),
    path("<uuid:run_id>/snapshots/<int:number>/", pages.snapshot, name="run_snapshot"),
    path("credentials/<str:name>/", credentials.detail, name="credential"),
    path("credentials/<str:name>/authorised/", credentials.authorised, name="credential_authorised"),
    path("<uuid:run_id>/pause/", controls.pause, name="run_pause"),
    path("<uuid:run_id>/stop/", controls.stop, name="run_stop"),
    path("<uuid:run_id>/pulse", pages.pulse, name="run_pulse"),
    path("of/<str:agent>/<slug:verb>/", controls.sweep, name="runs_sweep"),
    path("<uuid:run_id>/resume/", controls.resume, name="run_resume"),
    path("<uuid:run_id>/cancel/", controls.cancel, name="run_cancel"),
    path("<uuid:run_id>/allowances/<int:allowance_id>/top-up/", allowance.top_up, name="run_top_up"),
    path("<uuid:run_id>/holds/<uuid:hold_id>/accept/", controls.accept, name="run_accept"),
    path("<uuid:run_id>/holds/<uuid:hold_id>/look-again/", controls.look_again, name="run_look_again"),
]

_docs = SpectacularSwaggerSplitView.as_view(template_name="api/docs.html", url_name="api:schema")

api_urlpatterns: list[URLPattern] = [
    path("v1/agents", views.Agents.as_view(), name="agents"),
    path("v1/runs", views.Runs.as_view(), name="runs"),
    path("v1/runs/<uuid:run_id>", views.OneRun.as_view(), name="run"),
    path("v1/runs/<uuid:run_id>/steps", views.Steps.as_view(), name="steps"),
    path("v1/runs/<uuid:run_id>/events", events.Events.as_view(), name="events"),
    path("v1/runs/<uuid:run_id>/steps/<int:index>/settle", operators.Settle.as_view(), name="settle"),
    path("v1/runs/<uuid:run_id>/compensate", operators.Compensate.as_view(), name="compensate"),
    path("v1/runs/<uuid:run_id>/pause", views.Pause.as_view(), name="pause"),
    path("v1/runs/<uuid:run_id>/stop", views.Stop.as_view(), name="stop"),
    path("v1/credentials/<str:name>/authorised", Authorised.as_view(), name="credentials_authorised"),
    path("v1/agents/<str:agent>/pause", views.PauseAll.as_view(), name="agents_pause"),
    path("v1/agents/<str:agent>/stop", views.StopAll.as_view(), name="agents_stop"),
    path("v1/agents/<str:agent>/cancel", views.CancelAll.as_view(), name="agents_cancel"),
    path("v1/agents/<str:agent>/resume", views.ResumeAll.as_view(), name="agents_resume"),
    path("v1/runs/<uuid:run_id>/resume", views.Resume.as_view(), name="resume"),
    path("v1/runs/<uuid:run_id>/cancel", views.Cancel.as_view(), name="cancel"),
    path("v1/runs/<uuid:run_id>/accept", operators.Accept.as_view(), name="accept"),
    path("v1/runs/<uuid:run_id>/look-again", operators.LookAgain.as_view(), name="look-again"),
    path("schema/", SpectacularAPIView.as_view(), name="schema"),
    path("schema/openapi.json", SpectacularJSONAPIView.as_view(), name="schema-json"),
    path("schema/openapi.yaml", SpectacularYAMLAPIView.as_view(), name="schema-yaml"),
    path("docs/", _docs, name="docs"),
    re_path("", views.Nothing.as_view(), name="nothing"),
]
