"""The admin of approvals: what is only looked at, rules and versions, keys shown once, people and groups."""

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import flatten_fieldsets
from django.contrib.auth.models import Group, User
from django.contrib.sessions.models import Session
from django.core import mail
from django.core.exceptions import ValidationError
from django.db.models import Model
from django.test import Client
from django.urls import reverse

from approvals import keys, policies
from approvals import people as accounts_of_people
from approvals.admin.policy import RuleForm
from approvals.models import (
    ApiKey,
    Decision,
    Notification,
    Permit,
    Policy,
    PolicyVersion,
    Request,
    Revision,
    Rule,
)
from approvals.policies import language
from runs import execution, journal
from runs.models import JournalEntry
from tests.approvals import desk
from tests.pages import POLICY, browser, directives, inline, person, text

pytestmark = pytest.mark.django_db

HISTORY: list[type[Model]] = [Request, Revision, Decision, Permit, Notification]
RULES = reverse("admin:approvals_rule_changelist")


@pytest.fixture
def people(people: SimpleNamespace) -> SimpleNamespace:
    """The people of the desk, and pat, who edits policies; dot is staff, as an auditor's groups make her."""
    people.pat = person("pat", "policy editors")
    User.objects.filter(pk=people.dot.pk).update(is_staff=True)
    return people


@pytest.fixture
def olu(people: SimpleNamespace) -> Client:
    return browser(people.olu)


@pytest.fixture
def pat(people: SimpleNamespace) -> Client:
    return browser(people.pat)


@pytest.fixture
def approved(people: SimpleNamespace) -> Request:
    """With a row in each table of the history."""
    request = desk.opened()
    desk.decide(request, people.ana)
    return request


def list_of(model: type[Model]) -> str:
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")


def page_of(row: Model) -> str:
    return reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_change", args=[row.pk])


def verb_of(row: Model, verb: str) -> str:
    return reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_do", args=[row.pk, verb])


def do(client: Client, row: Model, verb: str) -> Any:
    return client.post(verb_of(row, verb), {"reason": "because"}, follow=True)


def said(page: Any) -> list[str]:
    return [str(message) for message in page.context["messages"]]


def logged() -> list[tuple[str, str]]:
    return [(entry.object_repr, entry.get_change_message()) for entry in LogEntry.objects.order_by("id")]


# -- Who looks -----------------------------------------------------------------------------


@pytest.mark.parametrize("model", HISTORY)
@pytest.mark.parametrize(
    ("name", "status"), [("olu", 200), ("dot", 200), ("pat", 403), ("ana", 302), ("root", 302)]
)
def test_history_is_looked_at_by_operators_and_auditors(
    people: SimpleNamespace, approved: Request, model: type[Model], name: str, status: int
) -> None:
    client, row = browser(getattr(people, name)), model._default_manager.first()
    assert row is not None
    assert [client.get(list_of(model)).status_code, client.get(page_of(row)).status_code] == [status, status]


@pytest.mark.parametrize(
    ("name", "status"), [("olu", 200), ("dot", 200), ("pat", 200), ("ana", 302), ("root", 302)]
)
def test_policy_is_looked_at_by_who_enters(people: SimpleNamespace, name: str, status: int) -> None:
    client = browser(getattr(people, name))
    for row in (Rule.objects.first(), PolicyVersion.objects.first()):
        assert row is not None
        assert [client.get(list_of(type(row))).status_code, client.get(page_of(row)).status_code] == [
            status,
            status,
        ]


@pytest.mark.parametrize(
    ("name", "status"), [("olu", 200), ("dot", 403), ("pat", 403), ("ana", 302), ("root", 302)]
)
def test_keys_and_people_are_the_operators(people: SimpleNamespace, name: str, status: int) -> None:
    client = browser(getattr(people, name))
    made, _ = ApiKey.objects.create_key(name="desk", owner=people.cyd)
    for row in (made, people.cyd, Group.objects.first()):
        add = reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_add")
        assert [client.get(path).status_code for path in (list_of(type(row)), page_of(row), add)] == [
            status
        ] * 3
    assert client.post(verb_of(made, "revoke"), {"reason": ""}).status_code == (
        302 if name == "olu" else status
    )
    assert client.post(verb_of(people.cyd, "disable"), {}).status_code == (302 if name == "olu" else status)
    assert User.objects.get(pk=people.cyd.pk).is_active == (name != "olu")
    assert ApiKey.objects.get().revoked == (name == "olu")


