"""The main job, end to end: a run stops at a gate, a person approves in the browser, the run goes on."""

import pytest

from tests.stack import Stack
from tests.visitors import ANA, Rest, Visit, charge_of, request_of


@pytest.mark.parametrize("scripts", [True, False], ids=["with JavaScript", "without JavaScript"])
def test_main_job_from_rest_to_the_outside_and_back(
    stack: Stack, rest: Rest, visit: Visit, ticket: int, scripts: bool
) -> None:
    refunds = f"/charges/{charge_of(ticket)}/refunds"
    run_id = rest.submit("refund-desk", ticket=ticket)
    waiting = rest.until(run_id, "suspended")
    assert [hold["cause"] for hold in waiting["holds"]] == ["approval"]
    assert stack.gateway.calls(refunds) == []

    ref = request_of(run_id).ref
    address = stack.address_in_mail(ANA, ref)
    assert address == f"{stack.url}/requests/{ref}"

    ana = visit(java_script_enabled=scripts)
    ana.who = ANA
    ana.go(address)
    assert "/accounts/login/" in ana.page.url
    ana.sign_in()
    ana.page.wait_for_url(address)
    charge = stack.gateway.get(f"/charges/{charge_of(ticket)}")
    assert ana.heading() == f"Refund {charge['amount']} EUR to charge {charge['id']}."
    ana.approve()
    assert ana.receipt().startswith(f"You approved: Refund {charge['amount']} EUR")

    done = rest.ended(run_id)
    assert done["status"] == "succeeded"
    [call] = stack.gateway.calls(refunds)
    assert call["status"] == 201
    refund = stack.gateway.get(refunds)["refunds"][0]
    assert done["result"] == {
        "said": f"We have refunded {charge['amount']} EUR.",
        "refunded": True,
        "amount": charge["amount"],
        "refund": refund["id"],
    }
    ana.page.reload()
    assert "It succeeded." in ana.text()
    assert "The run succeeded." in ana.text()


def test_main_job_with_the_form_of_another_scheme(rest: Rest, stack: Stack, ticket: int) -> None:
    """`Authorization: Api-Key` is what the demo's notes show for curl."""
    headers = {"Authorization": f"Api-Key {stack.key}"}
    said = rest.http.post("/runs", json={"agent": "refund-desk", "input": {"ticket": ticket}}, headers=headers)
    assert said.status_code == 201
