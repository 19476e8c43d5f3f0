"""Who asked for something never decides it, however the asking was dressed up."""

from types import SimpleNamespace

import pytest
from allauth.account.models import EmailAddress
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from approvals import reviewers
from approvals.exceptions import NotEligible
from approvals.models import ApiKey, Request
from runs import execution, lifecycle
from runs.actors import Actor
from runs.models import Run
from tests.approvals import desk

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("whole")]


def again(person: User) -> User:
    """Without what was looked up before."""
    return User.objects.get(pk=person.pk)


@pytest.mark.parametrize(
    "text",
    [
        "Ana Abbott <ana@example.org>",
        "ana@example.org, on the phone",
        "ANA@EXAMPLE.ORG\u200b",
        "\u202aana@example.org\u202c",
        "a\u00adna@example.org",
        "ana＠example.org",
        "ben@example.org; ana@example.org",
        "ana  abbott",
        "Ana\u00a0Abbott",
        "former@example.org",
    ],
)
def test_whom_the_run_acts_for_is_known_by_any_of_their_names(people: SimpleNamespace, text: str) -> None:
    User.objects.filter(pk=people.ana.pk).update(last_name="Abbott")
    EmailAddress.objects.create(user=people.ana, email="former@example.org", verified=True)
    request = desk.opened(on_behalf_of=text)
    with pytest.raises(NotEligible):
        desk.decide(request, again(people.ana))
    assert desk.counts(request) == ("open", 0, 0)


@pytest.mark.parametrize("text", ["Ana", "ana@example.org.evil", "mana@example.org", "Dana Abbott", "@"])
def test_others_of_a_like_name_decide(people: SimpleNamespace, text: str) -> None:
    User.objects.filter(pk=people.ana.pk).update(last_name="Abbott", username="a.abbott")
    request = desk.opened(on_behalf_of=text)
    assert reviewers.eligibility(again(people.ana), request).decides is True


def test_run_again_is_still_whose_it_was(people: SimpleNamespace) -> None:
    """ana starts a run; an operator runs it again for her; she does not review that either, nor the one after."""
    first = desk.submitted(owner=people.ana)
    lifecycle_end(first)
    second = repeated(first, people.olu)
    lifecycle_end(second)
    third = repeated(second, people.olu)
    execution.drive(third.pk)
    request = Request.objects.get(run=third)
    assert reviewers.candidates(request) == [people.ben]
    with pytest.raises(NotEligible, match="You started this run"):
        desk.decide(request, again(people.ana))


def lifecycle_end(run: Run) -> None:
    from runs import endings

    endings.cancel(run.pk, actor=Actor("person", "1", "olu", "admin", operator=True), why="a test")


def repeated(run: Run, who: User) -> Run:
    """As the admin does it."""
    browser = Client()
    browser.force_login(who)
    browser.post(reverse("admin:runs_run_do", args=[run.pk, "again"]), {"reason": ""})
    return Run.objects.get(again_of=run)


def test_who_issued_the_key_is_a_requester(people: SimpleNamespace) -> None:
    """An operator who also reviews cannot issue a key in a colleague's name and decide what it starts."""
    olu = again(people.olu)
    olu.groups.add(people.ana.groups.get())
    browser = Client()
    browser.force_login(olu)
    made = browser.post(reverse("admin:approvals_apikey_add"), {"name": "a shop", "owner": people.cyd.pk})
    assert made.status_code == 201
    key = ApiKey.objects.get()
    asked = lifecycle.Submission("approvals-desk", {}, {}, owner_id=str(people.cyd.pk))
    run, _ = lifecycle.submit(asked, actor=Actor("key", key.prefix, key.name, "api"))
    execution.drive(run.pk)
    request = Request.objects.get(run=run)
    assert reviewers.candidates(request) == [people.ana, people.ben]
    with pytest.raises(NotEligible, match="You issued the key"):
        desk.decide(request, again(olu))
    assert desk.refusals(request) == [("Olu", "not_eligible")]
