"""The SQL of the inbox. For each group of a person and each tier one scan of an index in its order, cut early and
merged.

`ENDS` is a request's deadline. `DUE` is when it counts as urgent: its deadline, or eight hours after it has waited
for three days, whichever is first. An index has each (`request_pending_by_end`, `request_pending_by_due`), and a
lane is a range of one of them, so that nothing is sorted that is not shown.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from approvals.inbox.filters import Filters

#: So many of a lane are counted, and so many searched where an index cannot answer: what is asked at every page
#: and pulse must not grow with what is pending.
COUNTED, SEARCHED = 200, 2000
LATELY = 500
SOON, DAY = timedelta(minutes=15), timedelta(hours=8)

#: Until the end of the transaction: indexes are read in their order, whatever the planner thinks of reading all rows
#: and sorting them. It cannot know that a page stops after a few.
IN_ORDER = """SELECT set_config('enable_sort', 'off', true), set_config('enable_seqscan', 'off', true),
  set_config('enable_bitmapscan', 'off', true), set_config('jit', 'off', true)"""
ENDS = "COALESCE(r.decide_by, '9999-12-31 00:00:00+00'::timestamptz)"
DUE = "LEAST(r.decide_by, (r.opened_at AT TIME ZONE 'UTC' + interval '80:00:00') AT TIME ZONE 'UTC')"
PENDING = "r.state IN ('needs_info', 'open')"
_ALL, _HIGH, _LOW = ("R4", "R3", "R2", "R1", "R0"), ("R4", "R3"), ("R2", "R1", "R0")


@dataclass(frozen=True, slots=True)
class Lane:
    """`key` orders it within a tier; `range` is a range of that."""

    name: str
    tiers: tuple[str, ...]
    key: str
    range: str


LANES = {
    lane.name: lane
    for lane in (
        Lane("now", _ALL, ENDS, f"{ENDS} > %(now)s AND {ENDS} <= %(soon)s"),
        Lane("high", _HIGH, ENDS, f"{ENDS} > %(soon)s"),
        Lane("today", _LOW, DUE, f"{DUE} <= %(day)s AND {ENDS} > %(soon)s"),
        Lane("later", _LOW, DUE, f"{DUE} > %(day)s"),
    )
}

#: Of a request that was passed on: it lies with the last it was passed to, who still may decide it and did not.
_LAST = """approvals_delegation last JOIN auth_user u ON u.id::text = last.to_id AND u.is_active
      WHERE last.request_id = r.id AND last.hop = (SELECT max(hop) FROM approvals_delegation WHERE request_id = r.id)
      AND (r.group_id IS NULL OR EXISTS (SELECT FROM auth_user_groups g
        WHERE g.user_id = u.id AND g.group_id = r.group_id))
      AND NOT EXISTS (SELECT FROM approvals_decision s JOIN approvals_revision v ON v.id = s.revision_id
        WHERE s.request_id = r.id AND s.person_id = last.to_id AND v.number = r.number
        AND NOT EXISTS (SELECT FROM approvals_undo u WHERE u.decision_id = s.id))"""
_LIES = f"EXISTS (SELECT FROM {_LAST})"
#: Of the rows of a page: who passed it on to whom, where it still lies with them.
LYING = f"""SELECT r.id, p.from_id, p.to_id, p.to_name FROM approvals_request r
  CROSS JOIN LATERAL (SELECT last.* FROM {_LAST}) p WHERE r.id = ANY(%(ids)s::uuid[])"""
#: Not put off by this person, not passed on and not decided by them: `ASIDE` says which those are.
MINE = "r.id <> ALL(%(away)s::uuid[])"
_COLUMNS = "r.id, r.ref, r.tier, r.number, r.run_id, r.reserved_by_id"


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in a lane: after (or before) this row."""

    tier: str
    key: datetime
    ref: str
    back: bool = False


