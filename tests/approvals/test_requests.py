"""Requests: opened with their hold, revised when what they are about changes, and closed once."""

import json
import re
from types import SimpleNamespace

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import ProtectedError

from approvals import requests
from approvals.models import Permit, Request
from approvals.models.request import ALPHABET
from approvals.policies import Judgement
from approvals.states import RequestState
from runs import clock, endings, holds
from runs.actors import Actor
from runs.models import JournalEntry, Run
from tests.approvals import desk

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("whole")]
OPERATOR = Actor("person", "9", "Olu", "admin", operator=True)


@pytest.fixture
def request_(people: SimpleNamespace) -> Request:
    return desk.opened(owner=people.cyd, on_behalf_of="maria@example.org")


# -- Open -------------------------------------------------------------------------------


def test_open_keeps_what_policy_said_and_what_was_seen(request_: Request) -> None:
    assert (request_.kind, request_.state, request_.number) == ("approval", "open", 1)
    assert (request_.tier, request_.group.name, request_.quorum) == ("R2", "refunds", 1)
    assert request_.decide_by == request_.hold.expires_at
    assert round((request_.decide_by - request_.opened_at).total_seconds()) == 3600
    revision = request_.revision
    assert (revision.tool, revision.arguments) == ("give_back", '{"amount":"240.00","charge":"ch_1"}')
    assert revision.fact_values() == {"charge_state": '"paid"', "given_back": '"0.00"', "list_size": "3"}
    assert [fact["kind"] for fact in revision.facts] == ["blocking", "material", "info"]
    assert (revision.judgement["rule"], revision.policy_version, revision.reason) == ("desk", 1, "")
    assert Judgement.from_json(revision.judgement).as_json() == revision.judgement


def test_open_journals_what_was_opened(request_: Request) -> None:
    row = JournalEntry.objects.of(request_.stream).get()
    assert (row.verb, row.actor_kind, json.loads(row.detail)) == (
        "opened",
        "system",
        {"revision": 1, "digest": request_.revision.digest, "run": str(request_.run_id), "step": 0},
    )


def test_open_a_question(people: SimpleNamespace) -> None:
    question = desk.opened("approvals-asker")
    asked = json.loads(question.revision.arguments)
    assert (question.kind, question.tier, asked["question"]) == ("question", "R1", "Which vendor?")
    assert sorted(asked["form"]["properties"]) == ["note", "number", "vendor"]
    assert question.looked_at is None


def test_ref_is_opaque_and_never_the_same(people: SimpleNamespace) -> None:
    """F69."""
    refs = {requests.Request(kind="approval").ref for _ in range(2000)}
    assert len(refs) == 2000
    assert {len(ref) for ref in refs} == {10}
    assert not re.search(f"[^{ALPHABET}]", "".join(refs))
    assert set(ALPHABET) & set("ILOU") == set()


def test_open_twice_for_one_call_is_one_request(request_: Request) -> None:
    assert desk.drive(request_).status == "suspended"
    assert Request.objects.count() == 1
    with pytest.raises(IntegrityError), transaction.atomic():
        Request.objects.create(
            run=request_.run, step=request_.step, hold=request_.hold, kind="approval", tier="R1"
        )


def test_request_is_not_deleted_with_what_it_hangs_on(request_: Request) -> None:
    """F57: deleting a run with a request is refused; the record stays readable."""
    for row in (request_.run, request_.step, request_.hold):
        with pytest.raises(ProtectedError):
            row.delete()


# -- Revise ------------------------------------------------------------------------------


def test_revise_opens_again_and_voids_the_permit(request_: Request, ana: User) -> None:
    desk.decide(request_, ana)
    desk.world.facts["given"] = desk.Decimal("1.00")
    desk.drive(request_)
    standing = desk.fresh(request_)
    assert (standing.state, standing.number, standing.decided_at, standing.closed_at) == (
        "open",
        2,
        None,
        None,
    )
    permit = Permit.objects.get()
    assert (permit.voided_at is None, permit.void_why) == (False, "drift")
    assert desk.told(request_) == ["opened", "decided", "in_force", "permit_voided", "revised"]


def test_revise_is_journalled_with_what_changed(request_: Request) -> None:
    desk.look(request_, given=desk.Decimal("1.00"))
    detail = json.loads(JournalEntry.objects.of(request_.stream).get(verb="revised").detail)
    assert (detail["revision"], detail["reason"], detail["digest"]) == (
        2,
        "drift",
        desk.fresh(request_).revision.digest,
    )
    assert detail["changes"] == [
        {
            "name": "given_back",
            "title": "Given back so far",
            "kind": "material",
            "then": '"0.00"',
            "now": '"1.00"',
        }
    ]


# -- Close -----------------------------------------------------------------------------------


