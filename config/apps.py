"""The app that is the installation itself: it owns no rows, only the checks of its own settings."""

from django.apps import AppConfig


class ConfigConfig(AppConfig):
    name = "config"

    def ready(self) -> None:
        from config import checks  # noqa: F401 - importing registers them; the registry must stand first