@pytest.mark.parametrize("model", [*HISTORY, PolicyVersion])
def test_history_is_never_changed_also_by_superusers(
    people: SimpleNamespace, approved: Request, model: type[Model]
) -> None:
    people.olu.is_superuser = True
    people.olu.save()
    client, row = browser(people.olu), model._default_manager.first()
    assert row is not None
    name, before = f"admin:approvals_{model._meta.model_name}", list(model._default_manager.values())
    add, delete = reverse(f"{name}_add"), reverse(f"{name}_delete", args=[row.pk])
    assert [client.post(add, {}).status_code, client.post(delete, {"post": "yes"}).status_code] == [403, 403]
    assert client.post(page_of(row), {}).status_code == 405
    client.post(list_of(model), {"action": "delete_selected", "_selected_action": [row.pk], "post": "yes"})
    assert list(model._default_manager.values()) == before


def test_others_apps_are_not_shown(olu: Client) -> None:
    from django.contrib import admin

    shown = {model._meta.app_label for model in admin.site._registry}
    assert shown == {"runs", "approvals", "auth", "admin"}


def test_pages_stay_under_the_policy_and_out_of_caches(
    people: SimpleNamespace, olu: Client, pat: Client, approved: Request
) -> None:
    made, _ = ApiKey.objects.create_key(name="desk", owner=people.cyd)
    rows = [model._default_manager.first() for model in (*HISTORY, PolicyVersion, Rule, Group)]
    pages = [olu.get(page_of(row)) for row in [*rows, made, people.cyd] if row is not None]
    pages += [olu.get(list_of(type(row))) for row in [*rows, made, people.cyd, LogEntry()] if row is not None]
    pages += [
        olu.get(reverse(f"admin:{name}_add")) for name in ("approvals_apikey", "auth_user", "auth_group")
    ]
    rule = Rule.objects.get(name="desk")
    pages += [
        pat.get(path) for path in (page_of(rule), reverse("admin:approvals_rule_delete", args=[rule.pk]))
    ]
    for page in pages:
        assert (page.status_code, directives(page), inline(page)) == (200, POLICY, [])
        assert "no-store" in page.headers["Cache-Control"]


def test_hidden_characters_are_shown_as_chips(olu: Client, people: SimpleNamespace) -> None:
    request = desk.opened("approvals-wirer", to="AC\u202eME <b>x</b>")
    page = olu.get(page_of(request.revision))
    assert "⟦U+202E" in text(page).replace(" ", "")
    assert "\u202e" not in page.content.decode()
    assert "<b>x</b>" in text(page)


def test_request_leads_to_its_parts(olu: Client, approved: Request) -> None:
    for label, url in olu.get(page_of(approved)).context["related"]:
        rows = olu.get(url).context["cl"].result_list
        expected = {"Journal": approved.seq, "Mails": Notification.objects.count()}.get(label, 1)
        if label == "Journal":
            expected = Request.objects.get(pk=approved.pk).seq
        assert len(rows) == expected, label


def test_requests_are_filtered_by_tier(olu: Client, people: SimpleNamespace) -> None:
    large, _ = desk.opened(amount="1500.00"), desk.opened(amount="10.00")
    assert [row.pk for row in olu.get(list_of(Request), {"tier": "R3"}).context["cl"].result_list] == [
        large.pk
    ]
    assert len(olu.get(list_of(Request)).context["cl"].result_list) == 2


def test_rows_of_a_request_are_found_by_its_ref(olu: Client, approved: Request) -> None:
    desk.opened()
    for model in (Request, Revision):
        for term in (approved.ref, approved.ref.lower(), str(approved.run_id)):
            assert len(olu.get(list_of(model), {"q": term}).context["cl"].result_list) == 1, term


@pytest.mark.parametrize("n", [1, 3])
def test_list_of_requests_costs_the_same_whatever_it_shows(
    people: SimpleNamespace, olu: Client, n: int, django_assert_num_queries: Callable[..., Any]
) -> None:
    for _ in range(n):
        desk.opened()
    with django_assert_num_queries(6):  # session, person, groups, the filter's groups, count, rows
        assert len(olu.get(list_of(Request)).context["cl"].result_list) == n


# -- Rules ---------------------------------------------------------------------------------


