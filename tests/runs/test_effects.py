"""Effects: once, or a question, never twice. The table of what is unknown, for every declaration.

The outside is a folder that keeps every call; the clock is shifted past `may_act_until`. A worker that dies
is an exception no handler catches; `tests/crashes` does the same with processes that are killed.
"""

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.db import transaction

from runs import allowance, clock, doubts, effects, endings, holds, lifecycle, points
from runs import lease as leases
from runs.actors import Actor
from runs.doubts import Said
from runs.invocation import Known
from runs.models import Run, Step
from runs.states import Cause, RunStatus
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
    result,
    step,
    submitted,
    sweep_run,
    verbs,
)
from tests.outside import Outside

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("invariants")]
Rules = Callable[..., None]
ALL = ["pay", "pay_keyed", "pay_checked"]
LIMIT = SHORT + 5.0  # seconds after a dispatch until a payment can certainly not act any more


class Killed(BaseException):
    """As if the process had died."""


def die() -> None:
    raise Killed


def killed(how: str, point: str) -> Run:
    """A run whose worker died at `point` of its payment, after its lease ran out; not taken again yet."""
    run = submitted("payer", how=how)
    with pytest.raises(Killed), points.on(point, die):
        drive(run)
    later(settings.LEASE + 0.5)
    assert lifecycle.recover(run.pk)
    run.refresh_from_db()
    return run


def until_settled(run: Run) -> Run:
    """Goes on before the limit, at it, and long after."""
    go_on(run)
    for seconds in (LIMIT + 2, 2 * LIMIT + 10, 3600):
        later(seconds)
        go_on(run)
    return run


# -- Keys and limits -------------------------------------------------------------------------


def test_key_is_the_same_at_every_attempt_and_another_for_every_call() -> None:
    run, other = submitted("payer"), submitted("payer")
    keys = {effects.key(r.pk, i) for r in (run, other) for i in (0, 1)}
    assert (len(keys), effects.key(run.pk, 0) in keys) == (4, True)


def test_dispatch_writes_key_attempt_and_limit_before_the_call(outside: Outside) -> None:
    seen: list[Step] = []
    run = submitted("payer")
    with points.on("after-intent-before-call", lambda: seen.append(step(run, 0))):
        drive(run)
    row = seen[0]
    assert (row.status, row.effect, row.key, row.attempt) == (
        "dispatched",
        "dispatched",
        effects.key(run.pk, 0),
        1,
    )
    assert row.dispatched_at is not None
    assert row.may_act_until == row.dispatched_at + timedelta(seconds=LIMIT)
    assert outside.keys("pay") == {row.key}


@pytest.mark.parametrize("how", ALL)
def test_receipt_confirms(how: str, outside: Outside) -> None:
    run = driven("payer", how=how)
    assert (result(run), step(run, 0).effect, step(run, 0).status) == (
        f"receipt {effects.key(run.pk, 0)[:8]}",
        "confirmed",
        "done",
    )
    assert outside.n(how) == 1


# -- Certainly not done ----------------------------------------------------------------------


@pytest.mark.parametrize("how", ALL)
def test_refusal_is_the_agents_and_is_not_repeated(how: str, outside: Outside) -> None:
    outside.will(how, "refuse")
    run = driven("payer", how=how)
    assert error(run)["args"] == ["TurnedDown", "no such account"]
    assert (run.status, step(run, 0).effect, len(outside.tried(how))) == (RunStatus.FAILED, "refused", 1)


@pytest.mark.parametrize("how", ALL)
def test_not_sent_without_retries_is_the_agents(how: str, outside: Outside) -> None:
    outside.will(how, "not_sent")
    run = driven("payer", how=how)
    assert (error(run), step(run, 0).effect) == (
        {"type": "NotSent", "args": ["connection refused"]},
        "refused",
    )
    assert len(outside.tried(how)) == 1


def test_not_sent_is_tried_again_with_the_same_key(outside: Outside) -> None:
    outside.will("pay_retried", "not_sent", "not_sent", "ok")
    run = driven("payer", how="pay_retried")
    assert (run.status, step(run, 0).attempt, step(run, 0).effect) == (RunStatus.SUCCEEDED, 3, "confirmed")
    assert (outside.n("pay_retried"), outside.keys("pay_retried")) == (1, {effects.key(run.pk, 0)})
    assert [call["attempt"] for call in outside.tried("pay_retried")] == [1, 2, 3]


