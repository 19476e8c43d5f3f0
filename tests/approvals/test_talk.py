"""Asking the agent's side and what reviewers read of each other: the verbs, their pages, the run's page and the API."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from approvals import decisions, notifications
from approvals import desk as verbs
from approvals.exceptions import Closed, NotEligible, NotVisible, Taken, Unfit
from approvals.models import ApiKey, Delegation, Inquiry, Notification, Request
from approvals.models import Snooze as Snoozed
from runs import holds
from runs.actors import Actor
from runs.models import Hold, JournalEntry, Run
from tests.approvals import desk
from tests.pages import text

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("whole")]
CYD = Actor("person", "0", "Cyd", "page")


@pytest.fixture(autouse=True)
def small(people: SimpleNamespace) -> None:
    """Nothing is asked before approving: that is tried elsewhere."""
    desk.change_rule("small", outcome="R1")


@pytest.fixture
def theirs(people: SimpleNamespace) -> Request:
    """Of cyd's run."""
    return desk.opened("approvals-wirer", owner=people.cyd)


def asked(request: Request, who: User, question: str = "Which invoice is it?") -> Inquiry:
    return verbs.ask(request.ref, person=who, text=question)


def answered(inquiry: Inquiry, said: str = "Number 12") -> Inquiry:
    return verbs.answer(inquiry.request.run_id, inquiry.pk, text=said, actor=CYD)


def browser(who: User) -> Client:
    made = Client()
    made.force_login(who)
    return made


def test_who_asks_is_told_when_nobody_owns_the_run(theirs: Request, people: SimpleNamespace) -> None:
    nobody = desk.opened("approvals-wirer")
    Run.objects.filter(pk=nobody.run_id).update(owner_id="root")
    said = "Nobody with an account owns this run"
    shown = [text(browser(people.ana).get(each.get_absolute_url())) for each in (theirs, nobody)]
    assert [said in one for one in shown] == [False, True]


# -- The verbs -------------------------------------------------------------------------------


def test_question_and_answer_go_round_and_void_nothing(theirs: Request, people: SimpleNamespace) -> None:
    desk.change_rule("desk", quorum=2)
    request = desk.opened("approvals-wirer", owner=people.cyd)
    desk.decide(request, people.ben)
    digest, until = request.revision.digest, request.decide_by
    inquiry = asked(request, people.ana)
    kept = desk.fresh(request)
    assert (kept.state, kept.decide_by) == ("needs_info", until)
    answered(inquiry)
    kept = desk.fresh(request)
    assert (kept.state, kept.number, kept.revision.digest) == ("open", 1, digest)
    inquiry.refresh_from_db()
    assert (inquiry.answer, inquiry.answered_by, inquiry.answered_at is None) == ("Number 12", "Cyd", False)
    assert desk.told(request) == ["opened", "decided", "asked", "answered"]
    assert desk.decide(request, people.ana).waits_for == ""


def test_question_twice_is_one_and_another_has_to_wait(theirs: Request, people: SimpleNamespace) -> None:
    inquiry = asked(theirs, people.ana)
    assert asked(theirs, people.ana).pk == inquiry.pk
    with pytest.raises(Taken, match="Ana asked something already"):
        asked(theirs, people.ben, "Who is it for?")
    answered(inquiry)
    asked(theirs, people.ben, "Who is it for?")
    assert Inquiry.objects.count() == 2


def test_question_is_refused_without_words_right_or_time(theirs: Request, people: SimpleNamespace) -> None:
    for words in (" ", "x" * 4001, "\x00"):
        with pytest.raises(Unfit):
            asked(theirs, people.ana, words)
    with pytest.raises(NotEligible):
        asked(theirs, people.dot)
    desk.later(3601)
    with pytest.raises(Closed):
        asked(theirs, people.ana)
    assert Inquiry.objects.count() == 0


def test_decision_is_possible_while_it_needs_info_and_then_no_answer_is(
    theirs: Request, people: SimpleNamespace
) -> None:
    inquiry = asked(theirs, people.ana)
    desk.decide(theirs, people.ben)
    with pytest.raises(Closed, match="Nobody waits"):
        answered(inquiry)
    assert desk.result(theirs)["result"] == "wired 240.00"


def test_question_runs_out_of_time_with_its_request(theirs: Request, people: SimpleNamespace) -> None:
    inquiry = asked(theirs, people.ana)
    desk.later(3601)
    assert holds.expire(theirs.hold_id) is True
    assert desk.fresh(theirs).state == "expired"
    with pytest.raises(Closed):
        answered(inquiry)


