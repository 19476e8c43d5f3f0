"""The app that knows people; it calls down into `runs` and is never imported by it."""

from django.apps import AppConfig


class ApprovalsConfig(AppConfig):
    name = "approvals"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from approvals import receivers  # models exist only from here on

        receivers.connect()
