"""The database has no room left: its own error for it (SQLSTATE 53100), at whatever would write.

Pages say so and keep what was typed, the API asks for the same request again, runs wait; with room again
everything goes on, and nothing was done twice.
"""

from approvals.models import Decision
from runs.models import Run
from tests.stack import Stack
from tests.visitors import ANA, Rest, Ticket, Visit, Visitor, asked

NOTE = "Ask them for the order’s number first."


def test_without_scripts_the_page_says_so_and_shows_what_was_typed(
    stack: Stack, rest: Rest, visit: Visit, ticket: Ticket
) -> None:
    run_id, ref = asked(rest, "refund-desk", ticket=ticket.number)
    ana = visit(ANA, java_script_enabled=False)
    ana.expects(503)
    ana.expects_text("503 from")
    ana.open(ref)
    with stack.full():
        ana.reject("Duplicate", NOTE)
        assert ana.heading() == "Our database doesn’t answer"
        assert ana.page.get_by_label("Your note").input_value() == NOTE
    assert not Decision.objects.filter(request__ref=ref).exists()
    ana.open(ref)
    ana.reject("Duplicate", NOTE)
    assert ana.receipt().startswith("You rejected: ")
    assert NOTE in rest.result(run_id)["said"]


def test_with_scripts_what_was_typed_stays_where_it_is(
    stack: Stack, rest: Rest, ana: Visitor, ticket: Ticket
) -> None:
    run_id, ref = asked(rest, "refund-desk", ticket=ticket.number)
    ana.expects(503)
    ana.expects_text("503 from")
    ana.open(ref)
    with stack.full():
        ana.reject("Duplicate", NOTE)
        ana.page.get_by_text("We don’t know yet whether your decision was saved").wait_for()
        assert ana.page.locator("#note").input_value() == NOTE
    ana.page.get_by_role("button", name="Duplicate", exact=True).click()
    assert ana.receipt().startswith("You rejected: ")
    assert NOTE in rest.result(run_id)["said"]


def test_program_is_asked_to_send_the_same_again(stack: Stack, rest: Rest, ticket: Ticket) -> None:
    asks = {"agent": "refund-desk", "input": {"ticket": ticket.number}}
    key = {"Idempotency-Key": f"full-{ticket.number}"}
    with stack.full():
        said = rest.http.post("/runs", json=asks, headers=key)
        assert (said.status_code, said.json()["code"], said.headers["Retry-After"]) == (
            503,
            "unavailable",
            "2",
        )
    said = rest.http.post("/runs", json=asks, headers=key)
    again = rest.http.post("/runs", json=asks, headers=key)
    assert (said.status_code, again.json()["id"]) == (201, said.json()["id"])
    rest.until(said.json()["id"], "suspended")


def test_run_that_was_approved_goes_on_when_there_is_room(
    stack: Stack, rest: Rest, ana: Visitor, ticket: Ticket
) -> None:
    """Approved, and full before a worker takes it: it waits, queued or under a lease, and refunds once."""
    run_id, ref = asked(rest, "refund-desk", ticket=ticket.number)
    stack.end_workers()
    ana.open(ref)
    ana.approve()
    assert ana.receipt().startswith("You approved: ")
    with stack.full():
        stack.start_workers(wait=True)
        stack.later(seconds=1)
        assert Run.objects.get(pk=run_id).status in ("queued", "running")
        assert ticket.calls() == []
    assert rest.result(run_id)["refunded"] is True
    assert len(ticket.calls()) == 1
