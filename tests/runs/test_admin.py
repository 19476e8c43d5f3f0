"""The admin of runs: who looks, that looking changes nothing, and the verbs on a selection or one run."""

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.db.models import Model
from django.test import Client
from django.urls import reverse

from runs import endings, holds, journal
from runs.admin import looking
from runs.admin.looking import Capped
from runs.models import FactReading, Hold, JournalEntry, Run, Snapshot, Step
from runs.states import Cause
from tests.factories import CYD, OPERATOR, causes, driven, open_hold, submitted, verbs
from tests.pages import POLICY, browser, directives, inline, person, text

pytestmark = pytest.mark.django_db

LIST = reverse("admin:runs_run_changelist")
MODELS: list[type[Model]] = [Run, Step, Hold, Snapshot, FactReading, JournalEntry]


@pytest.fixture
def people(db: None) -> SimpleNamespace:
    return SimpleNamespace(
        olu=person("olu", "operators"),
        dot=person("dot", "auditors"),
        pat=person("pat", "policy editors"),
        rea=person("rea", "refunds"),
        root=person("root", is_superuser=True, is_staff=True),
        sam=person("sam", is_staff=True),
        una=person("una", "operators", is_staff=False),
    )


@pytest.fixture
def olu(people: SimpleNamespace) -> Client:
    return browser(people.olu)


@pytest.fixture
def run(rules: Callable[..., None], people: SimpleNamespace) -> Run:
    """Suspended, with a fact looked at; its payment waits for an approval."""
    rules(pay_if="hold", expires_in=3600)
    return driven("payer", how="pay_if")


def list_of(model: type[Model]) -> str:
    return reverse(f"admin:runs_{model._meta.model_name}_changelist")


def page_of(row: Model) -> str:
    return reverse(f"admin:runs_{row._meta.model_name}_change", args=[row.pk])


def verb_of(run: Run, verb: str) -> str:
    return reverse("admin:runs_run_do", args=[run.pk, verb])


def do(client: Client, run: Run, verb: str, reason: str = "because") -> Any:
    return client.post(verb_of(run, verb), {"reason": reason}, follow=True)


def select(client: Client, verb: str, runs: list[Run], **more: str) -> Any:
    chosen = {"action": verb, "_selected_action": [str(run.pk) for run in runs], **more}
    return client.post(LIST, chosen, follow=True)


def said(page: Any) -> list[str]:
    return [str(message) for message in page.context["messages"]]


def everything() -> dict[str, int]:
    return {model.__name__: model._default_manager.count() for model in [*MODELS, LogEntry]}


# -- Who looks ---------------------------------------------------------------------------


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    ("name", "status"),
    [("olu", 200), ("dot", 200), ("pat", 403), ("rea", 302), ("root", 302), ("sam", 302), ("una", 302)],
)
def test_admin_is_looked_at_by_those_of_the_table(
    people: SimpleNamespace, run: Run, model: type[Model], name: str, status: int
) -> None:
    client = browser(getattr(people, name))
    row = model._default_manager.order_by("pk").first()
    assert row is not None
    assert [client.get(list_of(model)).status_code, client.get(page_of(row)).status_code] == [status, status]


@pytest.mark.parametrize("name", ["rea", "root", "sam", "una"])
def test_signed_in_and_not_let_in_is_the_neutral_page(people: SimpleNamespace, name: str) -> None:
    page = browser(getattr(people, name)).get("/admin/", follow=True)
    assert (page.status_code, page.redirect_chain[-1][0]) == (404, "/admin/login/?next=/admin/")
    assert "We can’t show this" in text(page)


def test_anonymous_signs_in_at_the_same_page_as_everywhere(run: Run) -> None:
    page = Client().get(page_of(run), follow=True)
    assert page.redirect_chain[-1] == (f"/accounts/login/?next={page_of(run)}", 302)


def test_sign_in_leads_back_to_what_was_wanted(people: SimpleNamespace, run: Run) -> None:
    people.olu.set_password("a long enough one")
    people.olu.save()
    answer = Client().post(
        f"/accounts/login/?next={page_of(run)}",
        {"login": people.olu.email, "password": "a long enough one", "next": page_of(run)},
    )
    assert (answer.status_code, answer.headers["Location"]) == (302, page_of(run))


