"""What is unusual about a call, as its page says it: beside those approved before, and beside the agent's day."""

from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from approvals.models import Request
from approvals.presentation import comparisons
from runs import clock
from tests.approvals import desk
from tests.pages import text

pytestmark = pytest.mark.django_db


def approved(people: SimpleNamespace, *amounts: str, **more: Any) -> None:
    """One call each, approved and made."""
    for amount in amounts:
        request = desk.opened("approvals-wirer", amount=amount, **more)
        desk.decide(request, people.ana)
        assert "wired" in desk.result(request)["result"]


def noted(request: Request) -> tuple[int, list[tuple[str, str]]]:
    found = comparisons.before(request, request.revision)
    return found.count, [(note.name, note.says) for note in found.notes]


def proposed(**arguments: Any) -> Request:
    return desk.opened("approvals-wirer", **arguments)


def test_first_of_its_tool_is_compared_with_none(people: SimpleNamespace, site: Client) -> None:
    request = proposed(amount="20.00")
    assert noted(request) == (0, [])
    page = text(site.get(request.get_absolute_url()))
    assert "No earlier call of this tool was approved by these reviewers." in page
    assert "This agent made no other call of this tool in the last 24 hours." in page


def test_largest_is_said_with_the_largest_before(people: SimpleNamespace, site: Client) -> None:
    approved(people, "20.00", "80.00", "30.00")
    request = proposed(amount="240.00")
    says = "is the largest of the last 3 approved; before it was at most 80.00"
    assert noted(request) == (3, [("amount", says)])
    assert f"amount {says}" in text(site.get(request.get_absolute_url()))


@pytest.mark.parametrize("amount", ["80.00", "20.00", "1.00", "-3.00"])
def test_what_is_within_the_others_is_not_noted(people: SimpleNamespace, amount: str) -> None:
    approved(people, "20.00", "80.00", "30.00")
    assert noted(proposed(amount=amount)) == (3, [])


def test_numbers_are_compared_as_numbers_and_not_as_texts(people: SimpleNamespace) -> None:
    approved(people, "100.00")
    assert noted(proposed(amount="99.00")) == (1, [])


def test_choice_that_none_had_is_noted(people: SimpleNamespace) -> None:
    approved(people, "20.00", "20.00", "20.00", "20.00", to="ACME")
    request = proposed(amount="20.00", to="Norde")
    assert noted(request) == (4, [("to", "has a value that none of the last 4 approved had")])


def test_text_that_is_another_each_time_is_not_noted(people: SimpleNamespace) -> None:
    for to in ("A", "B", "C", "D"):
        approved(people, "20.00", to=to)
    assert noted(proposed(amount="20.00", to="E")) == (4, [])


def test_only_the_last_thirty_count(people: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparisons, "LAST", 2)
    approved(people, "900.00", "20.00", "30.00")
    says = "is the largest of the last 2 approved; before it was at most 30.00"
    assert noted(proposed(amount="40.00")) == (2, [("amount", says)])


def test_above_p95_where_there_are_enough(people: SimpleNamespace) -> None:
    numbers = [Decimal(n) for n in range(1, 31)]
    said = [note.says for note in comparisons._measured("amount", Decimal("29.5"), numbers, is_list=False)]
    assert said == ["is above 95 % of the last 30 approved (29)"]
    assert list(comparisons._measured("amount", Decimal("29"), numbers, is_list=False)) == []
    assert list(comparisons._measured("amount", Decimal("18.5"), numbers[:19], is_list=False)) == []


def test_rejected_and_other_tools_and_other_reviewers_are_not_compared(people: SimpleNamespace) -> None:
    request = proposed(amount="900.00")
    desk.decide(request, people.ana, verb="reject")
    desk.drive(request)
    other = desk.opened("approvals-desk", amount="900.00")
    desk.decide(other, people.ana)
    desk.drive(other)
    finance = proposed(amount="6000.00")
    assert finance.group is not None
    assert finance.group.name == "finance"
    desk.decide(finance, people.dee)
    desk.drive(finance)
    assert noted(proposed(amount="20.00")) == (0, [])