def test_not_sent_gives_up_after_its_retries(outside: Outside) -> None:
    outside.will("pay_retried", *["not_sent"] * 9)
    run = driven("payer", how="pay_retried")
    assert (error(run)["type"], step(run, 0).effect, len(outside.tried("pay_retried"))) == (
        "NotSent",
        "refused",
        3,
    )


def test_not_sent_then_unknown_is_not_tried_again(outside: Outside) -> None:
    """What may have happened is never retried by the machinery, retries or not."""
    outside.will("pay_retried", "not_sent", "act_then_raise", "ok")
    run = until_settled(driven("payer", how="pay_retried"))
    assert (run.status, causes(run), outside.n("pay_retried")) == (RunStatus.SUSPENDED, ["in_doubt"], 1)


def test_not_sent_while_paused_starts_no_second_attempt(outside: Outside) -> None:
    outside.will("pay_retried", "not_sent", "ok")
    run = submitted("payer", how="pay_retried")
    seen: list[str] = []

    def pause_once() -> None:
        if not seen:
            seen.append("")
            holds.pause(run.pk, actor=CYD)

    with points.on("after-intent-before-call", pause_once):
        drive(run)
    assert outside.n("pay_retried") == 0
    assert step(run, 0).effect == "refused"


def test_retry_keeps_which_permit_it_used(outside: Outside, rules: Rules) -> None:
    rules(pay_retried="hold")
    outside.will("pay_retried", "not_sent", "ok")
    run = driven("payer", how="pay_retried")
    hold = approve(open_hold(run), arguments={"amount": "25.00", "to": "ACME"})
    drive(run)
    row = step(run, 0)
    assert (row.permit, row.attempt, row.executed) == (str(hold.pk), 2, '{"amount":"25.00","to":"ACME"}')
    assert [call["arguments"]["amount"] for call in outside.tried("pay_retried")] == ["25.00", "25.00"]


# -- Unknown: the table -----------------------------------------------------------------------

UNKNOWN = ["hang", "act_then_hang", "raise", "act_then_raise", "exit"]


@pytest.mark.parametrize("word", UNKNOWN)
def test_unknown_of_a_plain_effect_waits_for_a_person(word: str, outside: Outside) -> None:
    """Neither verify nor a key that is honoured: never a silent second call."""
    outside.will("pay", word)
    run = driven("payer")
    assert (run.status, causes(run), step(run, 0).effect) == (RunStatus.SUSPENDED, ["in_doubt"], "in_doubt")
    until_settled(run)
    assert (run.status, causes(run), step(run, 0).effect) == (RunStatus.SUSPENDED, ["in_doubt"], "in_doubt")
    assert (len(outside.tried("pay")), step(run, 0).attempt) == (1, 1)


def test_unknown_of_a_plain_effect_asks_people_only_after_its_limit(outside: Outside) -> None:
    outside.will("pay", "act_then_raise")
    run = driven("payer")
    first = open_hold(run)
    assert first.look_again_at is not None
    assert abs((first.look_again_at - (step(run, 0).may_act_until or clock.now())).total_seconds()) < 0.5
    later(LIMIT + 1)
    go_on(run)
    assert (open_hold(run).look_again_at, open_hold(run).pk != first.pk) == (None, True)


@pytest.mark.parametrize("word", UNKNOWN)
def test_unknown_of_a_keyed_effect_is_repeated_with_the_same_key(word: str, outside: Outside) -> None:
    outside.will("pay_keyed", word, "ok")
    run = driven("payer", how="pay_keyed")
    assert causes(run) == ["in_doubt"]
    later(1)
    go_on(run)
    assert (run.status, step(run, 0).effect, step(run, 0).attempt) == (RunStatus.SUCCEEDED, "confirmed", 2)
    assert outside.keys("pay_keyed") == {effects.key(run.pk, 0)}
    assert [call["attempt"] for call in outside.tried("pay_keyed")] == [1, 2]


def test_unknown_of_a_keyed_effect_waits_longer_each_time(outside: Outside) -> None:
    outside.will("pay_keyed", *["raise"] * 4)
    run = driven("payer", how="pay_keyed")
    waits = []
    for seconds in (1, 3, 7, 15):
        hold = open_hold(run)
        waits.append(round(((hold.look_again_at or clock.now()) - hold.opened_at).total_seconds(), 1))
        later(seconds)
        go_on(run)
    assert (waits, run.status) == ([0.2, 0.4, 0.8, 1.6], RunStatus.SUCCEEDED)