def filled(rule: Rule | None = None, **changes: Any) -> dict[str, Any]:
    """The form of a rule as a browser sends it."""
    form: dict[str, Any] = {
        "kind": "verdict",
        "order": 5,
        "name": "wires",
        "tool": "wire",
        "expression": "true",
        "outcome": "hold",
        "enabled": "on",
        "reviewers": "",
        "quorum": 1,
        "decide_within": 3600,
        "consume_within": 900,
        "undo_window": 0,
    }
    if rule is not None:
        form |= {name: getattr(rule, name) for name in form if name not in ("enabled", "reviewers")}
        form["reviewers"] = rule.reviewers_id or ""
    return {**form, "why": "a test", "version": policies.version(), **changes}


def post_rule(client: Client, rule: Rule | None, **changes: Any) -> Any:
    path = reverse("admin:approvals_rule_add") if rule is None else page_of(rule)
    return client.post(path, filled(rule, **changes), follow=True)


def test_saved_rule_is_a_version_with_who_and_why(people: SimpleNamespace, pat: Client) -> None:
    desk.opened()
    rule = Rule.objects.get(name="desk")
    page = post_rule(pat, rule, quorum=2, why="two see more than one")
    made = PolicyVersion.objects.get(number=2)
    assert (made.why, made.by_name, made.door) == ("two see more than one", "Pat", "admin")
    assert {r["name"]: r["quorum"] for r in json.loads(made.rules)}["desk"] == 2
    assert policies.version() == 2
    assert (
        said(page)[0] == "Version 2 of the policy is in force. 1 pending request can only get stricter by it."
    )
    last = JournalEntry.objects.of("policy:1").last()
    assert last is not None
    assert (last.verb, last.actor_name, last.door) == ("policy_published", "Pat", "admin")
    assert list(journal.broken([Policy])) == []


def test_page_of_a_rule_asks_for_all_a_rule_can_say(people: SimpleNamespace, pat: Client) -> None:
    rule = Rule.objects.get(name="desk")
    form = pat.get(page_of(rule)).context["adminform"]
    assert set(flatten_fieldsets(form.fieldsets)) == {*RuleForm.Meta.fields, "why", "version"}
    post_rule(pat, rule, blind="on", bulk_ok="on", fixed_because="The quote ends")
    rule.refresh_from_db()
    assert (rule.blind, rule.bulk_ok, rule.fixed_because) == (True, True, "The quote ends")


def test_new_rule_decides_the_next_call(people: SimpleNamespace, pat: Client) -> None:
    post_rule(pat, None, name="no wires", outcome="deny")
    run = desk.submitted("approvals-wirer")
    execution.drive(run.pk)
    run.refresh_from_db()
    assert json.loads(run.result)["error"] == "Denied"


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"expression": "args.amount >"}, "expression", "line 1, column 14: something is missing at the end"),
        ({"expression": "true &&\r\n  secret == 1"}, "expression", "line 2, column 3"),
        ({"expression": "boom() || true"}, "expression", "boom() is not known"),
        ({"expression": "x" * 2001}, "expression", "2,000 characters"),
        ({"expression": ""}, "expression", "required"),
        ({"kind": "tier"}, "outcome", "a tier rule says one of R0, R1, R2, R3"),
        ({"outcome": "R4"}, "outcome", "R4 is not one of the available choices"),
        ({"outcome": "R3"}, "outcome", "a verdict rule says one of"),
        ({"quorum": 0}, "quorum", "greater than or equal to 1"),
        ({"decide_within": 0}, "decide_within", "greater than or equal to 1"),
        ({"undo_window": 86401}, "undo_window", "less than or equal to 86400"),
        ({"why": " "}, "why", "required"),
        ({"name": "desk"}, "__all__", "already exists"),
    ],
)
def test_what_is_wrong_with_a_rule_stands_at_its_field(
    people: SimpleNamespace, pat: Client, changes: dict[str, Any], field: str, words: str
) -> None:
    page = post_rule(pat, None, **changes)
    errors = page.context["adminform"].form.errors
    assert (page.status_code, list(errors)) == (200, [field])
    assert words in errors[field][0]
    form = page.context["adminform"].form
    assert all(form[name].value() == str(value) for name, value in changes.items())
    assert (policies.version(), Rule.objects.count(), LogEntry.objects.count()) == (1, 6, 0)


