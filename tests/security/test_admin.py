"""The admin as a way in: what its lists would tell by being filtered, what its forms would take."""

from types import SimpleNamespace

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from django.urls import reverse

from approvals.models import ApiKey, PolicyVersion, Rule
from tests.approvals import desk

pytestmark = pytest.mark.django_db


@pytest.fixture
def olu(people: SimpleNamespace) -> Client:
    browser = Client()
    browser.force_login(people.olu)
    return browser


@pytest.mark.parametrize(
    "query",
    [
        "auth/user/?password__startswith=p",
        "auth/user/?password__regex=^pbkdf2.*",
        "auth/user/?groups__user__password__startswith=p",
        "auth/group/?user__password__startswith=p",
        "approvals/apikey/?hashed_key__startswith=s",
        "approvals/apikey/?owner__password__startswith=p",
        "approvals/request/?group__user__password__startswith=p",
        "runs/run/?token__isnull=0",
        "runs/step/?run__token__isnull=0",
        "admin/logentry/?user__password__startswith=p",
    ],
)
def test_secrets_are_not_told_by_filtering(people: SimpleNamespace, olu: Client, query: str) -> None:
    """A list that is empty or not tells a hash letter by letter."""
    people.ana.set_password("a good password")
    people.ana.save(update_fields=["password"])
    ApiKey.objects.create_key(name="a shop", owner=people.cyd)
    desk.opened()
    assert olu.get(f"/admin/{query}").status_code == 400


def test_operator_gives_nobody_more_than_groups(people: SimpleNamespace, olu: Client) -> None:
    """Fields the form does not have are not taken from the post."""
    group = Group.objects.get(name="operators")
    form = {"first_name": "Olu", "last_name": "", "groups": group.pk, "is_superuser": "on", "is_staff": "on"}
    form |= {
        "password": "pbkdf2_sha256$1$x$x",
        "email": "other@example.org",
        "is_active": "",
        "username": "ana",
    }
    before = User.objects.filter(pk=people.olu.pk).values().get()
    olu.post(reverse("admin:auth_user_change", args=[people.olu.pk]), form)
    after = User.objects.filter(pk=people.olu.pk).values().get()
    assert {name for name in after if after[name] != before[name]} <= {
        "first_name",
        "last_name",
        "last_login",
    }


@pytest.mark.parametrize("who", ["olu", "dot", "ana", "root"])
def test_rules_are_nobody_elses_to_write(people: SimpleNamespace, who: str) -> None:
    browser = Client()
    browser.force_login(getattr(people, who))
    rule, versions = Rule.objects.get(name="desk"), PolicyVersion.objects.count()
    form = {
        "kind": "verdict",
        "order": 1,
        "name": "all",
        "tool": "*",
        "expression": "true",
        "outcome": "allow",
    }
    form |= {
        "quorum": 1,
        "decide_within": 60,
        "consume_within": 60,
        "undo_window": 0,
        "why": "x",
        "enabled": "on",
    }
    paths = ["admin:approvals_rule_add", "admin:approvals_rule_change", "admin:approvals_rule_delete"]
    for name in paths:
        args = [] if name.endswith("add") else [rule.pk]
        for extra in ("", "?_popup=1", "?_changelist_filters=x", "?_to_field=id"):
            said = browser.post(reverse(name, args=args) + extra, {**form, "post": "yes"})
            assert said.status_code in (302, 403, 404), (name, extra)
    assert Rule.objects.filter(outcome="allow").count() == 0
    assert PolicyVersion.objects.count() == versions


@pytest.mark.parametrize("who", ["dot", "ana", "root", "pat"])
def test_keys_are_issued_by_operators_only(people: SimpleNamespace, who: str) -> None:
    desk.person("pat", "policy editors", is_staff=True)
    browser = Client()
    browser.force_login(User.objects.get(username=who))
    form = {"name": "mine", "owner": people.ana.pk}
    for extra in ("", "?_popup=1"):
        said = browser.post(reverse("admin:approvals_apikey_add") + extra, form)
        assert said.status_code in (302, 403, 404)
    assert ApiKey.objects.count() == 0