@pytest.mark.parametrize("word", UNKNOWN)
def test_unknown_of_a_checked_effect_is_looked_at(word: str, outside: Outside) -> None:
    """Happened: the receipt is adopted. Did not: repeated with the same key, and not before its limit."""
    outside.will("pay_checked", word)
    run = driven("payer", how="pay_checked")
    acted = outside.n("pay_checked")
    assert run.status == (RunStatus.SUCCEEDED if acted else RunStatus.SUSPENDED)
    later(LIMIT - 1)
    go_on(run)
    assert len(outside.tried("pay_checked")) == 1
    later(LIMIT + 1)
    go_on(run)
    assert (run.status, step(run, 0).effect, outside.n("pay_checked")) == (
        RunStatus.SUCCEEDED,
        "confirmed",
        1,
    )
    assert (len(outside.tried("pay_checked")), outside.keys("pay_checked")) == (
        1 if acted else 2,
        {effects.key(run.pk, 0)},
    )


def test_unknown_of_a_checked_effect_when_the_look_fails(outside: Outside) -> None:
    """Cannot tell: in doubt, looked at again at the limit, then a person's."""
    outside.will("pay_checked", "act_then_raise")
    outside.will("find", "raise", "raise", "raise")
    run = driven("payer", how="pay_checked")
    assert (causes(run), open_hold(run).look_again_at is None) == (["in_doubt"], False)
    assert (
        open_hold(run).why
        == "Looking whether it happened failed: ConnectionResetError: no answer \\x00 from the bank"
    )
    later(LIMIT + 1)
    go_on(run)
    assert (causes(run), open_hold(run).look_again_at, outside.n("pay_checked")) == (["in_doubt"], None, 1)


def test_unknown_of_a_checked_effect_happens_late(outside: Outside) -> None:
    """ "Did not" before the limit is not final: the call may still act."""
    outside.will("pay_checked", "raise")
    run = driven("payer", how="pay_checked")
    outside.record("pay_checked", effects.key(run.pk, 0), 1, {}, acted=True)  # it was slow, not lost
    later(LIMIT + 1)
    go_on(run)
    assert (run.status, outside.n("pay_checked"), step(run, 0).attempt) == (RunStatus.SUCCEEDED, 1, 1)


@pytest.mark.parametrize("how", ALL)
def test_result_that_cannot_be_kept_did_happen(how: str, outside: Outside) -> None:
    outside.will(how, "unkept")
    run = until_settled(driven("payer", how=how))
    assert (run.status, step(run, 0).effect, outside.n(how)) == (RunStatus.FAILED, "confirmed", 1)
    assert error(run)["args"][0] == "BadResult"


# -- A worker that dies ---------------------------------------------------------------------------

NOT_YET, HAPPENED = "after-intent-before-call", "after-call-before-record"


@pytest.mark.parametrize("point", [NOT_YET, HAPPENED])
def test_death_around_a_plain_effect_is_a_question(point: str, outside: Outside) -> None:
    run = until_settled(killed("pay", point))
    assert (run.status, causes(run)) == (RunStatus.SUSPENDED, ["in_doubt"])
    assert len(outside.tried("pay")) == (0 if point == NOT_YET else 1)


@pytest.mark.parametrize("point", [NOT_YET, HAPPENED])
def test_death_around_a_keyed_effect_is_repeated_with_the_same_key(point: str, outside: Outside) -> None:
    run = drive(killed("pay_keyed", point))
    assert (run.status, step(run, 0).attempt) == (RunStatus.SUCCEEDED, 2)
    assert (len(outside.tried("pay_keyed")), len(outside.keys("pay_keyed"))) == (
        1 if point == NOT_YET else 2,
        1,
    )


@pytest.mark.parametrize("point", [NOT_YET, HAPPENED])
def test_death_around_a_checked_effect_is_verified(point: str, outside: Outside) -> None:
    run = until_settled(drive(killed("pay_checked", point)))
    assert (run.status, outside.n("pay_checked")) == (RunStatus.SUCCEEDED, 1)
    assert step(run, 0).attempt == (2 if point == NOT_YET else 1)


@pytest.mark.parametrize("how", ALL)
def test_death_after_the_receipt_calls_nothing_again(how: str, outside: Outside) -> None:
    """The receipt of a plain effect is committed at once; others are found again by key or verify."""
    run = submitted("payer", how=how)
    with pytest.raises(Killed), points.on("before-finish", die):
        drive(run)
    later(settings.LEASE + 0.5)
    go_on(run)
    assert (run.status, outside.n(how), step(run, 0).attempt) == (RunStatus.SUCCEEDED, 1, 1)


