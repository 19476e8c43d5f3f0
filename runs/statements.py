"""The hand-written statements of the hot path, and nothing else.

Take, boundary, park, resume, finish and release are one round trip each because the number of statements decides
what a step costs. Each is executed by the one room whose verb it is. They are prepared by the server
(`prepared`: Django switches preparing off). Parts of a statement are keyed by constants plus
`EXISTS (SELECT FROM fence)`, never joined to `fence`: the join scans an index across all runs.
"""

from runs import journal

_RUN = "'run:' || runs_run.id"
_ADVANCE = journal.ADVANCE.format(name=_RUN)
_STREAM = f"{_RUN} AS name, runs_run.seq, runs_run.head"
_RETURNING = f"RETURNING {_STREAM}, clock.at"
# `|| ''` keeps the planner from the partial indexes of `status`: they churn, and it would read them whole.
_FENCE = (
    "runs_run.id = %(run)s AND runs_run.status || '' = 'running'"
    " AND runs_run.epoch = %(epoch)s AND runs_run.token = %(token)s"
)

# Its commit does not wait for the disk. Nothing outside hangs on it: what a crash of the server takes away is a run
# that is taken, or parked, once more, and any later commit that is waited for brings it along.
_UNSYNCED = "(SELECT set_config('synchronous_commit', 'off', true)) AS unsynced"

TAKE = f"""
WITH {journal.CLOCK}, stream AS (
  UPDATE runs_run SET status = 'running', epoch = epoch + 1, token = %(token)s, taken_by = %(worker)s,
    lease_until = clock.at + make_interval(secs => %(lease)s), suspended_at = NULL,
    started_at = coalesce(started_at, clock.at), changed_at = clock.at, {_ADVANCE}
  FROM clock, {_UNSYNCED}
  WHERE runs_run.id = %(run)s AND status || '' = 'queued' AND agent || '@' || agent_version = ANY(%(versions)s)
  {_RETURNING}, epoch), entry AS ({journal.APPEND})
SELECT epoch FROM stream
"""

_SETTLING = "position = position + 1, recoveries = 0, record = sha256(record || %(entry)s::bytea),"

_RECEIPT = """, receipt AS (
  UPDATE runs_step SET status = %(outcome)s, result = %(result)s, effect = %(effect_after)s,
    decision = coalesce(%(decision)s::jsonb, decision), claim = %(claim)s, settled = (SELECT position FROM fence),
    settled_at = (SELECT at FROM clock)
  WHERE run_id = %(run)s AND index = %(done)s AND status IN ('proposed', 'held', 'dispatched')
    AND EXISTS (SELECT FROM fence) RETURNING 1)"""

_PURE = """, receipt AS (
  INSERT INTO runs_step (run_id, index, tool, tool_version, arguments, arguments_digest, status, result, settled,
    open_holds, effect, key, attempt, executed_digest, permit, evidence, settled_at)
  SELECT %(run)s, %(done)s, %(done_tool)s, %(done_tool_version)s, %(done_arguments)s, %(done_digest)s,
    %(outcome)s, %(result)s, fence.position, 0, '', '', 0, '', '', '[]', fence.at
  FROM fence RETURNING 1)"""

_GO = "fence.open_holds = 0 AND NOT fence.stopping"

_INTENT = f""", intent AS (
  INSERT INTO runs_step (run_id, index, tool, tool_version, arguments, arguments_digest, status, open_holds,
    effect, key, attempt, executed_digest, permit, evidence, dispatched_at, may_act_until)
  SELECT %(run)s, %(index)s, %(tool)s, %(tool_version)s, %(arguments)s, %(digest)s, 'dispatched', 0,
    'dispatched', %(key)s, 1, '', '', '[]', fence.at, fence.at + make_interval(secs => %(acts_for)s)
  FROM fence WHERE {_GO} RETURNING 1)"""

