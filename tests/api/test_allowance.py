"""What a submitted run may use: taken, shown, and refused with its place."""

from decimal import Decimal
from typing import Any

import pytest

from approvals.models import ApiKey
from runs import allowance
from runs.lifecycle import Limit
from runs.models import Allowance, Run
from tests.api.conftest import Api, nothing_written, refused
from tests.factories import OPERATOR

ASKED = {"agent": "api-test-desk", "input": {"ticket": 7}}
EUR = "money:EUR"


def shared(name: str = "billing, October", limit: str = "100") -> Allowance:
    return allowance.share(name, Limit(EUR, Decimal(limit), Decimal(80)), actor=OPERATOR)


def test_submit_with_an_allowance_shows_it(api: Api) -> None:
    shared()
    said = api.post(
        "/runs",
        {
            **ASKED,
            "allowance": {"steps": 10, EUR: {"limit": "5.00", "soft": 4}, "tokens": None},
            "draws_on": ["billing, October"],
        },
    )
    assert said.status_code == 201, said.content
    shown = {(row["unit"], row["shared"]): row for row in said.json()["allowance"]}
    nothing = {"used": "0", "reserved": "0"}
    assert shown == {
        ("steps", None): {
            "unit": "steps",
            "shared": None,
            "limit": "10",
            "soft": None,
            "remaining": "10",
            **nothing,
        },
        (EUR, None): {"unit": EUR, "shared": None, "limit": "5", "soft": "4", "remaining": "5", **nothing},
        ("tokens", None): {
            "unit": "tokens",
            "shared": None,
            "limit": None,
            "soft": None,
            "remaining": None,
            **nothing,
        },
        (EUR, "billing, October"): {
            "unit": EUR,
            "shared": "billing, October",
            "limit": "100",
            "soft": "80",
            "remaining": "100",
            **nothing,
        },
    }
    assert api.get(f"/runs/{said.json()['id']}").json()["allowance"] == said.json()["allowance"]


def test_submit_without_one_shows_none(api: Api) -> None:
    assert api.post("/runs", ASKED).json()["allowance"] == []


def test_read_a_run_whose_limit_was_lowered_shows_nothing_left(api: Api) -> None:
    """F94: 0, not -3."""
    run = Run.objects.get(pk=api.post("/runs", {**ASKED, "allowance": {EUR: 5}}).json()["id"])
    run.allowances.update(used=Decimal(3))
    allowance.set_limit(run.allowances.get().pk, Decimal("0.5"), None, actor=OPERATOR)
    [row] = api.get(f"/runs/{run.pk}").json()["allowance"]
    assert (row["limit"], row["used"], row["remaining"]) == ("0.5", "3", "0")


@pytest.mark.parametrize(
    ("given", "pointer"),
    [
        ('{"money:EUR": -5}', "/allowance/money:EUR"),
        ('{"money:EUR": "NaN"}', "/allowance/money:EUR"),
        ('{"money:EUR": "Infinity"}', "/allowance/money:EUR"),
        ('{"money:EUR": "1e400"}', "/allowance/money:EUR"),
        ('{"money:EUR": "1e-12"}', "/allowance/money:EUR"),
        (f'{{"money:EUR": {10**30}}}', "/allowance/money:EUR"),
        ('{"money:EUR": true}', "/allowance/money:EUR"),
        ('{"money:eur": 5}', "/allowance/money:eur"),
        ('{"money": {"amount": 5, "currency": "EUR"}}', "/allowance/money"),
        ('{"steps": {"limit": "x"}}', "/allowance/steps/limit"),
        ('{"steps": {"limit": 5, "soft": 9}}', "/allowance/steps/soft"),
    ],
)
def test_submit_a_bad_amount_is_refused_with_its_place(api: Api, given: str, pointer: str) -> None:
    """F94: 422, and nothing is changed."""
    body = f'{{"agent": "api-test-desk", "input": {{"ticket": 7}}, "allowance": {given}}}'
    with nothing_written():
        said = api.post("/runs", body)
    detail = said.json()["errors"][0]["detail"]
    refused(said, 422, "bad_body", {"pointer": pointer, "detail": detail})
    assert Allowance.objects.count() == 0


@pytest.mark.parametrize("number", ["1e400", "NaN", "Infinity"])
def test_submit_a_number_that_is_no_json_is_refused(api: Api, number: str) -> None:
    body = f'{{"agent": "api-test-desk", "input": {{"ticket": 7}}, "allowance": {{"steps": {number}}}}}'
    with nothing_written():
        said = api.post("/runs", body)
    assert (said.status_code, said.json()["errors"][0]["pointer"]) == (422, "/allowance/steps")


def test_submit_on_an_unknown_shared_allowance_is_refused(api: Api) -> None:
    shared()
    own = Run.objects.get(pk=api.post("/runs", {**ASKED, "allowance": {"steps": 1}}).json()["id"])
    for name in ("billing", f"run:{own.pk}"):
        with nothing_written():
            said = api.post("/runs", {**ASKED, "draws_on": ["billing, October", name]})
        place = {"pointer": "/draws_on/1", "detail": f"there is no shared allowance {name!r}"}
        refused(said, 422, "unknown_allowance", place)


def test_submit_again_with_another_allowance_is_another_body(api: Api) -> None:
    asked: dict[str, Any] = {**ASKED, "allowance": {"steps": 5}}
    first = api.post("/runs", asked, idempotency_key="k")
    again = api.post("/runs", {**ASKED, "allowance": {"steps": "5.0"}}, idempotency_key="k")
    assert (again.status_code, again.json()["id"]) == (200, first.json()["id"])
    for other in ({"steps": 6}, {"steps": {"limit": 5, "soft": 5}}, {}):
        said = api.post("/runs", {**ASKED, "allowance": other}, idempotency_key="k")
        assert (said.status_code, said.json()["code"]) == (422, "idempotency_key_reused")
    assert (Run.objects.count(), Allowance.objects.count(), ApiKey.objects.count()) == (1, 1, 1)