def test_answer_twice_is_one_and_another_is_refused(theirs: Request, people: SimpleNamespace) -> None:
    inquiry = asked(theirs, people.ana)
    answered(inquiry)
    answered(inquiry)
    with pytest.raises(Taken):
        answered(inquiry, "Number 13")
    with pytest.raises(NotVisible):
        verbs.answer(theirs.run_id, inquiry.pk + 1, text="x", actor=CYD)
    with pytest.raises(NotVisible):
        verbs.answer(desk.opened().run_id, inquiry.pk, text="x", actor=CYD)
    assert desk.told(theirs).count("answered") == 1


def test_question_of_an_older_revision_opens_it_again_and_gives_way(people: SimpleNamespace) -> None:
    request = desk.opened(owner=people.cyd)
    first = asked(request, people.ana)
    desk.look(request, given=desk.world.facts["given"] + 1)
    assert (desk.fresh(request).state, desk.fresh(request).number) == ("open", 2)
    second = asked(request, people.ben, "And now?")
    with pytest.raises(Taken, match="given up"):
        answered(first)
    answered(second)
    assert desk.fresh(request).state == "open"


def test_answer_to_an_older_revision_is_kept_and_changes_no_state(people: SimpleNamespace) -> None:
    request = desk.opened(owner=people.cyd)
    inquiry = asked(request, people.ana)
    desk.look(request, given=desk.world.facts["given"] + 1)
    answered(inquiry)
    assert (desk.fresh(request).state, Inquiry.objects.get().answer) == ("open", "Number 12")


# -- Mails -------------------------------------------------------------------------------------


def test_mails_of_a_question_name_nobody_and_carry_no_words(
    theirs: Request, people: SimpleNamespace, mailoutbox: list[Any]
) -> None:
    """C-68, and C-26: the owner does not learn who asks."""
    inquiry = asked(theirs, people.ana)
    answered(inquiry)
    for row in Notification.objects.exclude(kind="opened"):
        notifications.send(row.pk)
    told = {(row.kind.partition(".")[0], row.address) for row in Notification.objects.all()}
    assert told == {
        *(("opened", f"{name}@example.org") for name in ("ana", "ben")),
        *(("answered", f"{name}@example.org") for name in ("ana", "ben")),
        ("asked", "cyd@example.org"),
    }
    assert [mail.to[0] for mail in mailoutbox] == ["ana@example.org", "ben@example.org"]
    said = " ".join(f"{mail.subject} {mail.body}" for mail in mailoutbox)
    assert not [word for word in ("Which invoice", "Number 12", "Ana", "240", "ACME") if word in said]


def test_mail_of_a_question_leads_its_owner_to_the_run(
    theirs: Request, people: SimpleNamespace, mailoutbox: list[Any]
) -> None:
    asked(theirs, people.ana)
    notifications.send(Notification.objects.get(kind__startswith="asked").pk)
    [mail] = mailoutbox
    assert mail.subject == f"A reviewer asks about your run · {theirs.ref}"
    assert f"/runs/{theirs.run_id}/" in mail.body
    assert not [word for word in ("Which invoice", "Ana", "240", "ACME") if word in mail.subject + mail.body]


# -- The run's page and the API -------------------------------------------------------------------


def test_owner_reads_the_question_on_the_run_and_answers_it(theirs: Request, people: SimpleNamespace) -> None:
    inquiry = asked(theirs, people.ana)
    page = browser(people.cyd).get(f"/runs/{theirs.run_id}/")
    said = text(page)
    assert "A reviewer asks before deciding" in said
    assert "Which invoice is it?" in said
    assert "Ana" not in said.partition("A reviewer asks before deciding")[2].partition("Send the answer")[0]
    address = f"/runs/{theirs.run_id}/questions/{inquiry.pk}/answer/"
    empty = browser(people.cyd).post(address, {"answer": " "})
    assert (empty.status_code, "Write something." in text(empty)) == (422, True)
    done = browser(people.cyd).post(address, {"answer": "Number 12"})
    assert (done.status_code, done["Location"]) == (303, f"/runs/{theirs.run_id}/")
    late = browser(people.cyd).post(address, {"answer": "Number 13"})
    assert (late.status_code, "It was answered already." in text(late)) == (409, True)
    assert Inquiry.objects.get().answer == "Number 12"


