"""Settling a doubt: by a person's word, with what comes of it in the run, in the ledger, and at the outside."""

import json
from collections.abc import Callable

import pytest
from pydantic import BaseModel

from runs import doubts, effects, endings, holds, moves, points, sweeper
from runs.actors import Actor
from runs.doubts import Said
from runs.exceptions import BadValue, NotFound, RunsError, WrongState
from runs.invocation import Known
from runs.lifecycle import Fence
from runs.models import Hold, JournalEntry, Run, Step
from runs.states import Cause, RunStatus
from runs.tools import declared
from tests import undoing_for_tests
from tests.agents_for_tests import SHORT
from tests.factories import (
    CYD,
    NO_RUN,
    OPERATOR,
    approve,
    causes,
    drive,
    driven,
    error,
    go_on,
    later,
    open_hold,
    reject,
    result,
    step,
    submitted,
    verbs,
)
from tests.outside import Outside
from tests.threads import behind

assert undoing_for_tests
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("invariants")]
Rules = Callable[..., None]
LIMIT = SHORT + 5.0
HAPPENED = Said("happened", "seen in the bank's list", '"their receipt"')
NOT = Said("did_not_happen", "the bank has nothing")
BOTH = Actor("person", "pia", "pia", "page", operator=True)


def in_doubt(outside: Outside, agent: str = "payer", *, over: bool = True, **more: str) -> Run:
    """A run whose effect is in doubt and, if `over`, can certainly not act any more."""
    outside.will(more.pop("tool", "pay"), more.pop("word", "act_then_raise"))
    run = driven(agent, **more)
    if over:
        later(LIMIT + 1)
        go_on(run)
    assert causes(run) == ["in_doubt"]
    return run


def settle(run: Run, said: Said, who: Actor = OPERATOR, index: int = 0) -> Step:
    return doubts.settle(run.pk, index, said, actor=who)


def go(run: Run) -> Run:
    run.refresh_from_db()
    return drive(run)


def late(run: Run, text: str = '"late receipt"', kind: str = "returned", attempt: int = 1) -> bool:
    row = step(run, 0)
    told = {"effect_key": row.key, "digest": effects.sent_digest(row), "attempt": attempt}
    return effects.evidence(run.pk, 0, known=Known(kind, text), actor=Actor.worker("w1"), **told)  # type: ignore[arg-type]


# -- It happened --------------------------------------------------------------------------------


@pytest.mark.parametrize("over", [False, True])
def test_happened_is_adopted_as_the_receipt(over: bool, outside: Outside) -> None:
    """It may be said at any time: a person who has seen it need not wait."""
    run = in_doubt(outside, over=over)
    settle(run, HAPPENED)
    assert (result(go(run)), step(run, 0).effect, outside.n("pay")) == ("their receipt", "confirmed", 1)


def test_happened_keeps_who_said_it_and_why(outside: Outside) -> None:
    run = in_doubt(outside)
    settle(run, HAPPENED)
    [kept] = step(run, 0).evidence
    assert (kept["by"]["name"], kept["why"], kept["answer"]) == ("olu", HAPPENED.why, "happened")
    entry = JournalEntry.objects.of(run.stream).get(verb="settled")
    assert (entry.actor_name, json.loads(entry.detail)["why"]) == ("olu", HAPPENED.why)
    closed = Hold.objects.get(run=run, resolution="happened")
    assert (closed.released_by_name, closed.answer) == ("olu", HAPPENED.why)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("7", "/result"),
        ("{", "/result"),
        ("", "/result"),
        ('"a" "b"', "/result"),
        ('"\\u0000"', "/result"),
        ("NaN", "/result"),
    ],
)
def test_happened_with_a_result_that_does_not_fit(text: str, path: str, outside: Outside) -> None:
    run = in_doubt(outside)
    with pytest.raises(BadValue) as refused:
        settle(run, Said("happened", "seen", text))
    assert (refused.value.path, causes(run), step(run, 0).evidence) == (path, ["in_doubt"], [])


