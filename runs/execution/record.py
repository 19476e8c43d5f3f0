"""A run's record as its worker has it, and the one commit a boundary costs.

Owns the entries by index, the receipt that waits to ride in the commit of the next intent, and what the last
commit said of holds. Only the worker under the fence writes the record; a receipt that comes too late is
evidence, which moves nothing.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import transaction

from runs import allowance, effects, points, prepared, snapshots, statements, values
from runs.exceptions import EpochLost
from runs.gate import Proposal
from runs.invocation import Job, Known
from runs.lifecycle import Fence
from runs.models import Run, Step
from runs.prepared import Given, Query, Row, Rows
from runs.replay import Entry
from runs.states import StepStatus
from runs.tools import declared

COLUMNS = (
    "id",
    "index",
    "tool",
    "tool_version",
    "arguments_digest",
    "status",
    "result",
    "settled",
    "open_holds",
    "effect",
    "executed",
    "executed_digest",
    "decision",
    "accepted_digest",
)


STEPS = Rows(lambda: Step.objects.filter(run=Given("run")).order_by("index").values_list(*COLUMNS))
_MINE = Rows(
    lambda: (
        Run.objects.filter(pk=Given("run"), status="running", epoch=Given("epoch"), token=Given("token"))
        .order_by()
        .values_list("open_holds", "stop_requested")
    )
)
_ROW = Query(lambda: Step.objects.filter(run=Given("run"), index=Given("index")).order_by())
_STEP = Rows(lambda: _ROW.made().values_list(*COLUMNS))


@dataclass(frozen=True, slots=True)
class Pending:
    """A receipt that may ride in the commit of the next intent. `sent`: the call it came of, if any."""

    settles: str
    parameters: dict[str, Any]
    known: Known
    sent: Job | None
    usage: Sequence[tuple[str, Any]]
    also: Callable[[], None] | None = None


class Record:
    """`open_holds` is what the last commit or look saw: holds that bind the run, and one more if it is to stop.
    `seen`: nothing happened since. `waiting`: calls that the gate gave a row and a hold."""

    def __init__(self, fence: Fence, run: Run, steps: Iterable[Row]) -> None:
        self.fence = fence
        self.run = run
        self.entries: dict[int, Entry] = {}
        self._keep(steps)
        self.open_holds = run.open_holds
        self.seen = False
        self.waiting: set[int] = set()
        self.steps_made = 0
        self._pending: Pending | None = None

    def load(self, index: int) -> None:
        """Reads a step as it is stored now."""
        self._keep(_STEP.all(run=self.fence.run, index=index))

    def _keep(self, rows: Iterable[Row]) -> None:
        self.entries.update((row[1], Entry(*row)) for row in rows)

    def settled(self, index: int) -> bool:
        return index in self.entries and self.entries[index].is_settled

    def credentials(self) -> list[str]:
        """Names of the credentials that what the run called, or wants to call, is given."""
        known = (declared.get(name) for name in {entry.tool for entry in self.entries.values()})
        return sorted({name for tool in known if tool for name in tool.properties.credentials})

    # -- Settling ------------------------------------------------------------------

    def settle(
        self,
        proposal: Proposal,
        known: Known,
        *,
        effect: str = "",
        decision: dict[str, str] | None = None,
        sent: Job | None = None,
        usage: Sequence[tuple[str, Any]] = (),
        also: Callable[[], None] | None = None,
    ) -> None:
        """Keeps a receipt for the next commit, and its entry where the agent's next question finds it.

        `effect` is the ledger's word; a call without a row (pure, never held) is inserted as settled. `usage` is
        what the call used, by unit; `also` is done in the same commit.
        """
        try:
            self.flush()
        except EpochLost:
            self._bring_of(sent, known, effect)
            raise
        before = self.entries.get(proposal.index)
        settles = "row" if before or effect else "new"
        entry = self._entry(proposal, known, before, decision)
        receipt = self._receipt(proposal, entry, effect, decision)
        self._pending = Pending(settles, receipt, known, sent, tuple(usage), also)
        self.entries[proposal.index] = entry
        self.steps_made += 1

    def _entry(
        self, proposal: Proposal, known: Known, before: Entry | None, decision: dict[str, str] | None
    ) -> Entry:
        """A call that waited may have been edited and decided on since it was loaded: its row says so."""
        tool = proposal.call.tool
        row = self._row(proposal.index) if before else None
        return Entry(
            id=before.id if before else 0,
            index=proposal.index,
            tool=tool.name,
            tool_version=before.tool_version if before else tool.version,
            digest=values.digest(proposal.arguments),
            status=str(StepStatus.DONE if known.kind == "returned" else StepStatus.RAISED),
            result=known.text,
            settled=self.run.position + 1,
            open_holds=0,
            effect="",
            executed=row.executed if row else None,
            executed_digest=row.executed_digest if row else "",
            decision=decision or (row.decision if row else None),
        )

    def _row(self, index: int) -> Step:
        return _ROW.get(run=self.fence.run, index=index)

    def _receipt(
        self, proposal: Proposal, entry: Entry, effect: str, decision: dict[str, str] | None
    ) -> dict[str, Any]:
        self.run.position += 1
        return {
            "done": entry.index,
            "outcome": entry.status,
            "result": entry.result,
            "effect_after": str(effect),
            "claim": effects.claim_after(proposal.call.tool, str(effect)),
            "decision": json.dumps(decision) if decision else None,
            "done_tool": entry.tool,
            "done_tool_version": entry.tool_version,
            "done_arguments": proposal.arguments,
            "done_digest": entry.digest,
            "entry": snapshots.entry_of(entry),
        }

    # -- Committing ----------------------------------------------------------------

    def flush(self) -> None:
        """Commits a receipt that waits."""
        if self._pending is not None:
            self.boundary("", {})

    @property
    def rides(self) -> bool:
        """Whether a receipt that waits is one statement, so that it can go with others."""
        return self._pending is None or not (self.run.metered or self._pending.also)

    def write(self, batch: prepared.Batch) -> Callable[[], object]:
        """The receipt that waits, as `gate.First`. Until the transaction is committed it waits here."""
        pending = self._pending
        if pending is None:
            return lambda: None
        points.reach("before-boundary")
        told = {**self.fence.parameters(), **pending.parameters}
        asked = batch.row(statements.BOUNDARY[pending.settles, ""], told)
        return lambda: self._look_at(asked.first(), pending.settles)

    def committed(self) -> None:
        if self._pending is not None:
            self._pending = None
            points.reach("after-boundary")

    def left_behind(self) -> None:
        """The run is lost to this worker: what waits to be written is evidence."""
        pending, self._pending = self._pending, None
        self._keep_as_evidence(pending)

    def boundary(self, starts: str, parameters: dict[str, Any]) -> bool:
        """One commit: the receipt that waits and the intent that starts. False: a hold or a stop came; the
        receipt is in, and nothing was dispatched. Raises EpochLost; the receipt is then kept as evidence."""
        pending, self._pending = self._pending, None
        settles = pending.settles if pending else ""
        if not settles and not starts:
            return True
        points.reach("before-boundary")
        row = self._commit(pending, settles, starts, parameters)
        if row is None:
            self._keep_as_evidence(pending)
        intents = self._look_at(row, settles)
        points.reach("after-boundary")
        return not starts or intents == 1

    def _look_at(self, row: Row | None, settles: str) -> int:
        """What the run's row said when a receipt or an intent came to it; how many intents. Raises EpochLost."""
        if row is None:
            raise EpochLost(f"run {self.fence.run} is not under epoch {self.fence.epoch} any more")
        holds, stopping, _, receipts, intents = row
        if settles and receipts != 1:
            raise AssertionError(f"run {self.fence.run}: a receipt found no step to settle")
        self.open_holds, self.seen = holds + int(stopping), True
        return int(intents)

    def look(self) -> None:
        """Sees holds and a stop without a commit. Raises EpochLost."""
        row = _MINE.first(**self.fence.parameters())
        if row is None:
            raise EpochLost(f"run {self.fence.run} is not under epoch {self.fence.epoch} any more")
        self.open_holds, self.seen = row[0] + int(row[1] is not None), True

    def _commit(
        self, pending: Pending | None, settles: str, starts: str, parameters: dict[str, Any]
    ) -> tuple[Any, ...] | None:
        told = {
            **self.fence.parameters(),
            **(pending.parameters if pending else {}),
            **parameters,
        }
        if pending is None or not (self.run.metered or pending.also):
            return prepared.row(statements.BOUNDARY[settles, starts], told)
        with transaction.atomic():
            row = prepared.row(statements.BOUNDARY[settles, starts], told)
            if row is not None:
                if pending.also is not None:
                    pending.also()
                unsent = pending.known.kind in ("unsent", "refused")
                points.reach("mid-boundary")
                allowance.settle(self.run, pending.parameters["done"], pending.usage, unsent=unsent)
                points.reach("committing-boundary")
        return row

    def _keep_as_evidence(self, pending: Pending | None) -> None:
        """What this worker's own attempt brought, after somebody else had the run."""
        if pending is not None:
            self._bring_of(pending.sent, pending.known, pending.parameters["effect_after"])

    def _bring_of(self, sent: Job | None, known: Known, effect: str) -> None:
        if sent is not None and effect:
            self.bring(sent, known)

    def bring(self, job: Job, known: Known) -> None:
        """Evidence of what an attempt did; it settles its own doubt and moves nothing else."""
        effects.evidence(
            self.fence.run,
            job.context.index,
            effect_key=job.context.idempotency_key,
            attempt=job.context.attempt,
            digest=values.digest(job.arguments),
            known=known,
            actor=self.fence.actor,
        )