def test_others_do_not_answer_for_the_owner(theirs: Request, people: SimpleNamespace) -> None:
    inquiry = asked(theirs, people.ana)
    address = f"/runs/{theirs.run_id}/questions/{inquiry.pk}/answer/"
    for who, status in ((people.ana, 403), (people.dee, 404), (people.olu, 403)):
        assert browser(who).post(address, {"answer": "x"}).status_code == status
    assert "A reviewer asks before deciding" not in text(browser(people.ana).get(f"/runs/{theirs.run_id}/"))
    assert Client().post(address, {"answer": "x"}).status_code == 302
    assert Inquiry.objects.get().answered_at is None


def keyed(owner: User) -> dict[str, str]:
    _, secret = ApiKey.objects.create_key(name="shop", owner=owner)
    return {"HTTP_AUTHORIZATION": f"Bearer {secret}"}


def test_api_tells_the_question_and_takes_the_answer(theirs: Request, people: SimpleNamespace) -> None:
    headers, address = keyed(people.cyd), f"/api/v1/runs/{theirs.run_id}"
    before = Client().get(address, **headers).json()
    assert [hold["asked"] for hold in before["waiting_for"]] == [None]
    inquiry = asked(theirs, people.ana)
    told = Client().get(address, **headers).json()
    [hold] = told["waiting_for"]
    assert (hold["asked"]["id"], hold["asked"]["text"]) == (inquiry.pk, "Which invoice is it?")
    assert told["version"] != before["version"]
    assert "Ana" not in json.dumps(told)
    said = {"question": inquiry.pk, "text": "Number 12"}
    done = Client().post(f"{address}/answers", said, content_type="application/json", **headers)
    assert (done.status_code, done.json()["answer"]) == (200, "Number 12")
    assert Client().get(address, **headers).json()["waiting_for"][0]["asked"] is None
    assert Inquiry.objects.get().answered_by == "shop"


def test_api_refuses_an_answer_by_others_of_nothing_or_too_late(
    theirs: Request, people: SimpleNamespace
) -> None:
    headers, address = keyed(people.cyd), f"/api/v1/runs/{theirs.run_id}/answers"
    inquiry = asked(theirs, people.ana)

    def post(said: object, by: dict[str, str] = headers) -> tuple[int, str]:
        answer = Client().post(address, said, content_type="application/json", **by)
        assert answer["Content-Type"] == "application/problem+json"
        return answer.status_code, answer.json()["code"]

    fine = {"question": inquiry.pk, "text": "x"}
    assert post(fine, {}) == (401, "not_authenticated")
    assert post(fine, keyed(people.ben)) == (404, "not_found")
    assert post({**fine, "question": inquiry.pk + 1}) == (404, "not_found")
    assert post({**fine, "more": 1}) == (422, "bad_body")
    assert post({**fine, "text": " "}) == (422, "bad_body")
    desk.decide(theirs, people.ben)
    assert post(fine)[0] == 409


def test_hold_forgets_the_question_once_it_is_answered(theirs: Request, people: SimpleNamespace) -> None:
    inquiry = asked(theirs, people.ana)
    assert Hold.objects.get(pk=theirs.hold_id).detail["inquiry"]["id"] == inquiry.pk
    answered(inquiry)
    assert Hold.objects.get(pk=theirs.hold_id).detail == {}


# -- The request's page -------------------------------------------------------------------------------


def shown(request: Request, who: User) -> str:
    answer = browser(who).get(f"/requests/{request.ref}")
    assert answer.status_code == 200
    return text(answer)


def test_page_tells_question_and_answer_as_testimony_and_still_decides(
    theirs: Request, people: SimpleNamespace
) -> None:
    inquiry = asked(theirs, people.ana)
    said = shown(theirs, people.ben)
    assert "Which invoice is it?" in said
    assert "No answer yet" in said
    assert "Approve: wire" in said
    answered(inquiry, "Number \u202e12")
    said = shown(theirs, people.ben)
    assert "answers are unverified" in said
    assert "⟦U+202E" in said


def test_comments_are_read_by_reviewers_and_not_by_who_is_excluded(people: SimpleNamespace) -> None:
    member = desk.person("mia", "refunds")
    request = desk.opened("approvals-wirer", owner=member)
    verbs.comment(request.ref, person=people.ana, text="I know this one")
    assert "I know this one" in shown(request, people.ben)
    assert "I know this one" in shown(request, people.dot)
    assert "I know this one" not in shown(request, member)