def test_death_before_the_receipt_of_a_pure_step_loses_only_that() -> None:
    run = submitted("adder", n=3)
    seen: list[str] = []

    def die_third() -> None:
        seen.append("")
        if len(seen) == 3:
            die()

    with pytest.raises(Killed), points.on("after-call-before-record", die_third):
        drive(run)
    run.refresh_from_db()
    assert run.position == 2
    later(settings.LEASE + 0.5)
    assert result(go_on(run)) == 3


@pytest.mark.parametrize("how", ALL)
def test_death_in_a_retry_counts_as_any(how: str, outside: Outside) -> None:
    """Idempotent, verified or neither: after two deaths the promise is the same."""
    run = killed(how, HAPPENED)
    if how == "pay_keyed":
        with pytest.raises(Killed), points.on(HAPPENED, die):
            drive(run)
        later(2 * settings.LEASE + 1)
        lifecycle.recover(run.pk)
        run.refresh_from_db()
    until_settled(go_on(run))
    assert len(outside.keys(how)) == 1
    assert len(outside.tried(how)) == (3 if how == "pay_keyed" else 1)


@pytest.mark.parametrize("how", ["pay_keyed", "pay_again"])
def test_not_sent_after_an_attempt_that_may_have_acted_is_no_refusal(how: str, outside: Outside) -> None:
    """That the second attempt reached nobody says nothing of the first; it is repeated under its key."""
    outside.will(how, "act_then_raise", "not_sent", "not_sent")
    run = until_settled(driven("payer", how=how))
    assert (run.status, step(run, 0).effect) == (RunStatus.SUCCEEDED, "confirmed")
    assert (len(outside.tried(how)), len(outside.keys(how))) == (4, 1)


def test_refusal_after_an_attempt_that_may_have_acted_is_the_outsides_word(outside: Outside) -> None:
    """Who honours the key knows of the first attempt when it declines the second."""
    outside.will("pay_keyed", "raise", "refuse")
    run = until_settled(driven("payer", how="pay_keyed"))
    assert (run.status, step(run, 0).effect, error(run)["args"][0]) == (
        RunStatus.FAILED,
        "refused",
        "TurnedDown",
    )


# -- Two workers ------------------------------------------------------------------------------------


def test_worker_that_lost_the_run_makes_no_call(outside: Outside, monkeypatch: pytest.MonkeyPatch) -> None:
    """F52, before the fence: its own clock says that somebody else may have the run."""
    run = submitted("payer")
    monkeypatch.setattr(leases.Lease, "alive", lambda self: False)
    drive(run)
    assert (run.status, outside.tried()) == (RunStatus.RUNNING, [])


@pytest.mark.parametrize("how", ALL)
def test_result_of_a_worker_that_lost_the_run_settles_its_own_doubt(how: str, outside: Outside) -> None:
    """F52, after the fence: its late result is evidence, and moves nothing but its own effect."""
    run = submitted("transfer", how=how)

    def lose() -> None:
        row = Step.objects.filter(run=run, index=1).first()
        if row and row.effect == "dispatched":
            Run.objects.filter(pk=run.pk).update(lease_until=clock.now() - timedelta(seconds=1))
            assert lifecycle.recover(run.pk)

    with points.on("after-call-before-record", lose):
        drive(run)
    row = step(run, 1)
    assert (run.status, run.epoch, row.status, row.effect) == (
        RunStatus.QUEUED,
        2,
        "dispatched",
        "dispatched",
    )
    assert [(e["attempt"], e["kind"], e["digest"]) for e in row.evidence] == [
        (1, "returned", row.arguments_digest)
    ]
    assert outside.n("note") == 1
    drive(run)
    assert (run.status, step(run, 1).effect, step(run, 1).attempt) == (RunStatus.SUCCEEDED, "confirmed", 1)
    assert [outside.n(how), outside.n("note")] == [1, 2]
    assert verbs(run).count("evidence") == 1


def test_refusal_of_a_worker_that_lost_the_run_is_evidence_of_a_refusal(outside: Outside) -> None:
    outside.will("pay", "refuse")
    run = submitted("payer")

    def lose() -> None:
        Run.objects.filter(pk=run.pk).update(lease_until=clock.now() - timedelta(seconds=1))
        assert lifecycle.recover(run.pk)

    with points.on("after-effect-before-record", lose):
        drive(run)
    assert [e["kind"] for e in step(run, 0).evidence] == ["refused"]
    drive(run)
    assert (run.status, step(run, 0).effect) == (RunStatus.FAILED, "refused")
    assert error(run)["args"] == ["TurnedDown", "no such account"]


