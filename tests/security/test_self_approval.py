"""F60: who started a run reaches its approval by no door at all: every address, every right they have."""

from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import transaction
from django.urls import reverse

from approvals.models import Permit, Request
from tests.approvals import desk
from tests.pages import addresses, browser

pytestmark = pytest.mark.django_db
HTMX = {"HX-Request": "true"}
OTHER_GROUPS = ((), ("operators", "policy editors", "auditors"))


@pytest.fixture(params=OTHER_GROUPS, ids=lambda groups: "+".join(groups) or "reviewer")
def eve(people: SimpleNamespace, request: pytest.FixtureRequest) -> User:
    """A reviewer who has other rights as well."""
    made = desk.person("eve", "refunds", *request.param, is_staff=bool(request.param), is_superuser=True)
    assert made.groups.filter(name="refunds").exists()
    return made


@pytest.fixture
def own(eve: User) -> Request:
    return desk.opened(owner=eve)


def sent(request: Request, person: User) -> dict[str, Any]:
    """All that a decision could want, under the names of every form."""
    revision = request.revision
    return {
        "decision": "approve",
        "verb": "approve",
        "action": "approve",
        "view_digest": revision.digest,
        "form_nonce": "00000000-0000-4000-8000-000000000000",
        "basis-1": "yes",
        "basis-2": "yes",
        "person": str(person.pk),
        "to": str(person.pk),
        "reason": "it is mine",
        "note": "it is mine",
        "refs": request.ref,
        "ref": request.ref,
        "_selected_action": str(request.pk),
    }


def test_own_request_is_refused_at_every_door(eve: User, own: Request, world: desk.World) -> None:
    known = {
        "ref": own.ref,
        "run_id": str(own.run_id),
        "object_id": str(own.pk),
        "agent": own.run.agent,
        "verb": "resume",
        "index": str(own.step.index),
        "number": "1",
        "hold_id": str(own.hold_id),
    }
    client = browser(eve)
    client.raise_request_exception = False
    tried = 0
    for path in sorted(set(addresses(known))):
        for headers in ({},) if path.startswith("/admin/") else ({}, HTMX):
            with transaction.atomic():
                client.post(path, sent(own, eve), headers=headers)
                state, decisions, permits = desk.counts(own)
                assert (path, decisions, permits) == (path, 0, 0)
                assert state in ("open", "cancelled"), path  # ending one's run is one's right
                tried += 1
                transaction.set_rollback(True)
    assert tried > 150
    assert (world.n("give_back"), Permit.objects.count()) == (0, 0)


@pytest.mark.parametrize("headers", [{}, HTMX], ids=["form", "htmx"])
def test_own_decision_is_403_and_in_the_journal(eve: User, own: Request, headers: dict[str, str]) -> None:
    client = browser(eve)
    for verb in ("approve", "reject"):
        said = client.post(
            reverse("decide", args=[own.ref]),
            {**_form(own), "decision": verb, **({"reason": "duplicate"} if verb == "reject" else {})},
            headers=headers,
        )
        assert said.status_code == 403
    assert desk.refusals(own) == [("Eve", "not_eligible"), ("Eve", "not_eligible")]
    assert desk.counts(own) == ("open", 0, 0)


def _form(request: Request) -> dict[str, str]:
    return {
        "view_digest": request.revision.digest,
        "form_nonce": "00000000-0000-4000-8000-000000000000",
    }


def test_own_edit_decides_nothing(eve: User, own: Request) -> None:
    said = browser(eve).post(reverse("edit", args=[own.ref]), {**_form(own), "f-amount": "1.00"})
    assert said.status_code in (303, 403, 404)  # back to the page, which says that it is not theirs to decide
    assert (desk.counts(own), desk.fresh(own).number) == (("open", 0, 0), 1)


def test_rule_changed_by_who_started_it_moves_nothing_that_waits(eve: User, own: Request) -> None:
    """Its own group lets it through afterwards; what waits keeps the rules it was held by."""
    eve.groups.add(Group.objects.get_or_create(name="policy editors")[0])
    desk.change_rule("desk", expression="false")
    assert desk.counts(own) == ("open", 0, 0)
