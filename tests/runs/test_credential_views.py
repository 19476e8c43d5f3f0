"""The owner's button: who sees it, who may press it, and what comes of it; and the admin's verbs of outside."""

from types import SimpleNamespace
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from django.contrib.admin.utils import quote
from django.test import Client
from django.urls import reverse

from runs import credentials, dependencies, holds, queues
from runs.admin.looking import address
from runs.agents import RunContext, agent
from runs.exceptions import NeedsAuthorisation
from runs.models import Credential, Dependency, Hold, JournalEntry, Run
from runs.tools import ToolContext, tool
from tests.factories import driven
from tests.pages import POLICY, browser, directives, inline, person, text

pytestmark = pytest.mark.django_db
CONSENT = "https://psp.example/consent?client=7"


@tool(credentials=("shop",))
def shop_look(context: ToolContext) -> str:
    return context.credential("shop")[:1]


@agent()
async def shopper(run: RunContext) -> str:
    return await shop_look()


@pytest.fixture
def people(db: None) -> SimpleNamespace:
    return SimpleNamespace(
        cyd=person("cyd"),
        olu=person("olu", "operators"),
        dot=person("dot", "auditors"),
        owner=person("owner"),
        eve=person("eve"),
        root=person("root", is_superuser=True, is_staff=True),
    )


@pytest.fixture
def run(people: SimpleNamespace) -> Run:
    return waiting(people, NeedsAuthorisation(CONSENT, "The consent has run out."))


def waiting(people: SimpleNamespace, needed: NeedsAuthorisation) -> Run:
    def obtain() -> str:
        raise needed

    credentials.register("shop", obtain, owner="Owner@example.org")
    run = driven("shopper")
    Run.objects.filter(pk=run.pk).update(owner_id=str(people.cyd.pk))
    return run


def press(who: Any, name: str = "shop", **form: Any) -> Any:
    return browser(who).post(reverse("credential_authorised", args=[name]), form)


# -- On the run's page ---------------------------------------------------------------------


def test_show_the_button_to_those_who_may(run: Run, people: SimpleNamespace) -> None:
    answer = browser(people.olu).get(run.get_absolute_url())
    said = text(answer)
    assert (answer.status_code, "Authorise again" in said, "I have authorised it" in said) == (
        200,
        True,
        True,
    )
    assert f'href="{CONSENT}"' in answer.content.decode()
    assert (inline(answer), directives(answer) >= POLICY) == ([], True)


def test_show_the_others_who_may_press_it(run: Run, people: SimpleNamespace) -> None:
    for who in (people.cyd, people.dot):
        said = text(browser(who).get(run.get_absolute_url()))
        assert "I have authorised it" not in said
        assert "Owner@example.org authorises it, or an operator." in said


@pytest.mark.parametrize("url", ["javascript:alert(1)", "data:text/html,x", "", "//[", "ftp://psp.example/"])
def test_show_no_address_that_a_browser_must_not_follow(url: str, people: SimpleNamespace) -> None:
    run = waiting(people, NeedsAuthorisation(url))
    answer = browser(people.olu).get(run.get_absolute_url())
    assert answer.status_code == 200
    assert "Authorise again" not in text(answer)
    assert f'href="{url}"' not in answer.content.decode() or not url


# -- Pressing it --------------------------------------------------------------------------------


@pytest.mark.parametrize("who", ["owner", "olu"])
def test_authorise_by_its_owner_and_by_operators(who: str, run: Run, people: SimpleNamespace) -> None:
    answer = press(getattr(people, who), run=str(run.pk))
    back = run.get_absolute_url() if who == "olu" else "/runs/credentials/shop/"
    assert (answer.status_code, answer.headers["Location"]) == (303, back)
    assert Credential.objects.get().problem == ""
    assert Hold.objects.open().get().look_again_at is not None
    entry = JournalEntry.objects.of("credential:shop").get(verb="authorised")
    assert (entry.actor_kind, entry.door) == ("person", "page")


def test_authorise_twice_says_that_nothing_waits(run: Run, people: SimpleNamespace) -> None:
    press(people.owner)
    holds.look_again(Hold.objects.open().get().pk)
    owner = browser(people.owner)
    owner.post(reverse("credential_authorised", args=["shop"]))
    assert "Nothing waits for it any more." in text(owner.get(reverse("credential", args=["shop"])))
    assert JournalEntry.objects.of("credential:shop").filter(verb="authorised").count() == 1


