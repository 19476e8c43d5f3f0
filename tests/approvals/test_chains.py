"""A child's request: the same inbox with the chain shown, and nobody who stands anywhere in it decides."""

from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from approvals import notifications, reviewers
from approvals.models import ApiKey, Request
from runs import children, endings, events, execution, lifecycle
from runs.actors import Actor
from runs.agents import RunContext, agent
from runs.models import Run
from runs.tools import start
from tests.approvals import desk

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("whole")]


@agent(name="approvals-lead", owner="lee@example.org")
async def leading(run: RunContext) -> dict[str, Any]:
    """Lets another agent wire."""
    return await start(desk.wiring)


@agent(name="approvals-head", owner="hal@example.org")
async def heading(run: RunContext) -> dict[str, Any]:
    """Lets another agent let another wire."""
    return await start(leading)


CHAIN = "approvals-head › approvals-lead › approvals-wirer"


def below(**more: Any) -> Request:
    """The request of a grandchild, whose root was submitted by cyd."""
    root = desk.submitted("approvals-head", **more)
    for name in ("approvals-head", "approvals-lead", "approvals-wirer"):
        execution.drive(Run.objects.get(agent=name, status="queued").pk)
    found = Request.objects.get(run__agent="approvals-wirer", run__ancestors__contains=[root.pk])
    assert found.run.ancestors[0] == root.pk
    return found


def why_not(who: User, request: Request) -> str:
    return reviewers.eligibility(who, Request.objects.get(pk=request.pk)).why_not


def test_request_of_a_child_lies_in_the_same_inbox(people: SimpleNamespace, site: Client) -> None:
    request = below(owner=people.cyd)
    assert request.ref in site.get(reverse("inbox")).content.decode()


def test_request_of_a_child_names_the_chain_on_its_page(people: SimpleNamespace, site: Client) -> None:
    request = below(owner=people.cyd)
    page = site.get(request.get_absolute_url()).content.decode()
    assert f"<dt>Chain of runs</dt><dd>{CHAIN}</dd>" in page


def test_request_of_a_child_names_the_chain_in_its_mail(people: SimpleNamespace) -> None:
    request = below(owner=people.cyd)
    row = request.notifications.get(person_id=str(people.ana.pk))
    message = notifications.compose(row)
    assert f"\n  Chain        {CHAIN}\n" in message.body
    assert "approvals" not in message.subject


def test_request_of_a_root_run_names_no_chain(people: SimpleNamespace, site: Client) -> None:
    request = desk.opened("approvals-wirer", owner=people.cyd)
    assert "Chain of runs" not in site.get(request.get_absolute_url()).content.decode()
    assert "Chain" not in notifications.compose(request.notifications.get(person_id=str(people.ana.pk))).body


def test_decision_on_a_childs_request_goes_back_up(people: SimpleNamespace) -> None:
    request = below(owner=people.cyd)
    desk.decide(request, people.ana)
    execution.drive(request.run_id)
    for run in (request.run, request.run.parent):
        assert run is not None
        hold = run.awaited_by.get()
        assert children.tell_parent(hold.pk)
        execution.drive(hold.run_id)
    root = Run.objects.get(agent="approvals-head")
    assert (root.status, desk.world.n("wire")) == ("succeeded", 1)


def test_owner_of_each_agent_of_the_chain_is_a_requester(people: SimpleNamespace) -> None:
    request = below(owner=people.cyd)
    owners = {name: desk.person(name, "refunds") for name in ("owen", "lee", "hal", "dan")}
    assert {name: why_not(who, request) for name, who in owners.items()} == {
        "owen": "You own this agent, so somebody else decides.",
        "lee": "You own approvals-lead, which started this run, so somebody else decides.",
        "hal": "You own approvals-head, which started this run, so somebody else decides.",
        "dan": "",
    }
    assert {who.username for who in reviewers.candidates(request)} == {"ana", "ben", "dan"}


