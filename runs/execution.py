"""The loop: take, replay, gate, call, record, again, until nothing the run wants may start.

One job drives a run through many steps. The same way in serves the first run, a resume and a recovery: the
agent is rebuilt from the record and asks again. Values are what is read back from the record. A slice ends when
the worker is stopping or others are due; then the run is handed back at a boundary.
"""

import json
import os
import socket
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import structlog
from django.conf import settings
from django.db import transaction

from runs import (
    agents,
    clock,
    effects,
    endings,
    gate,
    holds,
    invocation,
    lifecycle,
    points,
    queues,
    recorded,
    shutdown,
    snapshots,
    statements,
    values,
)
from runs.agents import Agent, RunContext
from runs.exceptions import BadArguments, BadValue, Diverged, EpochLost, LostRace, NotFound
from runs.gate import Go, Held, Proposal, Settled
from runs.invocation import Job, Known
from runs.lease import lease
from runs.lifecycle import Fence
from runs.models import Run, Step
from runs.replay import Conversation, Entry, Raised, Returned, compare, outcome
from runs.states import Cause, RunStatus, StepStatus
from runs.tools.calls import Call, Outcome, Wanted
from runs.tools.declared import ToolContext

log = structlog.get_logger(__name__)


def worker_name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


def drive(run_id: uuid.UUID) -> None:
    """Takes a run and drives it until it parks, ends or is handed back. Nothing happens if it is not queued."""
    started = time.monotonic()
    fence = lifecycle.take(run_id, worker_name())
    if fence is None:
        if not Run.objects.filter(pk=run_id).exists():
            raise NotFound(f"no run {run_id}")
        return
    lease.hold(fence, started)
    try:
        _until_still(fence)
    except EpochLost as lost:
        log.warning("epoch_lost", run=str(run_id), why=str(lost))
    finally:
        lease.let_go()


def _until_still(fence: Fence) -> None:
    """Loads and drives; a release or a stop that comes in between means: load again."""
    while True:
        drive_on = Drive.load(fence)
        try:
            drive_on.go()
            return
        except LostRace as race:
            log.info("loading_again", run=str(fence.run), why=str(race))
        finally:
            drive_on.drop()


@dataclass
class Pending:
    """A receipt that may ride in the commit of the next intent. `sent`: the call it came of, if any."""

    settles: str
    parameters: dict[str, Any]
    known: Known
    sent: Job | None


