"""What was approved is what runs: the permit, and everything that may stand between it and the call."""

import dataclasses
import json
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from django.contrib.auth.models import User
from django.db import OperationalError, connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from approvals import authority
from approvals.decisions import editing
from approvals.exceptions import Closed
from approvals.models import Permit, Request
from runs import endings, gate, prepared, values
from runs.exceptions import PermitRefused, Unavailable
from runs.models import Hold, Step
from runs.tools import declared
from runs.tools.calls import Call
from tests.approvals import desk

pytestmark = [pytest.mark.django_db]
whole = pytest.mark.usefixtures("whole")


@pytest.fixture
def approved(people: SimpleNamespace) -> Request:
    request = desk.opened("approvals-wirer", amount="100.00")
    desk.decide(request, people.ana)
    return request


def permit_of(step: Step) -> gate.Permit | None:
    with prepared.Batch() as batch:
        permit = gate.contract._authority.permitting(batch, step.pk)
    return permit()


def tamper(table: str, assignment: str, **where: object) -> None:
    """An edit behind the application's back, with the triggers that refuse it switched off."""
    column, value = next(iter(where.items()))
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute(f"UPDATE {table} SET {assignment} WHERE {column} = %s", [value])
        assert cursor.rowcount == 1
        cursor.execute("SET LOCAL session_replication_role = DEFAULT")


CHEAP = """'{"amount":"50.00","to":"ACME"}'"""


# -- F14 ------------------------------------------------------------------------------------


def asked_again(request: Request) -> None:
    """Nothing ran; what stands now was decided by nobody."""
    run = desk.drive(request)
    assert (run.status, desk.world.calls, desk.step_of(request).dispatched_at) == ("suspended", [], None)
    assert desk.counts(request) == ("open", 1, 1)
    assert desk.numbers(request) == [(1, ""), (2, "changed")]
    assert request.permits.get().consumed_at is None


def test_arguments_of_the_revision_changed_in_the_database_run_nothing(approved: Request) -> None:
    tamper("approvals_revision", f"arguments = {CHEAP}", request_id=approved.pk)
    asked_again(approved)


def test_arguments_and_their_digest_changed_in_the_database_run_nothing(approved: Request) -> None:
    """Whoever changes the text also changes the digest beside it; the decision still carries another."""
    digest = values.digest(CHEAP.strip("'"))
    tamper(
        "approvals_revision", f"arguments = {CHEAP}, arguments_digest = '{digest}'", request_id=approved.pk
    )
    asked_again(approved)


def test_facts_changed_in_the_database_run_nothing(people: SimpleNamespace) -> None:
    request = desk.opened()
    desk.decide(request, people.ana)
    kept = json.dumps(
        [
            {**fact, "value": '"5.00"'} if fact["name"] == "given_back" else fact
            for fact in request.revision.facts
        ]
    )
    desk.world.facts["given"] = Decimal("5.00")
    tamper("approvals_revision", f"facts = '{kept}'", request_id=request.pk)
    asked_again(request)


def test_judgement_changed_in_the_database_runs_nothing(approved: Request) -> None:
    """A tier lowered behind the approval."""
    kept = json.dumps({**approved.revision.judgement, "tier": "R3"})
    tamper("approvals_revision", f"judgement = '{kept}'", request_id=approved.pk)
    asked_again(approved)


def test_arguments_of_the_step_changed_in_the_database_run_nothing(approved: Request) -> None:
    tamper("runs_step", f"arguments = {CHEAP}", id=approved.step_id)
    run = desk.drive(approved)
    assert (run.status, desk.world.calls) == ("suspended", [])
    assert list(run.holds.open().values_list("cause", flat=True)) == ["diverged"]


