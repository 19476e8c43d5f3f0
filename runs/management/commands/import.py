"""`import FILE`: takes over a run that `export` wrote elsewhere. All of it is checked, and it goes on here."""

import sys
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from runs import moves
from runs.actors import Actor
from runs.exceptions import RunsError


class Command(BaseCommand):
    help = "Take over a run that `export` wrote in another installation."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", metavar="FILE", help="what `export` wrote; - is standard input")

    def handle(self, *args: Any, file: str, **options: Any) -> None:
        try:
            text = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        except OSError as error:
            raise CommandError(f"{file}: {error.strerror}") from None
        try:
            run = moves.arrive(text, actor=Actor.command())
        except RunsError as refused:
            raise CommandError(f"nothing was imported: {refused}") from None
        self.stdout.write(f"{run.id}\n{settings.BASE_URL}{run.get_absolute_url()}")
