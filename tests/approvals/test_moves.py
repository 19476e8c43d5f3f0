"""A run that moves: its open requests reach the inbox there, decisions and approvals stay, requesters stay requesters.

The other installation is this database before the run was there, with the same accounts.
"""

from collections.abc import Callable
from types import SimpleNamespace

import pytest
from allauth.account.models import EmailAddress
from django.contrib.auth.models import Group, User
from django.db import transaction

from approvals import looks, policies, reviewers
from approvals.models import ApiKey, Permit, Request
from runs import execution, holds, lifecycle, moves
from runs.actors import Actor
from runs.exceptions import WrongState
from runs.models import Hold, JournalEntry, Run
from runs.states import RunStatus
from tests.approvals import desk

pytestmark = [pytest.mark.django_db]
whole = pytest.mark.usefixtures("whole")
OLU = Actor("person", "0", "olu", "command", operator=True)


def moved(make: Callable[[], Request]) -> str:
    """The bundle of a run that `make` made in an installation of which nothing is left here."""
    kept: list[str] = []
    with transaction.atomic():
        moves.leave(make().run_id, actor=OLU, keep=kept.append)
        transaction.set_rollback(True)
    return kept[0]


def arrived(make: Callable[[], Request]) -> Run:
    return moves.arrive(moved(make), actor=OLU)


def the_request(run: Run) -> Request:
    return Request.objects.get(run=run)


@whole
def test_open_request_reaches_the_inbox_and_is_decided_there(people: SimpleNamespace) -> None:
    seen: list[tuple[str, object]] = []

    def make() -> Request:
        request = desk.opened(amount="240.00")
        seen.append((str(request.hold_id), request.decide_by))
        return request

    run = arrived(make)
    request = the_request(run)
    assert (request.state, request.number, request.group) == ("open", 1, Group.objects.get(name="refunds"))
    assert [(str(request.hold_id), request.decide_by)] == seen, "the same hold, with the time it had"
    assert request.look_wanted_at is not None, "its facts were seen elsewhere and are looked at again"
    looks.look(request.pk)
    desk.decide(request, people.ana)
    assert (desk.drive(request).status, desk.world.n("give_back")) == (RunStatus.SUCCEEDED, 1)


@whole
def test_source_keeps_the_request_as_cancelled(people: SimpleNamespace) -> None:
    request = desk.opened("approvals-wirer", amount="100.00")
    moves.leave(request.run_id, actor=OLU, keep=str)
    closed = desk.fresh(request)
    assert (closed.state, closed.closed_why) == ("cancelled", moves.MOVED)


@whole
def test_question_is_asked_there(people: SimpleNamespace) -> None:
    request = the_request(arrived(lambda: desk.opened("approvals-asker")))
    assert (request.kind, request.state) == ("question", "open")


@whole
def test_approval_that_was_not_used_is_asked_again(people: SimpleNamespace) -> None:
    def make() -> Request:
        request = desk.opened("approvals-wirer", amount="100.00")
        holds.pause(request.run_id, actor=OLU)
        desk.decide(request, people.ana)
        assert Permit.objects.in_force().count() == 1
        return request

    run = arrived(make)
    assert (Request.objects.count(), Permit.objects.count()) == (0, 0)
    holds.unpause(run.pk, actor=OLU)
    execution.drive(run.pk)
    request = the_request(run)
    assert (request.state, desk.world.calls) == ("open", [])
    desk.decide(request, people.ben)
    assert (desk.drive(request).status, desk.world.n("wire")) == (RunStatus.SUCCEEDED, 1)


@whole
def test_edit_made_elsewhere_stays_there(people: SimpleNamespace) -> None:
    """A person's edit is a person's word; what the agent proposed is asked."""

    def make() -> Request:
        request = desk.opened("approvals-wirer", amount="100.00")
        holds.pause(request.run_id, actor=OLU)
        desk.decide(request, people.ana, edit=desk.edited(request, amount="90.00"))
        return request

    run = arrived(make)
    holds.unpause(run.pk, actor=OLU)
    execution.drive(run.pk)
    assert '"amount":"100.00"' in the_request(run).revision.arguments