def test_reviewers_of_a_rule_that_does_not_hold_are_refused_at_the_field(
    people: SimpleNamespace, pat: Client
) -> None:
    group = Group.objects.get(name="refunds")
    errors = post_rule(pat, None, outcome="allow", reviewers=group.pk).context["adminform"].form.errors
    assert list(errors) == ["reviewers"]


def test_rule_that_somebody_else_changed_meanwhile_is_not_overwritten(
    people: SimpleNamespace, pat: Client
) -> None:
    seen = policies.version()
    desk.change_rule("desk", quorum=3)
    page = post_rule(pat, Rule.objects.get(name="desk"), quorum=2, version=seen)
    assert (
        "pat published version 2 while you were editing."
        in page.context["adminform"].form.errors["__all__"][0]
    )
    assert (Rule.objects.get(name="desk").quorum, policies.version()) == (3, 2)


def test_saving_the_same_makes_no_version(people: SimpleNamespace, pat: Client) -> None:
    page = post_rule(pat, Rule.objects.get(name="desk"))
    assert said(page)[0] == "Nothing differs from version 1, which stays in force."
    assert PolicyVersion.objects.count() == 1


def test_another_rule_that_is_refused_today_is_named(people: SimpleNamespace, pat: Client) -> None:
    Rule.objects.filter(name="finance").update(expression="nonsense(")
    page = post_rule(pat, Rule.objects.get(name="desk"), quorum=2)
    assert "before the rule “finance” is put right" in page.context["adminform"].form.errors["__all__"][0]
    assert policies.version() == 1


def test_deleted_rule_publishes_the_rest_and_needs_a_reason(people: SimpleNamespace, pat: Client) -> None:
    rule = Rule.objects.get(name="too large")
    path = reverse("admin:approvals_rule_delete", args=[rule.pk])
    assert said(pat.post(path, {"post": "yes", "why": " "}, follow=True)) == [
        "Nothing was deleted: say why, in at most 4,000 characters."
    ]
    assert (policies.version(), Rule.objects.filter(name="too large").exists()) == (1, True)
    pat.post(path, {"post": "yes", "why": "no limit any more"})
    made = PolicyVersion.objects.get(number=2)
    assert (made.why, made.by_name) == ("no limit any more", "Pat")
    assert "too large" not in {r["name"] for r in json.loads(made.rules)}


@pytest.mark.parametrize("name", ["olu", "dot", "root", "ana"])
def test_rules_are_changed_by_policy_editors_only(people: SimpleNamespace, name: str) -> None:
    client, rule = browser(getattr(people, name)), Rule.objects.get(name="desk")
    post_rule(client, rule, quorum=2)
    post_rule(client, None)
    client.post(reverse("admin:approvals_rule_delete", args=[rule.pk]), {"post": "yes", "why": "x"})
    rule.refresh_from_db()
    assert (rule.quorum, Rule.objects.count(), policies.version()) == (1, 6, 1)


def test_who_only_looks_at_a_rule_is_not_asked_why(people: SimpleNamespace, olu: Client) -> None:
    page = olu.get(page_of(Rule.objects.get(name="desk")))
    assert "Why this change" not in text(page)
    assert "tool.effect" in text(page)


def test_looking_at_rules_publishes_nothing(people: SimpleNamespace, pat: Client) -> None:
    rule = Rule.objects.get(name="desk")
    for path in (
        RULES,
        page_of(rule),
        reverse("admin:approvals_rule_delete", args=[rule.pk]),
        f"{RULES}add/",
    ):
        assert pat.get(path).status_code == 200
    assert (policies.version(), Rule.objects.count(), LogEntry.objects.count()) == (1, 6, 0)


# -- Keys ----------------------------------------------------------------------------------


def add_key(client: Client, whose: User, **more: str) -> Any:
    path = reverse("admin:approvals_apikey_add")
    form = {"name": "the shop", "owner": whose.pk, "expiry_date_0": "", "expiry_date_1": "", **more}
    return client.post(path, form)


