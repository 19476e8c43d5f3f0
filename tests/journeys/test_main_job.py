"""The main job, end to end: a run stops at a gate, a person approves in the browser, the run goes on."""

import pytest

from tests.stack import Stack
from tests.visitors import ANA, Rest, Ticket, Visit, request_of


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no_scripts"])
def test_main_job_goes_from_rest_to_the_outside_and_back(
    stack: Stack, rest: Rest, visit: Visit, ticket: Ticket, scripts: bool
) -> None:
    run_id = rest.submit("refund-desk", ticket=ticket.number)
    waiting = rest.until(run_id, "suspended")
    assert [hold["cause"] for hold in waiting["waiting_for"]] == ["approval"]
    assert ticket.calls() == []

    ref = request_of(run_id).ref
    address = stack.address_in_mail(ANA, ref)
    assert address == f"{stack.url}/requests/{ref}"

    ana = visit(java_script_enabled=scripts)
    ana.go(address)
    ana.sign_in(ANA)
    ana.page.wait_for_url(address)
    assert ana.heading() == f"Refund {ticket.amount} EUR to charge {ticket.charge}"
    ana.approve()
    assert ana.receipt().startswith(f"You approved: Refund {ticket.amount} EUR")

    done = rest.ended(run_id)
    [call] = ticket.calls()
    [refund] = ticket.refunds()
    assert (call["status"], call["body"], refund["amount"]) == (201, {"amount": ticket.amount}, ticket.amount)
    assert (done["status"], done["waiting_for"]) == ("succeeded", [])
    assert done["result"] == {
        "said": f"We have refunded {ticket.amount} EUR.",
        "refunded": True,
        "amount": ticket.amount,
        "refund": refund["id"],
    }
    ana.page.reload()
    assert "The call was made." in ana.text()
    assert "The run succeeded." in ana.text()


def test_main_job_starts_with_the_other_scheme_too(stack: Stack, rest: Rest, ticket: Ticket) -> None:
    """`Authorization: Api-Key` is what the demo's notes show for curl."""
    body = {"agent": "refund-desk", "input": {"ticket": ticket.number}}
    said = rest.http.post("/runs", json=body, headers={"Authorization": f"Api-Key {stack.key}"})
    assert said.status_code == 201