def test_comments_and_presence_are_hidden_until_one_has_decided_where_it_is_blind(
    people: SimpleNamespace,
) -> None:
    desk.change_rule("desk", quorum=2, blind=True)
    request = desk.opened("approvals-wirer", owner=people.cyd)
    verbs.comment(request.ref, person=people.ana, text="I know this one")
    asked(request, people.ana)
    said = shown(request, people.ben)
    assert "I know this one" not in said
    assert "shown after you have decided" in said
    assert "Another reviewer asked" in said
    assert "Ana asked" not in said
    assert "I’m on it" not in said
    desk.decide(request, people.ana)
    run = f"/runs/{request.run_id}/"
    assert "Approved" not in text(browser(people.ben).get(run))
    desk.decide(request, people.ben)
    said = shown(request, people.ben)
    assert "I know this one" in said
    assert "Ana asked" in said
    assert "Approved" in text(browser(people.ben).get(run))


def test_page_offers_only_what_the_verbs_accept(people: SimpleNamespace) -> None:
    """C-23."""
    request = desk.opened("approvals-wirer", owner=people.cyd)
    offered = ("Ask…", "Pass on…", "Put off…", "I’m on it", "1 hour more time")
    assert [word for word in offered if word not in shown(request, people.ana)] == []
    assert [word for word in offered if word in shown(request, people.dot)] == []
    desk.decide(request, people.ana)
    assert [word for word in offered if word in shown(request, people.ben)] == []


def test_page_says_why_there_is_no_more_time(people: SimpleNamespace) -> None:
    desk.change_rule("desk", fixed_because="The market closes then.")
    said = shown(desk.opened("approvals-wirer"), people.ana)
    assert "The deadline is fixed: The market closes then." in said
    assert "more time" not in said


# -- The small views -----------------------------------------------------------------------------------


def test_views_call_their_verbs_and_lead_back(site: Client, people: SimpleNamespace) -> None:
    request = desk.opened("approvals-wirer", owner=people.cyd)
    address = f"/requests/{request.ref}"
    posts = (
        ("ask", {"question": "Which?"}, address),
        ("comment", {"comment": "Hm"}, address),
        ("reserve", {}, address),
        ("let-go", {}, address),
        ("more-time", {"seen": "0"}, address),
        ("snooze", {"for": "1800"}, "/"),
        ("wake", {}, address),
        ("delegate", {"to": str(people.ben.pk), "reason": "Yours"}, address),
    )
    for verb, fields, leads in posts:
        answer = site.post(f"{address}/{verb}", fields)
        assert (verb, answer.status_code, answer["Location"]) == (verb, 303, leads)
    assert desk.told(request)[1:] == [
        *("asked", "commented", "reserved", "let_go", "more_time", "snoozed", "woken", "delegated")
    ]
    assert (Delegation.objects.get().to_name, Snoozed.objects.count()) == ("Ben", 0)


@pytest.mark.parametrize(
    ("verb", "fields", "status", "said"),
    [
        ("ask", {"question": " "}, 422, "Write something."),
        ("comment", {"comment": ""}, 422, "Write something."),
        ("delegate", {"to": "x", "reason": "Yours"}, 422, "Choose whom you pass it on to."),
        ("delegate", {"to": "9999", "reason": "Yours"}, 422, "Choose whom you pass it on to."),
        ("snooze", {"for": "-1"}, 422, "Choose for how long."),
        ("snooze", {"for": "86400"}, 422, "a fifth of the time"),
        ("reserve", {}, 409, "Ben is on it."),
    ],
)
def test_views_say_what_was_refused_and_keep_what_was_typed(
    site: Client, people: SimpleNamespace, verb: str, fields: dict[str, str], status: int, said: str
) -> None:
    request = desk.opened("approvals-wirer", owner=people.cyd)
    verbs.reserve(request.ref, person=people.ben)
    answer = site.post(f"/requests/{request.ref}/{verb}", fields)
    assert (answer.status_code, said in text(answer)) == (status, True)
    if "reason" in fields:
        assert "Yours" in text(answer)


def test_views_answer_like_the_others_where_it_is_closed_or_not_theirs(people: SimpleNamespace) -> None:
    request = desk.opened("approvals-wirer", owner=people.cyd)
    address = f"/requests/{request.ref}/ask"
    assert browser(people.dee).post(address, {"question": "Which?"}).status_code == 404
    assert browser(people.dot).post(address, {"question": "Which?"}).status_code == 403
    desk.decide(request, people.ben)
    late = browser(people.ana).post(address, {"question": "Which one is it?"})
    assert (late.status_code, "Which one is it?" in text(late)) == (409, True)
    assert Client().post(address, {"question": "Which?"}).status_code == 401
    assert browser(people.ana).get(address).status_code == 405


