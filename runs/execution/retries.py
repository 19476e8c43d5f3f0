"""What may be tried again after an attempt, and under which fence: each next one starts as the first did.

Pure and idempotent calls with the errors their tool names, effects certainly not sent, and once more with a renewed
credential. Between two attempts a hold or a stop ends it, and nothing is under way then.
"""

import time
from dataclasses import replace
from typing import Any

from django.conf import settings

from runs import credentials, effects, gate, invocation, points
from runs.exceptions import AncestorHeld, CredentialRefused, LostRace, Obstacle
from runs.execution.record import Record
from runs.gate import Proposal
from runs.invocation import Job, Known
from runs.lease import lease
from runs.tools.declared import Tool


def until_known(record: Record, proposal: Proposal, job: Job, known: Known) -> tuple[Job, Known]:
    """Tries again what may be tried again: pure and idempotent calls, and effects certainly not sent.
    The last attempt and what is known of it. Raises LostRace: something came between two attempts that does not
    let the next one start, and nothing is under way."""
    tool = job.call.tool
    job, known = _with_renewed(record, proposal, job, known)
    for attempt in range(1, tool.properties.retries + 1):
        if not _may_retry(tool, known):
            break
        lease.busy(settings.SLICE)
        time.sleep(min(effects.backoff(tool, attempt), settings.SLICE))
        points.reach("before-retry")
        unsure = job.unsure or known.kind == "unknown"
        try:
            job = replace(_again(record, proposal, job), unsure=unsure)
        except LostRace:
            if unsure:  # it may have happened: a doubt, not a call that was never made
                return job, known
            raise
        job, known = _with_renewed(record, proposal, job, invocation.run(job))
    return job, known


def _again(record: Record, proposal: Proposal, job: Job) -> Job:
    """The next attempt, which starts as the first one did. Raises LostRace, EpochLost."""
    began = time.monotonic()
    if not _start_again(record, proposal, job):
        raise LostRace("a hold or a stop came before the next attempt")
    lease.require()
    lease.busy(job.call.tool.properties.timeout)
    job = replace(job, context=replace(job.context, attempt=job.context.attempt + 1), ready_at=began)
    gate.put_off(record.fence, [job])
    return job


def _start_again(record: Record, proposal: Proposal, job: Job) -> bool:
    """Whether one more attempt may start. An effect is intended again, and draws once under its key; a pure
    call draws each time."""
    if proposal.call.tool.properties.effect:
        return _intend_again(record, proposal)
    record.flush()
    if not proposal.metered or proposal.call.tool.builtin:
        return gate.free(record.fence, proposal)
    return gate.draw_again(record.fence, proposal, job)


def _intend_again(record: Record, proposal: Proposal) -> bool:
    """Commits the intent of one more attempt. False: a hold or a stop came, of this run or of one above."""
    again = gate.intent(record.fence, proposal.index, proposal.call.tool)
    if proposal.ancestors:
        record.flush()  # a receipt is kept, whatever comes of the rest
    try:
        with gate.below(proposal.ancestors):
            return record.boundary("row", again)
    except AncestorHeld:
        return False


def _with_renewed(record: Record, proposal: Proposal, job: Job, known: Known) -> tuple[Job, Known]:
    """Once more with a renewed credential, if the outside refused one: then this attempt did nothing."""
    if not isinstance(known.error, CredentialRefused):
        return job, known
    names = job.call.tool.properties.credentials
    lease.busy(credentials.RENEWS_WITHIN + settings.CREDENTIAL_TIMEOUT * (len(names) + 2))
    try:
        given = credentials.renewed(names, known.error, job.context.credentials)
    except Obstacle as needed:
        return job, replace(known, error=needed)
    gate.note_not_sent(record.fence, proposal, job.context.attempt, str(known.error))
    points.reach("after-renewal")
    try:
        job = _again(record, proposal, job)
    except LostRace:
        if job.unsure:  # an earlier attempt may have acted
            return job, replace(known, kind="unknown")
        raise
    job = replace(job, context=replace(job.context, credentials=given))
    return job, invocation.run(job)


def _may_retry(tool: Tool[..., Any], known: Known) -> bool:
    declared = tool.properties.retry_on
    if known.kind == "unsent":
        return True
    if known.kind == "raised":
        return isinstance(known.error, declared)
    return known.kind == "unknown" and tool.properties.idempotent and isinstance(known.error, declared)
