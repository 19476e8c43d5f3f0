"""The demo's people, key and rules, on the first start only: `examples.demo` makes them.

The one place from where the application reaches into `examples`.
"""

from typing import Any

from django.core.management.base import BaseCommand

from examples import demo


class Command(BaseCommand):
    help = "Makes the demo's people, key and rules, unless they were made before; says what to try."
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        made = demo.prepare()
        self.stdout.write("The demo's people are made" if made else "The demo's people were made before")
        if options["verbosity"] > 1:
            self.stdout.write(demo.notes().read_text())
