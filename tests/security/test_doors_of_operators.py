"""The doors of operators: the same answer at each for the same fact, refusals in the journal, and odd texts refused."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.admin.utils import quote
from django.test import Client
from django.urls import reverse

from approvals.management.commands.demo import started_here
from examples.situations import ACTOR
from runs import endings, holds, lifecycle
from runs.agents import RunContext, agent
from runs.lifecycle import Submission
from runs.models import Allowance, Credential, Dependency, Event, Hold, JournalEntry, Run, Step
from runs.states import Cause
from tests.api.conftest import Api, key_of
from tests.approvals import desk
from tests.factories import CYD, OPERATOR, submitted
from tests.security.test_hostile_names import HIDDEN, Words

pytestmark = pytest.mark.django_db


@agent(name="doors-idler")
async def idler(run: RunContext) -> None:
    """Does nothing."""


@pytest.fixture
def run(people: SimpleNamespace) -> Run:
    made = submitted("doors-idler")
    Run.objects.filter(pk=made.pk).update(owner_id=str(people.cyd.pk))
    made.refresh_from_db()
    return made


def door(who: Any) -> Client:
    client = Client(raise_request_exception=False)
    client.force_login(who)
    return client


def refusals(stream: str) -> list[tuple[str, str, str]]:
    told = JournalEntry.objects.of(stream).filter(verb="refused")
    return [
        (entry.door, json.loads(entry.detail)["asked"], json.loads(entry.detail)["code"]) for entry in told
    ]


def diverged(run: Run) -> Hold:
    """Held as diverged: its step, which has ended, is asked for with other arguments."""
    was = {"tool": "doors", "digest": "a" * 64, "arguments": "{}", "length": 2}
    Step.objects.create(
        run=run, index=0, tool="doors", tool_version="1", arguments="{}", arguments_digest="a" * 64,
        status="done", result="1", settled=1, settled_at=run.created_at,
    )  # fmt: skip
    return holds.place(
        run,
        cause=Cause.DIVERGED,
        actor=OPERATOR,
        why="it differs",
        detail={"index": 0, "ended": True, "was": was, "now": {**was, "digest": "b" * 64}},
    )


# -- Keys of operators ------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["accept", "look-again"])
def test_key_of_an_operator_may_what_only_operators_may(run: Run, people: SimpleNamespace, verb: str) -> None:
    diverged(run)
    said = Api(key_of(people.olu)).post(f"/runs/{run.pk}/{verb}", {"reason": "only the wording"})
    assert (said.status_code, Hold.objects.open().filter(run=run).count()) == (200, 0)
    last = JournalEntry.objects.of(run.stream).filter(verb="released").get()
    assert (last.actor_kind, last.door) == ("key", "api")


@pytest.mark.parametrize("who", ["cyd", "root", "dot", "ana"])
@pytest.mark.parametrize("verb", ["accept", "look-again", "compensate", "steps/0/settle"])
def test_other_keys_learn_and_do_nothing(run: Run, people: SimpleNamespace, who: str, verb: str) -> None:
    """403 for a run of their own, journalled; 404 for a foreign one. A superuser is nobody here."""
    diverged(run)
    body = {"answer": "did_not_happen", "reason": "x"} if "settle" in verb else {"reason": "x"}
    said = Api(key_of(getattr(people, who))).post(f"/runs/{run.pk}/{verb}", body)
    assert said.status_code == (403 if who == "cyd" else 404)
    asked = {"look-again": "look_again", "steps/0/settle": "settle"}.get(verb, verb)
    assert refusals(run.stream) == ([("api", asked, "forbidden")] if who == "cyd" else [])
    assert Hold.objects.open().filter(run=run).count() == 1


def test_accept_needs_a_reason_at_the_api_as_on_the_page(run: Run, people: SimpleNamespace) -> None:
    hold = diverged(run)
    page = door(people.olu).post(reverse("run_accept", args=[run.pk, hold.pk]), {"reason": " "})
    said = Api(key_of(people.olu)).post(f"/runs/{run.pk}/accept", {"reason": " "})
    assert (page.status_code, said.status_code) == (422, 422)


@pytest.mark.parametrize("verb", ["accept", "look-again"])
def test_diverged_verbs_on_a_run_that_ended_meanwhile(run: Run, people: SimpleNamespace, verb: str) -> None:
    endings.cancel(run.pk, actor=CYD)
    said = Api(key_of(people.olu)).post(f"/runs/{run.pk}/{verb}", {"reason": "x"})
    assert (said.status_code, said.json()["code"], said.json()["run_status"]) == (
        409,
        "run_ended",
        "cancelled",
    )


def test_person_who_is_an_operator_no_more_loses_it_for_their_keys(run: Run, people: SimpleNamespace) -> None:
    diverged(run)
    key = Api(key_of(people.olu))
    people.olu.groups.clear()
    assert key.post(f"/runs/{run.pk}/accept", {"reason": "x"}).status_code == 404


# -- Refusals are journalled at each door --------------------------------------------------------


@pytest.mark.parametrize("verb", ["pause", "stop", "resume", "cancel"])
def test_refusal_of_an_ended_run_is_journalled_at_each_door(
    run: Run, people: SimpleNamespace, verb: str
) -> None:
    endings.cancel(run.pk, actor=CYD)
    page = door(people.cyd).post(reverse(f"run_{verb}", args=[run.pk]))
    said = Api(key_of(people.cyd)).post(f"/runs/{run.pk}/{verb}")
    assert (page.status_code, said.status_code) == (409, 409)
    code = said.json()["code"]
    assert refusals(run.stream) == [("page", verb, code), ("api", verb, code)]


@pytest.mark.parametrize("verb", ["pause", "accept", "compensate", "cancel"])
def test_auditor_at_the_admins_verbs_is_refused_and_journalled(
    run: Run, people: SimpleNamespace, verb: str
) -> None:
    address = reverse("admin:runs_run_do", args=[run.pk, verb])
    people.dot.is_staff = True
    people.dot.save()
    client = door(people.dot)
    assert (client.get(address).status_code, refusals(run.stream)) == (403, [])
    assert client.post(address, {"reason": "x"}).status_code == 403
    assert refusals(run.stream) == [("admin", verb, "forbidden")]


def test_superuser_at_the_admins_verbs_leaves_no_trace(run: Run, people: SimpleNamespace) -> None:
    before = JournalEntry.objects.count()
    answer = door(people.root).post(reverse("admin:runs_run_do", args=[run.pk, "cancel"]), {"reason": "x"})
    assert answer.status_code in (302, 403, 404)
    run.refresh_from_db()
    assert (run.ended, JournalEntry.objects.count()) == (False, before)


def test_forbidden_credential_is_journalled_at_the_api(people: SimpleNamespace) -> None:
    shop = Credential.objects.create(name="doors-shop", problem="expired")
    assert Api(key_of(people.cyd)).post("/credentials/doors-shop/authorised").status_code == 403
    assert refusals(shop.stream) == [("api", "authorised", "forbidden")]


# -- Odd texts -----------------------------------------------------------------------------------


def test_name_with_nul_is_no_other_name(people: SimpleNamespace) -> None:
    """Nothing is repaired: `sh%00op` is not `shop`."""
    Credential.objects.create(name="doors-shop", problem="expired")
    said = Api(key_of(people.olu)).post("/credentials/doors-%00shop/authorised")
    assert (said.status_code, Credential.objects.get().problem) == (404, "expired")


@pytest.mark.parametrize("verb", ["pause", "stop", "cancel", "resume"])
def test_agent_with_nul_is_unknown_at_both_doors(people: SimpleNamespace, verb: str) -> None:
    assert door(people.olu).post(f"/runs/of/a%00b/{verb}/").status_code == 404
    assert Api(key_of(people.olu)).post(f"/agents/a%00b/{verb}").status_code == 404


@pytest.mark.parametrize("name", ["run_given_back", "run_claim_again"])
def test_claim_is_not_settled_with_a_reason_that_cannot_be_kept(
    run: Run, people: SimpleNamespace, name: str
) -> None:
    Step.objects.create(
        run=run, index=0, tool="doors", tool_version="1", arguments="{}", arguments_digest="a" * 64,
        status="done", result="1", settled=1, settled_at=run.created_at, claim="owed",
    )  # fmt: skip
    answer = door(people.olu).post(reverse(name, args=[run.pk, 0]), {"reason": "a\x00b"})
    assert (answer.status_code, Step.objects.get().claim) == (422, "owed")


@pytest.mark.parametrize("name", ["a\tb", "a\nb", "a:b", "a\x00b", "run:x", " : "])
def test_shared_allowance_with_a_name_that_nobody_could_draw_on(people: SimpleNamespace, name: str) -> None:
    address = reverse("admin:runs_allowance_add")
    answer = door(people.olu).post(address, {"name": name, "unit": "steps", "limit": "1"})
    assert (answer.status_code, Allowance.objects.count()) == (200, 0)


def test_addresses_of_providers_are_followed_only_where_a_browser_may(people: SimpleNamespace) -> None:
    for number, url in enumerate(
        ["javascript:alert(1)", "JavaScript:alert(1)", " javascript:x", "data:text/html,x"]
    ):
        made = Credential.objects.create(name=f"doors-{number}", problem="expired", needs_url=url)
        for address in (
            reverse("credential", args=[made.pk]),
            reverse("admin:runs_credential_change", args=[quote(made.pk)]),
        ):
            assert 'href="' + url not in door(people.olu).get(address).content.decode(), address


# -- Looking changes nothing; forging from elsewhere neither ---------------------------------------


def addresses(run: Run, hold: Hold) -> list[str]:
    return [
        reverse("run_stop", args=[run.pk]),
        reverse("runs_sweep", args=["doors-idler", "cancel"]),
        reverse("run_top_up", args=[run.pk, 1]),
        reverse("run_accept", args=[run.pk, hold.pk]),
        reverse("run_look_again", args=[run.pk, hold.pk]),
        reverse("run_doubt", args=[run.pk, 0]),
        reverse("run_given_back", args=[run.pk, 0]),
        reverse("run_claim_again", args=[run.pk, 0]),
        reverse("credential_authorised", args=["doors-shop"]),
        reverse("admin:runs_run_do", args=[run.pk, "stop"]),
        reverse("admin:runs_run_do", args=[run.pk, "accept"]),
        reverse("admin:runs_run_do", args=[run.pk, "compensate"]),
        reverse("admin:runs_credential_do", args=["doors-shop", "authorised"]),
    ]


def rows() -> list[Any]:
    return [
        list(model.objects.order_by("pk").values())
        for model in (Run, Step, Hold, JournalEntry, Credential, Allowance)
    ]


@pytest.mark.parametrize("method", ["get", "head", "options", "put", "delete"])
def test_other_methods_change_nothing(run: Run, people: SimpleNamespace, method: str) -> None:
    Credential.objects.create(name="doors-shop", problem="expired")
    hold, client, key = diverged(run), door(people.olu), Api(key_of(people.olu)).http
    before = rows()
    for address in addresses(run, hold):
        assert getattr(client, method)(address).status_code < 500, address
    for name in ("settle", "events", "compensate", "stop", "accept", "look-again"):
        args = [run.pk, 0] if name == "settle" else [run.pk]
        assert getattr(key, method)(reverse(f"api:{name}", args=args)).status_code in (200, 405), name
    for address in ("/api/v1/agents/doors-idler/cancel", "/api/v1/credentials/doors-shop/authorised"):
        assert getattr(key, method)(address).status_code in (200, 405)
    assert rows() == before


def test_posts_from_elsewhere_are_refused(run: Run, people: SimpleNamespace) -> None:
    Credential.objects.create(name="doors-shop", problem="expired")
    hold = diverged(run)
    client = Client(enforce_csrf_checks=True)
    client.force_login(people.olu)
    before = rows()
    for address in addresses(run, hold):
        said = client.post(address, {"reason": "x", "by": "5", "answer": "did_not_happen"})
        assert said.status_code == 403, address
    assert rows() == before


def test_sessions_open_no_door_of_the_api(run: Run, people: SimpleNamespace) -> None:
    """Else a page elsewhere could call it with an operator's cookies."""
    diverged(run)
    client = door(people.olu)
    for name in ("accept", "look-again", "compensate", "stop", "events"):
        address = reverse(f"api:{name}", args=[run.pk])
        assert client.post(address, "{}", content_type="application/json").status_code == 401, name


