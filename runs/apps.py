"""The app that knows runs and nothing of people."""

from django.apps import AppConfig


class RunsConfig(AppConfig):
    name = "runs"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from runs import agents, children, compensation  # models exist only from here on

        assert compensation.undo.builtin  # its import has registered it, in every process
        children.connect()
        agents.load()
