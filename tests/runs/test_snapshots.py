"""What a stopped run must still be when it goes on; anything changed under it holds the run."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction

from runs import agents, allowance, credentials, holds, lifecycle, snapshots
from runs.agents import RunContext
from runs.models import Run, Snapshot, Step
from runs.models.snapshot import NAMED, SCHEMA_VERSION
from runs.states import RunStatus
from runs.tools import ToolContext, outcomes, tool
from tests import agents_for_tests as ours
from tests.factories import CYD, answer, approve, causes, drive, driven, open_hold, result, step
from tests.outside import Outside

pytestmark = pytest.mark.django_db  # without the invariants: these tests break them on purpose
Rules = Callable[..., None]


@pytest.fixture
def stopped(rules: Rules) -> Run:
    """Approved and due: a note is recorded, the payment may start."""
    rules(pay="hold")
    run = driven("transfer")
    approve(open_hold(run))
    run.refresh_from_db()
    return run


def held(run: Run) -> str:
    drive(run)
    assert (run.status, causes(run)) == (RunStatus.SUSPENDED, ["diverged"])
    return open_hold(run).why


def test_untouched_goes_on(stopped: Run, outside: Outside) -> None:
    assert drive(stopped).status == RunStatus.SUCCEEDED
    assert outside.n("pay") == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"result": '"another receipt"'},
        {"tool_version": "0" * 64},
        {"arguments_digest": "0" * 64},
        {"executed_digest": "0" * 64},
        {"status": "raised"},
        {"tool": "add"},
    ],
)
def test_settled_step_changed(changes: dict[str, Any], stopped: Run, outside: Outside) -> None:
    Step.objects.filter(run=stopped, index=0).update(**changes)
    assert held(stopped)[:33] == "the record of the first 1 steps w"
    assert outside.n("pay") == 0


def test_settled_step_removed(stopped: Run, outside: Outside) -> None:
    Step.objects.filter(run=stopped, index=0).delete()
    assert held(stopped) == "the number of settled steps was 1 when the run stopped and is 0 now"
    assert outside.n("pay") == 0


def test_agent_version_changed(stopped: Run, outside: Outside) -> None:
    known = agents.find("transfer", "1")
    assert known is not None
    agents.register(agents.Agent("transfer", "2", known.function))
    Run.objects.filter(pk=stopped.pk).update(agent_version="2")
    assert held(stopped) == "the agent was transfer@1 when the run stopped and is transfer@2 now"
    assert outside.n("pay") == 0


def test_arguments_of_a_waiting_call_changed(stopped: Run, outside: Outside) -> None:
    """F14: edited in the database between approval and call."""
    Step.objects.filter(run=stopped, index=1).update(arguments='{"amount":"9999.00","to":"ACME"}')
    assert held(stopped)[:41] == "the digest of the arguments of step 1 was"
    assert outside.tried("pay") == []


def test_arguments_of_a_doubt_changed(outside: Outside) -> None:
    """What is repeated is what was sent."""
    outside.will("pay_keyed", "raise", "ok")
    run = driven("payer", how="pay_keyed")
    Step.objects.filter(run=run, index=0).update(arguments='{"amount":"9999.00","to":"ACME"}')
    holds.look_again(open_hold(run).pk)
    run.refresh_from_db()
    assert held(run)[:41] == "the digest of the arguments of step 0 was"
    assert len(outside.tried("pay_keyed")) == 1


def test_newer_schema_is_refused_loudly(stopped: Run) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("ALTER TABLE runs_snapshot DISABLE TRIGGER snapshot_append_only")
        cursor.execute("UPDATE runs_snapshot SET schema_version = %s", [SCHEMA_VERSION + 1])
        cursor.execute("ALTER TABLE runs_snapshot ENABLE TRIGGER snapshot_append_only")
    assert held(stopped)[:39] == f"the snapshot's schema was version {SCHEMA_VERSION + 1} whe"


def test_what_settled_since_is_no_difference(rules: Rules, outside: Outside) -> None:
    """One of three goes on while two wait: its settling is a legitimate addition."""
    rules(pay="hold")
    run = driven("batch")
    for index in range(3):
        approve(open_hold(run, index=index))
        run.refresh_from_db()
        drive(run)
    assert (run.status, outside.n("pay"), run.snapshots.count()) == (RunStatus.SUCCEEDED, 3, 3)


def test_snapshot_is_of_constant_size_and_numbered() -> None:
    run = driven("questioner")
    answer(open_hold(run), number=1)
    drive(run)
    first, second = run.snapshots.order_by("number")
    assert [(s.number, s.steps, s.attempted, s.epoch) for s in (first, second)] == [
        (1, 1, 2, 1),
        (2, 2, 3, 2),
    ]
    assert (first.effects, first.effects_digest) == (second.effects, second.effects_digest)
    assert [[w["cause"] for w in s.why] for s in (first, second)] == [["question"], ["question"]]


def long_run(steps: int) -> Run:
    """So many steps, every twentieth with an effect, then a stop."""

    @agents.agent(name=f"long-{steps}")
    async def long_one(run: RunContext) -> int:
        for n in range(steps):
            await (ours.add(n, n) if n % 20 else ours.note(f"note {n}"))
        return (await ours.ask("how many?", ours.Answer)).number

    run = driven(f"long-{steps}")
    while run.status == RunStatus.QUEUED:  # handed back for others
        drive(run)
    return run


def size(taken: Snapshot) -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_column_size(s.*) FROM runs_snapshot s WHERE id = %s", [taken.pk])
        found: int = cursor.fetchone()[0]
    return found


@pytest.mark.django_db(transaction=True)  # thousands of versions of one row in one transaction are slow
def test_snapshot_of_2000_steps_is_no_larger_than_one_of_20() -> None:
    short, long = (long_run(steps).snapshots.get() for steps in (20, 2000))
    assert [(taken.steps, taken.effects) for taken in (short, long)] == [(20, 1), (2000, 100)]
    assert size(long) == pytest.approx(size(short), rel=0.1)


def test_snapshot_of_many_holds_names_the_first_of_them(rules: Rules) -> None:
    """Sixty calls wait; twenty are named, all are counted."""
    rules(pay="hold")

    @agents.agent(name="wide")
    async def wide(run: RunContext) -> None:
        await outcomes(*(ours.pay(Decimal(n + 1), "A" * 200) for n in range(60)))

    taken = driven("wide").snapshots.get()
    assert (taken.open_holds, len(taken.why), taken.attempted) == (60, NAMED, 60)
    assert [w["index"] for w in taken.why[:3]] == [0, 1, 2]


def test_snapshot_tells_claims_allowances_and_names_of_credentials() -> None:
    credentials.register("bank", lambda: "s3cret-token")

    @tool(effect=True, idempotent=True)
    def free_seat(context: ToolContext, seat: str) -> None:
        """Give {seat} back."""

    @tool(effect=True, release=free_seat, credentials=["bank"])
    def reserve(context: ToolContext, seat: str) -> str:
        """Reserve {seat}."""
        return seat

    @agents.agent(name="reserver")
    async def reserver(run: RunContext) -> None:
        await reserve("12A")
        await ours.ask("go on?", ours.Answer)

    asked = lifecycle.Submission("reserver", {}, {}, limits=allowance.limits({"steps": 9}))
    run, _ = lifecycle.submit(asked, actor=CYD)
    taken = drive(run).snapshots.get()
    assert (taken.claims, taken.credentials, taken.schema_version) == (1, ["bank"], SCHEMA_VERSION)
    assert [(each["unit"], each["name"]) for each in taken.used] == [("steps", run.stream)]
    assert Decimal(taken.used[0]["used"]) >= 1
    assert "s3cret" not in str(taken.__dict__)


@pytest.mark.parametrize("verb", ["UPDATE runs_snapshot SET steps = 9", "DELETE FROM runs_snapshot"])
def test_snapshot_is_append_only(verb: str, stopped: Run) -> None:
    with (
        pytest.raises(DatabaseError, match="runs_snapshot is append-only"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(verb)
    assert Snapshot.objects.get().steps == 1


def test_check_without_a_snapshot() -> None:
    assert snapshots.check(driven("adder", n=1), [], None) is None


def test_chained_follows_the_order_of_settling() -> None:
    run = driven("strict-batch")
    assert result(run)[0] == "3"
    assert [step(run, i).settled for i in range(3)] != [None] * 3
    assert ours.SHORT < 1
