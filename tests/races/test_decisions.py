"""Deciding against deciding, expiry, cancel, drift and the worker: real commits, both orders.

Orders are made, not hoped for: whoever is to come first has the run's row in an open transaction, and the other
is seen to wait for it before the first commits.
"""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core import mail
from django.db import close_old_connections, connection, connections, transaction

from approvals import decisions, looks, notifications
from approvals.decisions import Choice, Decided
from approvals.exceptions import Closed, Stale
from approvals.models import Decision, Notification, Permit, Request
from runs import endings, execution, facts, holds, points, queues, sweeper
from runs.actors import Actor
from runs.models import Run
from tests.approvals import desk
from tests.approvals.fixtures import people, whole, world
from tests.pages import browser, text
from tests.runs.own_valkey import Valkey, running_valkey, valkey

__all__ = ["people", "running_valkey", "valkey", "whole", "world"]

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("whole")]
OPERATOR = Actor("person", "9", "Olu", "admin", operator=True)
PATIENCE = 20.0


@pytest.fixture(autouse=True)
def alone() -> None:
    """Here people are what it is about: `approvals` stays connected."""


@pytest.fixture
def request_(people: SimpleNamespace) -> Request:
    return desk.opened()


def apart(act: Callable[..., Any], *args: Any, **kwargs: Any) -> "Future[Any]":
    """`act` in a thread with a connection of its own."""

    def run() -> Any:
        close_old_connections()
        try:
            return act(*args, **kwargs)
        finally:
            connections.close_all()

    return ThreadPoolExecutor(1).submit(run)


