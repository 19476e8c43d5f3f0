"""The doors to allowances: the run's page, the admin, the command; who may do what there."""

from decimal import Decimal
from io import StringIO
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse

from runs import allowance, endings, lifecycle
from runs.lifecycle import Limit
from runs.models import Allowance, Draw, JournalEntry, Run
from tests.factories import CYD, OPERATOR, verbs
from tests.pages import POLICY, browser, directives, inline, person, text

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("invariants")]
LIST = reverse("admin:runs_allowance_changelist")


@pytest.fixture
def people(db: None) -> SimpleNamespace:
    return SimpleNamespace(
        cyd=person("cyd"),
        olu=person("olu", "operators"),
        dot=person("dot", "auditors"),
        eve=person("eve"),
        root=person("root", is_superuser=True, is_staff=True),
    )


@pytest.fixture
def olu(people: SimpleNamespace) -> Client:
    return browser(people.olu)


@pytest.fixture
def team() -> Allowance:
    return allowance.share("team", Limit("money:EUR", Decimal(100), Decimal(80)), actor=OPERATOR)


@pytest.fixture
def run(people: SimpleNamespace, team: Allowance) -> Run:
    limits = allowance.limits({"steps": 3, "tokens": None})
    asked = lifecycle.Submission(
        "adder", {"n": 1}, {}, owner_id=str(people.cyd.pk), limits=limits, draws_on=("team",)
    )
    return lifecycle.submit(asked, actor=CYD)[0]


def own(run: Run) -> Allowance:
    return run.allowances.get(unit="steps")


def page(who: Any, run: Run) -> Any:
    return browser(who).get(reverse("run", args=[run.pk]))


def post(who: Any, run: Run, row: Allowance, **form: str) -> Any:
    return browser(who).post(reverse("run_top_up", args=[run.pk, row.pk]), form)


def limit(row: Allowance) -> Decimal | None:
    row.refresh_from_db()
    return row.limit


#: What is no amount, at whatever door (F94).
NO_NUMBERS = ["NaN", "Infinity", "-Infinity", "1,5", "5USD", "USD 5", "true"]
ODD = [*NO_NUMBERS, "-5", "-0.01", "1e400", "1e-12", str(10**30)]


def entries(row: Allowance) -> int:
    return JournalEntry.objects.of(row.stream).count()


# -- The run's page ------------------------------------------------------------------------------


def test_page_shows_what_the_run_may_use(people: SimpleNamespace, run: Run) -> None:
    shown = text(page(people.cyd, run))
    assert (
        "Steps 0 % 0 of 3 used, 3 left Tokens 0 used, no limit EUR shared: team 0 % 0.00 of 100.00 used, 100.00 left"
        in shown
    )
    assert "Top up" not in shown


def test_page_of_a_run_without_one_says_nothing_of_it(people: SimpleNamespace) -> None:
    asked = lifecycle.Submission("adder", {"n": 1}, {}, owner_id=str(people.cyd.pk))
    bare = lifecycle.submit(asked, actor=CYD)[0]
    assert "Allowance" not in text(page(people.cyd, bare))


def test_page_keeps_to_its_policy(people: SimpleNamespace, run: Run) -> None:
    said = browser(people.olu).get(reverse("run", args=[run.pk]))
    assert inline(said) == []
    assert directives(said) == POLICY


def test_top_up_from_the_page(people: SimpleNamespace, run: Run) -> None:
    said = post(people.olu, run, own(run), by=" 2 ")
    assert (said.status_code, said["Location"], limit(own(run))) == (303, run.get_absolute_url(), Decimal(5))
    entry = JournalEntry.objects.of(own(run).stream).get(verb="topped_up")
    assert (entry.actor_name, entry.door) == ("Olu", "page")


def test_top_up_by_a_form_sent_twice_counts_once(people: SimpleNamespace, run: Run) -> None:
    assert [post(people.olu, run, own(run), by="2", once="x").status_code for _ in range(2)] == [303, 303]
    assert limit(own(run)) == Decimal(5)
    assert post(people.olu, run, own(run), by="3", once="x").status_code == 409


@pytest.mark.parametrize("by", [*ODD, "", "0", "-0", "a" * 5000, "1\x00"])
def test_top_up_by_what_is_no_amount_shows_the_form_again(people: SimpleNamespace, run: Run, by: str) -> None:
    """F94: 422, and nothing in the ledger."""
    before = entries(own(run))
    said = post(people.olu, run, own(run), by=by)
    assert (said.status_code, limit(own(run)), entries(own(run))) == (422, Decimal(3), before)
    assert f'href="#top-up-{own(run).pk}"' in said.content.decode()


