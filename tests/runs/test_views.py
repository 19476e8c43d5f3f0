"""The pages of runs: who sees which, what they may do there, and what a lost race looks like."""

import json
import uuid
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from django.urls import reverse

from approvals.models import Request
from runs import bulk, endings, execution, holds, journal, lifecycle, points, stops
from runs.actors import Actor
from runs.models import Hold, JournalEntry, Run, Step
from runs.states import Cause, RunStatus, Then
from runs.views import listing, pages, standing
from tests.factories import OPERATOR, answer, drive, driven, open_hold, submitted, verbs
from tests.outside import Outside
from tests.pages import POLICY, browser, directives, inline, person, text

pytestmark = pytest.mark.django_db


@pytest.fixture
def people(db: None) -> SimpleNamespace:
    """cyd owns the runs; rea reviews; olu operates; dot audits; pat edits policies; root is a superuser."""
    return SimpleNamespace(
        cyd=person("cyd"),
        rea=person("rea", "refunds"),
        olu=person("olu", "operators"),
        dot=person("dot", "auditors"),
        pat=person("pat", "policy editors"),
        eve=person("eve"),
        root=person("root", is_superuser=True, is_staff=True),
    )


@pytest.fixture
def run(people: SimpleNamespace) -> Run:
    """Suspended: its first question waits for rea's group."""
    return asked(people.cyd)


def asked(owner: User, group: str = "refunds", *, state: str = "open") -> Run:
    run = driven("questioner")
    Run.objects.filter(pk=run.pk).update(owner_id=str(owner.pk))
    hold = open_hold(run, Cause.QUESTION)
    reviewers = Group.objects.get_or_create(name=group)[0]
    closed = {} if state == "open" else {"state": state}
    fields = {
        "run": run,
        "step": hold.step,
        "hold": hold,
        "kind": "question",
        "tier": "R1",
        "group": reviewers,
    }
    Request.objects.create(**fields, **closed)
    run.refresh_from_db()
    return run


def address(run: Run, verb: str = "") -> str:
    return reverse(f"run_{verb}" if verb else "run", args=[run.pk])


def post(who: User, run: Run, verb: str, reason: str = "because") -> Any:
    return browser(who).post(address(run, verb), {"reason": reason})


def rows() -> tuple[int, ...]:
    return (Run.objects.count(), Hold.objects.count(), JournalEntry.objects.count(), Step.objects.count())


# -- Who sees ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "status"),
    [("cyd", 200), ("rea", 200), ("olu", 200), ("dot", 200), ("pat", 404), ("eve", 404), ("root", 404)],
)
def test_run_is_seen_by_those_of_the_table(people: SimpleNamespace, run: Run, name: str, status: int) -> None:
    client = browser(getattr(people, name))
    assert client.get(address(run)).status_code == status
    assert client.get(reverse("run_snapshot", args=[run.pk, 1])).status_code == status
    assert (run.short_id in text(client.get(reverse("runs")))) == (status == 200)


def test_unknown_and_foreign_runs_are_one_page(people: SimpleNamespace, run: Run) -> None:
    client = browser(people.eve)
    unknown, foreign = (client.get(reverse("run", args=[each])) for each in (uuid.uuid4(), run.pk))
    assert (unknown.status_code, text(unknown)) == (404, text(foreign))
    assert "no-store" in foreign.headers["Cache-Control"]
    posted = client.post(address(run, "cancel"), {"reason": "x"})
    assert (posted.status_code, text(posted)) == (404, text(foreign))


def test_run_of_a_request_without_group_is_for_fallback_reviewers(people: SimpleNamespace, run: Run) -> None:
    Request.objects.update(group=None)
    assert browser(people.rea).get(address(run)).status_code == 404
    assert browser(person("fay", "reviewers")).get(address(run)).status_code == 200