def test_key_is_shown_once_and_only_its_hash_is_kept(people: SimpleNamespace, olu: Client) -> None:
    page = add_key(olu, people.cyd)
    shown, kept = page.context["key"], ApiKey.objects.get()
    assert (page.status_code, shown in text(page)) == (201, True)
    assert "no-store" in page.headers["Cache-Control"]
    assert keys.find(shown) == kept
    assert (kept.name, kept.owner_id) == ("the shop", people.cyd.pk)
    secret = shown.partition(".")[2]
    stored = [str(row) for model in (ApiKey, LogEntry, Session) for row in model._default_manager.values()]
    assert not [row for row in stored if secret in row]
    for path in (page_of(kept), list_of(ApiKey), "/admin/"):
        again = olu.get(path)
        assert secret not in again.content.decode()
        assert kept.hashed_key not in text(again)
    assert logged() == [("the shop", "Added.")]


def test_key_is_revoked_once_and_for_good(people: SimpleNamespace, olu: Client) -> None:
    shown = add_key(olu, people.cyd).context["key"]
    kept = ApiKey.objects.get()
    assert said(do(olu, kept, "revoke")) == ["the shop: revoked. What it started goes on."]
    assert keys.find(shown) is None
    assert said(do(olu, kept, "revoke")) == ["the shop: not done. It was revoked before."]
    assert logged()[1:] == [("the shop", "Revoke: because")]
    with pytest.raises(ValidationError, match="revoked before"):
        accounts_of_people.revoke(kept)


def test_key_is_not_changed_or_deleted(people: SimpleNamespace, olu: Client) -> None:
    add_key(olu, people.cyd)
    kept = ApiKey.objects.get()
    assert olu.post(page_of(kept), {"name": "other"}).status_code == 405
    assert (
        olu.post(reverse("admin:approvals_apikey_delete", args=[kept.pk]), {"post": "yes"}).status_code == 403
    )
    assert ApiKey.objects.get().name == "the shop"


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"name": ""}, "name"),
        ({"owner": ""}, "owner"),
        ({"expiry_date_0": "2020-01-01", "expiry_date_1": "00:00"}, "expiry_date"),
        ({"expiry_date_0": "soon", "expiry_date_1": ""}, "expiry_date"),
    ],
)
def test_key_form_says_what_is_wrong_at_the_field(
    people: SimpleNamespace, olu: Client, more: dict[str, str], field: str
) -> None:
    page = add_key(olu, people.cyd, **more)
    assert list(page.context["adminform"].form.errors) == [field]
    assert not ApiKey.objects.exists()


def test_key_is_for_people_who_may_sign_in(people: SimpleNamespace, olu: Client) -> None:
    accounts_of_people.disable(people.cyd)
    assert list(add_key(olu, people.cyd).context["adminform"].form.errors) == ["owner"]


def test_states_of_keys_are_told(people: SimpleNamespace, olu: Client) -> None:
    from datetime import timedelta

    from approvals.admin.keys import state
    from runs import clock

    kept, _ = ApiKey.objects.create_key(name="a", owner=people.cyd)
    assert state(kept) == "usable"
    kept.expiry_date = clock.now() - timedelta(seconds=1)
    assert state(kept) == "expired"
    kept.revoked = True
    assert state(kept) == "revoked"
    other, _ = ApiKey.objects.create_key(name="b", owner=people.ben)
    accounts_of_people.disable(people.ben)
    assert state(ApiKey.objects.get(pk=other.pk)) == "owner_disabled"


# -- People ----------------------------------------------------------------------------------


def groups(*names: str) -> list[int]:
    return [Group.objects.get_or_create(name=name)[0].pk for name in names]


def test_invited_person_chooses_a_password_by_a_mailed_link(
    people: SimpleNamespace, olu: Client, django_capture_on_commit_callbacks: Callable[..., Any]
) -> None:
    form = {"email": "New@Example.org", "name": "Nia New", "groups": groups("refunds", "auditors")}
    with django_capture_on_commit_callbacks(execute=True):
        page = olu.post(reverse("admin:auth_user_add"), form, follow=True)
    made = User.objects.get(email="new@example.org")
    assert said(page) == ["new@example.org is invited."]
    assert (made.get_full_name(), made.has_usable_password(), made.is_superuser) == ("Nia New", False, False)
    assert (sorted(g.name for g in made.groups.all()), made.is_staff) == (["auditors", "refunds"], True)
    (sent,) = mail.outbox
    assert (sent.to, "/accounts/password/reset/key/" in sent.body) == (["new@example.org"], True)
    assert logged() == [("new@example.org", "Invited, into auditors, refunds.")]