def test_top_up_of_what_has_no_limit_is_a_conflict(people: SimpleNamespace, run: Run) -> None:
    row = run.allowances.get(unit="tokens")
    assert post(people.olu, run, row, by="2").status_code == 409
    assert verbs(run)[-1] == "refused"


def test_top_up_is_for_operators(people: SimpleNamespace, run: Run) -> None:
    said = post(people.cyd, run, own(run), by="2")
    assert (said.status_code, limit(own(run)), verbs(run)[-1]) == (403, Decimal(3), "refused")
    assert post(people.dot, run, own(run), by="2").status_code == 403
    assert post(people.eve, run, own(run), by="2").status_code == 404
    assert Client().post(reverse("run_top_up", args=[run.pk, own(run).pk])).status_code == 302
    assert limit(own(run)) == Decimal(3)


def test_top_up_of_an_allowance_of_another_run_is_not_found(people: SimpleNamespace, run: Run) -> None:
    foreign = allowance.share("other", Limit("steps", Decimal(1)), actor=OPERATOR)
    assert post(people.olu, run, foreign, by="2").status_code == 404
    assert browser(people.olu).get(reverse("run_top_up", args=[run.pk, own(run).pk])).status_code == 405


# -- The admin --------------------------------------------------------------------------------------


def do(who: Client, row: Allowance, verb: str, **form: str) -> Any:
    address = reverse("admin:runs_allowance_do", args=[row.pk, verb])
    return who.post(address, {"action": verb, "confirmed": "yes", **form}, follow=True)


def said(answer: Any) -> list[str]:
    return [str(message) for message in answer.context["messages"]]


def test_admin_looks(olu: Client, run: Run, team: Allowance, people: SimpleNamespace) -> None:
    assert "team" in olu.get(LIST).content.decode()
    for query in ("?of=shared", "?of=run", "?left=low", "?left=none", "?q=team"):
        assert olu.get(LIST + query).status_code == 200
    shown = olu.get(reverse("admin:runs_allowance_change", args=[team.pk])).content.decode()
    assert "Top up" in shown
    draw = Draw.objects.create(
        allowance=team, run=run, index=0, attempt=1, estimate=0, used=0, settled_at=run.created_at
    )
    assert olu.get(reverse("admin:runs_draw_change", args=[draw.pk])).status_code == 200
    assert olu.get(reverse("admin:runs_draw_changelist")).status_code == 200
    auditor = browser(people.dot).get(reverse("admin:runs_allowance_change", args=[team.pk]))
    assert (auditor.status_code, "Top up" in auditor.content.decode()) == (200, False)


def test_admin_tops_up(olu: Client, team: Allowance) -> None:
    assert said(do(olu, team, "top_up", by="20.50", reason="more work")) == [
        f"{team}: the limit is 120.5 now."
    ]
    assert limit(team) == Decimal("120.5")
    assert LogEntry.objects.get().get_change_message() == "Top up: more work"
    entry = JournalEntry.objects.of(team.stream).get(verb="topped_up")
    assert (entry.actor_name, entry.door) == ("Olu", "admin")


@pytest.mark.parametrize("by", [*ODD, ""])
def test_admin_refuses_a_top_up_that_is_none(olu: Client, team: Allowance, by: str) -> None:
    """F94."""
    before = entries(team)
    assert (do(olu, team, "top_up", by=by).status_code, limit(team)) == (422, Decimal(100))
    assert entries(team) == before


@pytest.mark.parametrize("odd", ODD)
def test_admin_refuses_a_limit_that_is_none(olu: Client, team: Allowance, odd: str) -> None:
    """F94: also as a mark, and for a new allowance; an empty one is no limit, 0 is nothing."""
    before = entries(team)
    assert do(olu, team, "set_limit", limit=odd, soft="").status_code == 422
    assert do(olu, team, "set_limit", limit="100", soft=odd).status_code == 422
    team.refresh_from_db()
    assert (team.limit, team.soft, entries(team)) == (Decimal(100), Decimal(80), before)
    form = {"name": "billing", "unit": "money:EUR", "limit": odd, "soft": ""}
    assert olu.post(reverse("admin:runs_allowance_add"), form).status_code == 200
    assert Allowance.objects.count() == 1


def test_admin_tells_nothing_from_no_limit(olu: Client, team: Allowance) -> None:
    """F94."""
    do(olu, team, "set_limit", limit="0", soft="")
    team.refresh_from_db()
    assert (team.limit, team.remaining) == (Decimal(0), Decimal(0))
    do(olu, team, "set_limit", limit="", soft="")
    team.refresh_from_db()
    assert (team.limit, team.remaining) == (None, None)


def test_admin_top_up_by_nothing_is_not_done(olu: Client, team: Allowance) -> None:
    assert said(do(olu, team, "top_up", by="0")) == [f"{team}: not done. 0 adds nothing to the limit of 100."]


