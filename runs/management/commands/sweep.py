"""The sweeper as a process: `runs.sweeper` does the work, this gives it a command line."""

from typing import Any

from django.core.management.base import BaseCommand

from runs import sweeper


class Command(BaseCommand):
    help = "Finds due work nobody rang for, every SWEEP_EVERY seconds, until it is told to end."
    requires_system_checks: list[str] = []  # `prepare` said it all

    def handle(self, *args: Any, **options: Any) -> None:
        sweeper.loop()
