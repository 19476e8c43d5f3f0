"""Saying at the API that a credential is authorised again: for keys of operators."""

from typing import Any

import pytest
from django.contrib.auth.models import Group

from runs import credentials
from runs.exceptions import NeedsAuthorisation
from runs.models import Credential
from tests.api.conftest import Api, key_of, person

pytestmark = pytest.mark.django_db


@pytest.fixture
def operator() -> Api:
    olu = person("olu")
    olu.groups.add(Group.objects.get_or_create(name="operators")[0])
    return Api(key_of(olu))


@pytest.fixture
def wanted(db: None) -> None:
    def obtain() -> str:
        raise NeedsAuthorisation("https://psp.example/consent")

    credentials.register("api-test", obtain)
    with pytest.raises(NeedsAuthorisation):
        credentials.value("api-test")


def test_authorise(operator: Any, wanted: None) -> None:
    said = operator.post("/credentials/api-test/authorised", {"reason": "done"})
    assert (said.status_code, said.json()) == (200, {"waiting": 0})
    assert Credential.objects.get().problem == ""
    again = operator.post("/credentials/api-test/authorised")
    assert (again.status_code, again.json()) == (200, {"waiting": 0})


def test_authorise_with_a_submitters_key_is_forbidden(wanted: None) -> None:
    said = Api(key_of(person("cyd"))).post("/credentials/api-test/authorised")
    assert (said.status_code, said.json()["code"]) == (403, "forbidden")
    assert Credential.objects.get().problem != ""


def test_authorise_an_unknown_one(operator: Any) -> None:
    assert operator.post("/credentials/other/authorised").status_code == 404
    assert operator.post("/credentials/a%00b/authorised").status_code == 404


def test_authorise_with_what_does_not_fit(operator: Any, wanted: None) -> None:
    assert operator.post("/credentials/api-test/authorised", {"value": "x"}).status_code == 422
    assert Api("wrong").post("/credentials/api-test/authorised").status_code == 401
