"""Which door answers which address."""

from django.contrib import admin
from django.urls import include, path

from approvals.urls import api_urlpatterns as answers
from config import health
from runs.urls import api_urlpatterns

handler500 = "config.edge.failed"

urlpatterns = [
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path("admin/rq/", include("runs.admin.dashboard")),
    path("admin/", admin.site.urls),
    path("accounts/", include("allauth.urls")),
    path("api/", include(([*answers, *api_urlpatterns], "api"))),
    path("runs/", include("runs.urls")),
    path("", include("approvals.urls")),
]