def test_close_ends_it_once(request_: Request) -> None:
    assert requests.close(request_, RequestState.WITHDRAWN, why="no longer wanted") is True
    assert requests.close(request_, RequestState.CANCELLED, why="later") is False
    closed = desk.fresh(request_)
    assert (closed.state, closed.closed_why, closed.closed_at is None) == (
        "withdrawn",
        "no longer wanted",
        False,
    )
    assert desk.told(request_) == ["opened", "withdrawn"]
    endings.cancel(request_.run_id, actor=OPERATOR)


def test_close_cuts_a_long_why(request_: Request) -> None:
    requests.close(request_, RequestState.SUPERSEDED, why="x" * 4000)
    assert len(desk.fresh(request_).closed_why) == 500
    endings.cancel(request_.run_id, actor=OPERATOR)


@pytest.mark.parametrize(
    ("verb", "state"), [("approve", "cancelled"), ("reject", "rejected"), ("", "cancelled")]
)
def test_cancel_of_the_run_closes_what_stands(request_: Request, ana: User, verb: str, state: str) -> None:
    if verb:
        desk.decide(request_, ana, verb)
    endings.cancel(request_.run_id, actor=OPERATOR, why="enough")
    assert desk.fresh(request_).state == state
    assert Permit.objects.in_force().count() == 0


def test_cancel_leaves_a_question_whose_answer_was_given(people: SimpleNamespace) -> None:
    """An answered question ends at `in_force`, however its run ends."""
    first = desk.opened("approvals-asks-twice")
    desk.decide(first, people.ana, "respond", answer={"vendor": "high", "number": 7, "note": ""})
    desk.drive(first)
    second = Request.objects.exclude(pk=first.pk).get()
    endings.cancel(first.run_id, actor=OPERATOR)
    assert (desk.fresh(first).state, desk.fresh(second).state) == ("in_force", "cancelled")
    assert desk.told(first) == ["opened", "decided", "in_force"]


def test_cancel_closes_a_question_whose_answer_nobody_took(people: SimpleNamespace) -> None:
    question = desk.opened("approvals-asker")
    desk.decide(question, people.ana, "respond", answer={"vendor": "high", "number": 7, "note": ""})
    endings.cancel(question.run_id, actor=OPERATOR)
    assert desk.fresh(question).state == "cancelled"


def test_cancel_says_who_cancelled(request_: Request) -> None:
    endings.cancel(request_.run_id, actor=OPERATOR, why="enough")
    row = JournalEntry.objects.of(request_.stream).get(verb="cancelled")
    assert (row.actor_name, row.door, json.loads(row.detail)) == ("Olu", "admin", {"why": "enough"})


def test_cancel_without_a_reason_says_what_became_of_the_run(request_: Request) -> None:
    endings.cancel(request_.run_id, actor=OPERATOR)
    assert desk.fresh(request_).closed_why == "the run is cancelled"


def test_run_suspended_for_too_long_closes_its_requests(request_: Request) -> None:
    desk.later(100)
    assert endings.expire(request_.run_id, 50.0) is True
    assert desk.fresh(request_).state == "cancelled"
    assert Run.objects.get(pk=request_.run_id).status == "expired"


def test_expire_names_nobody_and_is_not_a_rejection(request_: Request) -> None:
    """F23."""
    desk.later(3601)
    holds.expire(request_.hold_id)
    closed = desk.fresh(request_)
    assert (closed.state, closed.closed_why, closed.decisions.count()) == (
        "expired",
        "nobody decided in time",
        0,
    )
    rows = JournalEntry.objects.of(request_.stream).filter(verb="expired")
    assert [(row.actor_kind, row.actor_id) for row in rows] == [("system", "")]


def test_expire_one_of_two_leaves_the_other(people: SimpleNamespace) -> None:
    run = desk.submitted("approvals-both")
    desk.execution.drive(run.pk)
    first, second = Request.objects.filter(run=run).order_by("step__index")
    desk.later(3601)
    holds.expire(first.hold_id)
    assert (desk.fresh(first).state, desk.fresh(second).state) == ("expired", "open")


# -- Querysets ---------------------------------------------------------------------------------


def test_open_at_leaves_out_what_is_over_whatever_the_sweeper_has_got_to(request_: Request) -> None:
    """F38."""
    forever, over = desk.opened(), desk.opened()
    Request.objects.filter(pk=forever.pk).update(decide_by=None)
    Request.objects.filter(pk=over.pk).update(decide_by=clock.now())
    assert set(Request.objects.open_at(clock.now())) == {request_, forever}
    assert set(Request.objects.pending()) == {request_, forever, over}
    Request.objects.filter(pk__in=[forever.pk, over.pk]).update(decide_by=request_.decide_by)