@dataclass(frozen=True, slots=True)
class Whose:
    """A person as these statements know them; `unnamed`: requests that name no group are theirs."""

    person: str
    groups: tuple[int, ...]
    unnamed: bool
    sees_all: bool
    now: datetime

    def given(self) -> dict[str, Any]:
        soon, day = self.now + SOON, self.now + DAY
        return {
            "person": self.person,
            "groups": list(self.groups),
            "unnamed": self.unnamed,
            "sees_all": self.sees_all,
            "now": self.now,
            "soon": soon,
            "day": day,
        }


def lane_rows(
    lane: Lane, whose: Whose, filters: Filters, limit: int, mark: Mark | None = None
) -> tuple[str, dict[str, Any]]:
    """The first rows of a lane, or those after a mark: lane, id, ref, tier, number, run_id, key."""
    tiers = filters.tiers(lane.tiers)
    depth = SEARCHED if filters.reads_more else limit
    given: dict[str, Any] = {f"{lane.name}_tiers": tiers, f"{lane.name}_depth": depth}
    back = mark is not None and mark.back
    after = ""
    if mark is not None:
        sign = "<" if back else ">"
        given |= {"mark_tier": mark.tier, "mark_key": mark.key, "mark_ref": mark.ref}
        given[f"{lane.name}_tiers"] = [t for t in tiers if (t >= mark.tier if back else t <= mark.tier)]
        edge = "infinity" if back else "-infinity"
        after = (
            f"AND ({lane.key}, r.ref) {sign} (CASE WHEN t.tier = %(mark_tier)s THEN %(mark_key)s"
            f" ELSE '{edge}'::timestamptz END, %(mark_ref)s)"
        )
    arms = " UNION ALL ".join(_arms(lane, whose, after, "DESC" if back else "ASC"))
    where, more = filters.conditions()
    joined = (
        "CROSS JOIN LATERAL (SELECT * FROM runs_run WHERE id = c.run_id OFFSET 0) run CROSS JOIN LATERAL"
        " (SELECT * FROM approvals_revision WHERE request_id = c.id AND number = c.number OFFSET 0) v"
        if filters.reads_more
        else ""
    )
    order = _order(back)
    sql = f"""(SELECT '{lane.name}' AS lane, c.id, c.ref, c.tier, c.number, c.run_id, c.key FROM ({arms}) c {joined}
      WHERE {where if filters.reads_more else "true"} ORDER BY {order} LIMIT {int(limit)})"""
    return sql, given | more


def _order(back: bool) -> str:
    return "c.tier ASC, c.key DESC, c.ref DESC" if back else "c.tier DESC, c.key ASC, c.ref ASC"


def _arms(lane: Lane, whose: Whose, after: str, way: str) -> Iterable[str]:
    """One for the groups that requests name, and one for those that name none: an index finds either."""
    tiers = f"unnest(%({lane.name}_tiers)s::text[]) AS t(tier)"
    wanted = [("r.group_id = g.id", f"unnest(%(groups)s::integer[]) AS g(id), {tiers}")] * bool(whose.groups)
    if whose.unnamed:
        wanted.append(("r.group_id IS NULL", tiers))
    for of, over in wanted or [("false", tiers)]:
        yield f"""SELECT c.* FROM {over} CROSS JOIN LATERAL (SELECT {_COLUMNS}, {lane.key} AS key
          FROM approvals_request r WHERE {of} AND r.tier = t.tier AND {PENDING} AND {lane.range} {after}
          AND {MINE} ORDER BY {lane.key} {way}, r.ref {way} LIMIT %({lane.name}_depth)s) c"""


#: Rows of a lane by what decides whether a person is their requester; `single`: whom that takes a look above for.
COUNT = """SELECT c.lane, run.owner_id, run.submitter_kind, run.submitter_id, run.on_behalf_of, run.agent,
  run.agent_version, CASE WHEN run.again_of_id IS NOT NULL OR run.ancestors <> '{{}}' THEN run.id END AS single,
  count(*) FROM ({rows}) c CROSS JOIN LATERAL (SELECT * FROM runs_run WHERE id = c.run_id OFFSET 0) run
  GROUP BY 1, 2, 3, 4, 5, 6, 7, 8"""

