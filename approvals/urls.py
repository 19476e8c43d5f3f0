"""Addresses of the reviewers' pages. A ref is an address, not a key."""

from django.urls import path

from approvals import views

urlpatterns = [
    path("", views.inbox, name="inbox"),
    path("inbox/pulse", views.inbox_pulse, name="inbox_pulse"),
    path("history", views.history, name="history"),
    path("requests/<str:ref>", views.detail, name="request"),
    path("requests/<str:ref>/pulse", views.pulse, name="request_pulse"),
    path("requests/<str:ref>/look", views.look, name="look"),
    path("requests/<str:ref>/decide", views.decide, name="decide"),
    path("requests/<str:ref>/edit", views.edit, name="edit"),
    path("decisions/<uuid:decision_id>", views.receipt, name="receipt"),
]