@pytest.mark.parametrize("name", ["runs", "run", "run_snapshot"])
def test_anonymous_is_sent_to_sign_in_and_back(run: Run, name: str) -> None:
    arguments = {"runs": [], "run": [run.pk], "run_snapshot": [run.pk, 1]}[name]
    wanted = reverse(name, args=arguments)
    answer = Client().get(wanted)
    assert (answer.status_code, answer.headers["Location"]) == (302, f"/accounts/login/?next={wanted}")


def test_anonymous_learns_nothing_of_a_run_by_posting(run: Run) -> None:
    known, unknown = (Client().post(reverse("run_pause", args=[each])) for each in (run.pk, uuid.uuid4()))
    assert known.status_code == unknown.status_code == 302
    assert verbs(run)[-1] == "suspended"


def test_disabled_person_is_nobody(people: SimpleNamespace, run: Run) -> None:
    client = browser(people.cyd)
    User.objects.filter(pk=people.cyd.pk).update(is_active=False)
    assert client.get(address(run)).status_code == 302


# -- What pages say ----------------------------------------------------------------------


def test_page_shows_the_run_with_its_parts(people: SimpleNamespace, run: Run) -> None:
    said = text(browser(people.olu).get(address(run)))
    parts = (
        run.short_id,
        "Question step 1",
        "the first number?",
        "Snapshot 1",
        f"All {run.seq} entries.",
    )
    for part in parts:
        assert part in said, part


def test_request_is_linked_for_those_who_may_see_it(people: SimpleNamespace, run: Run) -> None:
    request = Request.objects.get(run=run)
    seen = [
        f"/requests/{request.ref}" in browser(who).get(address(run)).content.decode()
        for who in (people.rea, people.olu, people.dot, people.cyd)
    ]
    assert seen == [True, True, True, False]


def test_hostile_text_stays_text(people: SimpleNamespace) -> None:
    run = driven("transfer", how="pay", amount="1.00")
    Run.objects.filter(pk=run.pk).update(
        owner_id=str(people.cyd.pk),
        on_behalf_of="<img src=x onerror=alert(1)>\u202egro",
        input='{"how":"<style>*{display:none}</style>","x":"{{7*7}}"}',
    )
    page = browser(people.cyd).get(address(run))
    assert inline(page) == []
    said = text(page)
    for part in ("<img src=x onerror=alert(1)>", "U+202E", "<style>*{display:none}</style>", "{{7*7}}"):
        assert part in said, part
    assert "\u202e" not in page.content.decode()


def test_snapshot_leads_to_its_neighbours_and_unknown_ones_are_the_neutral_page(
    people: SimpleNamespace, run: Run
) -> None:
    answer(open_hold(run, Cause.QUESTION), number=1)

    execution.drive(run.pk)
    client = browser(people.cyd)
    first, second = (client.get(reverse("run_snapshot", args=[run.pk, n])) for n in (1, 2))
    assert reverse("run_snapshot", args=[run.pk, 2]) in first.content.decode()
    assert reverse("run_snapshot", args=[run.pk, 1]) in second.content.decode()
    assert [client.get(reverse("run_snapshot", args=[run.pk, n])).status_code for n in (0, 3)] == [404, 404]