def test_permit_read_before_its_text_changed_is_refused(approved: Request) -> None:
    """The gate read one text, and another stands when the permit is to be used."""
    step = Step.objects.get(pk=approved.step_id)
    permit = permit_of(step)
    assert permit is not None
    other = dataclasses.replace(permit, arguments=CHEAP.strip("'"))
    verdict = gate.Verdict("hold", "", "", terms=authority.Judgement.from_json(approved.revision.judgement))
    with pytest.raises(PermitRefused):
        gate.contract._authority.consume(approved.run, step, other, verdict)
    assert Permit.objects.get().consumed_at is None


@whole
def test_permit_is_used_once(approved: Request) -> None:
    """C-38."""
    step = Step.objects.get(pk=approved.step_id)
    permit = permit_of(step)
    assert permit is not None
    assert desk.result(approved)["result"] == "wired 100.00"
    verdict = gate.Verdict("hold", "", "", terms=authority.Judgement.from_json(approved.revision.judgement))
    with pytest.raises(PermitRefused) as refused:
        gate.contract._authority.consume(approved.run, step, permit, verdict)
    assert (refused.value.reason, permit_of(step)) == ("void", None)


TEXTS = some.text(some.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=40)


@given(to=TEXTS, amount=some.decimals(min_value=0, max_value=999, places=2))
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_bytes_kept_hashed_and_sent_are_the_same(people: SimpleNamespace, to: str, amount: Decimal) -> None:
    """C-35."""
    desk.world.calls.clear()
    request = desk.opened("approvals-wirer", to=to, amount=str(amount))
    revision = request.revision
    assert revision.arguments == values.canonical({"to": to, "amount": str(amount)})
    desk.decide(request, people.ana)
    assert desk.result(request)["result"] == f"wired {amount}"
    step = desk.step_of(request)
    assert (step.arguments, step.arguments_digest) == (revision.arguments, revision.arguments_digest)
    assert values.digest(step.arguments) == revision.arguments_digest
    assert desk.world.calls == [("wire", {"to": to, "amount": str(amount)})]