@pytest.mark.parametrize("who", ["cyd", "dot"])
def test_authorise_by_those_who_only_see_it_is_forbidden(who: str, run: Run, people: SimpleNamespace) -> None:
    assert press(getattr(people, who)).status_code == 403
    assert Credential.objects.get().problem != ""
    entry = JournalEntry.objects.of("credential:shop").last()
    assert entry is not None
    assert (entry.verb, entry.actor_name) == ("refused", who.capitalize())


@pytest.mark.parametrize("who", ["eve", "root"])
def test_authorise_by_those_who_see_nothing_of_it_is_not_found(
    who: str, run: Run, people: SimpleNamespace
) -> None:
    foreign, unknown = press(getattr(people, who)), press(getattr(people, who), name="other")
    assert (foreign.status_code, unknown.status_code) == (404, 404)
    assert browser(getattr(people, who)).get(reverse("credential", args=["shop"])).status_code == 404


def test_authorise_by_an_address_that_was_only_typed_in_is_not_found(
    run: Run, people: SimpleNamespace
) -> None:
    eve = people.eve
    eve.email = "owner@example.org"
    eve.save(update_fields=["email"])
    EmailAddress.objects.create(user=eve, email="owner@example.org", verified=False)
    assert press(eve).status_code == 404


def test_authorise_by_a_get_changes_nothing(run: Run, people: SimpleNamespace) -> None:
    answer = browser(people.owner).get(reverse("credential_authorised", args=["shop"]))
    assert (answer.status_code, Hold.objects.open().get().look_again_at) == (405, None)


def test_authorise_without_signing_in_leads_there(run: Run) -> None:
    answer = Client().post(reverse("credential_authorised", args=["shop"]))
    assert answer.status_code == 302
    assert "/accounts/login/" in answer.headers["Location"]


def test_show_the_page_of_one_credential_to_an_owner_who_sees_no_run(
    run: Run, people: SimpleNamespace
) -> None:
    answer = browser(people.owner).get(reverse("credential", args=["shop"]))
    said = text(answer)
    assert (answer.status_code, "1 call waits for it." in said) == (200, True)
    assert "The consent has run out." in said
    assert inline(answer) == []
    assert browser(people.owner).get(run.get_absolute_url()).status_code == 404


# -- In the admin ----------------------------------------------------------------------------------


@pytest.fixture
def away(db: None) -> Dependency:
    """Its name has what the admin writes in its own way in an address."""
    name = "core_cards/api"
    for _ in range(3):
        dependencies.failed(name, "503")
    return Dependency.objects.get()


def verb(found: Any, name: str) -> str:
    model = type(found)._meta.model_name
    return reverse(f"admin:runs_{model}_do", args=[quote(found.pk), name])


def test_look_at_dependencies_and_credentials(away: Dependency, run: Run, people: SimpleNamespace) -> None:
    for found in (away, Credential.objects.get()):
        for who, status in ((people.olu, 200), (people.dot, 200)):
            answer = browser(who).get(address(found))
            assert answer.status_code == status
            assert inline(answer) == []
        assert browser(people.olu).post(address(found)).status_code == 405
    assert browser(people.olu).get(reverse("admin:runs_dependency_changelist")).status_code == 200
    assert browser(people.olu).get(reverse("admin:runs_credential_changelist")).status_code == 200


def test_count_as_healthy_in_the_admin(away: Dependency, people: SimpleNamespace) -> None:
    answer = browser(people.olu).post(verb(away, "healthy"), {"reason": "They said so."})
    assert answer.status_code == 302
    away.refresh_from_db()
    assert (away.state, away.failures) == ("healthy", 0)
    entry = JournalEntry.objects.of(away.stream).get(verb="healthy")
    assert (entry.actor_name, entry.door) == ("Olu", "admin")


def test_probe_now_in_the_admin(
    away: Dependency, people: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    rung: list[tuple[str, ...]] = []
    monkeypatch.setattr(queues, "enqueue", lambda *what: rung.append(what))
    browser(people.olu).post(verb(away, "probe"), {"reason": ""})
    assert rung == [("runs.jobs.probe", "core_cards/api")]


def test_authorise_in_the_admin(run: Run, people: SimpleNamespace) -> None:
    found = Credential.objects.get()
    browser(people.olu).post(verb(found, "authorised"), {"reason": ""})
    found.refresh_from_db()
    assert (found.problem, Hold.objects.open().get().look_again_at is not None) == ("", True)


def test_refuse_the_verbs_to_those_who_only_look(away: Dependency, run: Run, people: SimpleNamespace) -> None:
    for found, name in ((away, "healthy"), (away, "probe"), (Credential.objects.get(), "authorised")):
        assert browser(people.dot).post(verb(found, name), {"reason": ""}).status_code == 403
    away.refresh_from_db()
    assert away.state == "away"
