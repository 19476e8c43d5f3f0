"""Workers killed, the queue emptied, connections cut: every run goes on, and nothing is done twice."""

import json
from pathlib import Path

from runs.models import Hold, Run, Step
from tests.stack import Stack, until
from tests.visitors import Rest, Ticket, Visitor, asked, request_of, ticket_of

# Where a worker dies: the outside has done it, and nothing is written yet.
POINT = "after-effect-before-record"


def decide(ana: Visitor, ref: str) -> None:
    ana.open(ref)
    ana.approve()
    assert ana.receipt().startswith("You approved: ")


def answer(ana: Visitor, ref: str) -> None:
    ana.open(ref)
    ana.page.get_by_label("norde").check()
    ana.page.get_by_label("4100-office").check()
    ana.page.get_by_role("button", name="Send this answer").click()
    assert ana.receipt().startswith("You answered: ")


def calls_of(stack: Stack, path: str, key: str) -> list[dict[str, object]]:
    return [call for call in stack.gateway.calls(path) if call["idempotency_key"] == key]


def bought(rest: Rest, run_id: str) -> dict[str, object]:
    [step] = [step for step in rest.steps(run_id) if step["tool"] == "buy"]
    return step


def test_all_workers_killed_while_runs_wait(stack: Stack, rest: Rest, ana: Visitor) -> None:
    tickets = [ticket_of(stack) for _ in range(3)]
    waiting = [asked(rest, "refund-desk", ticket=ticket.number) for ticket in tickets]
    purchase, question = asked(rest, "purchase", item="monitor-27", quantity=1)
    stack.kill_workers()
    for _, ref in waiting:
        decide(ana, ref)
    answer(ana, question)
    assert [ticket.calls() for ticket in tickets] == [[], [], []]

    stack.start_workers()
    for run_id, _ in waiting:
        assert rest.result(run_id)["refunded"] is True
    decide(ana, request_of(purchase, 2).ref)
    assert rest.result(purchase)["bought"] is True
    assert [len(ticket.calls()) for ticket in tickets] == [1, 1, 1]
    assert [len(ticket.letters()) for ticket in tickets] == [1, 1, 1]
    assert [ticket.reads() for ticket in tickets] == [1, 1, 1]
    [call] = calls_of(stack, "/purchases", bought(rest, purchase)["effect"]["key"])
    assert call["status"] == 201
    assert [step["effect"]["attempt"] for step in rest.steps(purchase) if step["effect"]] == [1, 1, 1, 1]


def test_emptied_queue_between_decision_and_pick_up(
    stack: Stack, rest: Rest, ana: Visitor, ticket: Ticket
) -> None:
    """With the sweeper at its ordinary pace."""
    stack.end_sweeper()
    stack.start_sweeper(SWEEP_EVERY="2")
    run_id, ref = asked(rest, "refund-desk", ticket=ticket.number)
    stack.end_workers()
    decide(ana, ref)
    assert Run.objects.get(pk=run_id).status == "queued"
    stack.start_workers(1, wait=True)
    stack.valkey.client.flushall()
    # The worker may have been quicker than we are: then there was nothing to lose.
    rest.until(run_id, "succeeded", within=5)
    assert len(ticket.calls()) == 1


def test_emptied_queue_without_any_worker(stack: Stack, rest: Rest, ana: Visitor, ticket: Ticket) -> None:
    """F49: the ring is lost for certain: nobody was there to hear it."""
    stack.end_sweeper()
    stack.start_sweeper(SWEEP_EVERY="2")
    run_id, ref = asked(rest, "refund-desk", ticket=ticket.number)
    stack.end_workers()
    decide(ana, ref)
    stack.valkey.client.flushall()
    stack.start_workers(1, wait=True)
    rest.until(run_id, "succeeded", within=5)
    assert len(ticket.calls()) == 1


