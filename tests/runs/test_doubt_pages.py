"""The doors to what is in doubt and owed: page, list, admin and API; who may, and what each answers."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from approvals.models import ApiKey
from runs import claims, endings
from runs.models import Hold, JournalEntry, Run, Step
from runs.states import RunStatus
from tests import undoing_for_tests
from tests.agents_for_tests import SHORT
from tests.factories import CYD, causes, drive, driven, go_on, later, result, step
from tests.outside import Outside
from tests.pages import browser, inline, person, text

assert undoing_for_tests
pytestmark = pytest.mark.django_db
LIMIT = SHORT + 5.0


@pytest.fixture
def people(db: None) -> SimpleNamespace:
    return SimpleNamespace(
        cyd=person("cyd"),
        olu=person("olu", "operators"),
        dot=person("dot", "auditors"),
        eve=person("eve"),
    )


def in_doubt(people: SimpleNamespace, outside: Outside, agent: str = "payer", tool: str = "pay") -> Run:
    outside.will(tool, "act_then_raise")
    run = driven(agent)
    Run.objects.filter(pk=run.pk).update(owner_id=str(people.cyd.pk))
    later(LIMIT + 1)
    go_on(run)
    assert causes(run) == ["in_doubt"]
    return run


def address(run: Run, index: int = 0, name: str = "run_doubt") -> str:
    return reverse(name, args=[run.pk, index])


def said(answer: str = "happened", reason: str = "seen", result: str = '"theirs"') -> dict[str, str]:
    return {"answer": answer, "reason": reason, "result": result}


def rows() -> tuple[int, ...]:
    return (Run.objects.count(), Hold.objects.count(), JournalEntry.objects.count())


# -- The page ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "status"), [("olu", 200), ("cyd", 403), ("dot", 403), ("eve", 404)])
def test_doubt_is_settled_by_operators(
    people: SimpleNamespace, outside: Outside, name: str, status: int
) -> None:
    run = in_doubt(people, outside)
    client = browser(getattr(people, name))
    assert client.get(address(run)).status_code == status
    assert client.post(address(run), said()).status_code == (303 if status == 200 else status)
    assert (causes(run) == []) == (status == 200)
    refused = JournalEntry.objects.of(run.stream).filter(verb="refused").count()
    assert refused == (1 if status == 403 else 0)


def test_page_says_what_was_sent_and_what_is_known(people: SimpleNamespace, outside: Outside) -> None:
    run = in_doubt(people, outside)
    before = rows()
    answer = browser(people.olu).get(address(run))
    told = text(answer)
    for part in (
        "250.00",
        "ACME",
        step(run, 0).key,
        step(run, 0).arguments_digest,
        "Nobody can tell whether",
    ):
        assert part in told, part
    assert "Not now. Nothing is declared that undoes pay." in told
    assert (inline(answer), rows(), len(outside.tried())) == ([], before, 1)


def test_page_of_a_call_that_may_still_act_offers_one_answer(
    people: SimpleNamespace, outside: Outside
) -> None:
    outside.will("pay", "act_then_raise")
    run = driven("payer")
    page = browser(people.olu).get(address(run)).content.decode()
    assert "nobody can say before that it did not" in page
    inputs = [line for line in page.split("<input") if 'name="answer"' in line]
    assert [("disabled" in each.split(">")[0]) for each in inputs] == [False, True, True]


def test_page_prefills_the_results_shape(people: SimpleNamespace, outside: Outside) -> None:
    run = in_doubt(people, outside)
    page = browser(people.olu).get(address(run)).content.decode()
    assert '<textarea id="result" name="result" rows="6"' in page
    assert ">&quot;&quot;</textarea>" in page


def test_settle_by_page_goes_on(people: SimpleNamespace, outside: Outside) -> None:
    run = in_doubt(people, outside)
    answer = browser(people.olu).post(address(run), said(), follow=True)
    assert "Settled: it happened." in text(answer)
    run.refresh_from_db()
    assert result(drive(run)) == "theirs"


@pytest.mark.parametrize(
    ("typed", "place"),
    [
        (said(result="7"), "result"),
        (said(result="{"), "result"),
        (said(reason=" "), "reason"),
        (said(answer="maybe"), "answer-happened"),
        (said(answer=""), "answer-happened"),
    ],
)
def test_settle_by_page_that_does_not_fit(
    people: SimpleNamespace, outside: Outside, typed: dict[str, str], place: str
) -> None:
    run = in_doubt(people, outside)
    answer = browser(people.olu).post(address(run), typed)
    page = answer.content.decode()
    assert (answer.status_code, f'href="#{place}"' in page, causes(run)) == (422, True, ["in_doubt"])
    assert typed["result"].replace('"', "&quot;") in page


def test_settle_by_page_what_is_settled(people: SimpleNamespace, outside: Outside) -> None:
    run = in_doubt(people, outside)
    browser(people.olu).post(address(run), said())
    pia = person("pia", "operators")
    answer = browser(pia).post(address(run), said("did_not_happen", reason="I looked too"))
    told = text(answer)
    assert (answer.status_code, "Olu settled it" in told, "I looked too" in answer.content.decode()) == (
        409,
        True,
        True,
    )
    assert told.count("Olu settled it") == 2, "once for what was refused, once where the form was"
    assert 'name="answer"' not in answer.content.decode()


def test_page_of_a_settled_doubt_says_so_once_and_asks_nothing(
    people: SimpleNamespace, outside: Outside
) -> None:
    run = in_doubt(people, outside)
    browser(people.olu).post(address(run), said())
    answer = browser(people.olu).get(address(run))
    assert text(answer).count("Olu settled it") == 1
    assert 'name="answer"' not in answer.content.decode()
    assert "settled: it happened" in text(answer), "what released its hold is a sentence, not its word"


def test_second_click_is_the_first_answer(people: SimpleNamespace, outside: Outside) -> None:
    run = in_doubt(people, outside)
    client = browser(people.olu)
    assert [client.post(address(run), said()).status_code for _ in range(2)] == [303, 303]
    assert len(step(run, 0).evidence) == 1


def test_page_of_no_effect(people: SimpleNamespace, outside: Outside) -> None:
    run = driven("adder", n=1)
    client = browser(people.olu)
    assert [client.get(address(run, index)).status_code for index in (0, 7)] == [404, 404]
    assert client.delete(address(run)).status_code == 405


def test_run_page_leads_to_it(people: SimpleNamespace, outside: Outside) -> None:
    run = in_doubt(people, outside)
    pages = [
        browser(who).get(reverse("run", args=[run.pk])).content.decode() for who in (people.olu, people.cyd)
    ]
    assert [address(run) in page for page in pages] == [True, False]


def test_undo_by_page_starts_a_run_of_who_asked(people: SimpleNamespace, outside: Outside) -> None:
    run = in_doubt(people, outside, "sender", "send_money")
    browser(people.olu).post(address(run), said("compensate", result=""))
    made = step(run, 0).compensated_by
    assert made is not None
    assert (made.owner_id, made.submitter_name) == (str(people.olu.pk), "Olu")
    assert f"run {made.short_id}" in text(browser(people.olu).get(address(run)))
    page = browser(people.olu).get(reverse("run", args=[run.pk]))
    assert page.context["state"].lead.text == "Step 0 is being undone"
    assert page.context["state"].lead.url == reverse("run", args=[made.pk])
    assert address(run) not in page.content.decode(), "nothing to settle while it is being undone"


# -- The list ------------------------------------------------------------------------------------


def test_list_has_open_doubts_and_what_is_owed(
    people: SimpleNamespace, outside: Outside, django_assert_num_queries: Any
) -> None:
    client = browser(people.olu)
    assert "Nothing is in doubt." in text(client.get(reverse("runs_doubts")))
    made = 0
    for rows in (1, 3):
        while made < rows:
            in_doubt(people, outside)
            claims.owe_ended(driven("booker").pk)
            made += 1
        with django_assert_num_queries(6):
            answer = client.get(reverse("runs_doubts"))
    told = text(answer)
    assert (told.count("step 0 pay"), told.count("step 0 book")) == (3, 3)
    assert inline(answer) == []


@pytest.mark.parametrize(("name", "status"), [("olu", 200), ("dot", 200), ("cyd", 403)])
def test_list_is_for_those_who_see_all(people: SimpleNamespace, name: str, status: int) -> None:
    assert browser(getattr(people, name)).get(reverse("runs_doubts")).status_code == status
    assert Client().get(reverse("runs_doubts")).status_code == 302


# -- Claims ------------------------------------------------------------------------------------------


def owed(people: SimpleNamespace, outside: Outside) -> Run:
    outside.will("free", "act_then_raise")
    run = driven("booker")
    Run.objects.filter(pk=run.pk).update(owner_id=str(people.cyd.pk))
    claims.owe_ended(run.pk)
    claims.give_back(step(run, 0).pk, 0)
    assert step(run, 0).claim == "stuck"
    return run


@pytest.mark.parametrize(("name", "status"), [("olu", 303), ("cyd", 403), ("eve", 404)])
@pytest.mark.parametrize(("verb", "after"), [("run_given_back", "given_back"), ("run_claim_again", "owed")])
def test_claim_is_settled_by_operators(
    people: SimpleNamespace, outside: Outside, name: str, status: int, verb: str, after: str
) -> None:
    run = owed(people, outside)
    answer = browser(getattr(people, name)).post(address(run, name=verb), {"reason": "seen"})
    assert answer.status_code == status
    assert step(run, 0).claim == (after if status == 303 else "stuck")


def test_claim_verbs_refuse(people: SimpleNamespace, outside: Outside) -> None:
    run = owed(people, outside)
    client, where = browser(people.olu), address(run, name="run_given_back")
    assert client.post(where, {"reason": " "}).status_code == 422
    assert client.post(where, {"reason": "seen"}).status_code == 303
    lost = client.post(where, {"reason": "seen"})
    assert (lost.status_code, "given back already" in text(lost)) == (409, True)
    assert client.post(address(run, 7, "run_given_back"), {"reason": "x"}).status_code == 404
    assert client.get(where).status_code == 405


def test_run_page_shows_what_is_owed(people: SimpleNamespace, outside: Outside) -> None:
    run = owed(people, outside)
    told = text(browser(people.cyd).get(reverse("run", args=[run.pk])))
    assert "Nobody can tell whether it was given back" in told


# -- The API --------------------------------------------------------------------------------------------


def api(who: Any) -> Any:
    _, key = ApiKey.objects.create_key(name="k", owner=who)
    client = Client(headers={"authorization": f"Bearer {key}"}, raise_request_exception=False)

    def post(path: str, **body: Any) -> Any:
        return client.post(f"/api/v1{path}", json.dumps(body), content_type="application/json")

    return post


def test_api_settles(people: SimpleNamespace, outside: Outside) -> None:
    run = in_doubt(people, outside)
    told = {"answer": "happened", "result": "theirs", "reason": "seen"}
    answer = api(people.olu)(f"/runs/{run.pk}/steps/0/settle", **told)
    assert (answer.status_code, answer.json()["index"]) == (200, 0)
    run.refresh_from_db()
    assert result(drive(run)) == "theirs"


@pytest.mark.parametrize(("name", "status"), [("cyd", 403), ("eve", 404), ("dot", 404)])
def test_api_settles_for_operators_only(
    people: SimpleNamespace, outside: Outside, name: str, status: int
) -> None:
    run = in_doubt(people, outside)
    post = api(getattr(people, name))
    told = {"answer": "did_not_happen", "reason": "seen"}
    assert post(f"/runs/{run.pk}/steps/0/settle", **told).status_code == status
    assert post(f"/runs/{run.pk}/compensate", reason="x").status_code == status
    assert causes(run) == ["in_doubt"]


@pytest.mark.parametrize(
    ("body", "status", "places"),
    [
        ({"answer": "happened", "result": 7, "reason": "x"}, 422, ["/result"]),
        ({"answer": "happened", "reason": "x"}, 422, ["/result"]),
        ({"answer": "did_not_happen", "result": None, "reason": "x"}, 422, ["/result"]),
        ({"answer": "did_not_happen", "reason": ""}, 422, ["/reason"]),
        ({"answer": "did_not_happen"}, 422, ["/reason"]),
        ({"answer": "perhaps", "reason": "x"}, 422, ["/answer"]),
        ({"answer": "compensate", "reason": "x"}, 409, []),
    ],
)
def test_api_refuses(
    people: SimpleNamespace, outside: Outside, body: dict[str, Any], status: int, places: list[str]
) -> None:
    run = in_doubt(people, outside)
    answer = api(people.olu)(f"/runs/{run.pk}/steps/0/settle", **body)
    found = [place["pointer"] for place in answer.json()["errors"]]
    assert (answer.status_code, found, causes(run)) == (status, places, ["in_doubt"])


def test_api_says_why_not_yet(people: SimpleNamespace, outside: Outside) -> None:
    outside.will("pay", "act_then_raise")
    run = driven("payer")
    answer = api(people.olu)(f"/runs/{run.pk}/steps/0/settle", answer="did_not_happen", reason="x")
    body = answer.json()
    assert (answer.status_code, body["code"], body["run_status"]) == (409, "wrong_state", "suspended")
    assert "may still act until" in body["detail"]


def test_api_unknown_run_and_step(people: SimpleNamespace, outside: Outside) -> None:
    run = in_doubt(people, outside)
    post, told = api(people.olu), {"answer": "did_not_happen", "reason": "x"}
    nowhere = "00000000-0000-0000-0000-000000000000"
    paths = [f"/runs/{run.pk}/steps/7/settle", f"/runs/{nowhere}/steps/0/settle"]
    assert [post(path, **told).status_code for path in paths] == [404, 404]
    assert post(f"/runs/{nowhere}/compensate", reason="x").status_code == 404


def test_api_compensates(people: SimpleNamespace, outside: Outside) -> None:
    run = driven("charger")
    answer = api(people.olu)(f"/runs/{run.pk}/compensate", reason="wrong", steps=[1])
    assert (answer.status_code, answer.json()["agent"]) == (201, "abeyance.compensate")
    made = step(run, 1).compensated_by
    assert made is not None
    assert answer["Location"] == f"/api/v1/runs/{made.pk}"
    again = api(people.olu)(f"/runs/{run.pk}/compensate", reason="wrong", steps=[1])
    assert (again.status_code, again.json()["code"]) == (409, "wrong_state")


def test_api_does_not_offer_the_agent_that_undoes(people: SimpleNamespace) -> None:
    _, key = ApiKey.objects.create_key(name="k", owner=people.cyd)
    client = Client(headers={"authorization": f"Bearer {key}"})
    names = [each["name"] for each in client.get("/api/v1/agents").json()["results"]]
    assert "abeyance.compensate" not in names
    asked = api(people.cyd)("/runs", agent="abeyance.compensate", input={"of": "", "calls": []})
    assert (asked.status_code, asked.json()["code"]) == (422, "unknown_agent")


# -- The admin --------------------------------------------------------------------------------------------


def test_admin_undoes_and_says_what_stays(people: SimpleNamespace, outside: Outside) -> None:
    run = driven("charger")
    assert run.status == RunStatus.SUCCEEDED
    client = browser(people.olu)
    where = reverse("admin:runs_run_do", args=[run.pk, "compensate"])
    told = text(client.get(where))
    assert "Would call refund (step 1), refund (step 0)." in told
    assert "Stays as it is: step 2: Nothing is declared that undoes note." in told
    client.post(where, {"reason": "wrong customer"})
    made = Run.objects.get(agent="abeyance.compensate")
    assert (made.submitter_name, Step.objects.filter(compensated_by=made).count()) == ("Olu", 2)
    told = text(client.get(where))
    assert f"Run {made.short_id} is undoing it." in told or "Nothing it did can be undone." in told


def test_admin_undoes_only_what_has_ended(people: SimpleNamespace, outside: Outside) -> None:
    run = driven("charger", then="sleep")
    client = browser(people.olu)
    where = reverse("admin:runs_run_do", args=[run.pk, "compensate"])
    assert "It has not ended" in text(client.get(where))
    endings.cancel(run.pk, actor=CYD)
    assert "Would call refund" in text(client.get(where))
