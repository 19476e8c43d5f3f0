"""Talking with the agent: rebuilt from the record, asked what it wants, given what came of it.

Ends, parks or hands the run back. A slice ends when the worker is stopping or others are due, at a boundary and
after at least one step; its clock starts after replay.
"""

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings

from runs import (
    agents,
    divergence,
    endings,
    gate,
    lifecycle,
    points,
    queues,
    recorded,
    redaction,
    shutdown,
    snapshots,
    versions,
)
from runs.agents import Agent, RunContext
from runs.exceptions import BadArguments, BadValue, Diverged, EpochLost, LostRace
from runs.execution import calls
from runs.execution.record import STEPS, Record
from runs.gate import Proposal
from runs.lease import lease
from runs.lifecycle import Fence
from runs.models import Run, Snapshot, Step
from runs.prepared import Answer, Batch, Given, Query, Row, Rows
from runs.replay import Conversation, Raised, Returned, compare, outcome
from runs.states import RunStatus
from runs.tools.calls import Call, Outcome, Wanted

_FREE = Rows(
    lambda: Step.objects.filter(run=Given("run"), open_holds=0).pending().order_by().values_list("pk")[:1]
)
_HELD = Rows(
    lambda: Run.objects.filter(pk=Given("run")).order_by().values_list("open_holds", "stop_requested")
)
_RUN = Query(lambda: Run.objects.filter(pk=Given("run")).order_by())


Asked = tuple[Answer[Run], Answer[Row], Answer[Snapshot]]