@whole
def test_tool_that_changed_since_the_approval_is_asked_again(
    approved: Request, ben: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A revision is tool and version: what was approved was another one."""
    before = desk.wire
    properties = dataclasses.replace(before.properties, idempotent=False)
    changed: Any = declared.Tool(before.function, properties, name="wire")
    monkeypatch.setitem(declared._registry, "wire", changed)
    monkeypatch.setattr(desk, "wire", changed)
    desk.drive(approved)
    assert (desk.counts(approved), desk.world.calls) == (("open", 1, 1), [])
    assert desk.numbers(approved) == [(1, ""), (2, "tool")]
    standing = desk.fresh(approved).revision
    assert [before.version == changed.version, standing.tool_version] == [False, changed.version]
    desk.decide(approved, ben)
    assert desk.result(approved)["result"] == "wired 100.00"


# -- Policy between the approval and the call -----------------------------------------------------


@whole
def test_policy_that_asks_a_higher_tier_reopens(approved: Request, ben: User) -> None:
    desk.change_rule("small", outcome="R3")
    desk.drive(approved)
    assert (desk.counts(approved), desk.numbers(approved)) == (("open", 1, 1), [(1, ""), (2, "policy")])
    assert desk.fresh(approved).tier == "R3"
    desk.decide(approved, ben)
    assert desk.result(approved)["result"] == "wired 100.00"


@whole
def test_policy_that_asks_more_people_reopens(approved: Request, people: SimpleNamespace) -> None:
    desk.change_rule("desk", quorum=2)
    desk.drive(approved)
    assert (desk.counts(approved), desk.fresh(approved).quorum) == (("open", 1, 1), 2)
    desk.decide(approved, people.ana)
    assert desk.counts(approved) == ("open", 2, 1)
    desk.decide(approved, people.ben)
    assert desk.result(approved)["result"] == "wired 100.00"


@whole
def test_policy_that_denies_now_ends_the_call(approved: Request) -> None:
    desk.change_rule("too large", expression="true")
    said = desk.result(approved)
    assert (said["error"], said["args"][0], desk.world.calls) == ("Denied", "too large", [])
    closed = desk.fresh(approved)
    assert (closed.state, closed.closed_why) == ("superseded", "The rule “too large” does not allow it.")
    with pytest.raises(Closed) as late:
        desk.decide(approved, desk.User.objects.get(username="ben"))
    assert late.value.code == "superseded"


@whole
@pytest.mark.parametrize(
    ("rule", "fields"),
    [
        ("desk", {"decide_within": 60, "consume_within": 30}),
        ("desk", {"expression": "false"}),
        ("small", {"outcome": "R1"}),
        ("too large", {"expression": "false"}),
    ],
)
def test_policy_that_asks_no_more_changes_nothing(
    approved: Request, rule: str, fields: dict[str, object]
) -> None:
    desk.change_rule(rule, **fields)
    assert desk.result(approved)["result"] == "wired 100.00"


@whole
def test_policy_that_names_other_reviewers_changes_nothing(approved: Request) -> None:
    """Who edits a policy cannot hand what was approved to others."""
    desk.change_rule("desk", reviewers=desk.Group.objects.get(name="finance"))
    assert desk.result(approved)["result"] == "wired 100.00"


@whole
def test_policy_that_got_looser_while_it_waits_changes_nothing(people: SimpleNamespace) -> None:
    """C-20."""
    desk.change_rule("desk", quorum=2)
    request = desk.opened("approvals-wirer")
    desk.change_rule("desk", quorum=1, reviewers=desk.Group.objects.get(name="finance"))
    assert desk.decide(request, people.ana).waits_for == "1 more approval needed."
    desk.decide(request, people.ben)
    assert desk.result(request)["result"] == "wired 240.00"


@whole
def test_permit_that_lapsed_reopens(approved: Request, people: SimpleNamespace) -> None:
    """C-38: used before consume_by, or asked again."""
    desk.later(901)
    desk.drive(approved)
    assert (desk.counts(approved), desk.world.calls) == (("open", 1, 1), [])
    assert desk.numbers(approved) == [(1, ""), (2, "lapsed")]
    assert desk.fresh(approved).decide_by is not None
    desk.decide(approved, people.ben)
    assert desk.result(approved)["result"] == "wired 100.00"


@whole
def test_permit_a_moment_before_its_end_is_used(approved: Request) -> None:
    desk.later(890)
    assert desk.result(approved)["result"] == "wired 100.00"


# -- Given back ----------------------------------------------------------------------------------


@pytest.fixture
def turned_back(approved: Request) -> Request:
    """The permit was used, and the bank was away: certainly nothing was done."""
    desk.world.facts["wire_raises"] = Unavailable("bank", "503")
    run = desk.drive(approved)
    assert (run.status, desk.counts(approved)[0], desk.world.calls) == ("suspended", "in_force", [])
    del desk.world.facts["wire_raises"]
    return approved


def look_again(request: Request) -> None:
    desk.holds.look_again(Hold.objects.open().get(run=request.run).pk)


@whole
def test_permit_given_back_is_used_again(turned_back: Request) -> None:
    look_again(turned_back)
    assert desk.result(turned_back)["result"] == "wired 100.00"
    assert [word for word in desk.told(turned_back) if word in ("consumed", "given_back")] == [
        "consumed",
        "given_back",
        "consumed",
    ]
    assert (desk.step_of(turned_back).attempt, desk.numbers(turned_back)) == (2, [(1, "")])


@whole
def test_permit_given_back_that_lapsed_meanwhile_reopens(
    turned_back: Request, people: SimpleNamespace
) -> None:
    desk.later(901)
    look_again(turned_back)
    desk.drive(turned_back)
    assert (desk.counts(turned_back), desk.world.calls) == (("open", 1, 1), [])
    assert desk.numbers(turned_back) == [(1, ""), (2, "lapsed")]
    desk.decide(turned_back, people.ben)
    assert desk.result(turned_back)["result"] == "wired 100.00"


@whole
def test_permit_given_back_meets_a_policy_that_denies_now(turned_back: Request) -> None:
    desk.change_rule("desk", outcome="deny", reviewers=None)
    look_again(turned_back)
    desk.drive(turned_back)
    assert desk.world.calls == []


@whole
def test_permit_given_back_ends_with_its_run(turned_back: Request) -> None:
    endings.cancel(turned_back.run_id, actor=desk.EDITOR)
    assert (desk.fresh(turned_back).state, desk.world.calls) == ("cancelled", [])


@whole
def test_permit_given_back_twice_is_one(turned_back: Request) -> None:
    """Nothing is given back of a call that holds no permit any more."""
    authority.Authority().give_back(turned_back.run, desk.step_of(turned_back))
    assert turned_back.permits.filter(consumed_at=None).count() == 1


@whole
def test_policy_that_cannot_be_asked_holds(people: SimpleNamespace) -> None:
    """C-80: an error leads to a hold at R3, never further."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute("UPDATE approvals_policyversion SET rules = 'not json'")
        cursor.execute("SET LOCAL session_replication_role = DEFAULT")
    fay = desk.person("fay", "reviewers")
    request = desk.opened("approvals-wirer", amount="1.00")
    assert (request.tier, request.group, desk.counts(request)) == ("R3", None, ("open", 0, 0))
    assert desk.reviewers.eligibility(fay, request).decides is True


@pytest.mark.django_db(transaction=True)
def test_database_that_goes_away_is_no_policy(people: SimpleNamespace) -> None:
    """It is raised, and the run asks again when its lease is over: nobody is asked about what a rule allows."""
    request = desk.opened("approvals-wirer", amount="100.00")
    asked = editing.proposal(request, Call(declared.get("wire"), request.revision.arguments))
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        [backend] = cursor.fetchone()
    with psycopg.connect(**connection.get_connection_params() | {"cursor_factory": None}) as other:
        other.execute("SELECT pg_terminate_backend(%s)", [backend])
    with pytest.raises(OperationalError):
        authority.Authority().judge(asked)
    connection.close()
    assert authority.Authority().judge(asked).rule == "desk"


@whole
def test_question_that_no_rule_holds_is_asked_all_the_same(people: SimpleNamespace) -> None:
    """A question always waits for a person: the fallback's, in 72 hours, and it is not "not gated"."""
    desk.change_rule("ask", expression="false")
    question = desk.opened("approvals-asker")
    assert (question.tier, question.group, question.revision.judgement["verdict"]) == ("R1", None, "hold")
    assert round((question.decide_by - question.opened_at).total_seconds()) == 72 * 3600
    assert desk.reviewers.eligibility(desk.person("fay", "reviewers"), question).decides is True


@whole
def test_question_that_a_rule_allows_is_asked_all_the_same(people: SimpleNamespace) -> None:
    desk.change_rule("ask", outcome="allow", reviewers=None)
    assert desk.opened("approvals-asker").tier == "R1"


@whole
def test_question_that_policy_denies_is_not_asked(people: SimpleNamespace) -> None:
    desk.change_rule("ask", outcome="deny", reviewers=None)
    run = desk.submitted("approvals-asker")
    desk.execution.drive(run.pk)
    run.refresh_from_db()
    assert json.loads(run.result)["error"] == "Denied"
    assert Request.objects.count() == 0


@whole
def test_tool_without_a_consequence_is_at_least_r3(people: SimpleNamespace) -> None:
    """C-44, C-45."""
    assert desk.opened("approvals-blind").tier == "R3"


@whole
def test_permit_carries_what_the_agent_is_told(people: SimpleNamespace) -> None:
    request = desk.opened("approvals-wirer")
    desk.decide(request, people.ana, reason="go ahead")
    permit = permit_of(Step.objects.get(pk=request.step_id))
    assert permit is not None
    assert (permit.edited, permit.decision) == (False, {"verb": "approve", "by": "Ana", "note": "go ahead"})
    assert permit.digest == request.revision.arguments_digest