def test_not_sent_of_a_worker_that_lost_the_run_refuses_nothing_that_may_have_acted(outside: Outside) -> None:
    outside.will("pay_keyed", "act_then_raise", "not_sent")
    run = driven("payer", how="pay_keyed")
    later(3600)
    go_on_once = sweep_run(run)

    def lose() -> None:
        Run.objects.filter(pk=run.pk).update(lease_until=clock.now() - timedelta(seconds=1))
        assert lifecycle.recover(run.pk)

    with points.on("after-effect-before-record", lose):
        drive(run)
    assert (go_on_once, len(outside.tried("pay_keyed")), step(run, 0).attempt) == (["look_again"], 2, 2)
    assert step(run, 0).evidence == []
    assert (until_settled(run).status, step(run, 0).effect) == (RunStatus.SUCCEEDED, "confirmed")


def test_results_of_calls_side_by_side_are_evidence_when_the_run_is_lost(outside: Outside) -> None:
    """Each is kept, not only the first one's, and nobody is asked about any."""
    run = submitted("batch")

    def lose() -> None:
        while len(outside.tried("pay")) < 3:
            time.sleep(0.01)
        if Run.objects.get(pk=run.pk).status == RunStatus.RUNNING:
            Run.objects.filter(pk=run.pk).update(lease_until=clock.now() - timedelta(seconds=1))
            assert lifecycle.recover(run.pk)

    with points.on("after-effect-before-record", lose):
        drive(run)
    assert run.status == RunStatus.QUEUED
    assert [len(row.evidence) for row in run.steps.all()] == [1, 1, 1]
    assert (drive(run).status, outside.n("pay")) == (RunStatus.SUCCEEDED, 3)


def test_stale_worker_writes_nothing(outside: Outside) -> None:
    """3: a pure step, a hold, a park and an end under an old epoch move nothing."""
    run = submitted("adder", n=3)

    def lose() -> None:
        Run.objects.filter(pk=run.pk).update(lease_until=clock.now() - timedelta(seconds=1))
        lifecycle.recover(run.pk)

    with points.on("after-call-before-record", lose):
        drive(run)
    assert (run.status, run.position, run.steps.count()) == (RunStatus.QUEUED, 0, 0)


def test_limit_counts_from_the_call_and_not_from_an_intent_long_before(
    outside: Outside, settings: Any
) -> None:
    """Calls beside it took their time at the gate: it may act until later than its intent says."""
    settings.ACT_MARGIN = 0.2
    run = submitted("batch")
    with points.on("after-intent-before-call", lambda: time.sleep(0.3)):
        drive(run)
    two = run.steps.order_by("index")[:2]
    given = [row.may_act_until - row.dispatched_at for row in two if row.may_act_until and row.dispatched_at]
    assert [each > timedelta(seconds=SHORT + 0.2 + 0.3) for each in given] == [True, True]


# -- Evidence -----------------------------------------------------------------------------------------


def in_doubt(outside: Outside, how: str = "pay") -> Run:
    outside.will(how, "act_then_raise")
    return driven("payer", how=how)


def bring(run: Run, text: str = '"late receipt"', *, kind: str = "returned", **changes: str) -> bool:
    row = step(run, 0)
    told = {"effect_key": row.key, "digest": row.arguments_digest, **changes}
    known = Known(kind, text)  # type: ignore[arg-type]
    return effects.evidence(run.pk, 0, attempt=1, known=known, actor=Actor.worker("w1"), **told)


def test_evidence_settles_a_doubt(outside: Outside) -> None:
    run = in_doubt(outside)
    assert bring(run)
    run.refresh_from_db()
    assert (run.status, causes(run)) == (RunStatus.QUEUED, [])
    assert (result(drive(run)), step(run, 0).effect, outside.n("pay")) == ("late receipt", "confirmed", 1)


def test_evidence_of_a_refusal_settles_a_doubt(outside: Outside) -> None:
    run = in_doubt(outside)
    bring(run, '{"args":["no"],"type":"Rejected"}', kind="refused")
    run.refresh_from_db()
    assert (drive(run).status, step(run, 0).effect) == (RunStatus.FAILED, "refused")


def test_evidence_twice_is_kept_and_settles_once(outside: Outside) -> None:
    run = in_doubt(outside)
    bring(run)
    bring(run, '"another receipt"')
    run.refresh_from_db()
    assert (result(drive(run)), len(step(run, 0).evidence)) == ("late receipt", 2)


