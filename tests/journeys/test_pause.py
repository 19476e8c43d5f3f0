"""Operators pause and resume: in the admin, on the run's page; nothing starts between the two."""

from collections.abc import Callable

import pytest

from runs.models import Hold, Run
from tests.stack import Stack, until
from tests.visitors import ANA, CYD, ELI, Rest, Ticket, Visit, Visitor, asked, ticket_of

Act = Callable[[Visitor, str, str, str], None]


def causes(rest: Rest, run_id: str) -> set[str]:
    return {hold["cause"] for hold in rest.run(run_id)["waiting_for"]}


def approve(visit: Visit, ref: str) -> None:
    ana = visit(ANA)
    ana.open(ref)
    ana.approve()
    assert ana.receipt().startswith("You approved: ")


def in_the_admin(cyd: Visitor, run_id: str, verb: str, why: str) -> None:
    """From the run's own page: the verb, its reason, and done."""
    cyd.go(f"/admin/runs/run/{run_id}/change/")
    cyd.page.get_by_role("link", name=verb).click()
    cyd.page.get_by_label("Why?").fill(why)
    cyd.page.locator("#content form [type=submit]").click()
    cyd.page.locator(".messagelist").wait_for()


def on_the_run_page(cyd: Visitor, run_id: str, verb: str, why: str) -> None:
    cyd.go(f"/runs/{run_id}/")
    if verb == "Resume":
        cyd.page.get_by_role("button", name="Resume run").click()
    else:
        cyd.page.locator("summary", has_text=f"{verb}…").click()
        cyd.page.locator(f"#{verb.lower()}-reason").fill(why)
        cyd.page.get_by_role("button", name=f"{verb} run").click()
    cyd.page.locator("ul.messages").wait_for()


@pytest.mark.parametrize(("act", "door"), [(in_the_admin, "admin"), (on_the_run_page, "page")])
def test_paused_and_resumed_by_an_operator(
    rest: Rest, visit: Visit, ticket: Ticket, act: Act, door: str
) -> None:
    """Approved while it is paused: the decision stands, and the call is made only after the pause is over."""
    run_id, ref = asked(rest, "refund-desk", ticket=ticket.number)
    cyd = visit(CYD)
    act(cyd, run_id, "Pause", "month's end")
    assert causes(rest, run_id) == {"approval", "person"}
    approve(visit, ref)
    assert causes(rest, run_id) == {"person"}
    rest.until(run_id, "suspended")
    said = rest.http.post(f"/runs/{run_id}/resume", json={})
    assert (said.status_code, said.json()["code"]) == (409, "wrong_state")
    assert ticket.calls() == []

    act(cyd, run_id, "Resume", "")
    assert rest.result(run_id)["refunded"] is True
    assert len(ticket.calls()) == 1
    [paused] = Hold.objects.filter(run_id=run_id, cause="person")
    assert (paused.why, paused.opened_by_name) == ("month's end", "Cyd Calder")
    assert paused.released_by_name == "Cyd Calder"
    assert paused.opened_through == door


def test_many_paused_at_once_from_the_list(stack: Stack, rest: Rest, visit: Visit) -> None:
    """The eligible part of a selection: what has ended is named and left alone."""
    waiting = [asked(rest, "refund-desk", ticket=ticket_of(stack).number)[0] for _ in range(2)]
    ended = rest.submit("refund-desk", ticket=ticket_of(stack, "12.50").number)
    rest.ended(ended)
    cyd = visit(CYD)
    cyd.go("/admin/runs/run/")
    for run_id in (*waiting, ended):
        cyd.page.locator(f"input.action-select[value='{run_id}']").check()
    cyd.page.locator("select[name=action]").select_option("pause")
    cyd.page.locator(".actions [type=submit]").click()
    cyd.page.get_by_label("Why?").fill("all of them")
    cyd.page.locator("#content form [type=submit]").first.click()
    cyd.page.locator(".messagelist").wait_for()
    for run_id in waiting:
        assert causes(rest, run_id) == {"approval", "person"}
    assert Run.objects.get(pk=ended).status == "succeeded"


def test_paused_while_a_call_is_in_flight(stack: Stack, rest: Rest, visit: Visit, ticket: Ticket) -> None:
    """The call is finished and recorded; what comes after it does not start."""
    run_id, ref = asked(rest, "refund-desk", ticket=ticket.number)
    stack.gateway.fail("hang", f"/charges/{ticket.charge}/refunds", seconds=30)
    approve(visit, ref)
    until(ticket.calls, "the call is in flight")
    cyd = visit(CYD)
    on_the_run_page(cyd, run_id, "Pause", "")
    assert "Finishing step" in cyd.text()
    stack.gateway.clear_faults()
    rest.until(run_id, "suspended")
    assert causes(rest, run_id) == {"person"}
    assert (len(ticket.refunds()), ticket.letters()) == (1, [])
    on_the_run_page(cyd, run_id, "Resume", "")
    assert rest.result(run_id)["refunded"] is True
    assert len(ticket.letters()) == 1


def test_cancelled_while_a_call_is_in_flight(stack: Stack, rest: Rest, visit: Visit, ticket: Ticket) -> None:
    """The run ends after the call, and its record says that the refund did happen."""
    run_id, ref = asked(rest, "refund-desk", ticket=ticket.number)
    stack.gateway.fail("hang", f"/charges/{ticket.charge}/refunds", seconds=30)
    approve(visit, ref)
    until(ticket.calls, "the call is in flight")
    eli = visit(ELI)
    on_the_run_page(eli, run_id, "Cancel", "called off")
    assert "Nothing new starts" in eli.text()
    stack.gateway.clear_faults()
    assert rest.ended(run_id)["status"] == "cancelled"
    [step] = [step for step in rest.steps(run_id) if step["tool"] == "issue_refund"]
    assert (step["effect"]["state"], step["result"]["id"]) == ("confirmed", ticket.refunds()[0]["id"])
    assert ticket.letters() == []