# A late result of an earlier attempt says what came of the call: it is adopted, and nothing is dispatched again.
_OWN = "'key', key, 'digest', coalesce(nullif(executed_digest, ''), arguments_digest)"
_NOT_KNOWN = (
    "(evidence = '[]' OR NOT ("
    f"evidence @> jsonb_build_array(jsonb_build_object({_OWN}, 'happened', true))"
    f" OR evidence @> jsonb_build_array(jsonb_build_object({_OWN}, 'attempt', attempt))))"
)

_AGAIN = f""", intent AS (
  UPDATE runs_step SET status = 'dispatched', effect = 'dispatched', key = %(key)s, attempt = attempt + 1,
    dispatched_at = (SELECT at FROM clock),
    executed = CASE WHEN %(permit)s::text IS NULL THEN executed ELSE %(executed)s END,
    executed_digest = CASE WHEN %(permit)s::text IS NULL THEN executed_digest
      ELSE coalesce(%(executed_digest)s, '') END,
    permit = coalesce(%(permit)s, permit), decision = coalesce(%(decision_now)s::jsonb, decision),
    may_act_until = (SELECT at FROM clock) + make_interval(secs => %(acts_for)s)
  WHERE run_id = %(run)s AND index = %(index)s AND status IN ('proposed', 'held', 'dispatched')
    AND open_holds = 0 AND {_NOT_KNOWN}
    AND EXISTS (SELECT FROM fence WHERE open_holds = 0 AND NOT stopping) RETURNING 1)"""

_NOTHING = ", {} AS (SELECT 1 WHERE false)"


def _boundary(receipt: str, intent: str, *, journalled: bool = False) -> str:
    settling = _SETTLING if receipt else ""
    advance, stream = (f", {_ADVANCE}", f", {_STREAM}") if journalled else ("", "")
    entry = (
        f", entry AS ({journal.APPEND.replace('FROM stream', 'FROM fence AS stream')})" if journalled else ""
    )
    return f"""
WITH {journal.CLOCK}, fence AS (
  UPDATE runs_run SET {settling} changed_at = clock.at{advance} FROM clock WHERE {_FENCE}
  RETURNING position, open_holds, stop_requested IS NOT NULL AS stopping, wakes, clock.at{stream})
{receipt or _NOTHING.format("receipt")}{intent or _NOTHING.format("intent")}{entry}
SELECT open_holds, stopping, wakes, (SELECT count(*) FROM receipt), (SELECT count(*) FROM intent) FROM fence
"""


#: By (what settles, what starts): "" nothing, "row" a step that has its row, "new" one that has none yet.
BOUNDARY = {
    (settles, starts): _boundary(receipt, intent)
    for settles, receipt in (("", ""), ("row", _RECEIPT), ("new", _PURE))
    for starts, intent in (("", ""), ("row", _AGAIN), ("new", _INTENT))
}

#: The intent of a call that waited, with its entry in the run's journal.
DISPATCH = _boundary("", _AGAIN, journalled=True)

