"""What a start needs before the doors open: checks, migrations, static files, the demo's people.

One command, because each process of its own would cost a start a second. Safe to run again and side by side
with what is running.
"""

from typing import Any

from django.conf import settings
from django.core.management import call_command, get_commands
from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError


class Command(BaseCommand):
    help = "Checks, migrates, collects static files where they are served hashed, seeds the demo."
    requires_system_checks: list[str] = []  # said once, below, and not again by each part

    def handle(self, *args: Any, **options: Any) -> None:
        call_command("check", verbosity=0)
        try:
            call_command("migrate", interactive=False, verbosity=0, skip_checks=True)
        except OperationalError as error:
            raise CommandError(f"The database cannot be used: {error}") from error
        self.stdout.write("The database is up to date")
        if settings.STATIC_ROOT:
            call_command("collectstatic", interactive=False, verbosity=0)
        if settings.DEMO and "demo" in get_commands():
            call_command("demo")
