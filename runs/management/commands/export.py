"""`export RUN`: writes a suspended run to a file for another installation, and ends it here as moved.

The file is on the disk, as FILE.part, before the run ends, and has its name afterwards. If the command is killed
in between, the run's page says whether it has moved; then FILE.part is its bundle, and else is to be thrown away.
"""

import os
import uuid
from argparse import ArgumentTypeError
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from runs import moves
from runs.actors import Actor
from runs.exceptions import RunsError


def _run_id(text: str) -> uuid.UUID:
    try:
        return uuid.UUID(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is no id of a run") from None


class Command(BaseCommand):
    help = "Write a suspended run to a file for `import` elsewhere; it ends here as moved."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("run", type=_run_id, metavar="RUN", help="its id")
        parser.add_argument(
            "--output", metavar="FILE", help="a new file; without it, abeyance-run-ID.json here"
        )

    def handle(self, *args: Any, run: uuid.UUID, output: str | None, **options: Any) -> None:
        target = Path(output or f"abeyance-run-{run}.json")
        try:
            part = _new(target)
        except OSError as error:
            raise CommandError(f"{error.filename}: {error.strerror}") from None
        try:
            moves.leave(run, actor=Actor.command(), keep=lambda text: _keep(part, text))
        except (OSError, RunsError) as refused:  # raised inside the transaction, so the run is as it was
            part.unlink()
            raise CommandError(str(refused)) from None
        part.replace(target)
        self.stdout.write(f"{target}\nRun {run} has ended here as moved. Import the file elsewhere, once.")


def _new(target: Path) -> Path:
    """The file it is written to first. Raises OSError: it cannot be made, or the target is there."""
    if target.exists():
        raise FileExistsError(17, "is there already", str(target))
    part = target.with_name(f"{target.name}.part")
    os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    return part


def _keep(part: Path, text: str) -> None:
    with part.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
