"""`import FILE`: takes over a run that `export` wrote elsewhere. All of it is checked, and it goes on here."""

import sys
from pathlib import Path
from typing import IO, Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from runs import moves
from runs.actors import Actor
from runs.exceptions import RunsError
from runs.moves.bundle import MAX_BYTES


def _read(stream: IO[bytes]) -> bytes:
    """One byte more than a bundle may have, at most: too large is said of it, and not found out by reading it all."""
    return stream.read(MAX_BYTES + 1)


def _opened(name: str) -> bytes:
    with Path(name).open("rb") as stream:
        return _read(stream)


class Command(BaseCommand):
    help = "Take over a run that `export` wrote in another installation."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", metavar="FILE", help="what `export` wrote; - is standard input")

    def handle(self, *args: Any, file: str, **options: Any) -> None:
        try:
            text = _read(sys.stdin.buffer) if file == "-" else _opened(file)
        except OSError as error:
            raise CommandError(f"{file}: {error.strerror}") from None
        try:
            run = moves.arrive(text, actor=Actor.command())
        except RunsError as refused:
            raise CommandError(f"nothing was imported: {refused}") from None
        self.stdout.write(f"{run.id}\n{settings.BASE_URL}{run.get_absolute_url()}")
