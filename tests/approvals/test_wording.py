"""What pages say, read by somebody who sees them for the first time: names, tenses, and what became of an action."""

from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from approvals.forms import SchemaForm
from approvals.models import Request
from approvals.templatetags.abeyance import step_word
from runs import holds
from runs.actors import Actor
from tests.approvals import desk
from tests.pages import text

pytestmark = [pytest.mark.django_db]
OPERATOR = Actor("person", "9", "Olu", "admin")


@pytest.fixture
def request_(people: SimpleNamespace) -> Request:
    return desk.opened()


def answer(site: Client, question: Request, **fields: str) -> Any:
    sent = {"decision": "respond", "view_digest": question.revision.digest, "form_nonce": "n", **fields}
    return site.post(f"/requests/{question.ref}/decide", sent)


def test_question_is_asked_by_titles_not_by_names_of_code(site: Client, people: SimpleNamespace) -> None:
    shown = site.get(f"/requests/{desk.opened('approvals-asker').ref}")
    labels = [field.label for field in shown.context["answer_form"]]
    assert labels == ["Vendor", "Number", "Note"]


def test_title_that_an_author_gave_is_the_label() -> None:
    schema = {
        "properties": {"cost_centre": {"title": "Who pays", "type": "string"}, "to_whom": {"type": "string"}}
    }
    labels = [field.label for field in SchemaForm(schema, titled=True)]
    assert labels == ["Who pays", "To whom"]
    assert [field.label for field in SchemaForm(schema)] == ["cost_centre", "to_whom"]


def test_summary_names_the_field_of_each_problem(site: Client, people: SimpleNamespace) -> None:
    refused = answer(site, desk.opened("approvals-asker"), **{"f-vendor": "low", "f-number": "x"})
    assert [said for _, said in refused.context["errors"]] == [
        "Number: “x” is not a whole number such as 1200."
    ]


def test_edit_that_does_not_fit_names_the_field(site: Client, request_: Request) -> None:
    sent = {"view_digest": request_.revision.digest, "f-charge": "ch_1", "f-amount": "much"}
    refused = site.post(f"/requests/{request_.ref}/edit", sent)
    assert ">amount: “much” is not a number such as 1234.50" in refused.content.decode()


def test_open_page_speaks_of_what_will_be_and_a_closed_one_does_not(
    site: Client, request_: Request, ben: User
) -> None:
    soon = ["If you approve:", "What will run", "If nobody decides"]
    shown = text(site.get(f"/requests/{request_.ref}"))
    assert [words in shown for words in soon] == [True, True, True]
    desk.decide(request_, ben, "reject")
    shown = text(site.get(f"/requests/{request_.ref}"))
    assert [words in shown for words in soon] == [False, False, False]
    assert "What was proposed" in shown


def test_page_of_a_paused_run_says_that_approving_is_not_all(site: Client, request_: Request) -> None:
    said = "The whole run is paused or held as well."
    assert said not in text(site.get(f"/requests/{request_.ref}"))
    holds.pause(request_.run_id, actor=OPERATOR)
    assert said in text(site.get(f"/requests/{request_.ref}"))


def test_rejected_step_is_called_rejected_and_no_error(site: Client, request_: Request, ben: User) -> None:
    desk.decide(request_, ben, "reject")
    desk.drive(request_)
    shown = text(site.get(f"/requests/{request_.ref}"))
    assert ("Raised an error" in shown, "Rejected" in shown) == (False, True)


def test_fact_that_changed_is_named_as_people_write_it(site: Client, request_: Request) -> None:
    desk.look(request_, given=Decimal("5.00"))
    shown = site.get(f"/requests/{request_.ref}").content.decode()
    assert '<th scope="row" role="rowheader">Given back so far</th>' in shown


def test_history_tells_what_became_of_the_action_not_of_its_run(
    site: Client, request_: Request, ben: User
) -> None:
    desk.decide(request_, ben, "reject")
    desk.drive(request_)
    [row] = site.get("/history").context["rows"]
    assert row["outcome"] == "The agent read the rejection."


def test_receipt_is_kept_up_to_date_until_the_outcome_is_there(
    site: Client, request_: Request, ana: User
) -> None:
    made = desk.decide(request_, ana).decision
    assert made is not None
    address = f"/decisions/{made.pk}"
    shown = site.get(address)
    assert 'data-pulse="2"' in shown.content.decode()
    pulse = {"path": f"{address}?v={shown.context['version']}", "headers": {"HX-Request": "true"}}
    assert site.get(**pulse).status_code == 204
    desk.drive(request_)
    moved = site.get(**pulse)
    assert (moved.status_code, "It succeeded." in text(moved)) == (200, True)
    assert "data-pulse" not in moved.content.decode()


def test_receipt_of_an_approval_that_a_pause_keeps_waiting(
    site: Client, request_: Request, ana: User
) -> None:
    holds.pause(request_.run_id, actor=OPERATOR)
    made = desk.decide(request_, ana).decision
    assert made is not None
    assert "Something else holds the run." in text(site.get(f"/decisions/{made.pk}"))


@pytest.mark.parametrize(
    ("kind", "word"), [("Expired", "expired"), ("Denied", "denied"), ("ToolFailed", "raised")]
)
def test_step_that_nobody_allowed_raised_no_error(kind: str, word: str) -> None:
    step = SimpleNamespace(status="raised", decision=None, result=f'{{"args":[],"type":"{kind}"}}')
    assert step_word(step) == word


def test_step_of_an_expired_request_is_called_expired(site: Client, request_: Request) -> None:
    desk.later(80 * 3600)
    holds.expire(request_.hold_id)
    desk.drive(request_)
    shown = text(site.get(f"/requests/{request_.ref}"))
    assert ("Raised an error" in shown, "If nobody decides" in shown) == (False, False)


def test_pulse_of_a_page_without_facts_tells_no_time_of_a_look(
    site: Client, people: SimpleNamespace, ben: User
) -> None:
    """There is no place for it, and htmx would call that an error."""
    request = desk.opened("approvals-wirer")
    desk.decide(request, ben, "reject")
    moved = site.get(f"/requests/{request.ref}/pulse?v=1", headers={"HX-Request": "true"}).content.decode()
    assert ('id="checked"' in moved, "until you leave this page" in moved) == (False, True)


def test_pulse_after_a_look_that_could_not_read_says_so(site: Client, request_: Request) -> None:
    """No revision comes of it, and yet the page would go on saying “Same”."""
    version = site.get(f"/requests/{request_.ref}").context["version"]
    desk.look(request_, given=RuntimeError("away"))
    pulse = {"data": {"v": version}, "headers": {"HX-Request": "true"}}
    moved = text(site.get(f"/requests/{request_.ref}/pulse", **pulse))
    assert "The facts look different now" in moved
    shown = site.get(f"/requests/{request_.ref}")
    pulse = {"data": {"v": shown.context["version"]}, "headers": {"HX-Request": "true"}}
    assert (
        "Couldn’t check" in text(shown),
        site.get(f"/requests/{request_.ref}/pulse", **pulse).status_code,
    ) == (
        True,
        204,
    )