@whole
def test_rules_there_and_rules_here_both_count(people: SimpleNamespace) -> None:
    """Two people were asked for there; here a larger tier is. Both stand."""

    def make() -> Request:
        desk.change_rule("desk", quorum=2)
        return desk.opened("approvals-wirer", amount="100.00")

    text = moved(make)
    desk.change_rule("small", outcome="R3")
    request = the_request(moves.arrive(text, actor=OLU))
    assert (request.quorum, request.tier, request.revision.policy_version) == (
        2,
        "R3",
        policies.current().number,
    )


@whole
def test_rules_that_would_allow_it_here_do_not_undo_what_was_held(people: SimpleNamespace) -> None:
    text = moved(lambda: desk.opened("approvals-wirer", amount="100.00"))
    desk.change_rule("desk", outcome="allow", reviewers=None)
    request = the_request(moves.arrive(text, actor=OLU))
    assert (request.state, request.group, desk.world.calls) == ("open", Group.objects.get(name="refunds"), [])


@whole
def test_group_that_is_not_here_leaves_it_to_the_fallback(people: SimpleNamespace) -> None:
    text = moved(lambda: desk.opened("approvals-wirer", amount="100.00"))
    desk.change_rule("desk", outcome="allow", reviewers=None)
    Group.objects.filter(name="refunds").update(name="elsewhere")
    assert the_request(moves.arrive(text, actor=OLU)).group is None


# -- Who asked stays out of it -------------------------------------------------------------


@whole
def test_owner_is_found_by_address_and_does_not_review(people: SimpleNamespace) -> None:
    text = moved(lambda: desk.opened("approvals-wirer", owner=people.ana, amount="100.00"))
    User.objects.filter(pk=people.ana.pk).update(email="ana@example.net")
    other = desk.person("ana2", "refunds")
    User.objects.filter(pk=other.pk).update(email="ANA@example.org")
    run = moves.arrive(text, actor=OLU)
    assert run.owner_id == str(other.pk)
    assert (
        reviewers.eligibility(User.objects.get(pk=other.pk), the_request(run)).why_not[:21]
        == "You started this run,"
    )


@whole
def test_owner_without_an_account_here(people: SimpleNamespace) -> None:
    text = moved(lambda: desk.opened("approvals-wirer", owner=people.cyd, amount="100.00"))
    User.objects.filter(pk=people.cyd.pk).update(email="cyd@example.net")
    assert moves.arrive(text, actor=OLU).owner_id == ""


@whole
def test_issuer_of_the_key_does_not_review_there(people: SimpleNamespace) -> None:
    EmailAddress.objects.create(user=people.ana, email=people.ana.email, primary=True, verified=True)

    def make() -> Request:
        key, _ = ApiKey.objects.create_key(name="shop", owner=people.cyd, issuer_id=str(people.ana.pk))
        asked = lifecycle.Submission("approvals-wirer", {"amount": "100.00"}, {}, owner_id=str(people.cyd.pk))
        run, _ = lifecycle.submit(asked, actor=Actor("key", key.prefix, "shop", "api"))
        execution.drive(run.pk)
        return the_request(run)

    run = arrived(make)
    why = reviewers.eligibility(people.ana, the_request(run)).why_not
    assert "issued the key" in why
    assert reviewers.eligibility(people.ben, the_request(run)).decides


@whole
def test_run_that_repeats_anothers_does_not_move(people: SimpleNamespace) -> None:
    first = desk.opened("approvals-wirer", owner=people.ana, amount="100.00")
    moves.leave(first.run_id, actor=OLU, keep=str)
    asked = lifecycle.Submission(
        "approvals-wirer", {"amount": "100.00"}, {}, owner_id=str(people.olu.pk), again_of=first.run
    )
    again, _ = lifecycle.submit(asked, actor=OLU)
    execution.drive(again.pk)
    with pytest.raises(WrongState, match="it repeats a run that somebody else started"):
        moves.leave(again.pk, actor=OLU, keep=print)
    assert Hold.objects.open().filter(run=again).count() == 1


@whole
def test_journal_says_where_the_request_came_from(people: SimpleNamespace) -> None:
    request = the_request(arrived(lambda: desk.opened("approvals-wirer", amount="100.00")))
    opened = JournalEntry.objects.of(request.stream).get()
    assert (opened.verb, '"moved":true' in opened.detail) == ("opened", True)
