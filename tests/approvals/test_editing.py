"""Edit, then approve: schema and policy are asked again, the editor is an author, and record, journal and agent know."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import User

from approvals import decisions
from approvals.exceptions import Closed, NotEligible, NotVisible, Stale, Unfit
from approvals.models import Request
from runs.models import JournalEntry
from tests.approvals import desk

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("whole")]


@pytest.fixture
def request_(people: SimpleNamespace) -> Request:
    return desk.opened("approvals-wirer", amount="250.00")


# -- F17: everybody knows ------------------------------------------------------------------


def test_edit_runs_the_edited_call_and_agent_record_and_journal_know(request_: Request, ben: User) -> None:
    before = request_.revision
    desk.decide(request_, ben, edit=desk.edited(request_, amount="25.00"), reason="one invoice only")
    said = desk.result(request_)
    assert said == {
        "result": "wired 25.00",
        "decision": ["edit", "Ben", "one invoice only"],
        "proposed": "250.00",
        "executed": "25.00",
    }
    assert desk.world.calls == [("wire", {"to": "ACME", "amount": "25.00"})]
    step = desk.step_of(request_)
    assert (json.loads(step.arguments)["amount"], json.loads(step.executed)["amount"]) == ("250.00", "25.00")
    assert step.decision == {"verb": "edit", "by": "Ben", "note": "one invoice only"}
    standing = desk.fresh(request_).revision
    assert (standing.number, standing.reason, standing.author_name, standing.note) == (
        2,
        "edit",
        "Ben",
        "one invoice only",
    )
    assert standing.digest != before.digest
    revised = JournalEntry.objects.of(request_.stream).get(verb="revised")
    assert revised.actor_name == "Ben"
    assert json.loads(revised.detail)["changes"] == [
        {"name": "amount", "title": "amount", "kind": "argument", "then": '"250.00"', "now": '"25.00"'}
    ]


def test_same_proposal_after_an_edit_is_a_new_request(people: SimpleNamespace) -> None:
    first = desk.opened("approvals-insister")
    desk.decide(first, people.ana, edit=desk.edited(first, amount="25.00"))
    desk.drive(first)
    second = Request.objects.filter(run=first.run_id).exclude(pk=first.pk).get()
    assert (second.state, second.revision.arguments) == ("open", '{"amount":"250.00","to":"ACME"}')
    desk.decide(second, people.ana, "reject", reason="once is enough")
    assert [said["executed"] for said in desk.result(second)] == ["25.00", "250.00"]
    assert desk.world.calls == [("wire", {"to": "ACME", "amount": "25.00"})]


def test_edit_that_changes_nothing_is_a_plain_approval(request_: Request, ana: User) -> None:
    same = json.dumps(json.loads(request_.revision.arguments), indent=2)
    decided = desk.decide(request_, ana, edit=same)
    assert (decided.request.number, desk.numbers(request_)) == (1, [(1, "")])
    assert desk.result(request_)["decision"] == ["approve", "Ana", ""]


# -- F16: schema and policy -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edit", "place"),
    [
        ({"amount": "a lot"}, "amount"),
        ({"amount": None}, "amount"),
        ({"to": 5}, "to"),
        ({"payee": "EVIL"}, "payee"),
        ({"abeyance": {"a": 1}}, "abeyance"),
    ],
)
def test_edit_that_does_not_fit_the_schema_is_refused(
    request_: Request, ana: User, edit: dict[str, Any], place: str
) -> None:
    with pytest.raises(Unfit) as refused:
        desk.decide(request_, ana, edit=desk.edited(request_, **edit))
    assert list(refused.value.errors) == [place]
    assert (desk.counts(request_), desk.numbers(request_)) == (("open", 0, 0), [(1, "")])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        '"wire"',
        "{",
        "{}",
        '{"amount":"1.00"}',
        '{"amount":NaN,"to":"A"}',
        '{"amount":1e400,"to":"A"}',
        '{"amount":"1","amount":"2","to":"A"}',
        '{"amount":"1","to":"\\u0000"}',
        '{"amount":"1","to":"\\ud83c"}',
        '{"amount":"1","to":' + "[" * 40 + "]" * 40 + "}",
        '{"amount":"1","to":"' + "x" * 300_000 + '"}',
    ],
)
def test_edit_that_is_no_object_of_arguments_is_refused(request_: Request, ana: User, text: str) -> None:
    with pytest.raises(Unfit):
        desk.decide(request_, ana, edit=text)
    assert (desk.counts(request_), desk.numbers(request_)) == (("open", 0, 0), [(1, "")])


def test_edit_to_what_policy_denies_is_refused(request_: Request, ana: User) -> None:
    with pytest.raises(Unfit) as refused:
        desk.decide(request_, ana, edit=desk.edited(request_, amount="50000.00"))
    assert refused.value.errors == {
        "": "Policy does not allow the edited call: The rule “too large” does not allow it."
    }
    assert (desk.counts(request_), desk.numbers(request_)) == (("open", 0, 0), [(1, "")])


def test_edit_to_what_others_decide_is_proposed_to_them(request_: Request, people: SimpleNamespace) -> None:
    """Policy names finance for so much: the edit becomes theirs, and nothing runs until they say so."""
    decided = desk.decide(request_, people.ana, edit=desk.edited(request_, amount="6000.00"))
    assert (decided.decision, decided.waits_for) == (None, "Your edit needs somebody else's approval.")
    assert (desk.counts(request_), desk.numbers(request_)) == (("open", 0, 0), [(1, ""), (2, "edit")])
    standing = desk.fresh(request_)
    assert (standing.group.name, standing.tier) == ("finance", "R3")
    assert list(request_.notifications.filter(kind="changed").values_list("address", flat=True)) == [
        "dee@example.org"
    ]
    with pytest.raises(NotVisible):
        desk.decide(request_, people.ben)
    desk.decide(request_, people.dee)
    assert desk.result(request_)["result"] == "wired 6000.00"


def test_edit_never_lowers_the_tier(people: SimpleNamespace) -> None:
    request = desk.opened("approvals-wirer", amount="2000.00")
    desk.decide(request, people.ana, edit=desk.edited(request, amount="5.00"))
    assert desk.fresh(request).tier == "R3"


def test_edit_to_what_policy_allows_keeps_its_terms(people: SimpleNamespace) -> None:
    desk.change_rule(
        "desk", expression='tool.effect && !(has(args.amount) && money(args.amount) < money("20.00"))'
    )
    desk.policy.Rule.objects.create(kind="verdict", name="free", tool="wire", outcome="allow", order=500)
    desk.policies.publish(desk.EDITOR)
    request = desk.opened("approvals-wirer", amount="250.00")
    desk.decide(request, people.ana, edit=desk.edited(request, amount="5.00"))
    assert desk.fresh(request).group.name == "refunds"
    assert desk.result(request)["result"] == "wired 5.00"


def test_edit_to_a_higher_tier_needs_somebody_else(request_: Request, people: SimpleNamespace) -> None:
    decided = desk.decide(request_, people.ana, edit=desk.edited(request_, amount="2000.00"))
    assert (decided.decision, desk.fresh(request_).tier) == (None, "R3")
    desk.decide(request_, people.ben)
    assert desk.result(request_)["result"] == "wired 2000.00"


# -- The author ------------------------------------------------------------------------------


def test_author_at_r3_cannot_approve_but_can_reject(people: SimpleNamespace) -> None:
    """C-19."""
    request = desk.opened("approvals-wirer", amount="2000.00")
    desk.decide(request, people.ana, edit=desk.edited(request, amount="1500.00"))
    with pytest.raises(NotEligible, match="You edited this action, so somebody else approves it"):
        desk.decide(request, people.ana)
    assert desk.counts(request) == ("open", 0, 0)
    desk.decide(request, people.ana, "reject", reason="after all not")
    assert desk.result(request)["args"] == ["after all not", "Ana"]


def test_author_at_r3_stays_the_author_over_drift(people: SimpleNamespace) -> None:
    request = desk.opened(amount="2000.00")
    desk.decide(request, people.ana, edit=desk.edited(request, amount="1500.00"))
    desk.look(request, given=desk.Decimal("1.00"))
    with pytest.raises(NotEligible):
        desk.decide(request, people.ana, seen=frozenset({"given_back"}))
    desk.decide(request, people.ben, seen=frozenset({"given_back"}))
    assert desk.result(request)["result"] == "given 1500.00"


def test_author_at_r3_cannot_get_round_it_by_editing_again(people: SimpleNamespace) -> None:
    request = desk.opened("approvals-wirer", amount="2000.00")
    desk.decide(request, people.ana, edit=desk.edited(request, amount="1500.00"))
    for amount in ("1400.00", "2000.00"):
        with pytest.raises(NotEligible):
            desk.decide(request, people.ana, edit=desk.edited(request, amount=amount))
    assert (desk.counts(request), desk.numbers(request)) == (("open", 0, 0), [(1, ""), (2, "edit")])


def test_two_who_edit_each_others_version_never_approve_their_own(people: SimpleNamespace) -> None:
    request = desk.opened("approvals-wirer", amount="2000.00")
    desk.decide(request, people.ana, edit=desk.edited(request, amount="1500.00"))
    desk.decide(request, people.ben, edit=desk.edited(request, amount="1400.00"))
    with pytest.raises(NotEligible):
        desk.decide(request, people.ben)
    desk.decide(request, people.ana)
    assert desk.result(request)["result"] == "wired 1400.00"


def test_author_at_r2_approves_the_edit_in_the_same_act(request_: Request, ana: User) -> None:
    decided = desk.decide(request_, ana, edit=desk.edited(request_, amount="25.00"))
    assert (decided.waits_for, desk.counts(request_)) == ("", ("in_force", 1, 1))


# -- Races in order ------------------------------------------------------------------------------


def test_edit_on_what_changed_meanwhile_is_stale(request_: Request, people: SimpleNamespace) -> None:
    old, edit = request_.revision.digest, desk.edited(request_, amount="10.00")
    desk.decide(request_, people.ben, edit=desk.edited(request_, amount="6000.00"))
    people.ana.groups.add(desk.Group.objects.get(name="finance"))
    with pytest.raises(Stale) as stale:
        desk.decide(request_, people.ana, digest=old, edit=edit)
    assert [(c["name"], c["then"], c["now"]) for c in stale.value.changes] == [
        ("amount", '"250.00"', '"6000.00"')
    ]
    assert desk.numbers(request_) == [(1, ""), (2, "edit")]


def test_approve_the_old_version_after_an_edit_is_stale(people: SimpleNamespace) -> None:
    """F75: it never means the newest version."""
    request = desk.opened("approvals-wirer", amount="2000.00")
    old = request.revision.digest
    desk.decide(request, people.ana, edit=desk.edited(request, amount="1500.00"))
    with pytest.raises(Stale):
        desk.decide(request, people.ben, digest=old)
    assert desk.counts(request) == ("open", 0, 0)


def test_edit_after_the_decision_is_refused(request_: Request, people: SimpleNamespace) -> None:
    desk.decide(request_, people.ana)
    with pytest.raises(Closed):
        desk.decide(request_, people.ben, edit=desk.edited(request_, amount="1.00"))
    assert desk.numbers(request_) == [(1, "")]


def test_edit_of_a_tool_that_is_gone_is_refused(request_: Request, ana: User) -> None:
    """F63 (c): what cannot be read by its schema cannot be edited."""
    kept = desk.declared._registry.pop("wire")
    try:
        with pytest.raises(Unfit, match="changed since this was proposed"):
            desk.decide(request_, ana, edit=desk.edited(request_, amount="1.00"))
    finally:
        desk.declared._registry["wire"] = kept
    assert desk.counts(request_) == ("open", 0, 0)


@pytest.mark.parametrize(
    ("then", "now", "names"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": 1.0}, ["a"]),
        ({"a": True}, {"a": 1}, ["a"]),
        ({"a": 0.0}, {"a": -0.0}, ["a"]),
        ({"a": {"b": 1}}, {"a": {"b": True}}, ["a"]),
        ({"a": None}, {}, ["a"]),
        ({}, {"a": None}, ["a"]),
        ({"a": "1"}, {"a": 1}, ["a"]),
        ({"b": [1, 2], "a": 1}, {"b": [2, 1], "a": 2}, ["a", "b"]),
    ],
)
def test_argument_changes_names_every_argument_whose_text_differs(
    then: dict[str, Any], now: dict[str, Any], names: list[str]
) -> None:
    found = decisions.argument_changes(json.dumps(then), json.dumps(now))
    assert [change["name"] for change in found] == names
