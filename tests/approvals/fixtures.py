"""People, rules and the world of the desk, and what must hold of requests after every test that asks for `whole`."""

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from django.contrib.auth.models import User
from django.test import Client

from approvals import policies
from approvals.models import Policy, Request
from runs import journal
from runs.models import Run
from tests import invariants as invariants_of_rows
from tests.approvals import desk


@pytest.fixture
def world() -> desk.World:
    desk.world.reset()
    return desk.world


@pytest.fixture
def people(db: None, world: desk.World) -> SimpleNamespace:
    """ana and ben review; dee reviews for finance; cyd starts runs; olu operates; dot audits; root is a superuser."""
    policies.seed(desk.RULES)
    return SimpleNamespace(
        ana=desk.person("ana", "refunds"),
        ben=desk.person("ben", "refunds"),
        dee=desk.person("dee", "finance"),
        cyd=desk.person("cyd"),
        olu=desk.person("olu", "operators", is_staff=True),
        dot=desk.person("dot", "auditors"),
        root=desk.person("root", is_superuser=True, is_staff=True),
    )


@pytest.fixture
def ana(people: SimpleNamespace) -> User:
    return people.ana  # type: ignore[no-any-return]


@pytest.fixture
def ben(people: SimpleNamespace) -> User:
    return people.ben  # type: ignore[no-any-return]


@pytest.fixture
def site(ana: User) -> Client:
    """Ana's browser."""
    browser = Client()
    browser.force_login(ana)
    return browser


@pytest.fixture
def whole(people: SimpleNamespace) -> Iterator[None]:
    """After the test every row is as it must be."""
    yield
    assert invariants_of_rows.broken() == []
    assert list(journal.broken([Run, Request, Policy])) == []
    assert list(_broken()) == []


def _broken() -> Iterator[str]:
    """What must hold of requests: DESIGN §10, items 4, 6 and 10."""
    for request in Request.objects.select_related("run", "step"):
        permits = list(request.permits.all())
        live = [p for p in permits if p.consumed_at is None and p.voided_at is None]
        if request.run.ended and (live or request.is_pending):
            yield f"10: {request.ref} hangs on a run that ended"
        if bool(live) != (request.state == "in_force" and request.kind == "approval"):
            yield f"{request.ref} is {request.state} and has {len(live)} permits in force"
        used = sorted((p for p in permits if p.consumed_at is not None), key=lambda p: p.consumed_at)
        again = sum(
            1 for item in request.step.evidence if item["kind"] == "did_not_happen"
        )  # by a person's word
        for permit in used[-1:]:
            if (
                request.step.executed_digest or request.step.arguments_digest
            ) != permit.revision.arguments_digest:
                yield f"4: {request.ref}: what was sent is not what was approved"
        least = 0 if request.step.effect == "refused" else 1  # of what was not sent the permit is given back
        if request.step.dispatched_at is not None and not least <= len(used) <= 1 + again:
            yield f"4: {request.ref}: dispatched with {len(used)} permits used"
        if request.is_pending and not request.hold.is_open:
            yield f"1: {request.ref} waits and nothing holds its call"