def test_long_arguments_are_left_out(people: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparisons, "SHORT", 10)
    approved(people, "20.00")
    request = proposed(amount="40.00")
    assert noted(request) == (0, [])
    found = comparisons.today(request, request.revision, clock.now())
    assert (found.calls, found.total, found.unread) == (1, Decimal(0), 1)


def test_edited_calls_count_as_they_were_made(people: SimpleNamespace) -> None:
    request = proposed(amount="240.00")
    desk.decide(request, people.ana, edit=desk.edited(request, amount="50.00"))
    desk.drive(request)
    says = "is larger than in the only call approved before, 50.00"
    assert noted(proposed(amount="60.00")) == (1, [("amount", says)])


def test_today_counts_calls_sums_and_rejections(people: SimpleNamespace, site: Client) -> None:
    approved(people, "20.00", "80.00")
    refused = proposed(amount="5.00")
    desk.decide(refused, people.ana, verb="reject")
    desk.drive(refused)
    request = proposed(amount="240.00")
    found = comparisons.today(request, request.revision, clock.now())
    assert (found.calls, found.rejected, found.field, found.total) == (2, 1, "amount", Decimal("100.00"))
    page = text(site.get(request.get_absolute_url()))
    assert (
        "In the last 24 hours this agent made 2 calls of this tool, amount 100.00 in all; 1 was rejected."
        in page
    )


def test_today_ends_after_a_day(people: SimpleNamespace) -> None:
    approved(people, "20.00")
    desk.later(25 * 3600)
    request = proposed(amount="20.00")
    assert comparisons.today(request, request.revision, clock.now()).calls == 0


def test_today_counts_up_to_a_limit(people: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparisons, "MOST", 1)
    approved(people, "20.00", "80.00")
    request = proposed(amount="240.00")
    assert comparisons.today(request, request.revision, clock.now()).is_more


def test_digest_does_not_know_of_it(people: SimpleNamespace) -> None:
    """What others did moves by itself, and voids nothing."""
    request = proposed(amount="240.00")
    before = request.revision.digest
    approved(people, "20.00", "80.00")
    assert desk.fresh(request).revision.digest == before
    assert desk.decide(request, people.ana)


def test_closed_request_is_compared_with_nothing(people: SimpleNamespace, site: Client) -> None:
    request = proposed(amount="240.00")
    desk.decide(request, people.ana, verb="reject")
    assert "Compared with others" not in text(site.get(request.get_absolute_url()))


def test_three_queries_however_many_there_are(people: SimpleNamespace) -> None:
    counts = []
    for amounts in (["20.00"], ["20.00", "30.00", "40.00"]):
        approved(people, *amounts)
        request = proposed(amount="240.00")
        revision, _ = request.revision, request.run
        with CaptureQueriesContext(
            connection,
        ) as asked:
            comparisons.before(request, revision)
            comparisons.today(request, revision, clock.now())
        counts.append(len([q for q in asked if "abeyance_now" not in q["sql"]]))
    assert counts == [3, 3]


def test_newest_of_a_tool_are_found_by_their_index(people: SimpleNamespace) -> None:
    plan = comparisons._dispatched("wire").order_by("-dispatched_at")[: comparisons.WINDOW]
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute("SET LOCAL enable_sort = off")
    assert "step_effects_by_tool" in plan.explain()


def test_argument_the_schema_does_not_have_comes_first(people: SimpleNamespace, site: Client) -> None:
    """Only what was brought in, or changed in the database, can have one."""
    request = proposed(amount="20.00")
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute(
            "UPDATE approvals_revision SET arguments = %s WHERE request_id = %s",
            ['{"amount":"20.00","memo":"pay me","to":"ACME"}', request.pk],
        )
        cursor.execute("SET LOCAL session_replication_role = origin")
    request = desk.fresh(request)
    assert comparisons.outside(request.revision) == {"memo": "pay me"}
    page = text(site.get(request.get_absolute_url()))
    assert page.index("1 argument the tool’s schema does not have") < page.index(
        "ACME", page.index("What will run")
    )
