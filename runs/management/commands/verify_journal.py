"""`verify_journal`: reads the whole journal and every run's record, and says where a chain is broken, or where the
checkpoints outside say something else. Exit status 1 if one is.

Every model with a `stream_prefix` carries the heads of chains, whatever app it is from. It only reads, and
may run beside the service.
"""

from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import connection, models

from runs import checkpoints, clock, journal, snapshots


class Command(BaseCommand):
    help = "Checks that no journal entry and no settled step was changed, removed or put elsewhere."
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        breaks = [*journal.broken(streams()), *journal.unknown(streams()), *snapshots.broken()]
        breaks += checkpoints.broken(clock.now())
        for found in breaks:
            self.stdout.write(f"{found.stream} #{found.seq}: {found.what}")
        if breaks:
            raise CommandError(f"the journal is broken in {len(breaks)} stream{'s' * (len(breaks) > 1)}")
        entries, count = _size()
        self.stdout.write(f"ok: {entries} entries in {count} streams")
        if settings.JOURNAL_CHECKPOINTS:
            self.stdout.write(checkpoints.told())


def streams() -> list[type[models.Model]]:
    """The models whose rows carry a stream's head."""
    return [model for model in apps.get_models() if hasattr(model, "stream_prefix")]


def _size() -> tuple[int, int]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*), count(DISTINCT stream) FROM runs_journalentry")
        entries, count = cursor.fetchone()
    return entries, count