def test_queue_away_while_deciding(stack: Stack, rest: Rest, ana: Visitor, ticket: Ticket) -> None:
    """F04: the decision stays, pressing again shows it, and the run goes on when the queue is back."""
    run_id, ref = asked(rest, "refund-desk", ticket=ticket.number)
    other = ana.context.new_page()
    ana.go(f"/requests/{ref}", other)
    stack.valkey.kill()
    decide(ana, ref)
    ana.approve_button(other).click()
    other.wait_for_url("**/decisions/*")
    assert other.url == ana.page.url
    assert (Run.objects.get(pk=run_id).status, ticket.calls()) == ("queued", [])
    stack.valkey.start()
    stack.kill_workers()  # those that gave up meanwhile are started again by `up`
    stack.start_workers()
    assert rest.result(run_id)["refunded"] is True
    assert len(ticket.calls()) == 1


# -- Decided before the run stands still --------------------------------------------------


def test_decided_before_the_run_is_parked(
    stack: Stack, rest: Rest, ana: Visitor, ticket: Ticket, tmp_path: Path
) -> None:
    """The request is out, the worker has not written that the run waits: the answer is not lost."""
    gate = tmp_path / "gate"
    gate.touch()
    stack.end_workers()
    stack.start_workers(1, ABEYANCE_POINTS=f"before-park=wait:{gate}")
    run_id = rest.submit("refund-desk", ticket=ticket.number)
    ref = request_of(run_id).ref
    until(gate.with_suffix(".reached").exists, "the worker is about to park")
    assert rest.run(run_id)["status"] == "running"
    decide(ana, ref)
    gate.unlink()
    assert rest.result(run_id)["refunded"] is True
    assert len(ticket.calls()) == 1


