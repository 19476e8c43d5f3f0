"""What waits for a person: the rows of each lane, how many there are, and what is put aside.

SQL finds what lies before a person's groups; whether they are the requester of one is asked of each row here, by
`reviewers`, and for what is only counted once for all rows that say the same of their run. A lane looks at `LOOKED`
rows at most for a page: where so many of them are their own requests, the page is short, and its link goes on.
"""

import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Any

from django.conf import settings
from django.contrib.auth.models import Group, User
from django.db import connection, transaction
from django.db.models import Count, F, Q

from approvals import reviewers, rights
from approvals.inbox import statements
from approvals.inbox.filters import Filters
from approvals.inbox.statements import COUNTED, LANES, Mark, Whose
from approvals.models import Request, Revision
from runs import children
from runs.models import Run

PAGE, LOOKED = 25, 30


@dataclass(frozen=True, slots=True)
class Waiting:
    """`approvals`: how many people have said yes to it as it stands; `said`: this person decided it so; `lies_with`:
    the name of whom it was passed on to, as far as this person may know; `passed_to_me`: that is this person."""

    request: Request
    revision: Revision
    approvals: int
    said: bool = False
    lies_with: str = ""
    passed_to_me: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """A lane, or what is put aside. `more`: `count` is the least there are. Marks lead to the pages beside it."""

    name: str
    rows: tuple[Waiting, ...] = ()
    count: int = 0
    more: bool = False
    before: Mark | None = None
    after: Mark | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """`elsewhere`: what this person sees and does not decide, beyond what `others` lists. `cut`: in some lane only
    the first were searched."""

    lanes: dict[str, Part]
    snoozed: Part
    others: Part
    elsewhere: int
    elsewhere_more: bool
    cut: bool = False

    @property
    def mine(self) -> int:
        return sum(part.count for part in self.lanes.values())

    @property
    def more(self) -> bool:
        return any(part.more for part in self.lanes.values())

    @property
    def complete(self) -> bool:
        """Every request of this person is among the rows."""
        return not self.more and self.mine == sum(len(part.rows) for part in self.lanes.values())


@dataclass(frozen=True, slots=True)
class _Row:
    lane: str
    id: uuid.UUID
    ref: str
    tier: str
    number: int
    run: uuid.UUID
    key: datetime

    def mark(self, *, back: bool = False) -> Mark:
        return Mark(self.tier, self.key, self.ref, back)