def test_second_factor_is_asked_for_where_it_is_not_local(
    people: SimpleNamespace, olu: Client, settings: Any
) -> None:
    settings.LOCAL = False
    assert olu.get("/admin/", follow=True).redirect_chain[-1] == (reverse("mfa_index"), 302)
    from allauth.mfa.models import Authenticator

    Authenticator.objects.create(user=people.olu, type="totp", data={"secret": "x"})
    assert olu.get("/admin/").status_code == 200


def test_index_shows_what_one_may_see(people: SimpleNamespace) -> None:
    seen = {
        name: [
            model["name"]
            for app in browser(who).get("/admin/").context["app_list"]
            for model in app["models"]
        ]
        for name, who in vars(people).items()
        if name in ("olu", "dot", "pat")
    }
    looks = ["Runs", "Steps", "Effects", "In doubt and owed", "Holds", "Snapshots", "Fact readings"]
    looks += ["Allowances", "Draws"]
    looks += ["Dependencies", "Credentials", "Journal entries", "Versions"]
    asked = ["Requests", "Revisions", "Decisions", "Permits", "Notifications"]
    rules = ["Rules", "Policy versions"]
    assert seen == {
        "olu": [*looks, "Queue", *asked, *rules, "API keys", "Users", "Groups", "Log entries"],
        "dot": [*looks, *asked, *rules, "Log entries"],
        "pat": rules,
    }


# -- Only looking --------------------------------------------------------------------------


@pytest.mark.parametrize("model", MODELS)
def test_nothing_is_added_changed_or_deleted_also_by_superusers(
    people: SimpleNamespace, run: Run, model: type[Model]
) -> None:
    people.olu.is_superuser = True
    people.olu.save()
    client, row = browser(people.olu), model._default_manager.order_by("pk").first()
    assert row is not None
    add = reverse(f"admin:runs_{model._meta.model_name}_add")
    delete = reverse(f"admin:runs_{model._meta.model_name}_delete", args=[row.pk])
    before = everything()
    assert [client.get(add).status_code, client.post(add, {}).status_code] == [403, 403]
    assert [client.get(delete).status_code, client.post(delete, {"post": "yes"}).status_code] == [403, 403]
    assert client.post(page_of(row), {}).status_code == 405
    client.post(list_of(model), {"action": "delete_selected", "_selected_action": [row.pk], "post": "yes"})
    assert everything() == before


def test_looking_changes_nothing(olu: Client, run: Run) -> None:
    before = everything()
    for model in MODELS:
        row = model._default_manager.order_by("pk").first()
        assert row is not None
        assert [olu.get(list_of(model)).status_code, olu.get(page_of(row)).status_code] == [200, 200]
    for verb in ("pause", "resume", "cancel", "again"):
        assert olu.get(verb_of(run, verb)).status_code == 200
        assert olu.get(LIST, {"action": verb, "_selected_action": str(run.pk)}).status_code == 302
    assert everything() == before


def test_pages_stay_under_the_policy_and_out_of_caches(olu: Client, run: Run) -> None:
    pages = [olu.get("/admin/"), olu.get(verb_of(run, "pause")), select(olu, "cancel", [run])]
    for model in MODELS:
        row = model._default_manager.order_by("pk").first()
        assert row is not None
        pages += [olu.get(list_of(model)), olu.get(page_of(row))]
    for page in pages:
        assert directives(page) == POLICY
        assert inline(page) == []
        assert "no-store" in page.headers["Cache-Control"]


def test_dashboard_of_the_queue_is_the_operators_and_the_one_exception(
    people: SimpleNamespace, olu: Client
) -> None:
    page = olu.get("/admin/rq/")
    assert page.status_code == 200
    assert {"script-src 'self' 'unsafe-inline'", "style-src 'self' 'unsafe-inline'"} == directives(
        page
    ) - POLICY
    assert browser(people.dot).get("/admin/rq/").status_code == 403
    assert browser(people.root).get("/admin/rq/").status_code == 302
    assert Client().get("/admin/rq/stats.json").status_code == 302
    assert not admin.site.is_registered(_dashboard())


def _dashboard() -> type[Model]:
    from django.apps import apps

    return apps.get_model("django_rq", "Dashboard")


def test_hostile_text_stays_text(olu: Client, run: Run) -> None:
    Run.objects.filter(pk=run.pk).update(
        on_behalf_of="<img src=x onerror=a()>", input='{"x":"\u202e<style>"}'
    )
    page = olu.get(page_of(run))
    assert inline(page) == []
    assert "<img src=x onerror=a()>" in text(page)
    assert "⟦U+202E" in text(page).replace(" ", "")
    assert "\u202e" not in page.content.decode()


