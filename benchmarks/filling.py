"""Rows by the hundred thousand, made by SQL as copies of one run that really waits for a decision.

Each copy has its own run, step, hold, request and revision, spread over ten groups of five reviewers and over time;
`whole` ones also their snapshot, journal and mail, as if each had come through the machinery. Copies are there to be
in the way of queries; nobody decides them (a copied journal's hashes are of another stream). Statistics are made
afterwards, as autovacuum would.
"""

from typing import Any

from django.apps import apps
from django.db import connection, models

from benchmarks.ours import Ours

GROUPS, REVIEWERS = 10, 50
CHUNK = 100_000
COPIES = """
CREATE TABLE IF NOT EXISTS bench_copy (
  n integer PRIMARY KEY, run uuid, step bigint, hold uuid, request uuid, ref text, part float)
"""
MORE = """
INSERT INTO bench_copy SELECT n, gen_random_uuid(), nextval(pg_get_serial_sequence('runs_step', 'id')),
  gen_random_uuid(), gen_random_uuid(), lpad(n::text, 12, '0'), random()
FROM generate_series(%s::integer, %s::integer) n
"""
DAYS_AGO = "now() - part * interval '20 days'"
NEXT_STEP = "nextval(pg_get_serial_sequence('runs_step', 'id'))"
#: By table: what is not copied as it is; None: left to the table. `c` is the copy, `t` the row that is copied.
OWN: dict[str, dict[str, str | None]] = {
    "runs_run": {"id": "c.run", "created_at": DAYS_AGO, "changed_at": DAYS_AGO, "suspended_at": DAYS_AGO},
    "runs_step": {"id": f"CASE WHEN t.id = %(step)s THEN c.step ELSE {NEXT_STEP} END", "run_id": "c.run"},
    "runs_hold": {
        "id": "c.hold",
        "run_id": "c.run",
        "step_id": "c.step",
        "opened_at": DAYS_AGO,
        "expires_at": "now() + interval '1 day' + part * interval '3 days'",
    },
    "approvals_request": {
        "id": "c.request",
        "ref": "c.ref",
        "run_id": "c.run",
        "hold_id": "c.hold",
        "step_id": "c.step",
        "group_id": "(%(groups)s::integer[])[1 + c.n %% %(of_groups)s]",
        "opened_at": DAYS_AGO,
        "decide_by": "now() + interval '1 day' + part * interval '3 days'",
    },
    "approvals_revision": {"id": None, "request_id": "c.request"},
    "runs_snapshot": {"id": None, "run_id": "c.run"},
    "approvals_notification": {"id": None, "request_id": "c.request", "sent_at": "now()"},
    "runs_journalentry": {
        "id": None,
        "stream": "split_part(t.stream, ':', 1) || ':' ||"
        " CASE WHEN t.stream LIKE 'run:%%' THEN c.run ELSE c.request END",
    },
}
#: The tables of a copy that is not whole, which has the step that waits alone.
THIN = ("runs_run", "runs_step", "runs_hold", "approvals_request", "approvals_revision")
WHOLE = tuple(OWN)
#: Which rows of a table belong to the run that is copied.
OF_RUN = {
    "runs_run": "t.id = %(run)s",
    "runs_step": "t.run_id = %(run)s AND (t.id = %(step)s OR NOT %(alone)s)",
    "approvals_revision": "t.request_id = %(request)s",
    "approvals_notification": "t.request_id = %(request)s",
    "runs_journalentry": "t.stream IN ('run:' || %(run)s, 'request:' || %(request)s)",
}
OF_ITS_RUN = "t.run_id = %(run)s"


class Filling:
    """What lies in the tables of an installation beside what the machinery made; it only grows until `empty`."""

    def __init__(self, ours: Ours) -> None:
        self.ours = ours
        self.copies = 0
        self._template: Any = None
        self._reviewers: list[Any] = []

    def reviewer(self) -> Any:
        """One of fifty, in one of ten groups."""
        return self._people()[0]

    def groups(self) -> list[int]:
        return [person.groups.get().pk for person in self._people()[:GROUPS]]

    def fill(self, count: int, *, whole: bool = False) -> None:
        """So many copies, at least."""
        if self._template is None:
            with self.ours.worker():
                [self._template] = self.ours.waiting(1, steps=3)
        groups = self.groups()
        with connection.cursor() as cursor:
            cursor.execute(COPIES)
        while self.copies < count:
            upto = min(count, self.copies + CHUNK)
            self._copy(self.copies + 1, upto, groups, WHOLE if whole else THIN)
            self.copies = upto
        tidy()

    def empty(self) -> None:
        """As before the first copy."""
        with connection.cursor() as cursor:
            cursor.execute("SET session_replication_role = replica")
            for table in reversed(WHOLE):
                cursor.execute(f"DELETE FROM {table} {_of_copies(table)}")
            cursor.execute("RESET session_replication_role")
            cursor.execute("DELETE FROM bench_copy")
        self.copies = 0
        tidy(full=True)

    def _copy(self, first: int, last: int, groups: list[int], tables: tuple[str, ...]) -> None:
        """In one transaction, without the keys' and the history's triggers: what is copied keeps to them."""
        from approvals.models import Request

        request = Request.objects.get(run=self._template)
        known = {
            "run": str(self._template),
            "step": request.step_id,
            "request": str(request.pk),
            "groups": groups,
            "of_groups": GROUPS,
            "alone": tables == THIN,
        }
        with connection.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute("SET LOCAL session_replication_role = replica")
            cursor.execute(MORE, [first, last])
            for table in tables:
                cursor.execute(_insert(table), {**known, "first": first, "last": last})
            cursor.execute("COMMIT")

    def _people(self) -> list[Any]:
        from django.contrib.auth.models import Group, User

        if not self._reviewers:
            groups = [Group.objects.create(name=f"desk {number}") for number in range(GROUPS)]
            for number in range(REVIEWERS):
                person = User.objects.create_user(f"r{number}@example.com", f"r{number}@example.com")
                person.groups.set([groups[number % GROUPS]])
                self._reviewers.append(person)
        return self._reviewers


def tidy(*, full: bool = False) -> None:
    """What autovacuum does in time, and a checkpoint, so that none falls into what is measured next."""
    with connection.cursor() as cursor:
        cursor.execute("VACUUM FULL" if full else "VACUUM ANALYZE")
        if full:
            cursor.execute("ANALYZE")
        cursor.execute("CHECKPOINT")


def _insert(table: str) -> str:
    own = OWN[table]
    names = [name for name in _columns(table) if own.get(name, "") is not None]
    values = ", ".join(str(own.get(name, f't."{name}"')) for name in names)
    columns = ", ".join(f'"{name}"' for name in names)
    of = OF_RUN.get(table, OF_ITS_RUN)
    return (
        f"INSERT INTO {table} ({columns}) SELECT {values} FROM {table} t, bench_copy c"
        f" WHERE {of} AND c.n BETWEEN %(first)s AND %(last)s ORDER BY c.n, t.id"
    )


def _of_copies(table: str) -> str:
    if table == "runs_journalentry":
        return "t USING bench_copy c WHERE t.stream IN ('run:' || c.run, 'request:' || c.request)"
    key = {"runs_run": "id = c.run", "approvals_request": "id = c.request"}.get(table)
    other = "request_id = c.request" if table.startswith("approvals") else "run_id = c.run"
    return f"t USING bench_copy c WHERE t.{key or other}"


def _columns(table: str) -> list[str]:
    model: type[models.Model] = next(m for m in apps.get_models() if m._meta.db_table == table)
    return [str(field.column) for field in model._meta.concrete_fields]
