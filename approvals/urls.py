"""Addresses of the reviewers' pages. A ref is an address, not a key."""

from django.urls import path

from approvals import api, views

urlpatterns = [
    path("", views.inbox, name="inbox"),
    path("inbox/pulse", views.inbox_pulse, name="inbox_pulse"),
    path("inbox/keys", views.keys, name="inbox_keys"),
    path("inbox/together", views.bulk, name="bulk"),
    path("inbox/together/do", views.bulk_do, name="bulk_do"),
    path("history", views.history, name="history"),
    path("requests/<str:ref>", views.detail, name="request"),
    path("requests/<str:ref>/row", views.row, name="request_row"),
    path("requests/<str:ref>/pulse", views.pulse, name="request_pulse"),
    path("requests/<str:ref>/look", views.look, name="look"),
    path("requests/<str:ref>/decide", views.decide, name="decide"),
    path("requests/<str:ref>/open", views.open_section, name="open_section"),
    path("requests/<str:ref>/step-up", views.step_up, name="step_up"),
    path("requests/<str:ref>/edit", views.edit, name="edit"),
    path("requests/<str:ref>/ask", views.ask, name="ask"),
    path("requests/<str:ref>/comment", views.comment, name="comment"),
    path("requests/<str:ref>/delegate", views.delegate, name="delegate"),
    path("requests/<str:ref>/snooze", views.snooze, name="snooze"),
    path("requests/<str:ref>/wake", views.wake, name="wake"),
    path("requests/<str:ref>/reserve", views.reserve, name="reserve"),
    path("requests/<str:ref>/let-go", views.let_go, name="let_go"),
    path("requests/<str:ref>/more-time", views.more_time, name="more_time"),
    path("decisions/<uuid:decision_id>", views.receipt, name="receipt"),
    path("decisions/<uuid:decision_id>/undo", views.undo, name="undo"),
    path("runs/<uuid:run_id>/questions/<int:inquiry_id>/answer/", views.answer, name="answer"),
]

#: They stand under /api/, before those of `runs`.
api_urlpatterns = [path("v1/runs/<uuid:run_id>/answers", api.Answers.as_view(), name="answers")]