def waiting() -> int:
    """How many connections of this database wait for a lock."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")  # within a transaction the view stands still
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        return int(cursor.fetchone()[0])


def until_waiting(many: int = 1) -> None:
    deadline = time.monotonic() + PATIENCE
    while waiting() < many:
        assert time.monotonic() < deadline, "nobody waits for the lock"
        time.sleep(0.01)


@contextmanager
def held_open() -> Iterator[None]:
    """What is done inside has been done, and is not committed before the block ends."""
    with transaction.atomic():
        yield


def outcome(found: "Future[Any]") -> Any:
    """What it returned, or the exception it raised."""
    error = found.exception(PATIENCE)
    return found.result() if error is None else error


def choose(request: Request, verb: str = "approve", **more: Any) -> Choice:
    more.setdefault("reason", "wrong amount" if verb == "reject" else "")
    more.setdefault("basis", desk.YES if verb == "approve" else {})
    return Choice(verb, desk.fresh(request).revision.digest, **more)


def deciding(request: Request, who: User, choice: Choice) -> "Future[Any]":
    return apart(decisions.decide, request.ref, person=who, choice=choice)


# -- Reviewers ---------------------------------------------------------------------------


def test_fifty_approve_at_once_and_one_permit_comes_of_it(request_: Request, people: SimpleNamespace) -> None:
    """C-08."""
    crowd = [desk.person(f"rev{i}", "refunds") for i in range(50)]
    start, choice = threading.Barrier(50), choose(request_)

    def decide(who: User) -> Any:
        start.wait(PATIENCE)
        return decisions.decide(request_.ref, person=who, choice=choice)

    found = [outcome(each) for each in [apart(decide, who) for who in crowd]]
    [winner] = [each for each in found if isinstance(each, Decided)]
    late = [each for each in found if isinstance(each, Closed)]
    assert len(late) == 49
    assert {(each.code, each.by, each.verb) for each in late} == {
        ("decided", winner.decision.person_name, "approve")
    }
    assert desk.counts(request_) == ("in_force", 1, 1)
    assert len(desk.refusals(request_)) == 49
    assert desk.result(request_)["result"] == "given 240.00"
    assert desk.world.n("give_back") == 1


@pytest.mark.parametrize(("first", "second"), [("approve", "reject"), ("reject", "approve")])
def test_approve_against_reject_has_one_outcome(
    request_: Request, people: SimpleNamespace, first: str, second: str
) -> None:
    late = choose(request_, second)
    with held_open():
        desk.decide(request_, people.ana, first)
        other = deciding(request_, people.ben, late)
        until_waiting()
    said = outcome(other)
    assert isinstance(said, Closed)
    assert (said.code, said.by, said.verb) == ("decided", "Ana", first)
    assert Decision.objects.get().verb == first


def test_one_form_sent_twice_at_once_is_one_decision(request_: Request, people: SimpleNamespace) -> None:
    """F74, C-07."""
    start, choice = threading.Barrier(2), choose(request_, nonce="n")

    def decide() -> Decided:
        start.wait(PATIENCE)
        return decisions.decide(request_.ref, person=people.ana, choice=choice)

    found = [outcome(each) for each in (apart(decide), apart(decide))]
    assert sorted(each.again for each in found) == [False, True]
    assert {each.decision.pk for each in found} == {Decision.objects.get().pk}


def test_approve_then_reject_of_one_person_at_once_is_the_first(
    request_: Request, people: SimpleNamespace
) -> None:
    late = choose(request_, "reject", nonce="n")
    with held_open():
        desk.decide(request_, people.ana, nonce="n")
        other = deciding(request_, people.ana, late)
        until_waiting()
    assert isinstance(outcome(other), Closed)
    assert desk.counts(request_) == ("in_force", 1, 1)


def test_two_of_two_at_once_complete_the_quorum_once(people: SimpleNamespace) -> None:
    desk.change_rule("desk", quorum=2)
    request = desk.opened()
    start, choice = threading.Barrier(2), choose(request)

    def decide(who: User) -> Decided:
        start.wait(PATIENCE)
        return decisions.decide(request.ref, person=who, choice=choice)

    found = [outcome(each) for each in (apart(decide, people.ana), apart(decide, people.ben))]
    assert sorted(each.waits_for for each in found) == ["", "1 more approval needed."]
    assert desk.counts(request) == ("in_force", 2, 1)


def test_two_edits_at_once_and_the_second_is_stale(people: SimpleNamespace) -> None:
    request = desk.opened(amount="2000.00")
    late = choose(request, edit=desk.edited(request, amount="1.00"))
    with held_open():
        desk.decide(request, people.ana, edit=desk.edited(request, amount="1500.00"))
        other = deciding(request, people.ben, late)
        until_waiting()
    assert isinstance(outcome(other), Stale)
    assert desk.numbers(request) == [(1, ""), (2, "edit")]


def test_role_taken_away_first_and_the_decision_is_not_visible(
    request_: Request, people: SimpleNamespace
) -> None:
    choice = choose(request_)
    with held_open():
        Run.objects.select_for_update().get(pk=request_.run_id)
        other = deciding(request_, people.ana, choice)
        until_waiting()
        people.ana.groups.clear()
    assert type(outcome(other)).__name__ == "NotVisible"
    assert desk.counts(request_) == ("open", 0, 0)


# -- Expiry (F36) ---------------------------------------------------------------------------


def test_approve_first_and_expiry_after_the_end_finds_it_decided(people: SimpleNamespace) -> None:
    """F36: made before the end by the database's clock, and committed after it: it counts, acts once, and nobody
    is told of an end."""
    desk.change_rule("desk", decide_within=600)
    request_ = desk.opened()
    with held_open():
        desk.decide(request_, people.ana)
        apart(desk.later, 601).result(PATIENCE)
        expiring = apart(holds.expire, request_.hold_id)
        until_waiting()
    assert outcome(expiring) is False
    assert desk.counts(request_) == ("in_force", 1, 1)
    swept = sweeper.sweep()
    assert ("expire_holds" in swept, desk.told(request_).count("expired")) == (False, 0)
    assert (desk.result(request_)["result"], desk.world.n("give_back"), mail.outbox) == (
        "given 240.00",
        1,
        [],
    )


def test_expiry_first_and_approve_is_refused(request_: Request, people: SimpleNamespace) -> None:
    """F36: refused with the time it ended at, and nothing is done."""
    choice = choose(request_)
    desk.later(3601)
    with held_open():
        assert holds.expire(request_.hold_id) is True
        deciding_ = deciding(request_, people.ana, choice)
        until_waiting()
    said = outcome(deciding_)
    assert isinstance(said, Closed)
    assert (said.code, said.at) == ("expired", request_.decide_by)
    assert desk.counts(request_) == ("expired", 0, 0)
    assert desk.result(request_)["error"] == "Expired"
    assert desk.world.calls == []


def test_approve_that_waited_past_the_end_is_refused(request_: Request, people: SimpleNamespace) -> None:
    """C-09: the clock is read after the lock, whenever the request came in."""
    choice = choose(request_)
    with held_open():
        Run.objects.select_for_update().get(pk=request_.run_id)
        other = deciding(request_, people.ana, choice)
        until_waiting()
        apart(desk.later, 3601).result(PATIENCE)
    said = outcome(other)
    assert isinstance(said, Closed)
    assert said.code == "expired"
    assert desk.counts(request_) == ("open", 0, 0)


# -- The commit and the doorbell (F44) ---------------------------------------------------------


def rung() -> list[Any]:
    """Jobs that any worker could take now."""
    return [job.args for job in queues._bell().jobs if job.func_name == "runs.jobs.drive"]


def test_approve_rings_when_it_is_committed_and_not_before(
    request_: Request, people: SimpleNamespace
) -> None:
    """F44 (a)."""
    queues._bell().empty()
    with held_open():
        desk.decide(request_, people.ana)
        assert (rung(), apart(desk.counts, request_).result(PATIENCE)) == ([], ("open", 0, 0))
    assert (rung(), desk.counts(request_)) == ([(str(request_.run_id),)], ("in_force", 1, 1))


def test_approve_that_is_rolled_back_rings_for_nobody(request_: Request, people: SimpleNamespace) -> None:
    """F44 (b): no job and no mail; it can be approved again."""
    queues._bell().empty()
    told = Notification.objects.count()
    with held_open():
        desk.decide(request_, people.ana)
        transaction.set_rollback(True)
    assert (rung(), desk.counts(request_), Notification.objects.count()) == ([], ("open", 0, 0), told)
    desk.decide(request_, people.ana)
    assert (rung(), desk.result(request_)["result"]) == ([(str(request_.run_id),)], "given 240.00")


def test_hold_that_is_rolled_back_leaves_no_job_and_no_mail(people: SimpleNamespace) -> None:
    """F44 (b)."""
    queues._bell().empty()
    with held_open():
        desk.submitted()
        transaction.set_rollback(True)
    assert (rung(), Run.objects.count(), Notification.objects.count()) == ([], 0, 0)


def test_approve_while_the_queue_is_away_is_kept_and_shown(
    request_: Request, people: SimpleNamespace, valkey: Valkey
) -> None:
    """F04: approved and waiting, told so at every door; again is the same answer; the sweeper rings when it is
    back, and it acts once."""
    Run.objects.filter(pk=request_.run_id).update(owner_id=str(people.cyd.pk))
    site, cyd = browser(people.ana), browser(people.cyd)
    fields = {
        "decision": "approve",
        "view_digest": request_.revision.digest,
        "form_nonce": "n",
        "basis-1": "yes",
    }
    valkey.kill()
    answers = [site.post(f"/requests/{request_.ref}/decide", fields) for _ in range(3)]
    assert {(each.status_code, each["Location"]) for each in answers} == {
        (303, f"/decisions/{Decision.objects.get().pk}")
    }
    shown = text(site.get(answers[0]["Location"]))
    assert shown.count("You approved: ") == 1
    assert "In force: the run has been told." in shown
    assert "The run goes on." in shown
    page = cyd.get(request_.run.get_absolute_url())
    assert (page.context["state"].lead.text, page.context["run"].status) == ("Waits for a worker", "queued")
    valkey.start()
    queues._deaf_until = 0.0
    desk.later(300)
    assert sweeper.sweep().get("ring") == 1
    assert rung() == [(str(request_.run_id),)]
    assert (desk.result(request_)["result"], desk.world.n("give_back")) == ("given 240.00", 1)


# -- Cancel and pause ------------------------------------------------------------------------


def test_approve_first_and_cancel_closes_what_stands(request_: Request, people: SimpleNamespace) -> None:
    with held_open():
        desk.decide(request_, people.ana)
        cancelling = apart(endings.cancel, request_.run_id, actor=OPERATOR, why="no")
        until_waiting()
    assert outcome(cancelling).status == "cancelled"
    assert desk.counts(request_) == ("cancelled", 1, 1)
    assert Permit.objects.get().void_why == "cancelled"
    execution.drive(request_.run_id)
    assert desk.world.calls == []


def test_cancel_first_and_approve_is_refused(request_: Request, people: SimpleNamespace) -> None:
    choice = choose(request_)
    with held_open():
        endings.cancel(request_.run_id, actor=OPERATOR, why="the customer called")
        other = deciding(request_, people.ana, choice)
        until_waiting()
    said = outcome(other)
    assert isinstance(said, Closed)
    assert (said.code, str(said)) == ("cancelled", "the customer called")
    assert desk.counts(request_) == ("cancelled", 0, 0)


def test_cancel_against_taking_effect_leaves_no_permit(people: SimpleNamespace) -> None:
    desk.change_rule("desk", undo_window=60)
    request = desk.opened()
    desk.decide(request, people.ana)
    desk.later(61)
    with held_open():
        endings.cancel(request.run_id, actor=OPERATOR)
        taking = apart(decisions.take_effect, request.pk)
        until_waiting()
    assert outcome(taking) is False
    assert desk.counts(request) == ("cancelled", 1, 0)


def test_two_sweepers_let_a_decision_take_effect_once(people: SimpleNamespace) -> None:
    desk.change_rule("desk", undo_window=60)
    request = desk.opened()
    desk.decide(request, people.ana)
    desk.later(61)
    with held_open():
        assert decisions.take_effect(request.pk) is True
        other = apart(decisions.take_effect, request.pk)
        until_waiting()
    assert outcome(other) is False
    assert desk.counts(request) == ("in_force", 1, 1)


def test_pause_while_the_approved_call_is_at_the_gate_stops_it(
    request_: Request, people: SimpleNamespace
) -> None:
    """After Pause has answered nothing new starts: the pause commits while the worker looks at the facts."""
    desk.decide(request_, people.ana)
    paused: list[Any] = []

    def pause_once() -> None:
        if not paused:
            paused.append(apart(holds.pause, request_.run_id, actor=OPERATOR, why="wait").result(PATIENCE))

    desk.world.facts["size"] = desk.Lazy(pause_once, 3)
    run = desk.drive(request_)
    assert (run.status, desk.world.calls, desk.counts(request_)) == ("suspended", [], ("in_force", 1, 1))
    holds.unpause(request_.run_id, actor=OPERATOR)
    assert desk.result(request_)["result"] == "given 240.00"


# -- Drift -----------------------------------------------------------------------------------------


def test_look_first_and_approve_is_stale(request_: Request, people: SimpleNamespace) -> None:
    choice = choose(request_)
    desk.world.facts["given"] = Decimal("5.00")
    with held_open():
        assert looks.look(request_.pk) is True
        other = deciding(request_, people.ana, choice)
        until_waiting()
    assert isinstance(outcome(other), Stale)
    assert desk.counts(request_) == ("open", 0, 0)


def test_approve_first_and_a_look_moves_nothing(request_: Request, people: SimpleNamespace) -> None:
    desk.world.facts["given"] = Decimal("5.00")
    with held_open():
        desk.decide(request_, people.ana)
        looking = apart(looks.look, request_.pk)
        until_waiting()
    assert outcome(looking) is False
    assert desk.numbers(request_) == [(1, "")]
    desk.drive(request_)
    assert (desk.numbers(request_), desk.world.calls) == ([(1, ""), (2, "drift")], [])


def test_two_looks_at_once_make_one_revision(request_: Request, people: SimpleNamespace) -> None:
    desk.world.facts["given"] = Decimal("5.00")
    seen = facts.look(desk.give_back, {"charge": "ch_1", "amount": Decimal("240.00")})
    changed = facts.changes(desk.give_back, request_.revision.fact_values(), seen)
    with held_open():
        assert looks._keep(request_, 1, seen, changed) is True
        other = apart(looks._keep, request_, 1, seen, changed)
        until_waiting()
    assert outcome(other) is False
    assert desk.numbers(request_) == [(1, ""), (2, "drift")]


# -- The worker ------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["approve", "reject"])
def test_decide_before_the_run_is_parked_needs_no_second_click(people: SimpleNamespace, verb: str) -> None:
    """F45: the request is there, and its run is not suspended yet."""
    run = desk.submitted()
    decided: list[Any] = []

    def decide_once() -> None:
        if not decided:
            request = Request.objects.get(run=run)
            decided.append(deciding(request, people.ana, choose(request, verb)).result(PATIENCE))

    with points.on("before-park", decide_once):
        execution.drive(run.pk)
    run.refresh_from_db()
    assert (run.status, len(decided)) == ("succeeded", 1)
    assert desk.world.n("give_back") == (1 if verb == "approve" else 0)


def test_approve_while_another_worker_has_the_run_uses_the_permit_once(people: SimpleNamespace) -> None:
    """Two calls wait; the second is approved while the first is being made."""
    run = desk.submitted("approvals-both")
    execution.drive(run.pk)
    first, second = Request.objects.filter(run=run).order_by("step__index")
    desk.decide(first, people.ana)
    decided: list[Any] = []

    def decide_once() -> None:
        if not decided:
            decided.append(deciding(second, people.ben, choose(second)).result(PATIENCE))

    with points.on("after-intent-before-call", decide_once):
        execution.drive(run.pk)
    run.refresh_from_db()
    if run.status == "queued":
        execution.drive(run.pk)
    assert desk.result(first) == ["wired 1.00", "wired 2.00"]
    assert desk.world.n("wire") == 2


# -- Mails -------------------------------------------------------------------------------------------


def test_two_sweepers_send_a_mail_once(request_: Request, people: SimpleNamespace) -> None:
    """F51."""
    rows = list(Notification.objects.values_list("pk", flat=True))
    start = threading.Barrier(4)

    def sweep() -> list[bool]:
        start.wait(PATIENCE)
        return [notifications.send(pk) for pk in rows]

    found = [outcome(each) for each in [apart(sweep) for _ in range(4)]]
    assert sum(sum(each) for each in found) == len(rows)
    assert sorted(message.to[0] for message in mail.outbox) == ["ana@example.org", "ben@example.org"]