def test_submitter_of_the_root_is_a_requester(people: SimpleNamespace) -> None:
    request = below(owner=people.ana)
    assert why_not(people.ana, request) == "You started this run, so somebody else decides."
    assert why_not(people.ben, request) == ""


def test_person_the_root_acts_for_is_a_requester(people: SimpleNamespace) -> None:
    request = below(owner=people.cyd, on_behalf_of="Ben <ben@example.org>")
    assert why_not(people.ben, request) == "The run acts for you, so somebody else decides."


def test_issuer_of_the_roots_key_is_a_requester(people: SimpleNamespace) -> None:
    key, _ = ApiKey.objects.create_key(name="shop", owner=people.cyd, issuer_id=str(people.ben.pk))
    asked = lifecycle.Submission("approvals-lead", {}, {}, owner_id=str(people.cyd.pk))
    run = lifecycle.submit(asked, actor=Actor("key", key.prefix, "shop", "api"))[0]
    execution.drive(run.pk)
    execution.drive(Run.objects.get(parent=run).pk)
    assert why_not(people.ben, Request.objects.get()) == (
        "You issued the key that started this run, so somebody else decides."
    )


def test_starter_of_the_run_that_the_root_repeats_is_a_requester(people: SimpleNamespace) -> None:
    before = desk.submitted("approvals-lead", owner=people.ben)
    endings.cancel(before.pk, actor=desk.EDITOR)
    asked = lifecycle.Submission("approvals-lead", {}, {}, owner_id=str(people.cyd.pk), again_of=before)
    run = lifecycle.submit(asked, actor=Actor("key", "k1", "shop", "api"))[0]
    execution.drive(run.pk)
    execution.drive(Run.objects.get(parent=run).pk)
    assert why_not(people.ben, Request.objects.get()) == "You started this run, so somebody else decides."


def test_inbox_asks_as_often_for_three_children_as_for_one(
    people: SimpleNamespace, site: Client, django_assert_num_queries: Any
) -> None:
    below(owner=people.cyd)
    with CaptureQueriesContext(connection) as one:
        site.get(reverse("inbox"))
    for _ in range(2):
        below(owner=people.cyd)
    with django_assert_num_queries(len(one)):
        site.get(reverse("inbox"))


def test_chain_of_a_root_run_asks_nothing(people: SimpleNamespace, django_assert_num_queries: Any) -> None:
    request = desk.opened("approvals-wirer", owner=people.cyd)
    run = request.run
    with django_assert_num_queries(0):
        assert children.chain(run) == [run]


def test_run_page_of_a_child_links_what_the_reader_may_see(people: SimpleNamespace, site: Client) -> None:
    """A reviewer of the child sees who is above by name; an operator gets there."""
    request = below(owner=people.cyd)
    above = request.run.parent
    assert above is not None
    reviewers_page = site.get(request.run.get_absolute_url()).content.decode()
    assert ("approvals-lead" in reviewers_page, above.get_absolute_url() in reviewers_page) == (True, False)
    site.force_login(people.olu)
    operators_page = site.get(request.run.get_absolute_url()).content.decode()
    assert f'<a href="{above.get_absolute_url()}">approvals-lead' in operators_page
    upper = site.get(above.get_absolute_url()).content.decode()
    assert f'<a href="{request.run.get_absolute_url()}">approvals-wirer' in upper


def test_run_page_shows_events_told_and_escapes_them(people: SimpleNamespace, site: Client) -> None:
    run = desk.submitted("approvals-wirer", owner=people.cyd)
    actor = Actor("key", "k1", "shop", "api")
    events.tell(run.pk, name="<b>arrived</b>", event_id="\u202eevil", payload={"x": 1}, actor=actor)
    site.force_login(people.olu)
    page = site.get(run.get_absolute_url()).content.decode()
    assert "Events told" in page
    assert ("<b>arrived" in page, "\u202e" in page) == (False, False)
