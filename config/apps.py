"""The app that is the installation itself: it owns no rows, only the checks of its own settings."""

from django.apps import AppConfig
from django.contrib.admin.apps import AdminConfig


class ConfigConfig(AppConfig):
    name = "config"

    def ready(self) -> None:
        from config import checks  # noqa: F401 - importing registers them; the registry must stand first


class SiteConfig(AdminConfig):
    """Django's admin, with our site in the place of its own."""

    default_site = "approvals.site.Site"