@dataclass
class Desk:
    """One look of one person; what several parts need is read once."""

    person: User
    filters: Filters
    now: datetime
    whose: Whose = field(init=False)

    def __post_init__(self) -> None:
        groups = list(Group.objects.filter(user=self.person).order_by("pk").values_list("pk", "name"))
        names = frozenset(name for _, name in groups)
        self.person._group_names = names  # type: ignore[attr-defined]
        self.whose = Whose(
            person=str(self.person.pk),
            groups=tuple(pk for pk, _ in groups),
            unnamed=settings.FALLBACK_REVIEWERS in names,
            sees_all=rights.sees_all(self.person),
            now=self.now,
        )

    def ask(self, sql: str, given: dict[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """In one line, as a server's log shows it."""
        with connection.cursor() as cursor:
            cursor.execute(" ".join(sql.split()), {**self.whose.given(), **(given or {})})
            return list(cursor.fetchall())

    @cached_property
    def aside(self) -> dict[str, list[uuid.UUID]]:
        """What this person put off, and what waits on others for them: ids in order."""
        found: dict[str, list[uuid.UUID]] = {"snoozed": [], "others": []}
        for lane, pk, _ in self.ask(statements.ASIDE):
            found[lane].append(pk)
        return found

    def ask_for_mine(self, sql: str, given: dict[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """The same, of what is not aside."""
        away = [pk for ids in self.aside.values() for pk in ids]
        return self.ask(sql, {**(given or {}), "away": away})

    def candidates(self, names: Iterable[str], limit: int, mark: Mark | None = None) -> list[_Row]:
        """The first of some lanes, in order; of a lane's back page nearest first."""
        told = [
            statements.lane_rows(LANES[name], self.whose, self.filters, limit, mark)
            for name in names
            if self.filters.tiers(LANES[name].tiers)
        ]
        given = {name: value for _, each in told for name, value in each.items()}
        return (
            [_Row(*row) for row in self.ask_for_mine(" UNION ALL ".join(sql for sql, _ in told), given)]
            if told
            else []
        )

    def counted(self, names: Sequence[str]) -> dict[str, tuple[int, int]]:
        """Of some lanes: how many are this person's to decide, and how many they see and asked for, of the first
        `COUNTED` and one."""
        told = [
            statements.lane_rows(LANES[name], self.whose, self.filters, COUNTED + 1)
            for name in names
            if self.filters.tiers(LANES[name].tiers)
        ]
        found = dict.fromkeys(names, (0, 0))
        if not told:
            return found
        given = {name: value for _, each in told for name, value in each.items()}
        rows = self.ask_for_mine(
            statements.COUNT.format(rows=" UNION ALL ".join(sql for sql, _ in told)), given
        )
        singles = {row[7] for row in rows if row[7] is not None}
        above = {run.pk: run for run in with_chains(Run.objects.in_bulk(singles).values())} if singles else {}
        for lane, *said, single, count in rows:
            run = above[single] if single is not None else _as_run(said)
            own = bool(reviewers.requester_of(self.person, run))
            mine, asked = found[lane]
            found[lane] = (mine, asked + count) if own else (mine + count, asked)
        return found


@contextmanager
def in_order() -> Iterator[None]:
    """Reads in the order of indexes, as one moment's state is read: in a transaction."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(" ".join(statements.IN_ORDER.split()))
        yield


def _as_run(said: Sequence[str]) -> Run:
    """A run as far as its requesters go: one that nothing is above and that runs nothing again."""
    owner, kind, submitter, behalf, agent, version = said
    return Run(
        owner_id=owner,
        submitter_kind=kind,
        submitter_id=submitter,
        on_behalf_of=behalf,
        agent=agent,
        agent_version=version,
    )


def with_chains(runs: Iterable[Run]) -> list[Run]:
    found = list(runs)
    children.know_chains(found)
    reviewers.know_starters([run for one in found for run in children.chain(one)])
    return found


# -- Pages --------------------------------------------------------------------------------------------------


@in_order()
def find(person: User, filters: Filters, now: datetime) -> Found:
    """The first page: the head of every lane, and what is put aside."""
    desk = Desk(person, filters, now)
    rows = desk.candidates(LANES, LOOKED)
    aside = {name: ids[:PAGE] for name, ids in desk.aside.items()}
    known = _known([*(row.id for row in rows), *(pk for ids in aside.values() for pk in ids)], person)
    known = _with_holders(desk, known)
    lanes = {name: _part(desk, name, [r for r in rows if r.lane == name], known) for name in LANES}
    lanes, asked = _count(desk, lanes, rows, known)
    elsewhere, more = _elsewhere(desk, asked)
    return Found(
        lanes=lanes,
        snoozed=_put_aside(desk, "snoozed", known),
        others=_put_aside(desk, "others", known),
        elsewhere=elsewhere,
        elsewhere_more=more,
        cut=_cut(desk),
    )


@in_order()
def one_lane(person: User, filters: Filters, now: datetime, name: str, mark: Mark) -> Found:
    """A further page of one lane; the others are empty."""
    desk = Desk(person, filters, now)
    rows = desk.candidates([name], LOOKED, mark)
    known = _with_holders(desk, _known([row.id for row in rows], person))
    part = _part(desk, name, rows, known, mark)
    [(mine, _)] = desk.counted([name]).values()
    part = replace(part, count=min(mine, COUNTED), more=mine > COUNTED)
    nothing = Part("snoozed"), Part("others")
    return Found({name: part}, *nothing, elsewhere=0, elsewhere_more=False, cut=_cut(desk))


@in_order()
def first(person: User, now: datetime, *, but: Request) -> Waiting | None:
    """What is at the head of the lanes, other than `but`."""
    desk = Desk(person, Filters(), now)
    for name in LANES:
        rows = [row for row in desk.candidates([name], 10) if row.id != but.pk]
        known = _known([row.id for row in rows], person)
        if found := [known[row.id] for row in rows if row.id in known and _decides(desk, known[row.id])]:
            return found[0]
    return None


def _decides(desk: Desk, waiting: Waiting) -> bool:
    return not waiting.said and not reviewers.requester_of(desk.person, waiting.request.run)


def _known(ids: Sequence[uuid.UUID], person: User) -> dict[uuid.UUID, Waiting]:
    """The rows of a page, with what is shown of each; a fixed number of queries."""
    large = ("run__input", "run__result", "run__error")
    found = Request.objects.filter(pk__in=ids).select_related("run", "group").defer(*large).order_by()
    rows = list(found) if ids else []
    with_chains([row.run for row in rows])
    standing = Q(request__in=rows, number=F("request__number"))
    stands = Q(decisions__undone__isnull=True)
    yes = Count("decisions", filter=stands & Q(decisions__verb="approve"))
    said = Count("decisions", filter=stands & Q(decisions__person_id=str(person.pk)))
    revisions: Any = Revision.objects.filter(standing).annotate(yes=yes, said=said).order_by() if rows else []
    told = {revision.request_id: revision for revision in revisions}
    return {
        row.pk: Waiting(row, one, one.yes, bool(one.said))
        for row in rows
        if (one := told.get(row.pk)) is not None
    }


def _with_holders(desk: Desk, known: dict[uuid.UUID, Waiting]) -> dict[uuid.UUID, Waiting]:
    """The same, and with whom each lies. Where reviewers do not see each other, only its two people are told."""
    lying = desk.ask(statements.LYING, {"ids": list(known)}) if known else []
    me, told = desk.whose.person, dict(known)
    for pk, by, to, name in lying:
        one = known[pk]
        if me in (by, to) or one.said or not one.revision.judgement.get("blind"):
            told[pk] = replace(one, lies_with=name, passed_to_me=to == me)
    return told


def _part(
    desk: Desk, name: str, rows: list[_Row], known: dict[uuid.UUID, Waiting], mark: Mark | None = None
) -> Part:
    """A page of a lane, of the rows that were looked at; marks where more may lie."""
    back = mark is not None and mark.back
    kept = [row for row in rows if row.id in known and _decides(desk, known[row.id])]
    shown, full = kept[:PAGE], len(kept) > PAGE
    last = (shown if full else rows)[-1:]
    further = last[0] if last and (full or len(rows) == LOOKED) else None
    if back:
        shown = shown[::-1]
        edge = rows[:1]
        return Part(
            name,
            tuple(known[row.id] for row in shown),
            before=further.mark(back=True) if further else None,
            after=shown[-1].mark() if shown else (edge[0].mark() if edge else None),
        )
    begins = (shown or rows)[:1]
    return Part(
        name,
        tuple(known[row.id] for row in shown),
        count=len(kept),
        before=begins[0].mark(back=True) if mark is not None and begins else None,
        after=further.mark() if further else None,
    )


def _count(
    desk: Desk, lanes: dict[str, Part], rows: list[_Row], known: dict[uuid.UUID, Waiting]
) -> tuple[dict[str, Part], int]:
    """How many each lane has: those of whom all were looked at are known, the others are counted."""
    long = [name for name in lanes if sum(row.lane == name for row in rows) == LOOKED]
    counts = desk.counted(long) if long else {}
    short = [row for row in rows if row.lane not in long]
    asked = sum(1 for row in short if row.id in known and not _decides(desk, known[row.id]))
    for name, (mine, own) in counts.items():
        asked += own
        lanes[name] = replace(lanes[name], count=min(mine, COUNTED), more=mine + own > COUNTED)
    return lanes, asked


def _put_aside(desk: Desk, name: str, known: dict[uuid.UUID, Waiting]) -> Part:
    ids = desk.aside[name]
    rows = tuple(known[pk] for pk in ids[:PAGE] if pk in known)
    return Part(name, rows, min(len(ids), COUNTED), len(ids) > COUNTED)


def _elsewhere(desk: Desk, asked: int) -> tuple[int, bool]:
    """What this person may see and not decide: what they asked for themselves, and of who sees all the rest."""
    if not desk.whose.sees_all:
        return asked, False
    [(theirs, looked)] = desk.ask(statements.ELSEWHERE)
    return asked + theirs, looked > COUNTED


def _cut(desk: Desk) -> bool:
    """Whether a search left something out: a lane has more than is searched."""
    if not desk.filters.reads_more:
        return False
    whole, limit = Filters(tier=desk.filters.tier), statements.SEARCHED + 1
    wanted = [lane for lane in LANES.values() if whole.tiers(lane.tiers)]
    told = [statements.lane_rows(lane, desk.whose, whole, limit) for lane in wanted]
    given = {name: value for _, each in told for name, value in each.items()}
    sql = statements.SIZES.format(rows=" UNION ALL ".join(sql for sql, _ in told))
    return any(count == limit for (count,) in desk.ask_for_mine(sql, given)) if told else False