class Receipt(BaseModel):
    number: int
    lines: list[str]


def test_happened_names_the_place_in_a_result(outside: Outside, monkeypatch: pytest.MonkeyPatch) -> None:
    from runs import values

    run = in_doubt(outside)
    monkeypatch.setattr(declared.get("pay"), "returns", values.of(Receipt))
    with pytest.raises(BadValue) as refused:
        settle(run, Said("happened", "seen", '{"number": 1, "lines": ["a", 2]}'))
    assert refused.value.path == "/result/lines/1"


def test_result_goes_only_with_what_happened(outside: Outside) -> None:
    run = in_doubt(outside)
    with pytest.raises(BadValue, match="only what happened"):
        settle(run, Said("did_not_happen", "none", '"x"'))


@pytest.mark.parametrize("why", ["", "  \n", "x" * 4001, "a\x00b"])
def test_reason_is_required_and_bounded(why: str, outside: Outside) -> None:
    run = in_doubt(outside)
    with pytest.raises(BadValue) as refused:
        settle(run, Said("did_not_happen", why))
    assert (refused.value.path, causes(run)) == ("/reason", ["in_doubt"])


# -- It did not -----------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", ["did_not_happen", "compensate"])
def test_nobody_can_say_before_the_limit_that_it_did_not(answer: str, outside: Outside) -> None:
    run = in_doubt(outside, over=False)
    until = step(run, 0).may_act_until
    assert until is not None
    with pytest.raises(WrongState, match=f"may still act until {until:%-d %B %Y, %H:%M:%S} UTC"):
        settle(run, Said(answer, "gone"))  # type: ignore[arg-type]
    assert (causes(run), step(run, 0).effect, verbs(run).count("settled")) == (["in_doubt"], "in_doubt", 0)


def test_did_not_calls_again_under_the_same_key_as_the_next_attempt(outside: Outside) -> None:
    run = in_doubt(outside, word="raise")
    settle(run, NOT)
    assert (step(run, 0).status, step(run, 0).effect) == ("held", "refused")
    assert go(run).status == RunStatus.SUCCEEDED
    assert ([call["attempt"] for call in outside.tried("pay")], len(outside.keys("pay"))) == ([1, 2], 1)
    assert (step(run, 0).effect, step(run, 0).attempt, outside.n("pay")) == ("confirmed", 2, 1)


def test_did_not_asks_again_for_what_was_approved(outside: Outside, rules: Rules) -> None:
    """The approval was of one call, and it is used up; what a person edited is shown as it was sent."""
    rules(pay="hold")
    outside.will("pay", "raise")
    run = driven("payer")
    approve(open_hold(run), arguments={"amount": "25.00", "to": "ACME"})
    go(run)
    later(LIMIT + 1)
    go_on(run)
    settle(run, NOT)
    rules(pay="allow")  # also where policy would let it pass now
    go(run)
    assert (causes(run), open_hold(run).why, len(outside.tried("pay"))) == (
        ["approval"],
        "The call was made under an approval, and did not happen; it is asked for again.",
        1,
    )
    approve(open_hold(run))
    go(run)
    assert [call["arguments"]["amount"] for call in outside.tried("pay")] == ["25.00", "250.00"]
    assert (run.status, step(run, 0).executed, step(run, 0).executed_digest) == (
        RunStatus.SUCCEEDED,
        None,
        "",
    )


def test_did_not_is_asked_where_policy_holds_it_now(outside: Outside, rules: Rules) -> None:
    run = in_doubt(outside, word="raise")
    settle(run, NOT)
    rules(pay="hold")
    go(run)
    assert (causes(run), len(outside.tried("pay"))) == (["approval"], 1)