@dataclass
class Drive:
    """One load of a run and what was done since."""

    fence: Fence
    run: Run
    entries: dict[int, Entry]
    began: float = field(default_factory=time.monotonic)
    steps_made: int = 0
    wakes: int = 0
    open_holds: int = 0
    pending: Pending | None = None
    conversation: Conversation | None = None

    # -- Loading -------------------------------------------------------------

    @classmethod
    def load(cls, fence: Fence) -> "Drive":
        """The run and its steps as rows. `wakes` is read first: what comes later makes parking fail."""
        run = Run.objects.get(pk=fence.run)
        if (run.epoch, run.token) != (fence.epoch, fence.token):
            raise EpochLost(f"run {fence.run} was taken under epoch {run.epoch}")
        rows = Step.objects.filter(run=run).values_list(*_COLUMNS).order_by("index")
        entries = {row[1]: Entry(*row) for row in rows}
        return cls(fence, run, entries, wakes=run.wakes, open_holds=run.open_holds)

    def go(self) -> None:
        """Rebuilds the agent and drives it until it ends, parks or is handed back; a difference holds it.

        Raises LostRace: load again.
        """
        try:
            self._go()
        except (Diverged, snapshots.Mismatched) as difference:
            self._hold_as_diverged(difference)

    def _go(self) -> None:
        if self.run.stop_requested:
            endings.stop(self.fence)
            return
        if mismatch := snapshots.check(self.run, list(self.entries.values())):
            raise snapshots.Mismatched(mismatch)
        agent = agents.find(self.run.agent, self.run.agent_version)
        assert agent is not None, "a run is taken only by workers that have its version"
        try:
            self.conversation = Conversation(agent, self._context(), self.run.input, limit=settings.AGENT_TIMEOUT)
        except BadArguments as error:
            raise Diverged(0, "an input that fitted", str(error)) from None
        self._converse(agent)

    def _context(self) -> RunContext:
        run = self.run
        return RunContext(run.pk, run.agent, run.agent_version, run.on_behalf_of, run.labels)

    def drop(self) -> None:
        if self.conversation is not None:
            self.conversation.drop()

    # -- The conversation ------------------------------------------------------

    def _converse(self, agent: Agent) -> None:
        assert self.conversation is not None
        lease.busy(settings.AGENT_TIMEOUT)
        said = self.conversation.advance()
        index = 0
        while isinstance(said, Wanted):
            outcomes = self._satisfy(agent, index, said.calls)
            if outcomes is None:
                return
            index += len(said.calls)
            lease.busy(settings.AGENT_TIMEOUT)
            said = self.conversation.advance(outcomes)
        self._end(agent, index, said)

    def _satisfy(self, agent: Agent, first: int, calls: Sequence[Call[Any]]) -> list[Outcome[Any]] | None:
        """The outcomes of what the agent wants, from the record or by making the calls. None: it parked."""
        for index, call in enumerate(calls, first):
            if index in self.entries:
                compare(index, call, self.entries[index])
        missing = [i for i in range(first, first + len(calls)) if not self._settled(i)]
        if missing:
            if self._hand_back_due():
                return None
            proposals = {i: self._proposal(agent, i, calls[i - first]) for i in missing}
            if not self._make(proposals):
                return None
        return [outcome(call, self.entries[index]) for index, call in enumerate(calls, first)]

    def _settled(self, index: int) -> bool:
        return index in self.entries and self.entries[index].is_settled

    def _proposal(self, agent: Agent, index: int, call: Call[Any]) -> Proposal:
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
        )

    def _end(self, agent: Agent, index: int, said: Returned | Raised) -> None:
        beyond = [e for e in self.entries.values() if e.index >= index]
        if beyond:
            raise Diverged(index, f"a call of {beyond[0].tool}", "nothing: the agent ended")
        self._flush()
        points.reach("before-finish")
        if isinstance(said, Raised):
            endings.finish(self.fence, RunStatus.FAILED, error=recorded.write(said.error, ()))
            return
        try:
            result = agent.signature.result.write(said.value, comes_back=False)  # nobody reads it back
        except BadValue as error:
            failed = recorded.write(BadValue(error.path, f"the agent returned what cannot be kept: {error}"), ())
            endings.finish(self.fence, RunStatus.FAILED, error=failed)
            return
        endings.finish(self.fence, RunStatus.SUCCEEDED, result=result)

    # -- Making calls ------------------------------------------------------------

    def _make(self, proposals: dict[int, Proposal]) -> bool:
        """Passes each call through the gate and makes those that may start. False: parked.

        A call whose intent is committed is in flight, also when a hold stops those behind it: it is made.
        """
        if self.open_holds:
            return self._park(proposals)
        jobs: list[tuple[Proposal, Job]] = []
        try:
            self._start_all(proposals, jobs)
        except (LostRace, snapshots.Mismatched):
            self._call(jobs)
            self._flush()
            raise
        self._call(jobs)
        if all(self._settled(index) for index in proposals):
            return True
        return self._park(proposals)

    def _start_all(self, proposals: dict[int, Proposal], jobs: list[tuple[Proposal, Job]]) -> None:
        """Adds to `jobs` what may be called, until a hold or a stop comes. Raises LostRace, EpochLost."""
        for proposal in proposals.values():
            passed = self._pass(proposal)
            if isinstance(passed, Settled):
                self._settle_uncalled(proposal, passed)
            elif isinstance(passed, Go):
                if (job := self._start(proposal, passed)) is None:
                    return
                jobs.append((proposal, job))

    def _pass(self, proposal: Proposal) -> gate.Pass:
        entry = self.entries.get(proposal.index)
        if entry is None:
            if not _free_of_looks(proposal.call):
                self._flush()
            return gate.arrive(self.fence, proposal)
        if entry.open_holds:
            return Held()
        self._flush()
        step = Step.objects.get(pk=entry.id)
        _untouched(step)
        if step.status == StepStatus.DISPATCHED:
            lease.busy(proposal.call.tool.properties.timeout)
            return self._resolve(proposal, step)
        return gate.come_back(self.fence, proposal, step)

    def _resolve(self, proposal: Proposal, step: Step) -> gate.Pass:
        """An effect that was dispatched, and nobody wrote down what came of it."""
        found = effects.resolve(proposal.call, step, clock.now())
        if isinstance(found, effects.Adopt):
            return Settled(found.known, effect=effects.state_after(found.known))
        if isinstance(found, effects.Again):
            return Go(step.sent, step.pk, step.attempt + 1)
        effects.doubt(self.fence, step.pk, found)
        return Held()

    def _start(self, proposal: Proposal, passed: Go) -> Job | None:
        """Commits the intent of an effect. A pure tool needs none: it starts after the receipt before it,
        whose commit says whether a hold came. None: a hold or a stop came first."""
        tool = proposal.call.tool
        key = effects.key(self.fence.run, proposal.index)
        context = ToolContext(self.fence.run, proposal.index, key, passed.attempt)
        if tool.properties.effect and not passed.committed:
            parameters = self._intent(proposal, passed)
            if not self._boundary("row" if passed.step else "new", parameters):
                return None
        elif not tool.properties.effect:
            self._flush()
            if self.open_holds:
                return None
        self._fence_oneself(tool.properties.timeout)
        points.reach("after-intent-before-call")
        return Job(proposal.call, passed.arguments, context)

    def _fence_oneself(self, seconds: float) -> None:
        """Right before a call that may take so long: raises EpochLost when somebody else may have the run."""
        if not lease.alive():
            raise EpochLost("this worker's lease may have run out")
        lease.busy(seconds)

    def _intent(self, proposal: Proposal, passed: Go) -> dict[str, Any]:
        tool = proposal.call.tool
        if passed.step is not None:
            edited = passed.arguments != proposal.arguments
            again = gate.intent(self.fence, proposal.index, tool)
            if edited:
                again |= {"executed": passed.arguments, "executed_digest": values.digest(passed.arguments)}
            return again
        return {
            "index": proposal.index,
            "tool": tool.name,
            "tool_version": tool.version,
            "arguments": proposal.arguments,
            "digest": values.digest(proposal.arguments),
            "key": effects.key(self.fence.run, proposal.index),
            "acts_for": effects.acts_for(tool),
        }

    def _call(self, jobs: list[tuple[Proposal, Job]]) -> None:
        """Makes the calls side by side and records each as it is known."""
        by_call = {id(job.call): proposal for proposal, job in jobs}
        for job, known in invocation.run_together([job for _, job in jobs], self._late) if jobs else ():
            self._record(by_call[id(job.call)], *self._retried(job, known))

    def _late(self, job: Job, known: Known) -> None:
        """What a call brings after its time was up, in its own thread: evidence, if it says anything."""
        if known.kind == "unknown" or not job.call.tool.properties.effect:
            return
        try:
            self._bring(job, known)
        except Exception:
            log.exception("evidence_lost", run=str(self.fence.run), index=job.context.index)

    def _retried(self, job: Job, known: Known) -> tuple[Job, Known]:
        """Tries again what may be tried again: pure and idempotent calls, and effects certainly not sent.
        The last attempt and what is known of it."""
        tool = job.call.tool
        for attempt in range(1, tool.properties.retries + 1):
            if not _may_retry(tool, known):
                break
            time.sleep(min(effects.backoff(tool, attempt), settings.SLICE))
            if tool.properties.effect and not self._redispatch(job):
                break
            job = replace(job, context=replace(job.context, attempt=job.context.attempt + 1))
            self._fence_oneself(tool.properties.timeout)
            known = invocation.run(job)
        return job, known

    def _redispatch(self, job: Job) -> bool:
        """A new intent for the same call: next attempt, same key, later limit. False: a hold came."""
        sent = {"executed": None, "executed_digest": ""}
        if job.arguments != job.call.arguments:
            sent = {"executed": job.arguments, "executed_digest": values.digest(job.arguments)}
        return self._boundary("row", {**gate.intent(self.fence, job.context.index, job.call.tool), **sent})

    # -- Recording -----------------------------------------------------------------

    def _record(self, proposal: Proposal, job: Job, known: Known) -> None:
        tool = proposal.call.tool
        points.reach("after-effect-before-record")
        if known.kind == "unknown":
            self._unknown(proposal, known)
            return
        has_row = tool.properties.effect or proposal.index in self.entries
        state = effects.state_after(known) if tool.properties.effect else ""
        edited = values.digest(job.arguments) if job.arguments != proposal.arguments else ""
        settles = "row" if has_row else "new"
        self._settle(proposal, known, settles=settles, effect=state, executed_digest=edited, sent=job)
        if tool.properties.effect and not tool.repeatable:
            self._flush()

    def _unknown(self, proposal: Proposal, known: Known) -> None:
        """What an effect's tool raised does not say whether it happened."""
        self._flush()
        step = Step.objects.get(run=self.fence.run, index=proposal.index)
        found = effects.resolve(proposal.call, step, clock.now())
        if isinstance(found, effects.Adopt):
            state = effects.state_after(found.known)
            self._settle(proposal, found.known, settles="row", effect=state, executed_digest=step.executed_digest)
            return
        if isinstance(found, effects.Again):
            wait = effects.backoff(proposal.call.tool, step.attempt)
            found = effects.Doubt(f"no answer: {_short(known)}; it is repeated with the same key", wait)
        effects.doubt(self.fence, step.pk, found)

    def _settle_uncalled(self, proposal: Proposal, passed: Settled) -> None:
        settles = "row" if proposal.index in self.entries else "new"
        self._settle(proposal, passed.known, settles=settles, effect=passed.effect, decision=passed.decision)

    def _settle(
        self,
        proposal: Proposal,
        known: Known,
        *,
        settles: str,
        effect: str,
        executed_digest: str = "",
        decision: dict[str, str] | None = None,
        sent: Job | None = None,
    ) -> None:
        """Puts a receipt into `pending`, and its entry where the agent's next question finds it."""
        self._flush()
        before = self.entries.get(proposal.index)
        status = StepStatus.DONE if known.kind == "returned" else StepStatus.RAISED
        entry = self._entry(proposal, known.text, str(status), before, executed_digest, decision)
        self.pending = Pending(settles, self._receipt(proposal, entry, effect, decision), known, sent)
        self.entries[proposal.index] = entry
        self.steps_made += 1

    def _entry(
        self,
        proposal: Proposal,
        text: str,
        status: str,
        before: Entry | None,
        executed_digest: str,
        decision: dict[str, str] | None,
    ) -> Entry:
        tool = proposal.call.tool
        row = self._fresh(proposal.index) if executed_digest or (before and not decision) else None
        return Entry(
            id=before.id if before else 0,
            index=proposal.index,
            tool=tool.name,
            tool_version=before.tool_version if before else tool.version,
            digest=values.digest(proposal.arguments),
            status=status,
            result=text,
            settled=self.run.position + 1,
            open_holds=0,
            effect="",
            executed=row.executed if row else None,
            executed_digest=row.executed_digest if row else "",
            decision=decision or (row.decision if row else None),
        )

    def _fresh(self, index: int) -> Step | None:
        return Step.objects.only("executed", "executed_digest", "decision").filter(run=self.fence.run, index=index).first()

    def _receipt(
        self, proposal: Proposal, entry: Entry, effect: str, decision: dict[str, str] | None
    ) -> dict[str, Any]:
        self.run.position += 1
        result = entry.result or ""
        return {
            "done": entry.index,
            "outcome": entry.status,
            "result": result,
            "effect_after": str(effect),
            "decision": json.dumps(decision) if decision else None,
            "done_tool": entry.tool,
            "done_tool_version": entry.tool_version,
            "done_arguments": proposal.arguments,
            "done_digest": entry.digest,
            "entry": snapshots.entry(
                entry.index,
                entry.tool,
                entry.tool_version,
                entry.digest,
                entry.executed_digest,
                entry.status,
                result,
            ),
        }

    def _flush(self) -> None:
        """Commits a receipt that waits."""
        if self.pending is not None:
            self._boundary("", {})

    def _boundary(self, starts: str, parameters: dict[str, Any]) -> bool:
        """One commit: the receipt that waits and the intent that starts. False: a hold or a stop came; the
        receipt is in, and nothing was dispatched. Raises EpochLost; the receipt is then kept as evidence."""
        pending, self.pending = self.pending, None
        settles = pending.settles if pending else ""
        if not settles and not starts:
            return True
        row = statements.row(
            statements.BOUNDARY[settles, starts],
            {**self.fence.parameters(), **(pending.parameters if pending else {}), **parameters},
        )
        if row is None:
            self._keep_as_evidence(pending)
            raise EpochLost(f"run {self.fence.run} is not under epoch {self.fence.epoch} any more")
        self.open_holds, stopping, _, receipts, intents = row
        if settles and receipts != 1:
            raise AssertionError(f"run {self.fence.run}: a receipt found no step to settle")
        points.reach("after-boundary")
        self.open_holds += int(stopping)
        return not starts or intents == 1

    def _keep_as_evidence(self, pending: Pending | None) -> None:
        """What this worker's own attempt brought, after somebody else had the run."""
        if pending is not None and pending.sent is not None and pending.parameters["effect_after"]:
            self._bring(pending.sent, pending.known)

    def _bring(self, job: Job, known: Known) -> None:
        effects.evidence(
            self.fence.run,
            job.context.index,
            effect_key=job.context.idempotency_key,
            attempt=job.context.attempt,
            digest=values.digest(job.arguments),
            known=known,
            actor=self.fence.actor,
        )

    # -- Stopping ---------------------------------------------------------------

    def _park(self, proposals: dict[int, Proposal]) -> bool:
        """Gives the worker back. Always False, for the caller to return."""
        self._flush()
        current = Run.objects.only("stop_requested", "open_holds").get(pk=self.fence.run)
        if current.stop_requested:
            endings.stop(self.fence)
            return False
        for index, proposal in proposals.items():
            if index not in self.entries:
                gate.wait(self.fence, proposal)
        points.reach("before-park")
        self._check_still_held()
        lifecycle.park(self.fence, self.wakes)
        points.reach("after-park")
        return False

    def _check_still_held(self) -> None:
        """Holds placed since the load are counted in `wakes` when they are released; one that was released
        before this load's holds were placed is seen here."""
        if not self.run.holds.open().exists():
            raise LostRace("nothing holds the run any more")

    def _hand_back_due(self) -> bool:
        """Whether the run should go back at this boundary; hands it back if so."""
        if not self.steps_made:
            return False
        if shutdown.requested():
            why = "the worker is stopping"
        elif time.monotonic() - self.began > settings.SLICE and queues.length() > 0:
            why = "others are due"
        else:
            return False
        self._flush()
        lifecycle.hand_back(self.fence, why)
        return True

    def _hold_as_diverged(self, difference: Exception) -> None:
        """Holds the whole run, shows both sides, and parks it. Nothing ran. Raises LostRace: load again."""
        points.reach("before-diverged")
        self._flush()
        with transaction.atomic():
            run = lifecycle.lock_fenced(self.fence)
            detail = {}
            if isinstance(difference, Diverged):
                detail = {"index": difference.index, "recorded": difference.recorded, "asked": difference.asked}
            if not run.holds.open().filter(cause=Cause.DIVERGED).exists():
                holds.place(run, cause=Cause.DIVERGED, actor=self.fence.actor, why=str(difference)[:4000], detail=detail)
            wakes = run.wakes
        lifecycle.park(self.fence, wakes)


def _untouched(step: Step) -> None:
    """Raises Mismatched when the arguments of a call that waits are not those whose digest was kept."""
    kept, found = step.executed_digest or step.arguments_digest, values.digest(step.sent)
    if found != kept:
        raise snapshots.Mismatched(
            snapshots.Mismatch(f"the digest of the arguments of step {step.index}", kept[:16], found[:16])
        )


_COLUMNS = (
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
)


def _free_of_looks(call: Call[Any]) -> bool:
    """A call before which nothing is looked at, so that a receipt may ride in the commit of its intent."""
    return not call.tool.properties.facts and not call.tool.builtin


def _may_retry(tool: Any, known: Known) -> bool:
    declared = tool.properties.retry_on
    if known.kind == "unsent":
        return True
    if known.kind == "raised":
        return bool(known.error) and isinstance(known.error, declared)
    return known.kind == "unknown" and tool.properties.idempotent and isinstance(known.error, declared)


def _short(known: Known) -> str:
    kept = json.loads(known.text)
    return f"{kept['type']}: {', '.join(map(str, kept['args']))}"[:300]