@pytest.mark.parametrize(
    ("form", "field", "words"),
    [
        ({"email": "cyd@example.org"}, "email", "Somebody has an account"),
        ({"email": "nobody"}, "email", "valid email"),
        ({"email": ""}, "email", "required"),
        ({"name": ""}, "name", "required"),
        ({"groups": ["9999"]}, "groups", "9999"),
    ],
)
def test_invitation_says_what_is_wrong_at_the_field(
    people: SimpleNamespace, olu: Client, form: dict[str, Any], field: str, words: str
) -> None:
    before = User.objects.count()
    page = olu.post(reverse("admin:auth_user_add"), {"email": "n@example.org", "name": "N", **form})
    errors = page.context["form"].errors
    assert (page.status_code, list(errors), words in errors[field][0]) == (422, [field], True)
    assert (User.objects.count(), mail.outbox, LogEntry.objects.count()) == (before, [], 0)


def test_invitation_is_sent_again_until_a_password_is_chosen(
    people: SimpleNamespace, olu: Client, django_capture_on_commit_callbacks: Callable[..., Any]
) -> None:
    people.cyd.set_unusable_password()
    people.cyd.save()
    with django_capture_on_commit_callbacks(execute=True):
        page = do(olu, people.cyd, "invite")
    assert said(page) == ["cyd: invited again by a mail to cyd@example.org."]
    assert [sent.to for sent in mail.outbox] == [["cyd@example.org"]]
    people.cyd.set_password("chosen by cyd")
    people.cyd.save()
    assert "not done. They have chosen a password" in said(do(olu, people.cyd, "invite"))[0]


def test_disabled_person_is_signed_out_everywhere_and_comes_back_without_sessions(
    people: SimpleNamespace, olu: Client
) -> None:
    pages = [browser(people.ana), browser(people.ana)]
    assert said(do(olu, people.ana, "disable")) == ["ana: disabled. 2 sessions ended."]
    assert [page.get("/runs/").status_code for page in pages] == [302, 302]
    assert said(do(olu, people.ana, "disable")) == ["ana: not done. The account is disabled already."]
    assert said(do(olu, people.ana, "enable")) == ["ana: enabled."]
    assert [page.get("/runs/").status_code for page in pages] == [302, 302]
    assert browser(people.ana).get("/runs/").status_code == 200
    assert olu.get("/admin/").status_code == 200
    assert [message for _, message in logged()] == ["Disable: because", "Enable: because"]


def test_last_operator_stays(people: SimpleNamespace, olu: Client) -> None:
    assert "Somebody else has to disable your account." in said(do(olu, people.olu, "disable"))[0]
    with pytest.raises(ValidationError, match="last operator"):
        accounts_of_people.disable(people.olu)
    page = olu.post(page_of(people.olu), {"first_name": "Olu", "last_name": "", "groups": groups("refunds")})
    assert "last operator" in page.context["adminform"].form.errors["groups"][0]
    person("oz", "operators")
    accounts_of_people.disable(people.olu)
    with pytest.raises(ValidationError, match="disabled already"):
        accounts_of_people.disable(people.olu)
    with pytest.raises(ValidationError, match="not disabled"):
        accounts_of_people.enable(people.ana)


def test_groups_decide_who_is_staff_and_the_log_names_them(people: SimpleNamespace, olu: Client) -> None:
    form = {"first_name": "Cyd", "last_name": "C", "groups": groups("auditors", "refunds")}
    olu.post(page_of(people.cyd), form)
    people.cyd.refresh_from_db()
    assert (people.cyd.is_staff, people.cyd.last_name) == (True, "C")
    olu.post(page_of(people.cyd), {**form, "groups": groups("refunds")})
    people.cyd.refresh_from_db()
    assert people.cyd.is_staff is False
    assert [message for _, message in logged()] == [
        "Into auditors, refunds. Changed last name.",
        "Out of auditors.",
    ]


def test_nobody_is_made_a_superuser_or_given_a_password_here(people: SimpleNamespace, olu: Client) -> None:
    before = User.objects.get(pk=people.olu.pk)
    forged = {
        "is_superuser": "on",
        "is_staff": "on",
        "password": "x",
        "password1": "x",
        "username": "z",
        "email": "z@z.z",
    }
    olu.post(
        page_of(people.olu), {"first_name": "Olu", "last_name": "", "groups": groups("operators"), **forged}
    )
    after = User.objects.get(pk=people.olu.pk)
    kept = ("is_superuser", "password", "username", "email", "is_active")
    assert [getattr(after, name) for name in kept] == [getattr(before, name) for name in kept]
    assert olu.get(f"/admin/auth/user/{people.cyd.pk}/password/").status_code in (302, 404)
    assert (
        olu.post(reverse("admin:auth_user_delete", args=[people.cyd.pk]), {"post": "yes"}).status_code == 403
    )
    assert User.objects.filter(pk=people.cyd.pk).exists()


