"""The app that knows runs and nothing of people."""

from django.apps import AppConfig


class RunsConfig(AppConfig):
    name = "runs"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from runs import agents  # models exist only from here on

        agents.load()