def test_did_not_is_denied_where_policy_denies_it_now(outside: Outside, rules: Rules) -> None:
    run = in_doubt(outside, word="raise")
    settle(run, NOT)
    rules(pay="deny")
    assert (error(go(run))["type"], len(outside.tried("pay")), step(run, 0).effect) == (
        "Denied",
        1,
        "refused",
    )


def test_late_result_after_did_not_is_adopted_and_nothing_is_called(outside: Outside) -> None:
    """The person was wrong, and the database knows it before the second call."""
    run = in_doubt(outside)
    settle(run, NOT)
    late(run)
    assert (result(go(run)), len(outside.tried("pay")), step(run, 0).effect) == (
        "late receipt",
        1,
        "confirmed",
    )


def test_late_result_right_before_the_second_intent(outside: Outside) -> None:
    """It comes after the gate has looked: the intent's own statement says no."""
    run = in_doubt(outside)
    settle(run, NOT)
    run.refresh_from_db()
    seen: list[bool] = []

    def bring() -> None:
        if not seen:
            seen.append(late(run))

    with points.on("before-boundary", bring):
        drive(run)
    assert (seen, result(run), len(outside.tried("pay"))) == ([True], "late receipt", 1)


def test_late_result_takes_back_the_question_whether_to_do_it_again(outside: Outside, rules: Rules) -> None:
    run = in_doubt(outside)
    settle(run, NOT)
    rules(pay="hold")
    go(run)
    assert causes(run) == ["approval"]
    late(run)
    assert (causes(run), result(go(run)), outside.n("pay")) == ([], "late receipt", 1)


def test_late_refusal_of_an_earlier_attempt_does_not_answer_for_the_last(outside: Outside) -> None:
    run = in_doubt(outside, word="raise")
    settle(run, NOT)
    outside.will("pay", "act_then_raise")
    go(run)
    late(run, '{"args":["no"],"type":"Rejected"}', kind="refused", attempt=1)
    assert (causes(run), step(run, 0).effect) == (["in_doubt"], "in_doubt")
    late(run, '{"args":["no"],"type":"Rejected"}', kind="refused", attempt=2)
    assert causes(run) == []
    assert go(run).status == RunStatus.FAILED


# -- Twice, and losing ----------------------------------------------------------------------------------


@pytest.mark.parametrize("said", [HAPPENED, NOT])
def test_settle_twice_by_the_same_person_changes_nothing(said: Said, outside: Outside) -> None:
    run = in_doubt(outside)
    first = settle(run, said)
    told = len(verbs(run))
    again = settle(run, said)
    assert (again.evidence, len(verbs(run))) == (first.evidence, told)


@pytest.mark.parametrize(("first", "second"), [(HAPPENED, NOT), (NOT, HAPPENED), (HAPPENED, HAPPENED)])
def test_settle_after_somebody_else(first: Said, second: Said, outside: Outside) -> None:
    run = in_doubt(outside)
    settle(run, first)
    with pytest.raises(WrongState, match=r"olu settled it"):
        settle(run, second, BOTH)
    assert [item["by"]["name"] for item in step(run, 0).evidence] == ["olu"]


def test_settle_after_late_evidence(outside: Outside) -> None:
    run = in_doubt(outside)
    late(run)
    with pytest.raises(WrongState, match="what came of it is known"):
        settle(run, HAPPENED)
    assert result(go(run)) == "late receipt"


def test_settle_what_is_not_in_doubt(outside: Outside, rules: Rules) -> None:
    done, plain = driven("payer"), driven("adder", n=1)
    for run, said in ((done, "it is confirmed"), (plain, "not one of an effect")):
        with pytest.raises(WrongState, match=said):
            settle(run, NOT)
    with pytest.raises(NotFound):
        settle(done, NOT, index=7)
    with pytest.raises(NotFound):
        doubts.settle(NO_RUN, 0, NOT, actor=OPERATOR)