def test_admin_top_up_sent_twice_counts_once(olu: Client, team: Allowance) -> None:
    once = "5f0e8d1c-3f5e-4a52-9a55-2f9d6c5d2f11"
    for _ in range(2):
        do(olu, team, "top_up", by="5", once=once)
    assert limit(team) == Decimal(105)


def test_admin_top_up_form_carries_its_token(olu: Client, team: Allowance) -> None:
    shown = olu.get(reverse("admin:runs_allowance_do", args=[team.pk, "top_up"])).content.decode()
    assert 'type="hidden" name="once"' in shown
    assert 'name="by"' in shown
    assert limit(team) == Decimal(100)


def test_admin_sets_and_lifts_a_limit(olu: Client, team: Allowance) -> None:
    shown = olu.get(reverse("admin:runs_allowance_do", args=[team.pk, "set_limit"])).content.decode()
    assert 'value="100"' in shown
    assert 'value="80"' in shown
    assert said(do(olu, team, "set_limit", limit="50", soft="40")) == [f"{team}: the limit is 50 now."]
    assert said(do(olu, team, "set_limit", limit="50", soft="40")) == [
        f"{team}: not done. The limit is 50 already."
    ]
    assert do(olu, team, "set_limit", limit="50", soft="60").status_code == 422
    assert said(do(olu, team, "set_limit", limit="", soft="")) == [f"{team}: it has no limit now."]
    team.refresh_from_db()
    assert (team.limit, team.soft) == (None, None)


def test_admin_makes_a_shared_allowance(olu: Client) -> None:
    form = {"name": "billing", "unit": "money:EUR", "limit": "250.00", "soft": ""}
    assert olu.post(reverse("admin:runs_allowance_add"), form).status_code == 302
    row = Allowance.objects.get()
    assert (row.name, row.unit, row.limit, row.soft) == ("billing", "money:EUR", Decimal(250), None)
    assert JournalEntry.objects.of(row.stream).get().verb == "shared"
    again = olu.post(reverse("admin:runs_allowance_add"), form)
    assert (again.status_code, Allowance.objects.count()) == (200, 1)


@pytest.mark.parametrize(
    "wrong",
    [{"name": "run:x"}, {"unit": "money:eur"}, {"limit": "-1"}, {"limit": "5", "soft": "6"}, {"name": ""}],
)
def test_admin_refuses_a_shared_allowance_that_does_not_fit(olu: Client, wrong: dict[str, str]) -> None:
    form = {"name": "billing", "unit": "money:EUR", "limit": "250", "soft": "", **wrong}
    assert olu.post(reverse("admin:runs_allowance_add"), form).status_code == 200
    assert Allowance.objects.count() == 0


def test_admin_verbs_are_for_operators(people: SimpleNamespace, team: Allowance) -> None:
    for who in (people.dot, people.root, people.cyd):
        answer = browser(who).post(
            reverse("admin:runs_allowance_do", args=[team.pk, "top_up"]), {"confirmed": "yes", "by": "5"}
        )
        assert answer.status_code in (302, 403)
        assert browser(who).get(reverse("admin:runs_allowance_add")).status_code in (302, 403)
    assert limit(team) == Decimal(100)


def test_admin_runs_again_with_the_same_limits(olu: Client, run: Run) -> None:
    lifecycle_end(run)
    olu.post(reverse("admin:runs_run_do", args=[run.pk, "again"]), {"action": "again", "confirmed": "yes"})
    again = Run.objects.get(again_of=run)
    assert again.metered
    assert sorted((row.unit, row.shared, row.limit) for row in again.allowances.exclude(unit="tokens")) == [
        ("money:EUR", True, Decimal(100)),
        ("steps", False, Decimal(3)),
    ]


def lifecycle_end(run: Run) -> None:
    endings.cancel(run.pk, actor=CYD)


# -- The command --------------------------------------------------------------------------------------


def test_command_submits_with_an_allowance(team: Allowance) -> None:
    out = StringIO()
    call_command("submit", "adder", "n=1", "--allowance", "steps=5", "--draws-on", "team", stdout=out)
    run = Run.objects.get(pk=out.getvalue().split()[0])
    assert sorted((row.unit, row.limit) for row in run.allowances.all()) == [
        ("money:EUR", Decimal(100)),
        ("steps", Decimal(5)),
    ]


@pytest.mark.parametrize(
    "wrong", [("--allowance", "steps=-5"), ("--allowance", "Steps=5"), ("--draws-on", "nobody")]
)
def test_command_refuses_an_allowance_that_does_not_fit(wrong: tuple[str, str]) -> None:
    with pytest.raises(CommandError):
        call_command("submit", "adder", "n=1", *wrong)
    assert (Run.objects.count(), Allowance.objects.count()) == (0, 0)
