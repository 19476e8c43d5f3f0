"""A bundle made by somebody else: nothing approved travels in, and nothing that would break what is here."""

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from django.test import Client

from approvals.models import Permit, Request
from runs import doubts, effects, execution, moves, values
from runs.actors import Actor
from runs.agents import RunContext, agent
from runs.exceptions import BadBundle, RunsError
from runs.models import Hold, Run, Step
from runs.tools import tool
from tests.approvals import desk
from tests.approvals.test_moves import OLU, moved
from tests.runs.test_moves import changed

pytestmark = pytest.mark.django_db
Body = dict[str, Any]


def text_of(change: Callable[[Body], object], name: str = "approvals-wirer") -> str:
    """The bundle of a run that waits for an approval, forged and with an honest digest."""
    return changed(moved(lambda: desk.opened(name)), change)


def forge_dispatch(body: Body, *, effect: str, arguments: dict[str, str] | None = None) -> None:
    """As if the call had been approved and sent, and its answer lost."""
    step, run = body["steps"][0], body["run"]
    at = run["created_at"]
    sent = None if arguments is None else values.canonical(arguments)
    body["holds"], body["parts"]["people"]["requests"] = [], {}
    step.update(
        status="dispatched", effect=effect, key=effects.key(run["id"], 0), attempt=1, open_holds=0, permit="1",
        may_act_until="2026-01-01T00:00:00+00:00", dispatched_at=at, executed=sent,
        executed_digest="" if sent is None else values.digest(sent),
    )  # fmt: skip


# -- Nothing approved travels in ---------------------------------------------------------------


@pytest.mark.parametrize("effect", ["dispatched", "in_doubt", "confirmed", "refused", ""])
@pytest.mark.parametrize("sent", [None, {"to": "EVE", "amount": "999999.00"}])
def test_call_that_claims_to_have_been_sent_is_not_sent_again(
    people: SimpleNamespace, effect: str, sent: dict[str, str] | None
) -> None:
    run = moves.arrive(text_of(lambda body: forge_dispatch(body, effect=effect, arguments=sent)), actor=OLU)
    execution.drive(run.pk)
    assert (desk.world.calls, Permit.objects.count()) == ([], 0)
    (hold,) = Hold.objects.open().filter(run=run)
    assert (hold.cause, hold.look_again_at) == ("in_doubt", None)


def test_call_that_claims_to_have_been_sent_is_asked_for_after_a_person_settled_it(
    people: SimpleNamespace,
) -> None:
    run = moves.arrive(text_of(lambda body: forge_dispatch(body, effect="dispatched")), actor=OLU)
    said = doubts.Said("did_not_happen", "I looked")
    doubts.settle(run.pk, 0, said, actor=Actor("person", str(people.olu.pk), "olu", "page", operator=True))
    execution.drive(run.pk)
    request = Request.objects.get(run=run)
    assert (request.state, desk.world.calls) == ("open", [])
    desk.decide(request, people.ana)
    desk.drive(request)
    assert desk.world.n("wire") == 1


def test_call_that_needs_nobody_here_is_sent_again_under_its_key(people: SimpleNamespace) -> None:
    text = text_of(lambda body: forge_dispatch(body, effect="dispatched"))
    desk.change_rule("desk", outcome="allow", reviewers=None)
    run = moves.arrive(text, actor=OLU)
    execution.drive(run.pk)
    assert desk.world.n("wire") == 1


@tool()
def bundles_peek(words: str) -> str:
    """Peek at {words}."""
    desk.world.calls.append(("bundles_peek", {}))
    return words


@agent(name="bundles-peeker")
async def peeker(run: RunContext) -> str:
    return await bundles_peek("x")


def test_call_whose_hold_and_permit_were_forged_is_asked_for(people: SimpleNamespace) -> None:
    """Released as approved, with a permit that was used."""
    desk.change_rule("desk", expression="true")

    def change(body: Body) -> None:
        (hold,) = body["holds"]
        hold.update(released_at=body["run"]["created_at"], resolution="approved", answer="{}")
        body["steps"][0].update(permit="1", open_holds=0)
        body["parts"]["people"]["requests"] = {}

    run = moves.arrive(text_of(change, "bundles-peeker"), actor=OLU)
    execution.drive(run.pk)
    assert (desk.world.calls, Request.objects.get(run=run).state) == ([], "open")


