"""`work`: one worker, until it is told to stop (SIGTERM or SIGINT: after the current step; twice: at once).

Exit status 0 if it was told to stop or has emptied the queue, 1 if it gave up: its supervisor starts another.
"""

import os
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from runs.worker import Worker


class Command(BaseCommand):
    help = "Take runs from the queue and drive them, one at a time."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--burst", action="store_true", help="stop when the queue is empty")

    def run_from_argv(self, argv: list[str]) -> None:
        """Replay needs sets that iterate alike in every worker; only a new process can have that."""
        if os.environ.get("PYTHONHASHSEED") != "0":
            os.environ["PYTHONHASHSEED"] = "0"
            os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - the same command once more
        super().run_from_argv(argv)

    def handle(self, *args: Any, burst: bool, **options: Any) -> None:
        worker = Worker()
        self.stdout.write(f"Worker {worker.name} takes runs")
        self.stdout.flush()
        worker.work(burst=burst, logging_level="WARNING")
        if not burst and not worker.told_to_stop:
            raise CommandError("the worker gave up; the log above says why")
