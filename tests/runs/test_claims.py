"""Claims: owed at the end of any kind, given back once, and shown while they are not."""

from collections.abc import Callable
from typing import Any

import pytest
from django.conf import settings

from runs import claims, clock, effects, endings, holds, invocation, jobs, points
from runs.actors import Actor
from runs.exceptions import NotFound, WrongState
from runs.invocation import Known
from runs.models import JournalEntry, Run, Step
from runs.states import RunStatus
from runs.tools import declared
from tests import undoing_for_tests
from tests.factories import (
    CYD,
    OPERATOR,
    drive,
    driven,
    go_on,
    later,
    step,
    submitted,
    verbs,
)
from tests.outside import Outside
from tests.undoing_for_tests import free

assert undoing_for_tests
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("invariants")]
Rules = Callable[..., None]
AGAIN = 3600.0


@pytest.fixture(autouse=True)
def rung(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """What the workers were rung for; nobody takes it but the test."""
    heard: list[tuple[str, ...]] = []
    monkeypatch.setattr(claims.queues, "enqueue", lambda path, *ids: heard.append((path, *ids)))
    monkeypatch.setattr(claims.queues, "ring", lambda run_id: None)
    return heard


def sweep() -> None:
    for run_id in list(Run.objects.filter(steps__claim="held").values_list("pk", flat=True)):
        claims.owe_ended(run_id)


def owed(how: str = "book", **more: Any) -> Run:
    """A run that ended and owes what it booked."""
    run = driven("booker", how=how, **more)
    sweep()
    assert step(run, 0).claim == "owed"
    return run


def give_back(run: Run) -> bool:
    row = step(run, 0)
    return claims.give_back(row.pk, row.claim_tries)


def state(run: Run) -> tuple[str, int]:
    row = step(run, 0)
    return row.claim, row.claim_tries


# -- Owing ---------------------------------------------------------------------------------


def test_claim_is_held_while_the_run_lives() -> None:
    run = driven("booker", then="sleep")
    assert (run.status, step(run, 0).claim) == (RunStatus.SUSPENDED, "held")
    assert not claims.owe_ended(run.pk)
    assert step(run, 0).claim == "held"


@pytest.mark.parametrize("then", ["", "fail"])
def test_owe_after_an_end_of_its_own(then: str) -> None:
    """The quick end does not stop for it: the sweeper finds it."""
    run = driven("booker", then=then)
    assert (run.ended, step(run, 0).claim) == (True, "held")
    assert claims.owe_ended(run.pk)
    assert not claims.owe_ended(run.pk)
    assert (step(run, 0).claim, verbs(run).count("claims_owed")) == ("owed", 1)


def test_owe_at_a_cancel_and_an_expiry() -> None:
    for end in (
        lambda run: endings.cancel(run.pk, actor=CYD),
        lambda run: Run.objects.filter(pk=run.pk).exists(),
    ):
        run = driven("booker", then="sleep")
        end(run)
        if not Run.objects.get(pk=run.pk).ended:
            later(7200)
            go_on(run)
            claims.owe_ended(run.pk)
        assert step(run, 0).claim == "owed"


@pytest.mark.parametrize("word", ["raise", "refuse"])
def test_nothing_is_owed_for_what_was_not_reserved(word: str, outside: Outside) -> None:
    outside.will("book", word)
    run = driven("booker")
    endings.cancel(run.pk, actor=CYD) if not run.ended else None
    assert (step(run, 0).claim, claims.owe_ended(run.pk)) == ("", False)


def test_late_evidence_that_it_was_reserved_makes_it_owed(outside: Outside) -> None:
    outside.will("book", "act_then_raise")
    run = driven("booker")
    endings.cancel(run.pk, actor=CYD)
    row = step(run, 0)
    told = {"effect_key": row.key, "digest": row.arguments_digest, "attempt": 1}
    effects.evidence(run.pk, 0, known=Known("returned", '"late"'), actor=Actor.worker("w1"), **told)
    assert claims.owe_ended(run.pk)
    give_back(run)
    assert (state(run), outside.acted("free")[0]["arguments"]["result"]) == (("given_back", 1), "late")


# -- Ringing -------------------------------------------------------------------------------------


def test_ring_tells_a_worker_once_and_again_later(rung: list[tuple[str, ...]]) -> None:
    run = owed()
    pk = step(run, 0).pk
    assert [claims.ring(pk), claims.ring(pk)] == [True, False]
    later(11)
    assert claims.ring(pk)
    assert rung == [("runs.jobs.give_back", str(pk), "0")] * 2


@pytest.mark.django_db(transaction=True)
def test_job_gives_back(rung: list[tuple[str, ...]], outside: Outside) -> None:
    run = owed()
    claims.ring(step(run, 0).pk)
    [(_, *ids)] = rung
    jobs.give_back(*ids)
    assert (state(run), outside.n("free")) == (("given_back", 1), 1)


def test_sweeper_finds_claims_of_both_kinds(rung: list[tuple[str, ...]]) -> None:
    from runs import sweeper

    run = driven("booker")
    for name in ("owe", "give_back"):
        verb = sweeper._verbs[name]
        assert [verb.act(item) for item in verb.find(clock.now())] == [True]
    assert rung == [("runs.jobs.give_back", str(step(run, 0).pk), "0")]


# -- Giving back ------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["book", "book_keyed", "book_checked"])
def test_give_back_calls_once_under_a_key_of_the_claim(how: str, outside: Outside) -> None:
    run = owed(how)
    assert give_back(run)
    tool = how.replace("book", "free")
    assert (state(run), outside.n(tool), outside.keys(tool)) == (
        ("given_back", 1),
        1,
        {claims.key(step(run, 0))},
    )
    assert claims.key(step(run, 0)) != step(run, 0).key
    assert verbs(run)[-1] == "claim_given_back"


def test_give_back_twice_calls_once(outside: Outside) -> None:
    run = owed()
    pk = step(run, 0).pk
    assert [claims.give_back(pk, 0), claims.give_back(pk, 0), claims.give_back(pk, 1)] == [True, False, False]
    assert outside.n("free") == 1


def test_give_back_while_another_worker_does(outside: Outside) -> None:
    run = owed("book_keyed")
    pk, seen = step(run, 0).pk, []
    with points.on("before-give-back", lambda: seen.append(claims.give_back(pk, 0))):
        claims.give_back(pk, 0)
    assert (seen, outside.n("free_keyed"), state(run)) == ([False], 1, ("given_back", 1))


def test_give_back_of_no_claim() -> None:
    run = driven("adder", n=1)
    assert not claims.give_back(step(run, 0).pk, 0)
    assert not claims.give_back(0, 0)


@pytest.mark.parametrize("word", ["refuse", "not_sent"])
def test_give_back_that_certainly_failed_is_tried_later(word: str, outside: Outside) -> None:
    outside.will("free", word, word, "ok")
    run, waits = owed(), []
    for ahead in (0, 100, 200):
        later(ahead)
        give_back(run)
        row = step(run, 0)
        if row.claim == "owed":
            assert row.claim_due_at is not None
            waits.append(round((row.claim_due_at - clock.now()).total_seconds()))
    assert (waits, state(run), outside.n("free")) == ([5, 10], ("given_back", 3), 1)
    assert len(outside.keys("free")) == 1


def test_give_back_says_the_last_problem(outside: Outside) -> None:
    outside.will("free", "refuse")
    run = owed()
    give_back(run)
    assert step(run, 0).claim_problem == "TurnedDown: no such account"


def test_unknown_of_a_plain_release_is_stuck(outside: Outside) -> None:
    outside.will("free", "act_then_raise")
    run = owed()
    give_back(run)
    later(AGAIN)
    assert (state(run), Step.objects.claims_due(clock.now()).count()) == (("stuck", 1), 0)
    assert not claims.give_back(step(run, 0).pk, 1)
    assert outside.n("free") == 1


def test_unknown_of_a_keyed_release_is_repeated(outside: Outside) -> None:
    outside.will("free_keyed", "act_then_raise")
    run = owed("book_keyed")
    give_back(run)
    assert state(run) == ("owed", 1)
    later(AGAIN)
    give_back(run)
    assert (state(run), len(outside.keys("free_keyed"))) == (("given_back", 2), 1)


@pytest.mark.parametrize(("word", "calls"), [("act_then_raise", 1), ("raise", 2)])
def test_unknown_of_a_checked_release_is_looked_at_first(word: str, calls: int, outside: Outside) -> None:
    outside.will("free_checked", word)
    run = owed("book_checked")
    give_back(run)
    due = step(run, 0).claim_due_at
    assert due is not None
    assert (due - clock.now()).total_seconds() > settings.ACT_MARGIN - 1  # not while it may still act
    later(AGAIN)
    give_back(run)
    assert (state(run), len(outside.tried("free_checked")), outside.n("free_checked")) == (
        ("given_back", 2),
        calls,
        1,
    )


def test_checked_release_that_cannot_be_looked_at_is_not_repeated(outside: Outside) -> None:
    outside.will("free_checked", "act_then_raise")
    outside.will("find_release", "raise")
    run = owed("book_checked")
    give_back(run)
    later(AGAIN)
    give_back(run)
    assert (state(run), len(outside.tried("free_checked"))) == (("owed", 2), 1)


# -- A worker that dies while it gives back ---------------------------------------------------------


class Killed(BaseException):
    """As if the process had died."""


def die() -> None:
    raise Killed


@pytest.mark.parametrize(
    ("how", "state_after"), [("book", "stuck"), ("book_keyed", "owed"), ("book_checked", "owed")]
)
def test_death_while_giving_back(how: str, state_after: str, outside: Outside) -> None:
    run = owed(how)
    with pytest.raises(Killed), points.on("before-give-back", die):
        give_back(run)
    row = step(run, 0)
    assert (row.claim, claims.ring(row.pk)) == ("giving", False)
    later(AGAIN)
    assert [claims.ring(row.pk), step(run, 0).claim] == [True, state_after]
    if state_after == "owed":
        give_back(run)
        assert (step(run, 0).claim, outside.n(how.replace("book", "free"))) == ("given_back", 1)


def test_late_success_counts_and_late_failure_does_not(outside: Outside) -> None:
    """The worker was slow, not dead: that it was given back is true whenever it says so."""
    run = owed("book_keyed")
    pk = step(run, 0).pk

    def lapse() -> None:
        later(AGAIN)
        claims.ring(pk)

    with points.on("after-call-before-record", lapse):
        give_back(run)
    assert state(run) == ("given_back", 1)
    other = owed("book_keyed")
    outside.will("free_keyed", "refuse")
    pk = step(other, 0).pk

    def count() -> None:
        later(2 * AGAIN)
        claims.ring(pk)
        claims.count_as_given_back(other.pk, 0, actor=OPERATOR, why="seen")

    with points.on("before-give-back", count):
        assert not give_back(other)
    assert state(other) == ("given_back", 1)


def test_claim_counted_before_the_call_is_not_called(
    outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Preparing took so long that a person settled it: nothing goes out any more."""
    run = owed("book_keyed")

    def slow(names: Any) -> dict[str, str]:
        later(AGAIN)
        claims.ring(step(run, 0).pk)
        claims.count_as_given_back(run.pk, 0, actor=OPERATOR, why="seen")
        return {}

    monkeypatch.setattr(claims.credentials, "obtain", slow)
    assert not give_back(run)
    assert outside.tried("free_keyed") == []


# -- The agent gave it back itself --------------------------------------------------------------------


def test_claim_the_agent_gave_back_is_not_given_back_again(outside: Outside) -> None:
    run = owed(then="back")
    give_back(run)
    assert (state(run), outside.n("free"), step(run, 0).claim_problem) == (
        ("given_back", 1),
        1,
        "The agent gave it back itself, in step 1.",
    )


def test_claim_of_which_the_agent_gave_back_another_is_given_back(outside: Outside) -> None:
    run = owed(then="other")
    give_back(run)
    assert [call["arguments"]["place"] for call in outside.acted("free")] == ["seat 2", "seat 1"]


def test_claim_the_agent_may_have_given_back_waits(outside: Outside) -> None:
    """Its own giving back is in doubt: a second one would be a second dispatch."""
    outside.will("free", "act_then_raise")
    run = driven("booker", then="back")
    endings.cancel(run.pk, actor=CYD)
    give_back(run)
    assert (state(run), len(outside.tried("free"))) == (("owed", 1), 1)
    row = step(run, 1)
    told = {"effect_key": row.key, "digest": row.arguments_digest, "attempt": 1}
    effects.evidence(run.pk, 1, known=Known("returned", '"freed"'), actor=Actor.worker("w1"), **told)
    later(AGAIN)
    give_back(run)
    assert (state(run), len(outside.tried("free"))) == (("given_back", 2), 1)


# -- What is missing -------------------------------------------------------------------------------------


def test_tool_that_nobody_knows_any_more(outside: Outside) -> None:
    run = owed()
    del declared._registry["book"]
    give_back(run)
    assert (state(run), step(run, 0).claim_problem) == (
        ("owed", 1),
        "No worker here knows the tool that gives back what book reserved.",
    )


def test_arguments_that_do_not_fit_any_more_are_stuck(outside: Outside) -> None:
    run = owed()
    Step.objects.filter(run=run, index=0).update(result="7")
    claim = step(run, 0)
    try:
        claims.give_back(claim.pk, 0)
        assert (step(run, 0).claim, outside.tried("free")) == ("stuck", [])
        assert "result" in step(run, 0).claim_problem
    finally:
        Step.objects.filter(run=run, index=0).update(result=claim.result.replace("7", '"receipt"'))
        Step.objects.filter(run=run, index=0).update(result=f'"receipt {claim.key[:8]}"')


def test_failure_before_the_call_is_tried_later(outside: Outside, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(names: Any) -> dict[str, str]:
        raise OSError("the vault is closed")

    run = owed()
    monkeypatch.setattr(claims.credentials, "obtain", broken)
    give_back(run)
    assert (state(run), step(run, 0).claim_problem, outside.tried("free")) == (
        ("owed", 1),
        "OSError: the vault is closed",
        [],
    )


def test_no_network_in_a_transaction(outside: Outside, monkeypatch: pytest.MonkeyPatch) -> None:
    from django.db import connection

    depth: list[int] = []
    real = invocation.run

    def watched(job: Any) -> Known:
        depth.append(len(connection.savepoint_ids))
        return real(job)

    run = owed()
    before = len(connection.savepoint_ids)
    monkeypatch.setattr(claims.invocation, "run", watched)
    give_back(run)
    assert depth == [before]
    assert free.name == "free"


# -- Operators ----------------------------------------------------------------------------------------------


def stuck(outside: Outside) -> Run:
    outside.will("free", "act_then_raise")
    run = owed()
    give_back(run)
    return run


def test_count_as_given_back_works_once_and_says_who(outside: Outside) -> None:
    run = stuck(outside)
    claims.count_as_given_back(run.pk, 0, actor=OPERATOR, why="seen in their system")
    entry = JournalEntry.objects.of(run.stream).last()
    assert entry is not None
    assert (state(run)[0], entry.verb, entry.actor_name) == (
        "given_back",
        "claim_counted_as_given_back",
        "olu",
    )
    with pytest.raises(WrongState, match="given back already"):
        claims.count_as_given_back(run.pk, 0, actor=OPERATOR, why="again")


def test_count_as_given_back_refuses_a_live_run_and_what_is_no_claim() -> None:
    run = driven("booker", then="sleep")
    with pytest.raises(WrongState, match="has not ended"):
        claims.count_as_given_back(run.pk, 0, actor=OPERATOR, why="x")
    with pytest.raises(NotFound):
        claims.count_as_given_back(run.pk, 1, actor=OPERATOR, why="x")


def test_count_as_given_back_during_the_call_waits_for_what_comes(outside: Outside) -> None:
    run = owed("book_keyed")
    seen: list[str] = []

    def count() -> None:
        with pytest.raises(WrongState) as refused:
            claims.count_as_given_back(run.pk, 0, actor=OPERATOR, why="x")
        seen.append(str(refused.value))

    with points.on("before-give-back", count):
        give_back(run)
    assert (seen, state(run)[0]) == (["step 0: a worker is giving it back at this moment"], "given_back")


def test_try_again_after_a_look(outside: Outside) -> None:
    run = stuck(outside)
    claims.try_again(run.pk, 0, actor=OPERATOR, why="it is still booked there")
    give_back(run)
    assert (state(run), len(outside.keys("free"))) == (("given_back", 2), 1)


def test_pause_of_an_ended_run_changes_no_claim() -> None:
    run = owed()
    assert holds.pause
    drive(run)
    assert state(run) == ("owed", 0)
    assert submitted("booker").status == "queued"