# -- The receipt ---------------------------------------------------------------------------------------


def test_receipt_undoes_in_time_and_says_so(site: Client, people: SimpleNamespace) -> None:
    desk.change_rule("desk", undo_window=60)
    request = desk.opened("approvals-wirer")
    made = desk.decide(request, people.ana).decision
    assert made is not None
    said = text(site.get(f"/decisions/{made.pk}"))
    assert "After that it can’t be undone here" in said
    assert "Undo it" in shown(request, people.ana)
    assert "Undo it" not in shown(request, people.ben)
    answer = site.post(f"/decisions/{made.pk}/undo")
    assert (answer.status_code, answer["Location"]) == (303, f"/decisions/{made.pk}")
    said = text(site.get(f"/decisions/{made.pk}"))
    assert "You took it back" in said
    assert "It is open again" in said
    assert "Ana took back their approval of revision 1" in shown(request, people.ben)


def test_receipt_says_too_late_and_leads_to_the_run(site: Client, people: SimpleNamespace) -> None:
    desk.change_rule("desk", undo_window=60)
    request = desk.opened("approvals-wirer")
    made = desk.decide(request, people.ana).decision
    assert made is not None
    desk.later(61)
    said = text(site.get(f"/decisions/{made.pk}"))
    assert "It can’t be undone here any more. Ask the run to stop" in said
    late = site.post(f"/decisions/{made.pk}/undo")
    assert late.status_code == 409
    assert "Too late" in text(late)
    assert f'href="/runs/{request.run_id}/">Ask the run to stop' in late.content.decode()


def test_receipt_lets_another_reviewer_stop_it_at_r3_with_a_reason(people: SimpleNamespace) -> None:
    desk.change_rule("desk", undo_window=60)
    request = desk.opened("approvals-wirer", amount="1200.00")
    made = desk.decide(request, people.ana, "reject").decision
    assert made is not None
    ben, address = browser(people.ben), f"/decisions/{made.pk}"
    assert "Stop this decision" in text(ben.get(address))
    assert "Stop it" in shown(request, people.ben)
    assert ben.post(f"{address}/undo").status_code == 422
    assert ben.post(f"{address}/undo", {"reason": "It was asked for"}).status_code == 303
    said = text(browser(people.ana).get(address))
    assert "Ben stopped it before it was in force" in said
    assert "It was asked for" in said
    assert browser(people.dot).post(f"{address}/undo", {"reason": "x"}).status_code == 403
    assert browser(people.dee).post(f"{address}/undo", {"reason": "x"}).status_code == 404


def test_history_and_run_tell_what_was_taken_back(site: Client, people: SimpleNamespace) -> None:
    desk.change_rule("desk", undo_window=60)
    request = desk.opened("approvals-wirer")
    made = desk.decide(request, people.ana).decision
    assert made is not None
    site.post(f"/decisions/{made.pk}/undo")
    assert "Taken back before it was in force." in text(site.get("/history"))
    assert "Taken back" in text(site.get(f"/runs/{request.run_id}/"))
    assert Run.objects.get(pk=request.run_id).status == "suspended"


# -- Who is told whose name ------------------------------------------------------------------------------


def test_run_names_no_reviewer_before_it_is_decided(people: SimpleNamespace) -> None:
    """C-26: not in its history, its page for the submitter, or its answer by REST."""
    desk.change_rule("desk", undo_window=60)
    request = desk.opened("approvals-wirer", owner=people.cyd)
    asked(request, people.ana)
    verbs.more_time(request.ref, person=people.ana, seen=0)
    verbs.reserve(request.ref, person=people.ana)
    verbs.comment(request.ref, person=people.ana, text="Hm")
    made = desk.decide(request, people.ana).decision
    assert made is not None
    decisions.undo(made.pk, person=people.ana)
    stream = Run.objects.get(pk=request.run_id).stream
    told = JournalEntry.objects.of(stream).values_list("actor_id", "actor_name", "detail")
    assert not [row for row in told if row[0] == str(people.ana.pk) or "Ana" in row[1] + row[2]]
    page = text(browser(people.cyd).get(f"/runs/{request.run_id}/"))
    assert "Ana" not in page.replace("Ana or Ben", "")
    answer = Client().get(f"/api/v1/runs/{request.run_id}", **keyed(people.cyd))
    assert "Ana" not in answer.content.decode()
