"""Undoing what a run did: by a run of its own, in reverse order, each effect once."""

import json
from collections.abc import Callable

import pytest
from django.db import transaction

from runs import claims, clock, compensation, doubts, effects, endings, holds, lifecycle, moves, sweeper
from runs.actors import Actor
from runs.doubts import Said
from runs.exceptions import UnknownAgent, WrongState
from runs.invocation import Known
from runs.models import JournalEntry, Run, Step
from runs.states import RunStatus
from runs.tools import declared
from tests import undoing_for_tests
from tests.agents_for_tests import SHORT
from tests.factories import (
    CYD,
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
    verbs,
)
from tests.outside import Outside
from tests.threads import together

assert undoing_for_tests
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("invariants")]
Rules = Callable[..., None]
LIMIT = SHORT + 5.0
UNDO = Said("compensate", "the payee is gone")


def compensate(run: Run, *indexes: int) -> Run:
    return compensation.compensate(
        run.pk, actor=OPERATOR, owner_id="olu", why="wrong customer", indexes=indexes or None
    )


def hear() -> list[bool]:
    return [compensation.hear(pk) for pk in compensation.undone_now(clock.now())]


def ledger(run: Run) -> list[str]:
    return list(run.steps.order_by("index").values_list("effect", flat=True))


# -- A run of its own ----------------------------------------------------------------------------


def test_compensate_undoes_in_reverse_order(outside: Outside) -> None:
    run = driven("charger")
    undoing = drive(compensate(run))
    assert hear() == [True, True]
    assert (result(undoing), ledger(run)) == (2, ["compensated", "compensated", "confirmed"])
    asked = [call["arguments"] for call in outside.acted("refund")]
    assert asked == [
        {"amount": 2, "result": json.loads(step(run, 1).result or "")},
        {"amount": 1, "result": json.loads(step(run, 0).result or "")},
    ]


def test_compensation_is_a_run_of_who_asked(outside: Outside) -> None:
    run = driven("charger")
    undoing = compensate(run)
    assert (str(undoing.agent), undoing.submitter_id, undoing.owner_id) == (
        "abeyance.compensate",
        "olu",
        "olu",
    )
    assert (verbs(run)[-1], verbs(undoing)) == ("compensation_started", ["submitted"])
    entry = JournalEntry.objects.of(run.stream).last()
    assert entry is not None
    assert json.loads(entry.detail) == {"indexes": [1, 0], "run": str(undoing.pk), "why": "wrong customer"}


def test_compensate_some_steps_only(outside: Outside) -> None:
    run = driven("charger")
    drive(compensate(run, 0))
    hear()
    assert ledger(run) == ["compensated", "confirmed", "confirmed"]
    drive(compensate(run))
    hear()
    assert (ledger(run), outside.n("refund")) == (["compensated", "compensated", "confirmed"], 2)


def test_compensate_asks_policy(outside: Outside, rules: Rules) -> None:
    run = driven("charger")
    rules(refund="hold")
    undoing = drive(compensate(run))
    assert (causes(undoing), hear(), outside.n("refund")) == (["approval"], [False, False], 0)
    approve(open_hold(undoing))
    undoing.refresh_from_db()
    drive(undoing)
    assert sorted(hear()) == [False, True]  # the last is undone, the first is asked about
    reject(open_hold(undoing))
    undoing.refresh_from_db()
    drive(undoing)
    assert (undoing.status, hear(), ledger(run)) == (
        RunStatus.FAILED,
        [True],
        ["confirmed", "compensated", "confirmed"],
    )
    assert step(run, 0).compensated_by is None


# -- Twice -----------------------------------------------------------------------------------------


def test_compensate_while_another_run_undoes_it(outside: Outside) -> None:
    run = driven("charger")
    undoing = compensate(run)
    with pytest.raises(WrongState, match="nothing that can be undone"):
        compensate(run)
    with pytest.raises(WrongState, match=f"Run {undoing.short_id} is undoing it"):
        compensate(run, 1)
    assert Run.objects.filter(agent="abeyance.compensate").count() == 1


def test_compensate_what_is_undone(outside: Outside) -> None:
    run = driven("charger")
    drive(compensate(run))
    hear()
    with pytest.raises(WrongState, match="undone already"):
        compensate(run, 0)
    assert hear() == []


@pytest.mark.django_db(transaction=True)
def test_compensate_by_two_at_once(outside: Outside) -> None:
    run = driven("charger")
    found = together(lambda: compensate(run), lambda: compensate(run))
    assert sorted(type(each).__name__ for each in found) == ["Run", "WrongState"]


def test_hear_twice_changes_nothing(outside: Outside) -> None:
    run = driven("charger")
    drive(compensate(run, 0))
    pk = step(run, 0).pk
    assert [compensation.hear(pk), compensation.hear(pk)] == [True, False]
    assert verbs(run).count("compensated") == 1