PARK = f"""
WITH {journal.CLOCK}, stream AS (
  UPDATE runs_run SET status = 'suspended', lease_until = NULL, token = NULL, suspended_at = clock.at,
    snapshots_taken = snapshots_taken + 1, changed_at = clock.at, {_ADVANCE}
  FROM clock, {_UNSYNCED} WHERE {_FENCE} AND wakes = %(wakes)s AND stop_requested IS NULL
  {_RETURNING}, snapshots_taken, epoch, position, record, agent, agent_version, code_digest, metered),
entry AS ({journal.APPEND})
INSERT INTO runs_snapshot (run_id, number, schema_version, taken_at, epoch, steps, record, attempted, effects,
  effects_digest, claims, used, credentials, agent, agent_version, code_digest, open_holds, why)
SELECT %(run)s, s.snapshots_taken, %(schema_version)s, s.at, s.epoch, s.position, s.record,
  (SELECT count(*) FROM runs_step WHERE run_id = %(run)s), ledger.count, ledger.digest, ledger.claims,
  CASE WHEN s.metered THEN
    (SELECT coalesce(jsonb_agg(jsonb_build_object('name', a.name, 'unit', a.unit, 'used', trim_scale(a.used)::text,
       'reserved', trim_scale(a.reserved)::text)), '[]') FROM (
       SELECT one.* FROM runs_allowance_runs r, LATERAL (
         SELECT name, unit, used, reserved FROM runs_allowance WHERE id = r.allowance_id OFFSET 0) one
       WHERE r.run_id = %(run)s ORDER BY r.allowance_id LIMIT %(named)s) a)
    ELSE '[]' END, %(credentials)s::jsonb,
  s.agent, s.agent_version, s.code_digest, held.count, held.first
FROM stream s, LATERAL (
  SELECT count(*) FILTER (WHERE effect = 'confirmed') AS count,
    count(*) FILTER (WHERE claim NOT IN ('', 'given_back')) AS claims,
    encode(sha256(convert_to(coalesce(string_agg(key || effect, ',' ORDER BY index), ''), 'UTF8')), 'hex') AS digest
  FROM runs_step WHERE run_id = %(run)s AND effect <> '') ledger, LATERAL (
  SELECT coalesce(max(h.count), 0) AS count, coalesce(jsonb_agg(jsonb_build_object('cause', h.cause,
      'scope', h.scope, 'why', left(h.why, 300),
      'index', (SELECT index FROM runs_step WHERE id = h.step_id)) ORDER BY h.opened_at), '[]') AS first
  FROM (SELECT cause, scope, why, step_id, opened_at, count(*) OVER () AS count FROM runs_hold
    WHERE run_id = %(run)s AND released_at IS NULL ORDER BY opened_at LIMIT %(named)s) h) held
RETURNING number
"""

RESUME = f"""
WITH {journal.CLOCK}, stream AS (
  UPDATE runs_run SET status = 'queued', suspended_at = NULL, rung_at = clock.at, rings = 0, changed_at = clock.at,
    {_ADVANCE}
  FROM clock WHERE runs_run.id = %(run)s AND runs_run.status || '' = 'suspended' AND open_holds = 0
  {_RETURNING}), entry AS ({journal.APPEND})
SELECT 1 FROM stream
"""

FINISH = f"""
WITH {journal.CLOCK}, stream AS (
  UPDATE runs_run SET status = %(status)s, result = %(result)s, error = %(error)s, ended_at = clock.at,
    lease_until = NULL, token = NULL, changed_at = clock.at, {_ADVANCE}
  FROM clock WHERE {_FENCE} AND open_holds = 0 AND stop_requested IS NULL
  {_RETURNING}), entry AS ({journal.APPEND})
SELECT 1 FROM stream
"""

RELEASE = f"""
WITH {journal.CLOCK}, released AS (
  UPDATE runs_hold SET released_at = clock.at, released_by_kind = %(actor_kind)s, released_by_id = %(actor_id)s,
    released_by_name = %(actor_name)s, released_through = %(door)s, resolution = %(resolution)s, answer = %(answer)s
  FROM clock WHERE id = %(hold)s AND run_id = %(run)s AND released_at IS NULL
  RETURNING step_id),
stepped AS (
  UPDATE runs_step SET open_holds = open_holds - 1
  WHERE id = (SELECT step_id FROM released) RETURNING 1),
stream AS (
  UPDATE runs_run SET wakes = wakes + 1, changed_at = clock.at,
    open_holds = open_holds - (SELECT count(*) FROM released WHERE step_id IS NULL), {_ADVANCE}
  FROM clock WHERE runs_run.id = %(run)s AND EXISTS (SELECT FROM released)
  {_RETURNING}, open_holds, wakes), entry AS ({journal.APPEND})
SELECT open_holds, wakes, at FROM stream
"""