#: How many of each lane there are, as far as is counted.
SIZES = "SELECT count(*) FROM ({rows}) c GROUP BY lane"
_SEEN = "(%(sees_all)s OR r.group_id = ANY(%(groups)s::integer[]) OR (%(unnamed)s AND r.group_id IS NULL))"
#: What this person put off, approved, or passed on, and still waits. Of what they said and passed on the newest
#: `LATELY` are looked through: what waits is among the newest.
ASIDE = f"""
(SELECT 'snoozed' AS lane, r.id, s.until AS key
  FROM approvals_snooze s JOIN approvals_request r ON r.id = s.request_id
  WHERE s.person_id = %(person)s AND s.until > %(now)s AND {PENDING} AND {ENDS} > %(now)s AND {_SEEN}
  ORDER BY s.until, r.ref LIMIT {COUNTED + 1})
UNION ALL
(SELECT DISTINCT ON (key, ref) o.lane, o.id, o.key FROM (
  SELECT 'others' AS lane, r.id, r.ref, {ENDS} AS key FROM (SELECT * FROM approvals_decision d
      WHERE d.person_id = %(person)s AND NOT EXISTS (SELECT FROM approvals_undo u WHERE u.decision_id = d.id)
      ORDER BY d.made_at DESC LIMIT {LATELY}) d
    JOIN approvals_request r ON r.id = d.request_id
    JOIN approvals_revision v ON v.id = d.revision_id AND v.number = r.number
    WHERE {PENDING} AND {ENDS} > %(now)s AND {_SEEN}
  UNION ALL
  SELECT 'others', r.id, r.ref, {ENDS} FROM (SELECT * FROM approvals_delegation d
      WHERE d.from_id = %(person)s ORDER BY d.id DESC LIMIT {LATELY}) d
    JOIN approvals_request r ON r.id = d.request_id
    WHERE {PENDING} AND {ENDS} > %(now)s AND {_SEEN} AND {_LIES}
  ) o WHERE NOT EXISTS (SELECT FROM approvals_snooze s
    WHERE s.request_id = o.id AND s.person_id = %(person)s AND s.until > %(now)s)
  ORDER BY key, ref LIMIT {COUNTED + 1})
"""
#: Of who sees all: how many of the first that wait are other groups', and of how many.
ELSEWHERE = f"""
SELECT count(*) FILTER (WHERE theirs), count(*) FROM (SELECT CASE WHEN r.group_id IS NULL THEN NOT %(unnamed)s
    ELSE NOT r.group_id = ANY(%(groups)s::integer[]) END AS theirs FROM approvals_request r
  WHERE {PENDING} AND (r.decide_by > %(now)s OR r.decide_by IS NULL)
  ORDER BY r.decide_by, r.ref LIMIT {COUNTED + 1}) r
"""
#: What was opened after a page was made, of this person's groups; `filtered` narrows it as the page was.
ARRIVED = f"""
SELECT c.id, c.ref, c.run_id FROM (SELECT {_COLUMNS}, r.group_id FROM approvals_request r
    WHERE r.opened_at > %(since)s AND {PENDING} AND {ENDS} > %(now)s AND {MINE}
    AND (r.group_id = ANY(%(groups)s::integer[]) OR (%(unnamed)s AND r.group_id IS NULL))
    ORDER BY r.opened_at DESC, r.ref DESC LIMIT {COUNTED + 1}) c
  JOIN runs_run run ON run.id = c.run_id
  JOIN approvals_revision v ON v.request_id = c.id AND v.number = c.number
  WHERE c.tier = ANY(%(tiers)s::text[]) AND {{filtered}}
"""