def test_unknown_row_is_a_message_not_an_error(olu: Client, run: Run) -> None:
    for wrong in ("rubbish", "00000000-0000-0000-0000-000000000000"):
        page = olu.get(reverse("admin:runs_run_change", args=[wrong]), follow=True)
        assert (page.status_code, "doesn’t exist" in said(page)[0]) == (200, True)


def test_pages_lead_from_one_to_the_other(olu: Client, run: Run) -> None:
    held = open_hold(run)
    assert held.step is not None
    on_run = olu.get(page_of(run)).content.decode()
    for path in (
        f"{list_of(Step)}?run__id__exact={run.pk}",
        f"{list_of(Hold)}?run__id__exact={run.pk}",
        f"{list_of(JournalEntry)}?stream__exact={run.stream}",
        f"{reverse('admin:approvals_request_changelist')}?run__id__exact={run.pk}",
        reverse("run", args=[run.pk]),
    ):
        assert path in on_run
        assert olu.get(path).status_code == 200
    assert page_of(run) in olu.get(page_of(held)).content.decode()
    assert page_of(held.step) in olu.get(page_of(held)).content.decode()


def test_links_filter_to_the_run(olu: Client, run: Run) -> None:
    other = driven("payer", how="pay_if")
    for label, url in olu.get(page_of(run)).context["related"]:
        rows = olu.get(url).context["cl"].result_list
        assert str(other.pk) not in {str(getattr(row, "run_id", "")) for row in rows}, label
        assert len(rows) == {"Journal": run.seq, "Effects": 0}.get(label, 1), label


# -- Finding -------------------------------------------------------------------------------


def found(client: Client, **query: str) -> list[str]:
    return [str(run.pk) for run in client.get(LIST, query).context["cl"].result_list]


def test_run_is_found_by_id_first_digits_agent_and_submitter(olu: Client, run: Run) -> None:
    other = submitted("adder", n=1)
    for term in (str(run.pk), run.short_id, run.pk.hex, "payer", "PAY"):
        assert found(olu, q=term) == [str(run.pk)], term
    assert found(olu, q="cyd") == [str(other.pk), str(run.pk)]
    assert found(olu, q="nothing like it") == []


def test_runs_are_filtered_by_status_cause_and_agent(olu: Client, run: Run) -> None:
    submitted("adder", n=1)
    for query in ({"status__exact": "suspended"}, {"cause": "approval"}, {"agent": "payer"}):
        assert found(olu, **query) == [str(run.pk)], query
    assert found(olu, cause="person") == []
    assert len(found(olu, cause="rubbish")) == 2


def test_effects_are_steps_that_went_outside(olu: Client, people: SimpleNamespace) -> None:
    run = driven("transfer")
    page = olu.get(list_of(Step), {"effect": "any"})
    assert {step.index for step in page.context["cl"].result_list} == set(
        Step.objects.effects().filter(run=run).values_list("index", flat=True)
    )
    assert page.context["title"] == "Effects"


def test_first_digits_become_a_range_an_index_serves() -> None:
    assert looking.within("ab12") == {"pk__gte": "ab12".ljust(32, "0"), "pk__lte": "ab12".ljust(32, "f")}
    assert [looking.within(text) for text in ("ab1", "ghij", "a" * 33, "")] == [None] * 4


@pytest.mark.parametrize("n", [1, 3])
def test_list_of_runs_costs_the_same_whatever_it_shows(
    people: SimpleNamespace,
    olu: Client,
    n: int,
    rules: Callable[..., None],
    django_assert_num_queries: Callable[..., Any],
) -> None:
    rules(pay="hold")
    for _ in range(n):
        driven("payer")
    with django_assert_num_queries(6):  # session, person, groups, count, runs, their holds
        assert len(olu.get(LIST).context["cl"].result_list) == n


@pytest.mark.parametrize("model", [Step, Hold, Snapshot, FactReading, JournalEntry])
def test_other_lists_cost_the_same_whatever_they_show(
    people: SimpleNamespace,
    olu: Client,
    model: type[Model],
    rules: Callable[..., None],
    django_assert_num_queries: Callable[..., Any],
) -> None:
    rules(pay_if="hold")
    for _ in range(2):
        driven("payer", how="pay_if")
        with django_assert_num_queries(5):  # session, person, groups, count, rows
            olu.get(list_of(model))