@dataclass
class Drive:
    """One load of a run and what was done since. `wakes` is as it was loaded."""

    fence: Fence
    run: Run
    record: Record
    wakes: int
    snapshot: Snapshot | None
    began: float | None = None
    conversation: Conversation | None = None

    @classmethod
    def load(cls, fence: Fence) -> "Drive":
        """The run as it is now. Raises EpochLost."""
        with Batch() as batch:
            asked = cls.asked(batch, fence.run)
        return cls.first(fence, asked)

    @classmethod
    def first(cls, fence: Fence, asked: Asked) -> "Drive":
        """The run as it was asked for, or as it is once it is not held for its version any more. Raises EpochLost."""
        loaded = cls._of(fence, asked)
        return cls.load(fence) if loaded.run.open_holds and versions.found(fence) else loaded

    @staticmethod
    def asked(batch: Batch, run_id: uuid.UUID) -> Asked:
        """The run and its steps as rows. `wakes` is read first: what comes later makes parking fail."""
        return (
            batch.ask(_RUN, run=run_id),
            batch.ask(STEPS, run=run_id),
            batch.ask(snapshots.LAST, run=run_id),
        )

    @classmethod
    def _of(cls, fence: Fence, asked: Asked) -> "Drive":
        row, steps, last = asked
        run = row.one()
        if (run.epoch, run.token) != (fence.epoch, fence.token):
            raise EpochLost(f"run {fence.run} was taken under epoch {run.epoch}")
        return cls(fence, run, Record(fence, run, steps.all()), run.wakes, last.first())

    def go(self) -> None:
        """Rebuilds the agent and drives it until it ends, parks or is handed back; a difference holds it.

        Raises LostRace: load again.
        """
        try:
            self._go()
        except (Diverged, snapshots.Mismatched) as difference:
            self._hold_as_diverged(difference)

    def drop(self) -> None:
        if self.conversation is not None:
            self.conversation.drop()

    # -- The conversation ------------------------------------------------------

    def _go(self) -> None:
        if self.run.stop_requested:
            endings.stop(self.fence)
            return
        if mismatch := snapshots.check(self.run, list(self.record.entries.values()), self.snapshot):
            raise snapshots.Mismatched(mismatch)
        agent = agents.find(self.run.agent, self.run.agent_version)
        assert agent is not None, "a run is taken only by workers that have its version"
        try:
            self.conversation = Conversation(
                agent, self._context(), self.run.input, limit=settings.AGENT_TIMEOUT
            )
        except BadArguments as error:
            raise Diverged(0, "an input that fitted", str(error)) from None
        self._converse(agent, self.conversation)

    def _context(self) -> RunContext:
        run = self.run
        return RunContext(run.pk, run.agent, run.agent_version, run.on_behalf_of, run.labels)

    def _converse(self, agent: Agent[..., Any], conversation: Conversation) -> None:
        lease.busy(settings.AGENT_TIMEOUT)
        said = conversation.advance()
        index = 0
        while isinstance(said, Wanted):
            outcomes = self._satisfy(agent, index, said.calls)
            if outcomes is None:
                return
            index += len(said.calls)
            lease.busy(settings.AGENT_TIMEOUT)
            said = conversation.advance(outcomes)
        self._end(agent, index, said)

    def _satisfy(
        self, agent: Agent[..., Any], first: int, wanted: Sequence[Call[Any]]
    ) -> list[Outcome[Any]] | None:
        """The outcomes of what the agent wants, from the record or by making the calls. None: it stands still."""
        record = self.record
        for index, call in enumerate(wanted, first):
            if index in record.entries:
                compare(index, call, record.entries[index])
        missing = [i for i in range(first, first + len(wanted)) if not record.settled(i)]
        if missing:
            if self._hand_back_due():
                return None
            proposals = {i: self._proposal(agent, i, wanted[i - first]) for i in missing}
            if not self._make(proposals):
                return None
        return [outcome(call, record.entries[index]) for index, call in enumerate(wanted, first)]

    def _make(self, proposals: Mapping[int, Proposal]) -> bool:
        """Makes the calls that may be made. False: not all are settled, and the run is parked."""
        if not self.record.open_holds:
            calls.make(self.record, proposals)
            if all(self.record.settled(index) for index in proposals):
                return True
        self._park(proposals)
        return False

    def _proposal(self, agent: Agent[..., Any], index: int, call: Call[Any]) -> Proposal:
        run = self.run
        return Proposal(
            run=run.pk,
            agent=run.agent,
            agent_version=run.agent_version,
            agent_owner=agent.owner,
            labels=run.labels,
            submitter=run.submitter_name,
            on_behalf_of=run.on_behalf_of,
            index=index,
            call=call,
            arguments=call.arguments,
            ancestors=run.ancestors,
            metered=run.metered,
        )

    def _end(self, agent: Agent[..., Any], index: int, said: Returned | Raised) -> None:
        beyond = [e for e in self.record.entries.values() if e.index >= index]
        if beyond:
            raise Diverged(index, f"a call of {beyond[0].tool}", "nothing: the agent ended")
        self.record.flush()
        points.reach("before-finish")
        if isinstance(said, Raised):
            self._finish(RunStatus.FAILED, error=recorded.write(said.error, ()))
            return
        try:
            result = redaction.scrub(
                agent.signature.result.write(said.value, comes_back=False)
            )  # not read back
        except BadValue as error:
            failed = recorded.write(
                BadValue(error.path, f"the agent returned what cannot be kept: {error}"), ()
            )
            self._finish(RunStatus.FAILED, error=failed)
            return
        self._finish(RunStatus.SUCCEEDED, result=result)

    def _finish(self, status: RunStatus, *, result: str | None = None, error: str | None = None) -> None:
        quick = self.run.parent_id is None and not self.run.metered
        endings.finish(self.fence, status, result=result, error=error, quick=quick)

    # -- Standing still ---------------------------------------------------------

    def _park(self, proposals: Mapping[int, Proposal]) -> None:
        """Gives the worker back. Raises LostRace: something came, load again."""
        self.record.flush()
        for index, proposal in proposals.items():
            if index not in self.record.entries and index not in self.record.waiting:
                gate.wait(self.fence, proposal)
        with Batch() as batch:
            held, free = batch.ask(_HELD, run=self.fence.run), batch.ask(_FREE, run=self.fence.run)
        open_holds, stop_requested = held.one()
        if stop_requested:
            endings.stop(self.fence)
            return
        points.reach("before-park")
        self._check_still_held(open_holds, bool(free.all()))
        self._stop(self.wakes)
        points.reach("after-park")

    def _stop(self, wakes: int) -> None:
        lifecycle.park(self.fence, wakes, credentials=self.record.credentials())

    def _check_still_held(self, open_holds: int, free: bool) -> None:
        """A run stands still while a hold binds all of it, or each call that it waits for; what is released from
        now on counts in `wakes`. One that was released since the load is seen here, and so is a call that was
        put back and waits for nothing."""
        if open_holds and self.run.holds.open().exists():
            return
        if free:
            raise LostRace("something that it wants may start")

    def _hand_back_due(self) -> bool:
        """Whether the run should go back at this boundary; hands it back if so."""
        self.began = self.began or time.monotonic()
        if not self.record.steps_made:
            return False
        if shutdown.requested():
            why = "the worker is stopping"
        elif time.monotonic() - self.began > settings.SLICE and queues.length() > 0:
            why = "others are due"
        else:
            return False
        self.record.flush()
        lifecycle.hand_back(self.fence, why)
        return True

    def _hold_as_diverged(self, difference: Exception) -> None:
        """Holds the whole run, shows both sides, and parks it. Nothing ran. Raises LostRace: load again."""
        points.reach("before-diverged")
        self.record.flush()
        made = agents.find(self.run.agent, self.run.agent_version)
        wakes = divergence.place(self.fence, difference, made.code_digest if made else "")
        self._stop(wakes)
