"""A settled doubt and a drift that plans again, with the real inbox: what is asked again, and what is taken back."""

from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from approvals.models import Permit, Request
from runs import doubts, effects, lifecycle
from runs.actors import Actor
from runs.agents import RunContext, agent
from runs.doubts import Said
from runs.execution.record import Record
from runs.invocation import Known
from runs.models import Run, Step
from runs.states import Cause
from runs.tools import AgentError, ToolContext, fact, tool
from tests.approvals import desk

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("whole")]
OLU = Actor("person", "olu", "olu", "page", operator=True)
NOT = Said("did_not_happen", "the bank has nothing")


@fact(source="payments", tolerance=0.5)
def balance(charge: str) -> Decimal:
    """Balance"""
    return desk.world.see("given")  # type: ignore[no-any-return]


@tool(effect=True, timeout=0.3, consequence="{amount} EUR leaves at once.")
def send_out(context: ToolContext, charge: str, amount: Decimal) -> str:
    """Pay {amount} EUR for {charge}."""
    desk.world.calls.append(("send_out", {"charge": charge, "amount": str(amount)}))
    if desk.world.n("send_out") == 1:
        raise ConnectionResetError("the line went dead")
    return f"paid {amount}"


@tool(effect=True, facts=[balance], on_drift="replan", consequence="{amount} EUR leaves at once.")
def send_or_plan(context: ToolContext, charge: str, amount: Decimal) -> str:
    """Pay {amount} EUR for {charge}, or plan again."""
    desk.world.calls.append(("send_or_plan", {"charge": charge, "amount": str(amount)}))
    return f"paid {amount}"


@agent(name="approvals-payer-out")
async def paying_out(run: RunContext) -> str:
    return await send_out("ch_1", Decimal("240.00"))


@agent(name="approvals-planner")
async def planning(run: RunContext) -> list[str]:
    try:
        return [await send_or_plan("ch_1", Decimal("240.00"))]
    except AgentError as no:
        return [type(no).__name__, *map(str, no.args), await send_or_plan("ch_1", Decimal("1.00"))]


def in_doubt(people: SimpleNamespace, **more: Any) -> Request:
    request = desk.opened("approvals-payer-out")
    desk.decide(request, people.ana, **more)
    desk.drive(request)
    desk.later(10)
    hold = Run.objects.get(pk=request.run_id).holds.open().get()
    assert hold.cause == Cause.IN_DOUBT
    desk.holds.look_again(hold.pk)
    desk.drive(request)
    return desk.fresh(request)


def late(request: Request) -> None:
    step = Step.objects.get(pk=request.step_id)
    told = {"effect_key": step.key, "digest": effects.sent_digest(step), "attempt": 1}
    known = Known("returned", '"paid late"')
    effects.evidence(request.run_id, step.index, known=known, actor=Actor.worker("w1"), **told)  # type: ignore[arg-type]


# -- It did not happen ---------------------------------------------------------------------------


def test_what_did_not_happen_is_asked_again_in_the_same_request(people: SimpleNamespace) -> None:
    request = in_doubt(people)
    assert request.state == "consumed"
    doubts.settle(request.run_id, 0, NOT, actor=OLU)
    run = desk.drive(request)
    assert (run.status, desk.fresh(request).state, desk.numbers(request)) == (
        "suspended",
        "open",
        [(1, ""), (2, "unmade")],
    )
    assert desk.world.n("send_out") == 1
    desk.decide(request, people.ben)
    assert (desk.result(request), desk.world.n("send_out")) == ("paid 240.00", 2)
    step = Step.objects.get(pk=request.step_id)
    assert (step.attempt, step.effect, desk.fresh(request).state) == (2, "confirmed", "consumed")


def test_what_did_not_happen_keeps_a_persons_edit(people: SimpleNamespace) -> None:
    request = desk.opened("approvals-payer-out")
    desk.decide(request, people.ana, edit=desk.edited(request, amount="25.00"), reason="one invoice only")
    desk.drive(request)
    desk.later(10)
    desk.holds.look_again(Run.objects.get(pk=request.run_id).holds.open().get().pk)
    desk.drive(request)
    doubts.settle(request.run_id, 0, NOT, actor=OLU)
    desk.drive(request)
    assert desk.fresh(request).revision.arguments == '{"amount":"25.00","charge":"ch_1"}'
    desk.decide(request, people.ben)
    assert desk.result(request) == "paid 25.00"
    step = Step.objects.get(pk=request.step_id)
    assert step.executed == '{"amount":"25.00","charge":"ch_1"}'