def test_count_stops_where_people_stop_paging(
    people: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Capped, "LIMIT", 2)
    for _ in range(2):
        submitted("adder", n=1)
    assert [(p.count, p.is_capped) for p in [Capped(Run.objects.all(), 1)]] == [(2, False)]
    for _ in range(2):
        submitted("adder", n=1)
    assert [(p.count, p.is_capped) for p in [Capped(Run.objects.all(), 1)]] == [(3, True)]
    assert "more than 2 runs" in text(browser(people.olu).get(LIST))


# -- The verbs -----------------------------------------------------------------------------


def test_pause_holds_the_run_by_an_operator_through_the_admin(olu: Client, run: Run) -> None:
    page = do(olu, run, "pause", "looks odd\r\nvery")
    assert said(page) == [f"{run}: paused."]
    held = open_hold(run, Cause.PERSON)
    assert (held.opened_by_name, held.opened_through, held.by_operator, held.why) == (
        "Olu",
        "admin",
        True,
        "looks odd\nvery",
    )
    assert LogEntry.objects.get().get_change_message() == "Pause: looks odd\nvery"


def test_resume_lifts_the_pause_and_nothing_else(olu: Client, run: Run) -> None:
    holds.pause(run.pk, actor=OPERATOR)
    assert said(do(olu, run, "resume")) == [f"{run}: the pause is over; something else still holds it."]
    assert causes(run) == ["approval"]


def test_cancel_ends_the_run_and_says_why(olu: Client, run: Run) -> None:
    assert said(do(olu, run, "cancel", "a duplicate")) == [f"{run}: cancelled."]
    run.refresh_from_db()
    last = JournalEntry.objects.of(run.stream).last()
    assert last is not None
    assert (run.status, last.verb, last.door, json.loads(last.detail)["why"]) == (
        "cancelled",
        "cancelled",
        "admin",
        "a duplicate",
    )


def test_again_is_a_new_run_from_the_same_input_of_who_asks(
    people: SimpleNamespace, olu: Client, run: Run
) -> None:
    Run.objects.filter(pk=run.pk).update(labels={"team": "blue"}, on_behalf_of="eve@example.org")
    endings.cancel(run.pk, actor=OPERATOR)
    page = do(olu, run, "again", "it was a mistake")
    made = Run.objects.get(again_of=run)
    assert said(page) == [f"{run}: runs again as {made.pk}, version 1 of the agent."]
    assert (made.input, made.labels, made.on_behalf_of, made.agent, made.status) == (
        run.input,
        {"team": "blue"},
        "eve@example.org",
        "payer",
        "queued",
    )
    assert (made.owner_id, made.submitter_name, made.submitter_kind) == (str(people.olu.pk), "Olu", "person")
    assert verbs(run)[-1] == "run_again"
    assert list(journal.broken([Run])) == []


@pytest.mark.parametrize(
    ("verb", "before", "refusal"),
    [
        ("pause", "operator_paused", "olu paused it already."),
        ("pause", "cancelled", "It has ended: cancelled."),
        ("resume", "", "It is not paused; it is suspended."),
        ("resume", "cancelled", "It has ended: cancelled."),
        ("cancel", "cancelled", "It has ended: cancelled."),
        ("again", "", "It has not ended; it is suspended."),
    ],
)
def test_verb_refuses_what_is_not_eligible(
    olu: Client, run: Run, verb: str, before: str, refusal: str
) -> None:
    if before == "operator_paused":
        holds.pause(run.pk, actor=OPERATOR)
    if before == "cancelled":
        endings.cancel(run.pk, actor=OPERATOR)
    asks = olu.get(verb_of(run, verb))
    assert ([each.why_not for each in asks.context["others"]], asks.context["eligible"]) == ([refusal], [])
    journalled = verbs(run)
    assert said(do(olu, run, verb)) == [f"{run}: not done. {refusal}"]
    assert (verbs(run), LogEntry.objects.count()) == (journalled, 0)