def test_settle_what_is_in_flight(outside: Outside) -> None:
    run, seen = submitted("payer"), []

    def try_it() -> None:
        for said in (HAPPENED, NOT):
            with pytest.raises(WrongState) as refused:
                settle(run, said)
            seen.append(str(refused.value))

    with points.on("after-intent-before-call", try_it):
        drive(run)
    assert (seen, run.status) == (["step 0 is not in doubt; it is dispatched"] * 2, RunStatus.SUCCEEDED)


def test_did_not_while_a_worker_looks(outside: Outside) -> None:
    """Between the release for a look and the worker's: neither `did not` nor an undo; `happened` counts."""
    run = in_doubt(outside, over=False)
    later(LIMIT + 1)
    assert holds.look_again(open_hold(run).pk)
    with pytest.raises(WrongState, match="being looked at at this moment"):
        settle(run, NOT)
    settle(run, HAPPENED)
    assert result(go(run)) == "their receipt"


def test_happened_while_a_worker_is_about_to_hold_it_again(outside: Outside) -> None:
    """The worker has looked and found nothing; the hold it would place is not placed any more."""
    run = in_doubt(outside, over=False)
    later(LIMIT + 1)
    holds.look_again(open_hold(run).pk)
    run.refresh_from_db()
    real, seen = effects.resolve, []

    def slow(*args: object) -> object:
        found = real(*args)  # type: ignore[arg-type]
        if not seen:
            seen.append(settle(run, HAPPENED))
        return found

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(effects, "resolve", slow)
        drive(run)
    assert (result(run), outside.n("pay")) == ("their receipt", 1)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("said", [HAPPENED, NOT])
def test_late_evidence_at_the_same_moment(said: Said, outside: Outside) -> None:
    """Either is first; the outcome is one, and the call that happened is not made again."""
    run = in_doubt(outside)
    with pytest.MonkeyPatch.context():
        behind(
            lambda: Run.objects.select_for_update().get(pk=run.pk),
            lambda: settle(run, said),
            lambda: late(run),
        )
    expected = "their receipt" if said is HAPPENED else "late receipt"
    assert (result(go(run)), outside.n("pay"), len(outside.tried("pay"))) == (expected, 1, 1)


@pytest.mark.django_db(transaction=True)
def test_late_evidence_first(outside: Outside) -> None:
    run = in_doubt(outside)
    _, lost = behind(
        lambda: Run.objects.select_for_update().get(pk=run.pk),
        lambda: late(run),
        lambda: settle(run, NOT),
    )
    assert (isinstance(lost, WrongState), result(go(run)), outside.n("pay")) == (True, "late receipt", 1)


@pytest.mark.django_db(transaction=True)
def test_two_operators_at_the_same_moment(outside: Outside) -> None:
    run = in_doubt(outside, word="raise")
    done, lost = behind(
        lambda: Run.objects.select_for_update().get(pk=run.pk),
        lambda: settle(run, NOT),
        lambda: settle(run, HAPPENED, BOTH),
    )
    assert (isinstance(done, Step), isinstance(lost, RunsError)) == (True, True)
    assert (result(go(run)), len(outside.tried("pay"))) == (f"receipt {step(run, 0).key[:8]}", 2)


# -- Other holds, other steps -------------------------------------------------------------------------------


def test_settled_under_a_pause_goes_on_after_it(outside: Outside) -> None:
    run = in_doubt(outside)
    holds.pause(run.pk, actor=CYD)
    settle(run, HAPPENED)
    run.refresh_from_db()
    assert (run.status, causes(run)) == (RunStatus.SUSPENDED, [Cause.PERSON])
    holds.unpause(run.pk, actor=CYD)
    assert result(go(run)) == "their receipt"