@pytest.mark.parametrize("who", ["eve", "cyd", "ana", "dot", "root", "pat"])
def test_pages_verbs_for_those_who_are_no_operators(run: Run, people: SimpleNamespace, who: str) -> None:
    Credential.objects.create(name="doors-shop", problem="expired")
    people.eve, people.pat = desk.person("eve"), desk.person("pat", "policy editors")
    hold, client = diverged(run), door(getattr(people, who))
    sees = who in ("cyd", "dot")
    for address in addresses(run, hold)[2:8]:
        said = client.post(address, {"reason": "x", "by": "5", "answer": "did_not_happen"})
        absent = "top-up" in address or "steps" in address
        assert said.status_code in ((403, 404) if sees and absent else (403,) if sees else (404,)), address
    swept = client.post(reverse("runs_sweep", args=["doors-idler", "cancel"]))
    assert swept.status_code == 403
    run.refresh_from_db()
    assert (run.ended, Hold.objects.open().filter(run=run).count()) == (False, 1)


# -- Texts of others ---------------------------------------------------------------------------------

EVIL = "x<zz-tag onload=a()>{{7*7}}\u202eevil\u200b"


def odd_rows(run: Run, people: SimpleNamespace) -> list[str]:
    """Rows whose every free text is EVIL, and the addresses that show them."""
    allowance = Allowance.objects.create(name=EVIL, unit="steps", limit=5, soft=1)
    own = Allowance.objects.create(name=run.stream, unit="tokens", limit=5)
    run.allowances.add(allowance, own)
    Run.objects.filter(pk=run.pk).update(metered=True, status="suspended", suspended_at=run.created_at)
    Credential.objects.create(name="odd", problem=EVIL, needs_url=f"https://psp.example/{EVIL}")
    Dependency.objects.create(name=EVIL, problem=EVIL, state="away", failures=3)
    step = Step.objects.create(
        run=run, index=0, tool="doors", tool_version="1", arguments="{}", arguments_digest="a" * 64,
        status="dispatched", effect="in_doubt", key="k", attempt=1, may_act_until=run.created_at,
        dispatched_at=run.created_at, claim="stuck", claim_problem=EVIL,
        evidence=[{"key": "k", "attempt": 1, "at": run.created_at.isoformat(), "kind": "did_not_happen", "answer": "x",
                   "happened": False, "why": EVIL, "by": {"name": EVIL, "id": "1", "kind": "person", "door": "page"}}],
    )  # fmt: skip
    Event.objects.create(run=run, name=EVIL, event_id=EVIL, payload='"x"', told_at=run.created_at)
    for cause, subject in ((Cause.CREDENTIAL, "odd"), (Cause.IN_DOUBT, ""), (Cause.DEPENDENCY, EVIL)):
        holds.place(run, cause=cause, actor=OPERATOR, step=step, why=EVIL, subject=subject)
    holds.pause(run.pk, actor=OPERATOR, why=EVIL)
    names = ["allowance", "credential", "dependency", "draw", "hold", "step", "run", "journalentry"]
    lists = [reverse(f"admin:runs_{name}_changelist") for name in names]
    verbs = {
        "allowance": ["top_up", "set_limit"],
        "credential": ["authorised"],
        "dependency": ["probe", "healthy"],
    }
    rows = {"allowance": allowance.pk, "credential": "odd", "dependency": quote(EVIL)}
    asked = [
        reverse(f"admin:runs_{name}_do", args=[rows[name], verb]) for name in verbs for verb in verbs[name]
    ]
    ones = [reverse(f"admin:runs_{name}_change", args=[pk]) for name, pk in rows.items()]
    ones += [
        reverse("admin:runs_step_change", args=[step.pk]),
        reverse("admin:runs_run_change", args=[run.pk]),
    ]
    pages = [
        run.get_absolute_url(),
        reverse("credential", args=["odd"]),
        reverse("runs_doubts"),
        reverse("runs"),
    ]
    return [*lists, *asked, *ones, *pages, reverse("run_doubt", args=[run.pk, 0])]