def test_password_is_changed_where_everybody_changes_it(people: SimpleNamespace, olu: Client) -> None:
    assert olu.get("/admin/password_change/").headers["Location"] == reverse("account_change_password")


@pytest.mark.parametrize("n", [1, 3])
def test_list_of_people_costs_the_same_whatever_it_shows(
    people: SimpleNamespace, olu: Client, n: int, django_assert_num_queries: Callable[..., Any]
) -> None:
    for each in range(n):
        person(f"extra{each}", "refunds")
    with django_assert_num_queries(8):
        olu.get(list_of(User), {"q": "extra"})


# -- Groups ----------------------------------------------------------------------------------


def test_group_shows_who_is_in_it(people: SimpleNamespace, olu: Client) -> None:
    accounts_of_people.disable(people.ben)
    assert "Ana Ben (disabled)" in text(olu.get(page_of(Group.objects.get(name="refunds"))))


def test_groups_that_settings_name_are_neither_renamed_nor_deleted(
    people: SimpleNamespace, olu: Client
) -> None:
    for name in ("operators", "policy editors", "auditors"):
        group = Group.objects.get(name=name)
        olu.post(page_of(group), {"name": "other"})
        delete = reverse("admin:auth_group_delete", args=[group.pk])
        assert olu.post(delete, {"post": "yes"}).status_code == 403
        assert Group.objects.get(pk=group.pk).name == name


def test_group_is_deleted_only_when_nothing_needs_it(people: SimpleNamespace, olu: Client) -> None:
    request, spare = desk.opened(), Group.objects.create(name="spare")
    Rule.objects.update(reviewers=None)
    delete = [reverse("admin:auth_group_delete", args=[group.pk]) for group in (request.group, spare)]
    assert [olu.post(path, {"post": "yes"}).status_code for path in delete] == [403, 302]
    assert not Group.objects.filter(name="spare").exists()


def test_new_group_has_a_name_and_nothing_else(people: SimpleNamespace, olu: Client) -> None:
    olu.post(reverse("admin:auth_group_add"), {"name": "night shift"})
    assert Group.objects.get(name="night shift").user_set.count() == 0


def test_person_s_page_says_nothing_of_rights_there_are_not(people: SimpleNamespace, olu: Client) -> None:
    """Being a superuser gives nothing here, so the page does not say that it does."""
    page = text(olu.get(f"/admin/auth/user/{people.cyd.pk}/change/"))
    assert ("all permissions" in page, "Enters the admin" in page) == (False, True)


def test_message_about_an_address_is_not_capitalised(olu: Client) -> None:
    sent = {"email": "nia@example.org", "name": "Nia New"}
    assert "nia@example.org is invited." in text(olu.post("/admin/auth/user/add/", sent, follow=True))


def test_every_name_a_rule_may_use_is_told_beside_it(pat: Client) -> None:
    page = text(pat.get("/admin/approvals/rule/add/"))
    names = [f"{thing}.{part}" for thing in ("agent", "tool") for part in language.FIELDS[thing]]
    assert [name for name in (*names, *language.NAMES, "tier") if name not in page] == []


def test_decision_is_hidden_here_too_from_who_has_yet_to_decide(people: SimpleNamespace) -> None:
    """Who reviews and audits reads nothing beforehand where reviewers do not see each other."""
    desk.change_rule("desk", quorum=2, blind=True)
    people.ana.groups.add(Group.objects.get_or_create(name="auditors")[0])
    User.objects.filter(pk=people.ana.pk).update(is_staff=True)
    request = desk.opened("approvals-wirer")
    made = desk.decide(request, people.ben, reason="it fits").decision
    assert made is not None
    site = browser(User.objects.get(pk=people.ana.pk))
    assert "Ben" not in site.get(list_of(Decision)).content.decode()
    assert "it fits" not in site.get(page_of(made), follow=True).content.decode()
    desk.decide(request, people.ana)
    assert "it fits" in site.get(page_of(made)).content.decode()
