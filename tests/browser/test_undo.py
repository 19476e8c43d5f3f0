"""Taking a decision back from its receipt: in time, too late, and by somebody else at R3."""

from collections.abc import Iterator

import pytest

from approvals import policies
from approvals.models import Decision, Request, Rule
from runs.actors import Actor
from tests.stack import Stack, until
from tests.visitors import ANA, BEN, Rest, Ticket, Visit, asked, ticket_of

WINDOW = 90
RULES = Rule.objects.filter(name="Refunds are decided by the refunds team")


@pytest.fixture(autouse=True)
def window(stack: Stack) -> Iterator[None]:
    """Refunds can be taken back for a while."""
    _publish(WINDOW)
    yield
    _publish(0)


def _publish(seconds: int) -> None:
    RULES.update(undo_window=seconds)
    policies.publish(Actor("person", "0", "pat", "admin"), why="a test")


def state(ref: str) -> str:
    return str(Request.objects.get(ref=ref).state)


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no_scripts"])
def test_undo_in_time_and_decide_otherwise(
    rest: Rest, visit: Visit, stack: Stack, ticket: Ticket, scripts: bool
) -> None:
    run_id, ref = asked(rest, "refund-desk", ticket=ticket.number)
    ana = visit(ANA, java_script_enabled=scripts)
    ana.open(ref)
    ana.approve()
    assert ana.receipt().startswith("You approved: ")
    assert "After that it can’t be undone here" in ana.text()
    ana.page.get_by_role("button", name="Undo", exact=True).click()
    ana.page.get_by_role("heading", name="You took it back").wait_for()
    assert state(ref) == "open"
    ana.page.get_by_role("link", name="Decide again").click()
    ana.page.wait_for_url(f"**/requests/{ref}")
    ana.reject()
    assert ana.receipt().startswith("You rejected: ")
    until(lambda: state(ref) == "decided", "it is decided again")
    stack.later(seconds=WINDOW + 1)
    assert rest.result(run_id)["refunded"] is False
    assert ticket.refunds() == []
    made = Decision.objects.filter(request__ref=ref)
    assert list(made.values_list("verb", "nth")) == [("approve", 0), ("reject", 1)]


def test_undo_too_late_says_so_and_leads_to_the_run(
    rest: Rest, visit: Visit, stack: Stack, ticket: Ticket
) -> None:
    """One page goes on by itself, the other still has the button: what it sends comes too late."""
    run_id, ref = asked(rest, "refund-desk", ticket=ticket.number)
    ana, still = visit(ANA), visit(ANA, java_script_enabled=False)
    ana.open(ref)
    ana.approve()
    ana.receipt()
    still.go(ana.page.url)
    stack.later(seconds=WINDOW + 1)
    assert rest.result(run_id)["refunded"] is True
    ana.page.get_by_text("It can’t be undone here any more.").wait_for()
    assert ana.page.get_by_role("button", name="Undo", exact=True).count() == 0
    still.expects(409)
    still.page.get_by_role("button", name="Undo", exact=True).click()
    still.page.get_by_role("heading", name="Too late").wait_for()
    still.page.get_by_role("link", name="Ask the run to stop").click()
    still.page.wait_for_url(f"**/runs/{run_id}/")
    assert len(ticket.refunds()) == 1


def test_undo_before_the_call_at_the_same_run(rest: Rest, visit: Visit, stack: Stack, ticket: Ticket) -> None:
    """The press waits for the run, in time; another decision, not taken back, takes effect as this one would."""
    (run_id, ref), other = (
        asked(rest, "refund-desk", ticket=each.number) for each in (ticket, ticket_of(stack))
    )
    ana = visit(ANA)
    for each in (other[1], ref):
        ana.open(each)
        ana.approve()
        ana.receipt()
    with stack.lined_up(run_id) as waiting:
        ana.page.get_by_role("button", name="Undo", exact=True).click(no_wait_after=True)
        until(lambda: waiting() == 1, "the undo waits for the run")
    ana.page.get_by_role("heading", name="You took it back").wait_for()
    stack.later(seconds=WINDOW + 1)
    assert rest.result(other[0])["refunded"] is True
    assert (state(ref), ticket.refunds()) == ("open", [])


def test_undo_behind_the_call_at_the_same_run(rest: Rest, visit: Visit, stack: Stack, ticket: Ticket) -> None:
    """The page still has its button; when the press gets at the run, the decision is in force or about to be."""
    run_id, ref = asked(rest, "refund-desk", ticket=ticket.number)
    ana = visit(ANA, java_script_enabled=False)
    ana.open(ref)
    ana.approve()
    ana.receipt()
    ana.expects(409)
    with stack.lined_up(run_id) as waiting:
        stack.later(seconds=WINDOW + 1)
        until(lambda: waiting() == 1, "what lets it take effect waits for the run")
        ana.page.get_by_role("button", name="Undo", exact=True).click(no_wait_after=True)
        until(lambda: waiting() == 2, "the undo waits as well")
    ana.page.get_by_role("heading", name="Too late").wait_for()
    assert rest.result(run_id)["refunded"] is True
    assert len(ticket.refunds()) == 1


def test_stop_by_another_reviewer_at_r3(rest: Rest, visit: Visit, stack: Stack) -> None:
    large = ticket_of(stack, "1200.00")
    _, ref = asked(rest, "refund-desk", ticket=large.number)
    ana, ben = visit(ANA), visit(BEN)
    ana.open(ref)
    ana.reject()
    ana.receipt()
    ben.open(ref)
    ben.page.get_by_role("link", name="Stop it").click()
    ben.page.get_by_label("Why should it not take effect?").fill("She did send the parcel back")
    ben.page.get_by_role("button", name="Stop this decision").click()
    ben.page.get_by_role("heading", name="You stopped it before it was in force").wait_for()
    ana.page.get_by_role("heading", name="Ben Brandt stopped it before it was in force").wait_for()
    assert "She did send the parcel back" in ana.text()
    assert state(ref) == "open"