# -- After the run has ended -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("said", "effect"), [(HAPPENED, "confirmed"), (NOT, "refused")])
def test_settle_after_the_end_changes_only_the_ledger(said: Said, effect: str, outside: Outside) -> None:
    run = in_doubt(outside)
    endings.cancel(run.pk, actor=CYD)
    run.refresh_from_db()
    settle(run, said)
    after = Run.objects.get(pk=run.pk)
    assert (after.status, after.position, after.wakes) == (run.status, run.position, run.wakes)
    assert (step(run, 0).effect, step(run, 0).settled, len(outside.tried("pay"))) == (effect, None, 1)


def test_settle_after_the_end_makes_a_claim_owed(outside: Outside) -> None:
    run = in_doubt(outside, "booker", tool="book")
    endings.cancel(run.pk, actor=CYD)
    settle(run, HAPPENED)
    assert (step(run, 0).claim, step(run, 0).effect) == ("owed", "confirmed")


def test_settle_after_the_end_is_refused_before_the_limit(outside: Outside) -> None:
    run = in_doubt(outside, over=False)
    endings.cancel(run.pk, actor=CYD)
    with pytest.raises(WrongState, match="may still act until"):
        settle(run, NOT)
    later(LIMIT + 1)
    assert settle(run, NOT).effect == "refused"


# -- Edited, sent, it did not happen, and the second try is refused ------------------------------------------


def test_edited_call_that_did_not_happen_and_is_rejected_then_is_kept_as_it_stands(
    outside: Outside, rules: Rules
) -> None:
    """What was sent the first time stays in the row, so it is in the record; and a stop after it finds both equal."""
    rules(pay="hold")
    run = driven("transfer")
    approve(open_hold(run), arguments={"amount": "9.00", "to": "ACME"})
    outside.will("pay", "raise")
    go(run)
    later(LIMIT + 1)
    go_on(run)
    settle(run, NOT, index=1)
    go(run)
    reject(open_hold(run, Cause.APPROVAL))
    rules(pay="hold", note="hold")
    go(run)
    approve(open_hold(run, Cause.APPROVAL, 2))
    said = result(go(run))
    assert (said["paid"].split(":")[0], said["executed"], outside.n("pay")) == ("Rejected", "9.00", 0)


# -- Settled, and the run ends before it goes on --------------------------------------------------------------


@pytest.mark.parametrize("how", ["a person", "late evidence"])
def test_settled_before_the_end_and_never_adopted_is_in_the_ledger(how: str, outside: Outside) -> None:
    """Nobody would be asked again, and it would be in doubt for ever; what it reserved is owed."""
    run = in_doubt(outside, "booker", tool="book")
    assert settle(run, HAPPENED) if how == "a person" else late(run)
    run.refresh_from_db()
    assert (run.status, step(run, 0).effect) == (RunStatus.QUEUED, "in_doubt")
    endings.cancel(run.pk, actor=CYD)
    assert (step(run, 0).effect, step(run, 0).claim, step(run, 0).settled) == ("confirmed", "owed", None)
    assert doubts.not_open(step(run, 0)).startswith("step 0 is not in doubt; it is confirmed")


def test_refused_by_late_evidence_and_never_adopted_is_in_the_ledger(outside: Outside) -> None:
    run = in_doubt(outside, "booker", tool="book")
    assert late(run, text='{"type": "TurnedDown"}', kind="refused")
    endings.cancel(run.pk, actor=CYD)
    assert (step(run, 0).effect, step(run, 0).claim) == ("refused", "")


def test_happened_after_a_person_said_that_it_did_not_is_in_the_ledger(outside: Outside) -> None:
    """The second try was not made yet, and is not made any more."""
    run = in_doubt(outside, "booker", tool="book")
    settle(run, NOT)
    assert late(run)
    assert step(run, 0).effect == "refused"
    endings.cancel(run.pk, actor=CYD)
    assert (step(run, 0).effect, step(run, 0).claim, len(outside.tried("book"))) == ("confirmed", "owed", 1)


# -- While it waits for something else ------------------------------------------------------------------------