def test_lost_race_is_reported_and_nothing_is_kept(
    olu: Client, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody cancels between this page's look and its verb."""
    seen = Run.objects.prefetch_related().get(pk=run.pk)
    seen.standing = []  # type: ignore[attr-defined]
    endings.cancel(run.pk, actor=OPERATOR)
    door = admin.site.get_model_admin(Run)
    monkeypatch.setattr(door, "get_object", lambda request, object_id: seen)
    page = olu.post(verb_of(run, "pause"), {"reason": ""})
    assert page.status_code == 302
    monkeypatch.undo()
    assert said(olu.get(LIST)) == [f"{run}: not done. Run {run.pk} has ended: cancelled."]
    assert (causes(run), LogEntry.objects.count()) == ([], 0)


def test_selection_asks_first_then_reports_one_by_one(olu: Client, run: Run) -> None:
    ended = driven("adder", n=1)
    asks = select(olu, "pause", [run, ended], index="0")
    assert [each.object.pk for each in asks.context["eligible"]] == [run.pk]
    assert [each.object.pk for each in asks.context["others"]] == [ended.pk]
    assert causes(run) == ["approval"]
    page = select(olu, "pause", [run, ended], confirmed="yes", reason="all of them")
    assert sorted(said(page)) == sorted([f"{run}: paused.", f"{ended}: not done. It has ended: succeeded."])
    assert causes(run) == ["approval", "person"]


def test_again_says_what_would_be_done_twice(olu: Client, people: SimpleNamespace) -> None:
    run = driven("transfer")
    Step.objects.filter(run=run, index=2).update(effect="refused")
    (candidate,) = olu.get(verb_of(run, "again")).context["eligible"]
    assert candidate.note == "It changed, or may have changed, 2 things outside; a new run does it again."


def test_again_of_an_agent_that_is_gone_is_refused(olu: Client, people: SimpleNamespace) -> None:
    run = driven("adder", n=1)
    Run.objects.filter(pk=run.pk).update(agent="gone")
    (told,) = said(do(olu, run, "again"))
    assert "not done. No agent is called 'gone'" in told
    assert not Run.objects.filter(again_of=run).exists()


@pytest.mark.parametrize("name", ["dot", "pat", "rea", "root"])
@pytest.mark.parametrize("verb", ["pause", "cancel", "again"])
def test_verbs_are_the_operators(people: SimpleNamespace, run: Run, name: str, verb: str) -> None:
    client, before = browser(getattr(people, name)), verbs(run)
    assert client.get(verb_of(run, verb)).status_code in (302, 403)
    assert client.post(verb_of(run, verb), {"reason": "x"}).status_code in (302, 403)
    client.post(LIST, {"action": verb, "_selected_action": [str(run.pk)], "confirmed": "yes"})
    told = ["refused"] if name == "dot" else []  # who sees the run is told of in its journal
    assert (verbs(run), Run.objects.count()) == ([*before, *told], 1)


def test_auditor_is_offered_no_verb(people: SimpleNamespace, run: Run) -> None:
    client = browser(people.dot)
    assert client.get(page_of(run)).context["buttons"] == []
    assert "Action:" not in text(client.get(LIST))


def test_stop_now_keeps_who_why_and_which_door(olu: Client, run: Run) -> None:
    page = do(olu, run, "stop", "at once")
    held = Hold.objects.open().get(run=run, cause="person")
    assert (held.why, held.opened_through, held.by_operator, held.detail) == (
        "at once",
        "admin",
        True,
        {"stop_now": True},
    )
    assert "stopped." in text(page)
    assert "Olu stopped it already." in text(do(olu, run, "stop", "again"))


def test_buttons_are_the_verbs_that_are_possible(olu: Client, run: Run) -> None:
    assert [label for label, _, _ in olu.get(page_of(run)).context["buttons"]] == [
        "Pause",
        "Stop now",
        "Cancel",
    ]
    holds.pause(run.pk, actor=CYD)
    assert [label for label, _, _ in olu.get(page_of(run)).context["buttons"]] == [
        "Pause",
        "Stop now",
        "Resume",
        "Cancel",
    ]
    endings.cancel(run.pk, actor=OPERATOR)
    assert [label for label, _, _ in olu.get(page_of(run)).context["buttons"]] == ["Run again"]


def test_long_reason_comes_back_as_it_was(olu: Client, run: Run) -> None:
    page = olu.post(verb_of(run, "cancel"), {"reason": "x" * 4001})
    assert (page.status_code, "x" * 4001 in page.content.decode()) == (422, True)
    run.refresh_from_db()
    assert run.status == "suspended"


def test_rubbish_selection_and_unknown_verb_are_messages(olu: Client, run: Run) -> None:
    page = olu.post(LIST, {"action": "pause", "_selected_action": ["rubbish"], "index": "0"}, follow=True)
    assert (page.status_code, said(page)) == (200, ["There is nothing like what was selected."])
    assert olu.post(verb_of(run, "explode"), {"reason": ""}, follow=True).status_code == 200
    assert causes(run) == ["approval"]