@pytest.mark.parametrize("status", ["proposed", "held"])
def test_call_whose_hold_was_left_out_is_asked_for(people: SimpleNamespace, status: str) -> None:
    def change(body: Body) -> None:
        body["holds"], body["parts"]["people"]["requests"] = [], {}
        body["steps"][0].update(status=status, open_holds=0)

    run = moves.arrive(text_of(change), actor=OLU)
    execution.drive(run.pk)
    assert (desk.world.calls, Request.objects.get(run=run).state) == ([], "open")


# -- Nothing that breaks what is here ------------------------------------------------------------


ODD: dict[str, Callable[[Body], object]] = {
    "labels": lambda b: b["run"].update(labels=["x"]),
    "a label": lambda b: b["run"].update(labels={"x": {"y": 1}}),
    "input": lambda b: b["run"].update(input="{"),
    "input as it is not kept": lambda b: b["run"].update(input='{ "amount": "1"}'),
    "evidence": lambda b: b["steps"][0].update(evidence={"a": 1}),
    "an item of evidence": lambda b: b["steps"][0].update(evidence=["x"]),
    "a decision": lambda b: b["steps"][0].update(decision="approve"),
    "what a hold tells": lambda b: b["holds"][0].update(detail=[]),
    "what was sent": lambda b: b["steps"][0].update(executed="{", executed_digest=values.digest("{")),
    "why of a snapshot": lambda b: b["snapshots"][0].update(why="x"),
    "use of a snapshot": lambda b: b["snapshots"][0].update(used="x"),
    "credentials of a snapshot": lambda b: b["snapshots"][0].update(credentials=[{"value": 1}]),
    "a number beyond the column": lambda b: b["run"].update(wakes=10**30),
    "a number where text is": lambda b: b["run"].update(on_behalf_of=7),
    "a truth where a number is": lambda b: b["run"].update(position=True),
    "a path for an id": lambda b: b["run"].update(id="../../etc/passwd"),
    "people": lambda b: b["parts"].update(people={}),
    "people's requests": lambda b: b["parts"]["people"].update(requests={b["holds"][0]["id"]: {"facts": 3}}),
    "an allowance without a need": lambda b: b["holds"][0].update(cause="allowance", detail={}),
}  # fmt: skip


@pytest.mark.parametrize("what", sorted(ODD))
def test_odd_values_are_refused_whole(people: SimpleNamespace, what: str) -> None:
    with pytest.raises(RunsError):
        moves.arrive(text_of(ODD[what]), actor=OLU)
    assert (Run.objects.count(), Step.objects.count(), Hold.objects.count(), Request.objects.count()) == (
        0,
        0,
        0,
        0,
    )


def test_hold_waits_for_no_allowance_that_its_run_does_not_draw_on(people: SimpleNamespace) -> None:
    """Else a forged subject would hang it on somebody else's, and stand in the way of those who wait there."""

    def change(body: Body) -> None:
        body["holds"][0].update(cause="allowance", subject="1", detail={"need": "1"})
        body["parts"]["people"]["requests"] = {}

    run = moves.arrive(text_of(change), actor=OLU)
    assert [hold.subject for hold in Hold.objects.filter(run=run)] == [""]


def test_hold_with_the_id_of_one_here_is_refused(people: SimpleNamespace) -> None:
    here = desk.opened().hold_id
    with pytest.raises(BadBundle):
        moves.arrive(text_of(lambda body: body["holds"][0].update(id=str(here))), actor=OLU)
    assert (Hold.objects.filter(pk=here, released_at=None).count(), Run.objects.count()) == (1, 1)


@pytest.mark.parametrize("schema", [True, 0, -1, "1", None, 1.0])
def test_schema_that_is_none(people: SimpleNamespace, schema: Any) -> None:
    told = json.loads(moved(lambda: desk.opened()))
    with pytest.raises(BadBundle):
        moves.arrive(json.dumps({**told, "schema": schema}), actor=OLU)


@pytest.mark.parametrize(
    "text",
    ["[" * 200_000, '{"a":' * 200_000, b"\xff\xfe", "NaN", '{"format":"abeyance-run","format":1}', "\x00"],
)
def test_texts_that_are_no_bundle(text: str | bytes) -> None:
    with pytest.raises(BadBundle):
        moves.arrive(text, actor=OLU)


def test_texts_of_a_bundle_are_shown_revealed(people: SimpleNamespace) -> None:
    evil = "<script>alert(1)</script>\u202egnp"
    run = moves.arrive(
        text_of(lambda body: body["run"].update(on_behalf_of=evil, labels={evil: evil})), actor=OLU
    )
    client = Client()
    client.force_login(people.olu)
    shown = client.get(run.get_absolute_url()).content.decode()
    assert ("<script>alert" in shown, "\u202e" in shown) == (False, False)