def behind_a_closed_bank(outside: Outside) -> Run:
    """Its first attempt may have acted; the second met a service that is away, and waits for it."""
    outside.will("send_there", "act_then_raise")
    run = driven("sender-there")
    later(3600)
    outside.will("bank", "closed")
    go_on(run)
    assert (causes(run), step(run, 0).effect) == (["dependency"], "in_doubt")
    return run


def test_happened_waits_no_longer_for_what_another_attempt_needs(outside: Outside) -> None:
    run = behind_a_closed_bank(outside)
    settle(run, HAPPENED)
    assert causes(run) == []
    assert (result(go(run)), outside.n("send_there")) == ("their receipt", 1)


def test_did_not_may_be_said_while_it_waits_for_something_else(outside: Outside) -> None:
    run = behind_a_closed_bank(outside)
    later(3600 + 60)
    settle(run, NOT)
    assert (causes(run), step(run, 0).effect) == (["dependency"], "refused")
    later(7300)
    assert (go_on(run).status, step(run, 0).effect) == (RunStatus.SUCCEEDED, "confirmed")


# -- After the run has left --------------------------------------------------------------------------------


def left(outside: Outside, agent: str = "payer", **more: str) -> Run:
    """A run whose doubt went along to another installation."""
    run = in_doubt(outside, agent, **more)
    moves.leave(run.pk, actor=OPERATOR, keep=lambda text: None)
    return run


@pytest.mark.parametrize("said", [HAPPENED, NOT])
def test_settle_where_the_run_has_left(said: Said, outside: Outside) -> None:
    run = left(outside)
    with pytest.raises(WrongState, match="goes on in another installation"):
        settle(run, said)
    assert step(run, 0).effect == "in_doubt"


def test_late_result_where_the_run_has_left_makes_no_claim_owed(outside: Outside) -> None:
    """What it reserved is the run's that goes on elsewhere: it is not given back here."""
    run = left(outside, "booker", tool="book")
    assert late(run)
    sweeper.sweep()
    assert (len(step(run, 0).evidence), step(run, 0).claim, step(run, 0).effect) == (1, "", "in_doubt")


# -- Skeletons ---------------------------------------------------------------------------------------------


class Inner(BaseModel):
    at: str
    inner: "Inner | None" = None


class Shape(BaseModel):
    number: int
    word: str | None
    inner: Inner
    several: list[Inner]
    many: dict[str, int]
    yes: bool = True


def test_skeleton_has_the_required_parts() -> None:
    assert doubts.skeleton(Shape.model_json_schema()) == {
        "number": 0,
        "word": "",
        "inner": {"at": ""},
        "several": [],
        "many": {},
    }


def test_skeleton_of_a_type_that_holds_itself_ends() -> None:
    endless = {
        "$ref": "#/$defs/A",
        "$defs": {"A": {"type": "object", "required": ["a"], "properties": {"a": {"$ref": "#/$defs/A"}}}},
    }
    assert "a" in doubts.skeleton(endless)


def test_late_result_while_the_doubt_is_being_placed(outside: Outside) -> None:
    """In a group: it comes between the look and the hold; the receipts of the others are kept, and it is adopted."""
    outside.will("pay", "act_then_raise")
    run, seen = submitted("batch"), []
    real = effects.doubt

    def slow(fence: Fence, step_id: int, found: effects.Doubt) -> Hold:
        if not seen:
            row = Step.objects.get(pk=step_id)
            told = {"effect_key": row.key, "digest": row.arguments_digest, "attempt": 1}
            known = Known("returned", '"late receipt"')
            seen.append(
                effects.evidence(run.pk, row.index, known=known, actor=Actor.worker("w1"), **told)  # type: ignore[arg-type]
            )
        return real(fence, step_id, found)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(effects, "doubt", slow)
        drive(run)
    assert (run.status, outside.n("pay"), len(outside.tried("pay"))) == (RunStatus.SUCCEEDED, 3, 3)
    assert result(run).count("late receipt") == 1