def test_late_result_takes_the_request_back(people: SimpleNamespace) -> None:
    request = in_doubt(people)
    doubts.settle(request.run_id, 0, NOT, actor=OLU)
    desk.drive(request)
    late(request)
    standing = desk.fresh(request)
    assert (standing.state, standing.closed_why) == ("superseded", "it is known now what came of the call")
    assert (desk.result(request), desk.world.n("send_out")) == ("paid late", 1)


# -- Drift ---------------------------------------------------------------------------------------------


def test_replan_tells_the_agent_and_supersedes_the_request(people: SimpleNamespace) -> None:
    desk.world.facts["given"] = Decimal("10.00")
    request = desk.opened("approvals-planner")
    desk.decide(request, people.ana)
    desk.world.facts["given"] = Decimal("99.00")
    run = desk.drive(request)
    assert (run.status, desk.world.calls, desk.fresh(request).state) == ("suspended", [], "superseded")
    second = Request.objects.exclude(pk=request.pk).get()
    desk.decide(second, people.ana)
    assert desk.result(request) == ["Stale", "['Balance']", "paid 1.00"]


@pytest.mark.parametrize(
    ("now", "state"), [("10.50", "consumed"), ("9.50", "consumed"), ("10.51", "superseded")]
)
def test_tolerance_is_the_largest_difference_that_is_none(
    people: SimpleNamespace, now: str, state: str
) -> None:
    desk.world.facts["given"] = Decimal("10.00")
    request = desk.opened("approvals-planner")
    desk.decide(request, people.ana)
    desk.world.facts["given"] = Decimal(now)
    desk.drive(request)
    assert desk.fresh(request).state == state


def test_unreadable_at_the_call_does_not_make_the_agent_plan_again(people: SimpleNamespace) -> None:
    desk.world.facts["given"] = Decimal("10.00")
    request = desk.opened("approvals-planner")
    desk.decide(request, people.ana)
    desk.world.facts["given"] = ConnectionResetError("away")
    run = desk.drive(request)
    hold = run.holds.open().get()
    assert (hold.cause, desk.fresh(request).state) == ("dependency", "in_force")
    desk.world.facts["given"] = Decimal("10.00")
    desk.later(31)
    desk.holds.look_again(hold.pk)
    assert desk.result(request) == ["paid 240.00"]


class Killed(BaseException):
    """As if the process had died."""


def test_replan_whose_worker_dies_before_its_record_plans_again_and_asks_nobody(
    people: SimpleNamespace,
) -> None:
    """What was approved is taken back in the commit of what the agent is told, or not at all."""
    desk.world.facts["given"] = Decimal("10.00")
    request = desk.opened("approvals-planner")
    desk.decide(request, people.ana)
    desk.world.facts["given"] = Decimal("99.00")

    def die(*args: Any, **more: Any) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Record, "settle", die)
        with pytest.raises(Killed):
            desk.drive(request)
    assert desk.fresh(request).state == "in_force"
    desk.later(16)
    lifecycle.recover(request.run_id)
    desk.drive(request)
    assert desk.fresh(request).state == "superseded"
    desk.decide(Request.objects.exclude(pk=request.pk).get(), people.ana)
    assert desk.result(request) == ["Stale", "['Balance']", "paid 1.00"]


def test_late_result_takes_an_approval_back_that_nobody_used(people: SimpleNamespace) -> None:
    """A run that has ended leaves no permit behind."""
    request = in_doubt(people)
    doubts.settle(request.run_id, 0, NOT, actor=OLU)
    desk.drive(request)
    desk.decide(request, people.ben)
    assert desk.fresh(request).state == "in_force"
    late(request)
    assert (desk.result(request), desk.world.n("send_out")) == ("paid late", 1)
    assert desk.fresh(request).state == "superseded"
    assert not Permit.objects.in_force().exists()