def test_decided_before_the_run_is_parked_and_the_worker_dies(
    stack: Stack, rest: Rest, ana: Visitor, ticket: Ticket, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    stack.end_workers()
    stack.start_workers(1, ABEYANCE_POINTS=f"before-park=wait:{gate}")
    run_id = rest.submit("refund-desk", ticket=ticket.number)
    ref = request_of(run_id).ref
    until(gate.with_suffix(".reached").exists, "the worker is about to park")
    decide(ana, ref)
    stack.kill_workers()
    stack.start_workers(1)
    assert rest.result(run_id)["refunded"] is True
    assert len(ticket.calls()) == 1
    assert ticket.reads() == 1


# -- Killed between the effect and its receipt ---------------------------------------------


def armed(stack: Stack, tmp_path: Path) -> Path:
    """Workers that die at POINT, once, as soon as the file that is returned is there."""
    claim = tmp_path / "claim"
    stack.end_workers()
    stack.start_workers(2, wait=True, ABEYANCE_POINTS=f"{POINT}=kill:{claim}")
    return claim


def killed_at(claim: Path) -> None:
    until(lambda: not claim.exists(), "the worker was killed")


def test_killed_before_the_receipt_it_is_verified(
    stack: Stack, rest: Rest, ana: Visitor, ticket: Ticket, tmp_path: Path
) -> None:
    """`verify` finds the refund: its receipt is adopted and no second call made."""
    claim = armed(stack, tmp_path)
    run_id, ref = asked(rest, "refund-desk", ticket=ticket.number)
    claim.touch()
    decide(ana, ref)
    killed_at(claim)
    result = rest.result(run_id)
    assert (result["refunded"], result["amount"]) == (True, ticket.amount)
    assert result["refund"] == ticket.refunds()[0]["id"]
    assert len(ticket.calls()) == 1
    assert len(ticket.letters()) == 1
    [step] = [step for step in rest.steps(run_id) if step["tool"] == "issue_refund"]
    assert (step["effect"]["state"], step["effect"]["attempt"]) == ("confirmed", 1)


def test_killed_before_the_receipt_the_same_key_is_sent_again(
    stack: Stack, rest: Rest, ana: Visitor, tmp_path: Path
) -> None:
    """`idempotent`: called again with the same key, and the outside has done it once."""
    claim = armed(stack, tmp_path)
    run_id, question = asked(rest, "purchase", item="standing-desk", quantity=1)
    answer(ana, question)
    ref = request_of(run_id, 2).ref
    rest.until(run_id, "suspended")
    claim.touch()
    decide(ana, ref)
    killed_at(claim)
    assert rest.result(run_id)["bought"] is True
    step = bought(rest, run_id)
    calls = calls_of(stack, "/purchases", step["effect"]["key"])
    assert [call["replayed"] for call in calls] == [False, True]
    made = stack.gateway.get(f"/purchases?key={step['effect']['key']}")["purchases"]
    assert [each["id"] for each in made] == [step["result"]["id"]]


def test_killed_before_the_receipt_it_is_in_doubt(
    stack: Stack, rest: Rest, ana: Visitor, tmp_path: Path
) -> None:
    """Neither: nobody calls again, within the time in which it may act and after; people see the doubt."""
    claim = armed(stack, tmp_path)
    topic = f"Doubts {tmp_path.name}"
    run_id, ref = asked(rest, "mailing", topic=topic, mailing_list="press")
    claim.touch()
    decide(ana, ref)
    killed_at(claim)
    doubts = Hold.objects.open().filter(run_id=run_id, cause="in_doubt")
    until(doubts.exists, "a doubt")
    stack.later(minutes=2)
    until(doubts.filter(look_again_at=None).exists, "a person has to settle it")
    rest.until(run_id, "suspended")
    assert [hold["cause"] for hold in rest.run(run_id)["waiting_for"]] == ["in_doubt"]
    sent = [call for call in stack.gateway.calls("/mailings") if topic in call["body"]["subject"]]
    assert len(sent) == 1
    [step] = Step.objects.filter(run_id=run_id, tool="send_mailing")
    assert (step.effect, step.attempt, step.status) == ("in_doubt", 1, "dispatched")
    ana.page.reload()
    assert "in doubt" in ana.text()


def test_lost_answer_is_verified(stack: Stack, rest: Rest, ana: Visitor, ticket: Ticket) -> None:
    """The outside did it and closed the connection: found out without a second call."""
    run_id, ref = asked(rest, "refund-desk", ticket=ticket.number)
    stack.gateway.fail("drop", f"/charges/{ticket.charge}/refunds")
    decide(ana, ref)
    assert rest.result(run_id)["refund"] == ticket.refunds()[0]["id"]
    assert len(ticket.calls()) == 1


def test_lost_call_is_made_again_when_it_cannot_act_any_more(
    stack: Stack, rest: Rest, ana: Visitor, ticket: Ticket
) -> None:
    """The connection broke before the outside did anything: once its time is over, the same key again."""
    run_id, ref = asked(rest, "refund-desk", ticket=ticket.number)
    stack.gateway.fail("lose", f"/charges/{ticket.charge}/refunds")
    decide(ana, ref)
    until(lambda: Hold.objects.open().filter(run_id=run_id, cause="in_doubt").exists(), "a doubt")
    assert len(ticket.calls()) == 1
    stack.later(minutes=1)
    assert rest.result(run_id)["refunded"] is True
    assert [call["status"] for call in ticket.calls()] == [None, 201]
    assert len({call["idempotency_key"] for call in ticket.calls()}) == 1
    assert len(ticket.refunds()) == 1


# -- The database's connections cut ----------------------------------------------------------


def test_database_connections_ended_under_everybody(
    stack: Stack, rest: Rest, ana: Visitor, ticket: Ticket
) -> None:
    """While a call is in flight: its result is recorded over a new connection, and pages go on as well."""
    run_id, ref = asked(rest, "refund-desk", ticket=ticket.number)
    refunds = f"/charges/{ticket.charge}/refunds"
    stack.gateway.fail("hang", refunds, seconds=30)
    decide(ana, ref)
    until(ticket.calls, "the call is in flight")
    assert stack.end_backends() > 0
    stack.gateway.clear_faults()
    assert rest.result(run_id)["refunded"] is True
    assert len(ticket.refunds()) == 1
    assert len(ticket.calls()) == 1
    ana.page.reload()
    assert "The run succeeded." in ana.text()
    assert json.loads(Run.objects.get(pk=run_id).result or "null")["amount"] == ticket.amount


def test_database_connections_ended_while_a_run_waits(
    stack: Stack, rest: Rest, ana: Visitor, ticket: Ticket
) -> None:
    run_id, ref = asked(rest, "refund-desk", ticket=ticket.number)
    ana.open(ref)
    assert stack.end_backends() > 0
    ana.approve()
    assert ana.receipt().startswith("You approved: ")
    assert rest.result(run_id)["refunded"] is True
    assert len(ticket.calls()) == 1