def test_steps_come_by_pages_and_gated_ones_alone(
    people: SimpleNamespace, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = browser(people.cyd)
    gated = client.get(address(run) + "?gated=1")
    assert [step.index for step in gated.context["steps"]] == [1]
    monkeypatch.setattr(pages, "STEPS", 1)
    newest = client.get(address(run))
    assert ([s.index for s in newest.context["steps"]], newest.context["earlier_url"]) == ([1], "?before=1")
    earlier = client.get(address(run) + "?before=1")
    assert ([s.index for s in earlier.context["steps"]], earlier.context["earlier_url"]) == ([0], "")
    assert client.get(address(run) + "?before=99999999999999999999").status_code == 200


@pytest.mark.parametrize("path", ["", "?gated=1"])
def test_pages_stay_under_the_policy_and_out_of_caches(people: SimpleNamespace, run: Run, path: str) -> None:
    for page in (browser(people.olu).get(url) for url in (reverse("runs"), address(run) + path)):
        assert directives(page) == POLICY
        assert "no-store" in page.headers["Cache-Control"]
        assert inline(page) == []


def test_looking_changes_nothing(people: SimpleNamespace, run: Run) -> None:
    before, client = rows(), browser(people.olu)
    for path in (reverse("runs"), address(run), reverse("run_snapshot", args=[run.pk, 1])):
        assert client.get(path).status_code == client.head(path).status_code == 200
        assert client.post(path).status_code == 405
    for verb in ("pause", "stop", "resume", "cancel"):
        assert client.get(address(run, verb)).status_code == 405
    assert rows() == before


# -- The list ----------------------------------------------------------------------------


def test_released_holds_are_folded_below_those_that_hold_it(people: SimpleNamespace, run: Run) -> None:
    """What released one is a sentence, and only what asked somebody leads to a request."""
    holds.pause(run.pk, actor=OPERATOR, why="a look")
    holds.unpause(run.pk, actor=OPERATOR)
    page = browser(people.olu).get(address(run))
    said = text(page)
    assert said.index("Question step 1") < said.index("Earlier holds 1") < said.index("Released Pause a look")
    assert ": pause over," in said
    assert '<div id="run-past"><section' in page.content.decode()


def test_time_that_ends_nothing_is_not_counted_down(run: Run) -> None:
    """A hold that goes on waiting when operators were told has no time left; one that ends its call has."""
    hold = run.holds.get()
    hold.expires_at = hold.opened_at + timedelta(days=1)
    hold.on_expiry = Then.WAIT
    assert standing.state(run, [hold], []).lead.until is None
    hold.on_expiry = Then.CALL
    assert standing.state(run, [hold], []).lead.until == hold.expires_at


@pytest.mark.parametrize(("name", "led"), [("olu", True), ("dot", True), ("cyd", False)])
def test_list_leads_those_who_see_all_to_what_is_in_doubt(
    people: SimpleNamespace, name: str, led: bool
) -> None:
    page = browser(getattr(people, name)).get(reverse("runs")).content.decode()
    assert (f'href="{reverse("runs_doubts")}"' in page) is led


def test_list_says_what_a_run_waits_for(people: SimpleNamespace, run: Run) -> None:
    holds.pause(run.pk, actor=OPERATOR, why="looks odd")
    row = browser(people.cyd).get(reverse("runs")).context["runs"][0]
    assert row.why == "Paused by olu: looks odd (and 1 more)"


@pytest.mark.parametrize(
    ("query", "n"),
    [("", 3), ("status=suspended", 1), ("agent=adder", 2), ("status=bogus", 3), ("agent=none", 0)],
)
def test_list_is_filtered(people: SimpleNamespace, run: Run, query: str, n: int) -> None:
    for _ in range(2):
        submitted("adder", n=1)
    page = browser(people.olu).get(f"{reverse('runs')}?{query}")
    assert len(page.context["runs"]) == n


def test_list_is_paged_by_keyset_there_and_back(
    people: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "PAGE", 2)
    made = [submitted("adder", n=n).pk for n in range(5)]
    at = Run.objects.get(pk=made[0]).created_at
    for n, pk in enumerate(made):  # three of one time, so that the id decides
        Run.objects.filter(pk=pk).update(created_at=at + timedelta(seconds=n // 3))
    newest = [run.pk for run in Run.objects.order_by("-created_at", "-id")]
    client, path = browser(people.olu), reverse("runs")

    def page(query: str | None) -> Any:
        assert query is not None
        context = client.get(path + query).context
        return [run.pk for run in context["runs"]], context["page"]

    first, links = page("?agent=adder")
    second, links = page(links["next"])
    third, last = page(links["next"])
    assert (first, second, third) == (newest[:2], newest[2:4], newest[4:])
    assert last["next"] is None
    back, links = page(last["previous"])
    assert (back, page(links["next"])[0]) == (second, third)
    begin, links = page(links["previous"])
    assert (begin, links["previous"]) == (first, None)
    assert [page(query)[0] for query in ("?older=rubbish", f"?older={uuid.uuid4()}", "?newer=1")] == [
        first
    ] * 3


@pytest.mark.parametrize("n", [1, 3])
def test_list_costs_the_same_whatever_it_shows(
    people: SimpleNamespace, n: int, django_assert_num_queries: Callable[..., Any]
) -> None:
    for _ in range(n):
        asked(people.cyd)
    client = browser(people.rea)
    with django_assert_num_queries(6):  # session, person, groups, runs, their holds, clock
        assert len(client.get(reverse("runs")).context["runs"]) == n


@pytest.mark.parametrize("n", [1, 3])
def test_page_costs_the_same_whatever_it_shows(
    people: SimpleNamespace, n: int, django_assert_num_queries: Callable[..., Any]
) -> None:
    run = driven("adder", n=n)
    client = browser(people.olu)
    with django_assert_num_queries(17):
        assert len(client.get(address(run)).context["steps"]) == n


# -- Pause, resume, cancel ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "pauses", "cancels"),
    [
        ("cyd", 303, 303),
        ("rea", 303, 403),
        ("olu", 303, 303),
        ("dot", 403, 403),
        ("eve", 404, 404),
        ("root", 404, 404),
    ],
)
def test_verbs_are_for_those_of_the_table(
    people: SimpleNamespace, run: Run, name: str, pauses: int, cancels: int
) -> None:
    who = getattr(people, name)
    assert post(who, run, "pause").status_code == pauses
    assert ("person" in [h.cause for h in Hold.objects.open()]) == (pauses == 303)
    assert post(who, run, "cancel").status_code == cancels
    run.refresh_from_db()
    assert (run.status == "cancelled") == (cancels == 303)


def test_pause_keeps_who_why_and_which_door(people: SimpleNamespace, run: Run) -> None:
    answer = post(people.cyd, run, "pause", "first line\r\nsecond")
    assert answer.headers["Location"] == address(run)
    held = open_hold(run, Cause.PERSON)
    assert (held.why, held.opened_by_name, held.opened_through) == ("first line\nsecond", "Cyd", "page")
    page = browser(people.cyd).get(address(run))
    assert page.context["may"] == {"pause": False, "stop": False, "resume": True, "cancel": True}


def test_pause_twice_is_one_pause_and_says_whose(people: SimpleNamespace, run: Run) -> None:
    post(people.cyd, run, "pause")
    client = browser(people.rea)
    page = client.post(address(run, "pause"), {"reason": "me too"}, follow=True)
    assert (page.status_code, "It was paused already, by Cyd." in text(page)) == (200, True)
    assert Hold.objects.open().filter(cause="person").count() == 1


def test_reviewer_may_not_pause_once_it_is_decided(people: SimpleNamespace) -> None:
    run = asked(people.cyd, state="rejected")
    answer = post(people.rea, run, "pause")
    assert (answer.status_code, verbs(run)[-1]) == (403, "refused")


def test_refused_attempt_is_in_the_journal(people: SimpleNamespace, run: Run) -> None:
    post(people.dot, run, "cancel")
    last = JournalEntry.objects.of(run.stream).last()
    assert last is not None
    assert (last.verb, last.actor_name, last.door) == ("refused", "Dot", "page")
    detail = json.loads(last.detail)
    assert (detail["asked"], detail["code"], detail["origin"]["address"]) == (
        "cancel",
        "forbidden",
        "127.0.0.1",
    )
    assert list(journal.broken([Run])) == []


def test_resume_by_the_owner_and_it_runs(people: SimpleNamespace) -> None:
    run = submitted("adder", n=1)
    Run.objects.filter(pk=run.pk).update(owner_id=str(people.cyd.pk))
    holds.pause(run.pk, actor=Actor("key", "k", "a key", "api"), why="")
    assert post(people.cyd, run, "resume").status_code == 303
    assert not Hold.objects.open().filter(run=run).exists()


@pytest.mark.parametrize(
    ("placed", "resumes", "status"),
    [
        ("olu", "cyd", 409),
        ("olu", "olu", 303),
        ("cyd", "olu", 303),
        ("cyd", "rea", 403),
        ("rea", "rea", 303),
        ("rea", "cyd", 409),
        ("rea", "dot", 403),
    ],
)
def test_whose_pause_it_is_decides_who_lifts_it(
    people: SimpleNamespace, run: Run, placed: str, resumes: str, status: int
) -> None:
    post(getattr(people, placed), run, "pause")
    who = getattr(people, resumes)
    assert browser(who).get(address(run)).context["may"]["resume"] == (status == 303)
    assert post(who, run, "resume").status_code == status
    assert Hold.objects.open().filter(cause="person").exists() == (status != 303)


def test_resume_of_what_is_not_paused_shows_the_run_as_it_stands(people: SimpleNamespace, run: Run) -> None:
    page = post(people.cyd, run, "resume")
    assert (page.status_code, page.context["conflict"]) == (409, "This run is not paused; it is suspended.")
    assert "Nothing was changed" in text(page)


@pytest.mark.parametrize("verb", ["pause", "stop", "resume", "cancel"])
def test_verb_on_a_run_that_ended_says_who_ended_it(people: SimpleNamespace, run: Run, verb: str) -> None:
    endings.cancel(run.pk, actor=OPERATOR, why="a duplicate")
    ended = verbs(run)
    page = post(people.cyd, run, verb)
    assert page.status_code == 409
    assert page.context["conflict"].startswith("This run has ended: cancelled by olu, ")
    assert verbs(run) == [*ended, "refused"]


def test_operator_takes_over_a_pause(people: SimpleNamespace, run: Run) -> None:
    post(people.cyd, run, "pause")
    assert browser(people.olu).get(address(run)).context["may"]["pause"] is True
    post(people.olu, run, "pause")
    assert open_hold(run, Cause.PERSON).by_operator is True
    assert browser(people.cyd).get(address(run)).context["may"]["resume"] is False


@pytest.mark.parametrize(("reason", "status"), [("x" * 4000, 303), ("x" * 4001, 422), ("a\x00b", 422)])
def test_reason_is_taken_or_the_form_comes_back_as_it_was(
    people: SimpleNamespace, run: Run, reason: str, status: int
) -> None:
    page = post(people.cyd, run, "cancel", reason)
    assert page.status_code == status
    run.refresh_from_db()
    assert run.ended == (status == 303)
    if status == 422:
        assert page.context["typed"] == {"cancel": reason}
        assert [place for place, _ in page.context["errors"]] == ["cancel-reason"]
        assert 'id="cancel-reason"' in page.content.decode()


def test_post_without_token_is_refused(people: SimpleNamespace, run: Run) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(people.cyd)
    assert client.post(address(run, "cancel"), {"reason": "x"}).status_code == 403
    run.refresh_from_db()
    assert run.status == "suspended"


# -- Stop now ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "status"), [("cyd", 303), ("rea", 403), ("olu", 303), ("dot", 403), ("eve", 404), ("root", 404)]
)
def test_stop_is_for_who_controls_the_run(people: SimpleNamespace, run: Run, name: str, status: int) -> None:
    assert post(getattr(people, name), run, "stop").status_code == status
    stopped = Hold.objects.open().filter(cause="person", detail__stop_now=True)
    assert stopped.exists() == (status == 303)


def test_stop_is_offered_while_a_worker_has_the_run(people: SimpleNamespace) -> None:
    run = running(people.cyd)
    client = browser(people.cyd)
    assert client.get(address(run)).context["may"]["stop"] is True
    page = client.post(address(run, "stop"), {"reason": "at once"}, follow=True)
    assert "Nothing new starts; stopped before its next step." in text(page)
    assert (page.context["may"]["stop"], page.context["may"]["resume"]) == (False, True)


def running(owner: User) -> Run:
    run = submitted("adder", n=1)
    Run.objects.filter(pk=run.pk).update(owner_id=str(owner.pk))
    assert lifecycle.take(run.pk, "w1") is not None
    run.refresh_from_db()
    return run


# -- The state in one glance --------------------------------------------------------------------


def glance(who: User, run: Run) -> str:
    state = browser(who).get(address(run)).context["state"]
    return "; ".join([state.lead.text, *(part.text for part in state.also)])


def test_state_says_who_may_answer_and_who_paused(people: SimpleNamespace, run: Run) -> None:
    assert glance(people.rea, run) == "Waits for Rea to answer step 1"
    assert glance(people.cyd, run) == "Waits for a reviewer to answer step 1"
    holds.pause(run.pk, actor=OPERATOR, why="looks odd")
    assert glance(people.olu, run) == "Waits for Rea to answer step 1; also paused by olu"


def test_state_names_a_large_group(people: SimpleNamespace, run: Run) -> None:
    for name in ("abe", "bea", "cal"):
        person(name, "refunds")
    assert glance(people.rea, run) == "Waits for somebody of “refunds” to answer step 1"


def test_state_of_a_run_that_is_pausing(people: SimpleNamespace) -> None:
    run = running(people.cyd)
    assert glance(people.cyd, run) == "Running"
    holds.pause(run.pk, actor=OPERATOR)
    assert glance(people.cyd, run) == "Stopping before its next step, then paused by olu"
    Step.objects.create(**dispatched(run, 0))
    assert glance(people.cyd, run) == "Finishing step 0, then paused by olu"
    endings.cancel(run.pk, actor=OPERATOR)
    assert glance(people.cyd, run) == "Finishing step 0, then it is cancelled by olu"


def dispatched(run: Run, index: int) -> dict[str, Any]:
    return {
        "run": run,
        "index": index,
        "tool": "pay",
        "tool_version": "1",
        "arguments": "{}",
        "arguments_digest": "d",
        "status": "dispatched",
        "effect": "dispatched",
        "key": f"k{index}",
        "attempt": 1,
        "may_act_until": run.created_at,
    }


def test_state_of_what_waits_for_a_worker_and_of_what_ended(people: SimpleNamespace) -> None:
    run = submitted("adder", n=1)
    assert glance(people.olu, run) == "Waits for its first worker"
    stops.stop_now(run.pk, actor=OPERATOR)
    assert glance(people.olu, run) == "Stopped by olu"
    endings.cancel(run.pk, actor=OPERATOR)
    assert glance(people.olu, run) == "Cancelled by olu"


def test_state_of_a_run_that_was_cancelled_in_a_call_says_what_happened(
    people: SimpleNamespace, outside: Outside
) -> None:
    """F58: the payment in flight is finished and recorded, the next step does not start, and the end says so."""
    run = submitted("transfer")

    def cancel_once() -> None:
        if outside.n("pay") and run.stop_requested is None:
            holds.pause(run.pk, actor=OPERATOR)
            endings.cancel(run.pk, actor=OPERATOR)
            run.refresh_from_db()
            assert glance(people.olu, run) == "Finishing step 1, then it is cancelled by olu"

    with points.on("after-effect-before-record", cancel_once):
        drive(run)
    assert (run.status, outside.n("pay"), outside.n("note")) == (RunStatus.CANCELLED, 1, 1)
    assert glance(people.olu, run) == "Cancelled by olu; what steps 0 and 1 did outside stands"
    Step.objects.filter(run=run, index=0).update(effect="compensated")
    assert glance(people.olu, run) == "Cancelled by olu; what step 1 did outside stands"


def test_state_of_a_run_that_succeeded_or_did_nothing_says_no_more(
    people: SimpleNamespace, outside: Outside
) -> None:
    assert glance(people.olu, driven("transfer")) == "Succeeded"
    outside.will("pay", "refuse")
    assert glance(people.olu, driven("payer")) == "Failed"


def test_state_tells_a_person_from_a_budget(people: SimpleNamespace, run: Run) -> None:
    step = Step.objects.get(run=run, index=1)
    holds.place(run, cause=Cause.ALLOWANCE, actor=OPERATOR, step=step, why="none left")
    holds.pause(run.pk, actor=OPERATOR)
    said = glance(people.olu, run)
    assert said == "Waits for Rea to answer step 1; step 1 waits for its allowance; also paused by olu"


# -- The timeline ---------------------------------------------------------------------------------


def told(who: User, run: Run, query: str = "") -> list[tuple[str, str, str]]:
    events = browser(who).get(address(run) + query).context["events"]
    return [(event.what or f"step {event.index}", event.who, event.why) for event in events]


def test_timeline_merges_steps_holds_and_stops_in_order(people: SimpleNamespace, run: Run) -> None:
    holds.pause(run.pk, actor=OPERATOR, why="looks odd")
    holds.unpause(run.pk, actor=OPERATOR, why="it is fine")
    answer(open_hold(run, Cause.QUESTION), number=1)
    execution.drive(run.pk)
    endings.cancel(run.pk, actor=OPERATOR, why="enough")
    assert told(people.olu, run) == [
        ("Submitted", "cyd's key", ""),
        ("step 0", "", ""),
        ("step 1", "", ""),
        ("Held for an answer", "questioner", "The agent asks a question."),
        ("Pause", "olu", "looks odd"),
        ("Pause over", "olu", "it is fine"),
        ("Answered", "ana", ""),
        ("Step 1 is done", "", ""),
        ("step 2", "", ""),
        ("Held for an answer", "questioner", "The agent asks a question."),
        ("Cancelled", "olu", "enough"),
    ]


def test_timeline_of_earlier_steps_tells_of_their_time_only(
    people: SimpleNamespace, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "STEPS", 1)
    holds.pause(run.pk, actor=OPERATOR)
    newest, earlier = (told(people.olu, run, query) for query in ("", "?before=1"))
    assert [what for what, _, _ in newest] == ["step 1", "Held for an answer", "Pause"]
    assert [what for what, _, _ in earlier] == ["Submitted", "step 0"]
    assert told(people.olu, run, "?step=0") == [("step 0", "", "")]


@pytest.mark.parametrize("n", [1, 3])
def test_page_of_a_held_run_costs_the_same_whatever_held_it(
    people: SimpleNamespace, run: Run, n: int, django_assert_num_queries: Callable[..., Any]
) -> None:
    for _ in range(n):
        holds.pause(run.pk, actor=OPERATOR)
        holds.unpause(run.pk, actor=OPERATOR)
    client = browser(people.dot)
    with django_assert_num_queries(21):
        assert client.get(address(run)).status_code == 200


# -- Live ---------------------------------------------------------------------------------------


def pulse(who: User, url: str) -> Any:
    return browser(who).get(url, headers={"HX-Request": "true"})


def test_pulse_is_empty_until_the_run_moves(people: SimpleNamespace, run: Run) -> None:
    url = browser(people.cyd).get(address(run)).context["pulse_url"]
    assert pulse(people.cyd, url).status_code == 204
    holds.pause(run.pk, actor=OPERATOR)
    moved = pulse(people.cyd, url)
    assert moved.status_code == 200
    assert "also paused by olu" in text(moved)
    for part in ('id="run-state"', 'id="run-verbs"', 'id="run-timeline"', 'id="run-pulse"'):
        assert part in moved.content.decode(), part
    assert pulse(people.cyd, moved.context["pulse_url"]).status_code == 204
    assert inline(moved) == []


def test_pulse_ends_with_the_run(people: SimpleNamespace, run: Run) -> None:
    url = browser(people.cyd).get(address(run)).context["pulse_url"]
    endings.cancel(run.pk, actor=OPERATOR)
    assert "data-pulse" not in pulse(people.cyd, url).content.decode()
    assert "data-pulse" not in browser(people.cyd).get(address(run)).content.decode()


def test_pulse_keeps_which_steps_are_shown(people: SimpleNamespace, run: Run) -> None:
    url = browser(people.cyd).get(address(run) + "?gated=1").context["pulse_url"]
    holds.pause(run.pk, actor=OPERATOR)
    assert [step.index for step in pulse(people.cyd, url).context["steps"]] == [1]


def test_pulse_without_script_leads_to_the_page(people: SimpleNamespace, run: Run) -> None:
    there = browser(people.cyd).get(address(run, "pulse"))
    assert (there.status_code, there.headers["Location"]) == (302, address(run))


@pytest.mark.parametrize(("name", "status"), [("rea", 200), ("dot", 200), ("eve", 404)])
def test_pulse_is_for_who_sees_the_run(people: SimpleNamespace, run: Run, name: str, status: int) -> None:
    assert pulse(getattr(people, name), address(run, "pulse")).status_code == status


def test_pulse_of_a_still_run_costs_little(
    people: SimpleNamespace, run: Run, django_assert_num_queries: Callable[..., Any]
) -> None:
    client = browser(people.cyd)
    url = client.get(address(run)).context["pulse_url"]
    with django_assert_num_queries(4):  # session, person, groups, run
        assert client.get(url, headers={"HX-Request": "true"}).status_code == 204


# -- All runs of an agent -------------------------------------------------------------------------


def sweep(who: User, verb: str, agent: str = "adder") -> Any:
    return browser(who).post(reverse("runs_sweep", args=[agent, verb]), {"reason": "rates"}, follow=True)


def test_sweep_is_for_operators(people: SimpleNamespace) -> None:
    run = submitted("adder", n=1)
    for who in (people.cyd, people.rea, people.dot, people.eve, people.root):
        assert sweep(who, "pause").status_code == 403
        assert not browser(who).get(reverse("runs") + "?agent=adder").context["all_of"]
    assert not Hold.objects.filter(run=run).exists()


@pytest.mark.parametrize(
    ("verb", "says"),
    [
        ("pause", "Paused 2 of 2 live runs."),
        ("stop", "Stopped 2 of 2 live runs."),
        ("cancel", "Cancelled 2 of 2 live runs"),
        ("resume", "Lifted 0 pauses"),
    ],
)
def test_sweep_says_how_many(people: SimpleNamespace, verb: str, says: str) -> None:
    for _ in range(2):
        submitted("adder", n=1)
    page = sweep(people.olu, verb)
    assert (page.status_code, says in text(page)) == (200, True)
    assert page.redirect_chain == [(reverse("runs") + "?agent=adder", 303)]


def test_sweep_offers_its_verbs_for_one_agent(people: SimpleNamespace) -> None:
    client = browser(people.olu)
    assert "All live runs of" not in text(client.get(reverse("runs")))
    assert "All live runs of adder" in text(client.get(reverse("runs") + "?agent=adder"))
    assert "All live runs of" not in text(client.get(reverse("runs") + "?agent=nobody"))


def test_sweep_of_what_nobody_knows(people: SimpleNamespace) -> None:
    assert sweep(people.olu, "pause", "nobody").status_code == 404
    assert sweep(people.olu, "destroy").status_code == 404
    assert bulk.known("adder")