def test_evidence_with_another_key(outside: Outside) -> None:
    run = in_doubt(outside)
    assert not bring(run, effect_key="0" * 40)
    assert (step(run, 0).evidence, causes(run)) == ([], ["in_doubt"])


def test_evidence_of_other_arguments_is_kept_and_settles_nothing(outside: Outside) -> None:
    run = in_doubt(outside)
    assert bring(run, digest="0" * 64)
    assert (len(step(run, 0).evidence), causes(run), step(run, 0).effect) == (1, ["in_doubt"], "in_doubt")


def test_evidence_of_other_arguments_does_not_settle_a_run_that_ended(outside: Outside) -> None:
    run = in_doubt(outside)
    endings.cancel(run.pk, actor=CYD)
    bring(run, digest="0" * 64)
    assert step(run, 0).effect == "in_doubt"


def test_evidence_moves_nothing_of_a_paused_run_but_its_effect(outside: Outside) -> None:
    run = in_doubt(outside)
    holds.pause(run.pk, actor=CYD)
    bring(run)
    run.refresh_from_db()
    assert (run.status, causes(run)) == (RunStatus.SUSPENDED, [Cause.PERSON])
    holds.unpause(run.pk, actor=CYD)
    run.refresh_from_db()
    assert (result(drive(run)), outside.n("pay")) == ("late receipt", 1)


def test_evidence_after_the_step_settled_is_kept_only(outside: Outside) -> None:
    run = driven("payer")
    before = step(run, 0)
    assert bring(run, '"another"')
    after = step(run, 0)
    assert (after.result, after.effect, after.settled, len(after.evidence)) == (
        before.result,
        "confirmed",
        1,
        1,
    )


# -- In a group ------------------------------------------------------------------------------------------


def test_doubt_of_one_in_a_group_keeps_the_receipts_of_the_others(outside: Outside) -> None:
    outside.will("pay", "act_then_raise")
    run = driven("batch")
    assert (run.status, causes(run), run.position, outside.n("pay")) == (
        RunStatus.SUSPENDED,
        ["in_doubt"],
        2,
        3,
    )
    until_settled(run)
    assert outside.n("pay") == 3


def test_doubt_does_not_bind_the_others_of_its_group(outside: Outside, rules: Rules) -> None:
    rules(pay="hold")
    outside.will("pay", "act_then_raise")
    run = driven("batch")
    approve(open_hold(run, index=0))
    drive(run)
    assert sorted(causes(run)) == ["approval", "approval", "in_doubt"]
    approve(open_hold(run, index=2))
    run.refresh_from_db()
    drive(run)
    assert [call["arguments"]["to"] for call in outside.tried("pay")] == ["A", "C"]


def test_sweep_leaves_a_persons_doubt_alone(outside: Outside) -> None:
    run = in_doubt(outside)
    until_settled(run)
    later(10**6)
    assert sweep_run(run) == []


# -- Backoff -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("attempt", "seconds"), [(0, 0.2), (1, 0.2), (2, 0.4), (5, 3.2), (40, 300.0)])
def test_backoff_doubles_to_five_minutes(attempt: int, seconds: float) -> None:
    from tests.agents_for_tests import pay_keyed

    assert effects.backoff(pay_keyed, attempt) == pytest.approx(seconds)


def test_result_that_comes_while_the_next_attempt_waits_for_its_allowance(outside: Outside) -> None:
    """A person said that it did not happen, and it had: it waits for nothing any more."""
    run = in_doubt(outside)
    later(LIMIT + 2)
    go_on(run)
    doubts.settle(run.pk, 0, Said("did_not_happen", "the bank has nothing"), actor=OPERATOR)
    run.refresh_from_db()
    fence = lifecycle.take(run.pk, "w")
    assert fence is not None
    with transaction.atomic():
        row = allowance.lacking(lifecycle.lock(run.pk), "tokens")
        said = {"need": "1", "unit": "tokens"}
        told = {"subject": str(row.pk), "detail": said, "step": step(run, 0), "why": "It needs 1 token."}
        holds.place(lifecycle.lock(run.pk), cause=Cause.ALLOWANCE, actor=fence.actor, **told)  # type: ignore[arg-type]
    lifecycle.park(fence, Run.objects.get(pk=run.pk).wakes)
    bring(run)
    assert causes(run) == []
    run.refresh_from_db()
    assert (result(drive(run)), outside.n("pay")) == ("late receipt", 1)
