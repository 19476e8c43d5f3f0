"""Who may see and decide a request, now."""

from types import SimpleNamespace

import pytest
from django.contrib.auth.models import AnonymousUser, Group, User

from approvals import reviewers
from approvals.models import Request
from tests.approvals import desk

pytestmark = pytest.mark.django_db


@pytest.fixture
def request_(people: SimpleNamespace) -> Request:
    return desk.opened(owner=people.cyd)


def test_eligibility_of_each(request_: Request, people: SimpleNamespace) -> None:
    found = {name: reviewers.eligibility(who, request_) for name, who in vars(people).items()}
    assert {name: (each.sees, each.decides) for name, each in found.items()} == {
        "ana": (True, True),
        "ben": (True, True),
        "dee": (False, False),
        "cyd": (False, False),
        "olu": (True, False),
        "dot": (True, False),
        "root": (False, False),
    }


def test_nobody_is_hidden_from(request_: Request) -> None:
    assert reviewers.eligibility(AnonymousUser(), request_) == reviewers.HIDDEN
    assert list(reviewers.visible_to(AnonymousUser())) == []
    assert list(reviewers.assigned_to(AnonymousUser())) == []


def test_visible_and_assigned_of_each(request_: Request, people: SimpleNamespace) -> None:
    other = desk.opened(amount="6000.00")
    seen = {name: set(reviewers.visible_to(who)) for name, who in vars(people).items()}
    assert seen == {
        "ana": {request_},
        "ben": {request_},
        "dee": {other},
        "cyd": set(),
        "olu": {request_, other},
        "dot": {request_, other},
        "root": set(),
    }
    assert set(reviewers.assigned_to(people.olu)) == set()
    assert set(reviewers.assigned_to(people.dee)) == {other}


def test_member_of_two_groups_sees_each_once(request_: Request, people: SimpleNamespace) -> None:
    people.ana.groups.add(Group.objects.get(name="finance"), Group.objects.create(name="reviewers"))
    assert list(reviewers.visible_to(people.ana)) == [request_]


def test_disabled_superuser_and_disabled_member_see_nothing(
    request_: Request, people: SimpleNamespace
) -> None:
    for who in (people.ana, people.olu):
        User.objects.filter(pk=who.pk).update(is_active=False)
        again = User.objects.get(pk=who.pk)
        assert reviewers.eligibility(again, request_) == reviewers.HIDDEN
        assert list(reviewers.visible_to(again)) == []


def test_operator_in_the_group_reviews(request_: Request, people: SimpleNamespace) -> None:
    people.olu.groups.add(Group.objects.get(name="refunds"))
    assert reviewers.eligibility(User.objects.get(pk=people.olu.pk), request_).decides is True


def test_request_without_a_group_is_the_fallbacks(request_: Request, people: SimpleNamespace) -> None:
    fay = desk.person("fay", "reviewers")
    Request.objects.filter(pk=request_.pk).update(group=None)
    standing = desk.fresh(request_)
    assert reviewers.eligibility(fay, standing).decides is True
    assert reviewers.eligibility(people.ana, standing).sees is False
    assert list(reviewers.visible_to(fay)) == [request_]
    assert reviewers.candidates(standing) == [fay]


def test_request_without_a_group_and_without_a_fallback_has_no_candidates(request_: Request) -> None:
    Request.objects.filter(pk=request_.pk).update(group=None)
    assert reviewers.candidates(desk.fresh(request_)) == []


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({}, ["ana", "ben"]),
        ({"on_behalf_of": "Ana@Example.org"}, ["ben"]),
        ({"on_behalf_of": "ben"}, ["ana"]),
        ({"on_behalf_of": "anabel@example.org"}, ["ana", "ben"]),
        ({"on_behalf_of": "an"}, ["ana", "ben"]),
    ],
)
def test_candidates_leave_out_the_requester(
    people: SimpleNamespace, fields: dict[str, str], names: list[str]
) -> None:
    assert [who.username for who in reviewers.candidates(desk.opened(**fields))] == names


def test_person_without_an_address_is_not_everybodys_requester(people: SimpleNamespace) -> None:
    """Neither an empty address nor a run for nobody makes two people the same."""
    User.objects.filter(pk=people.ana.pk).update(email="")
    request = desk.opened(on_behalf_of="")
    assert reviewers.eligibility(User.objects.get(pk=people.ana.pk), request).decides is True


def test_owner_of_the_agent_is_left_out(people: SimpleNamespace) -> None:
    owen = desk.person("owen", "refunds")
    request = desk.opened()
    assert owen not in reviewers.candidates(request)
    assert reviewers.eligibility(owen, request).why_not == "You own this agent, so somebody else decides."


def test_fresh_reads_groups_again(request_: Request, ana: User) -> None:
    assert reviewers.eligibility(ana, request_).decides is True
    ana.groups.clear()
    assert reviewers.eligibility(ana, request_).decides is True
    assert reviewers.eligibility(ana, request_, fresh=True).sees is False


@pytest.mark.parametrize(("amount", "author"), [("240.00", False), ("2000.00", True)])
def test_author_counts_from_r3_on(people: SimpleNamespace, amount: str, author: bool) -> None:
    request = desk.opened(amount=amount)
    desk.decide(request, people.ana, edit=desk.edited(request, charge="ch_2"))
    revision = desk.fresh(request).revision
    assert (reviewers.is_author(people.ana, revision), reviewers.is_author(people.ben, revision)) == (
        author,
        False,
    )
