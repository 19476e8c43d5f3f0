"""What stands in for policy and people in tests of `runs` alone: rules by tool, and decisions kept in holds.

`TEST_RULES` in the environment says allow, hold or deny by tool; the rest is allowed. An approval is the
answer of a released approval hold, so that every process sees it.
"""

import json
import os
from collections.abc import Callable
from typing import Any

from runs import gate, values
from runs.exceptions import PermitRefused
from runs.gate import Permit, Proposal, Verdict
from runs.models import Run, Step
from runs.models.fact import Moment
from runs.prepared import Batch
from runs.states import Cause

RULES = "TEST_RULES"


class Authority:
    def judge(self, proposal: Proposal) -> Verdict:
        rules: dict[str, Any] = json.loads(os.environ.get(RULES, "{}"))
        expires_in = rules.get("expires_in")
        return Verdict(rules.get(proposal.call.tool.name, "allow"), "test", "the test says so", expires_in)

    def foresee(self, batch: Batch, terms: Any) -> Callable[[], Any]:
        return lambda: None

    def permitting(self, batch: Batch, step: int) -> Callable[[], Permit | None]:
        return lambda: self.permit(Step.objects.get(pk=step))

    def permit(self, step: Step) -> Permit | None:
        last = step.holds.filter(cause=Cause.APPROVAL).order_by("released_at").last()
        if last is None or last.resolution != "approved" or str(last.pk) == step.permit:
            return None
        said = json.loads(last.answer or "{}")
        edited = said.get("arguments")
        sent = step.arguments if edited is None else values.canonical(edited)
        looks = step.readings.exclude(moment=Moment.CALL).order_by("id")
        last_look = looks.last()
        facts = {r.name: r.value for r in looks if last_look and r.look == last_look.look}
        verb = "approve" if edited is None else "edit"
        decision = {"verb": verb, "by": said.get("by", ""), "note": said.get("note", "")}
        return Permit(str(last.pk), sent, edited is not None, values.digest(sent), facts, decision)

    def consume(self, proposal: Proposal, step: Step, permit: Permit, verdict: Verdict) -> None:
        if step.permit == permit.ref or Step.objects.filter(permit=permit.ref).exclude(pk=step.pk).exists():
            raise PermitRefused("used", "this approval was used before")

    def give_back(self, run: Run, step: Step) -> None:
        Step.objects.filter(pk=step.pk).update(permit="")

    def revoke(self, step: Step, why: str) -> None:
        return None


def stand_in() -> None:
    """For processes that tests start: nobody hears of holds, and `Authority` decides."""
    from runs import signals

    for signal in (signals.hold_placed, signals.hold_released, signals.run_ended):
        signal.disconnect(dispatch_uid="approvals")
    gate.register(Authority())