def test_compensate_after_one_that_failed(outside: Outside) -> None:
    run = driven("charger")
    endings.cancel(compensate(run).pk, actor=OPERATOR)
    assert hear() == [True, True]
    drive(compensate(run))
    hear()
    assert (ledger(run)[:2], outside.n("refund")) == (["compensated"] * 2, 2)


def test_undo_that_is_in_doubt_is_not_tried_by_another(outside: Outside) -> None:
    """A second undo would be a second dispatch that the database knows of."""
    run = driven("charger")
    outside.will("refund", "act_then_raise")
    undoing = drive(compensate(run, 0))
    endings.cancel(undoing.pk, actor=OPERATOR)
    assert hear() == [False]
    with pytest.raises(WrongState, match="is undoing it"):
        compensate(run, 0)
    row = step(undoing, 0)
    told = {"effect_key": row.key, "digest": row.arguments_digest, "attempt": 1}
    effects.evidence(undoing.pk, 0, known=Known("returned", '"r"'), actor=Actor.worker("w"), **told)
    assert (hear(), ledger(run)[0], outside.n("refund")) == ([True], "compensated", 1)


# -- What cannot be undone ------------------------------------------------------------------------------


def test_plan_says_what_cannot_be_undone(outside: Outside) -> None:
    run = driven("charger")
    parts = compensation.plan(run)
    assert [(p.step.index, p.why_not) for p in parts] == [
        (2, "Nothing is declared that undoes note."),
        (1, ""),
        (0, ""),
    ]


def test_compensate_of_a_live_run(outside: Outside) -> None:
    run = driven("charger", then="sleep")
    with pytest.raises(WrongState, match="after it has ended"):
        compensate(run)


def test_compensate_of_nothing() -> None:
    with pytest.raises(WrongState, match="nothing that can be undone"):
        compensate(driven("adder", n=2))
    with pytest.raises(WrongState, match="no effect that happened"):
        compensate(driven("charger"), 7)


def test_tool_that_nobody_knows_ends_the_undoing(outside: Outside) -> None:
    run = driven("charger")
    undoing = compensate(run, 0)
    del declared._registry["refund"]
    assert error(drive(undoing))["args"][0] == "AgentMistake"
    assert (hear(), ledger(run)[0]) == ([True], "confirmed")


def test_agent_is_started_by_the_verb_only() -> None:
    asked = lifecycle.Submission("abeyance.compensate", {}, {})
    with pytest.raises(UnknownAgent):
        lifecycle.submit(asked, actor=CYD)


# -- In doubt -------------------------------------------------------------------------------------------------


def in_doubt(outside: Outside, agent: str = "sender", tool: str = "send_money") -> Run:
    outside.will(tool, "act_then_raise")
    run = driven(agent)
    later(LIMIT + 1)
    go_on(run)
    assert causes(run) == ["in_doubt"]
    return run


def undo(run: Run) -> Run:
    doubts.settle(run.pk, 0, UNDO, actor=OPERATOR, owner_id="olu")
    found = step(run, 0).compensated_by
    assert found is not None
    return found


def test_doubt_undone_ends_the_call_compensated(outside: Outside) -> None:
    run = in_doubt(outside)
    undoing = undo(run)
    assert (causes(run), step(run, 0).effect) == (["in_doubt"], "in_doubt")
    drive(undoing)
    assert (hear(), step(run, 0).effect) == ([True], "compensated")
    run.refresh_from_db()
    drive(run)
    assert (result(run), step(run, 0).effect) == ("Compensated: the payee is gone", "compensated")
    assert (outside.n("send_money"), outside.n("recall")) == (1, 1)


def test_doubt_whose_undoing_fails_stays(outside: Outside) -> None:
    run = in_doubt(outside)
    endings.cancel(undo(run).pk, actor=OPERATOR)
    assert hear() == [True]
    assert (causes(run), step(run, 0).effect, step(run, 0).compensated_by) == (["in_doubt"], "in_doubt", None)
    drive(undo(run))  # and may be asked for again
    hear()
    run.refresh_from_db()
    assert result(drive(run)) == "Compensated: the payee is gone"


def test_doubt_being_undone_takes_no_other_answer(outside: Outside) -> None:
    run = in_doubt(outside)
    undo(run)
    for said in (Said("happened", "seen", '"r"'), Said("did_not_happen", "gone")):
        with pytest.raises(WrongState, match="is being undone by run"):
            doubts.settle(run.pk, 0, said, actor=OPERATOR)