def test_texts_of_others_are_shown_revealed(run: Run, people: SimpleNamespace) -> None:
    client = door(people.olu)
    bad = []
    for address in odd_rows(run, people):
        answer = client.get(address)
        page = Words(answer.content.decode())
        hidden = HIDDEN & set("".join(page.said))
        if answer.status_code != 200 or "zz-tag" in page.tags or "onload" in page.attributes or hidden:
            bad.append((answer.status_code, address))
    assert bad == [], "\n".join(map(str, bad))


def test_link_from_a_dependency_finds_what_waits_for_it(run: Run, people: SimpleNamespace) -> None:
    made = Dependency.objects.create(name="search & find=1", state="away")
    holds.place(run, cause=Cause.PERSON, actor=OPERATOR, why="x")
    step = Step.objects.create(
        run=run, index=0, tool="doors", tool_version="1", arguments="{}", arguments_digest="a" * 64,
        status="proposed",
    )  # fmt: skip
    holds.place(run, cause=Cause.DEPENDENCY, actor=OPERATOR, step=step, why="x", subject=made.name)
    client = door(people.olu)
    page = Words(client.get(reverse("admin:runs_dependency_change", args=[quote(made.pk)])).content.decode())
    (link,) = [each for each in page.links if "hold" in each and "subject" in each]
    assert [hold.subject for hold in client.get(link).context["cl"].result_list] == [made.name]


def test_calls_of_runs_that_one_may_not_see_are_not_counted(run: Run, people: SimpleNamespace) -> None:
    """Who sees one run that waits for a credential learns how many of theirs wait, not how many of all."""
    Credential.objects.create(name="doors-shop", problem="expired")
    for made in (run, submitted("doors-idler")):
        step = Step.objects.create(
            run=made, index=0, tool="doors", tool_version="1", arguments="{}", arguments_digest="a" * 64,
            status="proposed",
        )  # fmt: skip
        holds.place(made, cause=Cause.CREDENTIAL, actor=OPERATOR, step=step, why="x", subject="doors-shop")
    address = reverse("credential", args=["doors-shop"])
    assert "1 call waits for it" in door(people.cyd).get(address).content.decode()
    assert "2 calls wait for it" in door(people.olu).get(address).content.decode()


def test_demo_lets_only_its_own_runs_go_on(people: SimpleNamespace) -> None:
    """Its `--go-on` acts as an operator; a label is a submitter's to choose."""
    theirs, ours = (
        lifecycle.submit(Submission("doors-idler", {}, {"demo": "budget"}), actor=actor)[0]
        for actor in (CYD, ACTOR)
    )
    assert list(started_here("budget")) == [ours] != [theirs]