@pytest.mark.parametrize("works", [True, False])
def test_late_result_while_it_is_undone(works: bool, outside: Outside) -> None:
    """Kept; it answers the doubt only if the undoing comes to nothing."""
    run = in_doubt(outside)
    undoing = undo(run)
    row = step(run, 0)
    told = {"effect_key": row.key, "digest": row.arguments_digest, "attempt": 1}
    effects.evidence(run.pk, 0, known=Known("returned", '"late"'), actor=Actor.worker("w"), **told)
    assert causes(run) == ["in_doubt"]
    drive(undoing) if works else endings.cancel(undoing.pk, actor=OPERATOR)
    hear()
    run.refresh_from_db()
    drive(run)
    expected = ("Compensated: the payee is gone", "compensated") if works else ("late", "confirmed")
    assert (result(run), step(run, 0).effect) == expected


def test_look_that_was_due_when_it_began_to_be_undone_looks_no_more(outside: Outside) -> None:
    """The sweeper found it a moment before a person had it undone: it is not sent again meanwhile."""
    outside.will("send_again", "act_then_raise")
    run = driven("resender")
    later(3600)
    due = list(sweeper._verbs["look_again"].find(clock.now()))
    assert due == [open_hold(run).pk]
    undo(run)
    assert sweeper._verbs["look_again"].act(due[0]) is False
    assert (causes(run), outside.n("send_again")) == (["in_doubt"], 1)


def test_call_that_is_being_undone_is_not_sent_again_whatever_releases_it(outside: Outside) -> None:
    outside.will("send_again", "act_then_raise")
    run = driven("resender")
    later(3600)
    undoing = undo(run)
    holds.look_again(open_hold(run).pk)
    run.refresh_from_db()
    assert (drive(run).status, causes(run), len(outside.tried("send_again"))) == (
        RunStatus.SUSPENDED,
        ["in_doubt"],
        1,
    )
    drive(undoing)
    hear()
    run.refresh_from_db()
    assert result(drive(run)) == "Compensated: the payee is gone"


def test_doubt_undone_after_the_end_changes_the_ledger(outside: Outside) -> None:
    run = in_doubt(outside)
    endings.cancel(run.pk, actor=CYD)
    drive(undo(run))
    hear()
    assert (Run.objects.get(pk=run.pk).status, step(run, 0).effect) == (RunStatus.CANCELLED, "compensated")


def test_doubt_cannot_be_undone_without_the_result_its_undo_needs(outside: Outside) -> None:
    run = in_doubt(outside, "charger", "charge")
    with pytest.raises(WrongState, match=r"cannot be undone by refund: .*result"):
        doubts.settle(run.pk, 0, UNDO, actor=OPERATOR)
    assert step(run, 0).compensated_by is None


def test_doubt_of_a_tool_that_nothing_undoes(outside: Outside) -> None:
    run = in_doubt(outside, "payer", "pay")
    with pytest.raises(WrongState, match="Nothing is declared that undoes pay"):
        doubts.settle(run.pk, 0, UNDO, actor=OPERATOR)


# -- Runs that have left ---------------------------------------------------------------------------------


def test_compensate_where_the_run_has_left(outside: Outside) -> None:
    """It goes on elsewhere with what it did."""
    run = driven("charger", then="sleep")
    moves.leave(run.pk, actor=OPERATOR, keep=lambda text: None)
    with pytest.raises(WrongState, match="goes on in another installation"):
        compensate(run)
    assert outside.n("refund") == 0


def test_leave_while_a_run_here_undoes_a_doubt(outside: Outside) -> None:
    """There nobody would know that it was undone."""
    run = in_doubt(outside)
    undo(run)
    with pytest.raises(WrongState, match="a run here is undoing its step 0"):
        moves.leave(run.pk, actor=OPERATOR, keep=lambda text: None)


# -- What is undone is not given back too ------------------------------------------------------------------


def renter() -> Run:
    run = driven("renter")
    claims.owe_ended(run.pk)
    assert step(run, 0).claim == "owed"
    return run


@pytest.mark.parametrize("works", [True, False])
def test_undo_what_is_still_owed(works: bool, outside: Outside) -> None:
    """One of the two reaches the outside: the claim waits for what comes of the undoing."""
    run = renter()
    tries = step(run, 0).claim_tries
    undoing = compensate(run)
    assert not Step.objects.claims_due(clock.now()).exists()
    assert claims.give_back(step(run, 0).pk, tries) is False
    drive(undoing) if works else endings.cancel(undoing.pk, actor=OPERATOR)
    assert hear() == [True]
    claims.give_back(step(run, 0).pk, tries)
    assert (outside.n("recall"), outside.n("free_keyed")) == ((1, 0) if works else (0, 1))
    assert step(run, 0).claim == "given_back"


def test_undo_what_a_worker_gives_back_at_this_moment(outside: Outside) -> None:
    """It was owed when the page was made, and a worker took it right before the start."""
    run = renter()
    parts = compensation.plan(run)
    Step.objects.filter(run=run).update(claim="giving", claim_tries=1)
    with pytest.raises(WrongState, match="is being given back at this moment"), transaction.atomic():
        compensation.start(lifecycle.lock(run.pk), parts, actor=OPERATOR, owner_id="olu", why="gone")
    assert Run.objects.count() == 1
