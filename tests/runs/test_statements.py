"""The five statements: each is one round trip, and finds its rows by index whatever else is there."""

import json
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection

from runs import effects, journal, lifecycle, prepared, statements
from runs.actors import Actor
from runs.models import Allowance, Hold, Run, Step
from tests.agents_for_tests import pay
from tests.factories import CYD, driven, open_hold, submitted

AROUND = 300  # runs, with 20 steps each
ANALYZE = "ANALYZE runs_run, runs_step, runs_hold, runs_allowance, runs_allowance_runs"
Drawing = Allowance.runs.through

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def many_rows(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """Rows of others, with statistics, so that the planner has a choice."""
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        runs = Run.objects.bulk_create(_run_around() for _ in range(AROUND))
        Step.objects.bulk_create(_step_around(run, n) for run in runs for n in range(20))
        Hold.objects.bulk_create(_hold_around(run) for run in runs)
        rows = Allowance.objects.bulk_create(
            Allowance(name=f"around {n}", unit="u") for n in range(AROUND * 10)
        )
        Drawing.objects.bulk_create(
            Drawing(run=run, allowance=row) for place, run in enumerate(runs) for row in rows[place::AROUND]
        )
        cursor.execute(ANALYZE)
        yield
        for model in (Drawing, Allowance, Hold, Step, Run):
            model._default_manager.all().delete()
        cursor.execute(ANALYZE)


def _run_around() -> Run:
    return Run(agent="around", agent_version="1", input="{}", status="suspended", submitter_kind="key")


def _step_around(run: Run, n: int) -> Step:
    """Half of the steps are effects."""
    made = Step(run=run, index=n, tool="pay", arguments="{}", status="done", result="1", settled=n + 1)
    if n % 2:
        made.effect, made.key, made.attempt, made.may_act_until = "confirmed", "k", 1, datetime.now(UTC)
    return made


def _hold_around(run: Run) -> Hold:
    return Hold(run=run, cause="person", scope="run")


def plan(sql: str, params: dict[str, Any]) -> list[dict[str, Any]]:
    """The nodes of the plan the server would use for a prepared statement."""
    with connection.cursor() as cursor:
        cursor.execute("EXPLAIN (FORMAT JSON) " + sql, params)
        found = cursor.fetchone()[0]
    return list(_nodes((found if isinstance(found, list) else json.loads(found))[0]["Plan"]))


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", []):
        yield from _nodes(child)


def scans(nodes: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Every look at a table of ours that is not by index on a constant."""
    bad = []
    for node in nodes:
        table = node.get("Relation Name", "")
        if not table.startswith("runs_"):
            continue
        if node["Node Type"] == "Seq Scan":
            bad.append((node["Node Type"], table))
        elif node["Node Type"].startswith(("Index", "Bitmap Heap")):
            condition = node.get("Index Cond") or node.get("Recheck Cond") or ""
            if not condition or ("fence" in condition or "clock" in condition):
                bad.append((node["Node Type"], f"{table} by {condition}"))
    return bad


def fence() -> dict[str, Any]:
    return {"run": uuid.uuid4(), "epoch": 1, "token": uuid.uuid4()}


def entry() -> dict[str, Any]:
    return journal.parameters(Actor.worker("w1"), "tested", {})


def boundary() -> dict[str, Any]:
    return {
        **fence(),
        "entry": b"entry",
        "done": 1,
        "outcome": "done",
        "result": "1",
        "effect_after": "confirmed",
        "decision": None,
        "claim": "",
        "done_tool": "add",
        "done_tool_version": "",
        "done_arguments": "{}",
        "done_digest": "",
        "index": 2,
        "tool": "pay",
        "tool_version": "",
        "arguments": "{}",
        "digest": "",
        "key": "k",
        "acts_for": 5.0,
        "executed": None,
        "executed_digest": "",
        "permit": "",
        "decision_now": None,
    }


CASES: dict[str, tuple[str, Callable[[], dict[str, Any]]]] = {
    **{f"boundary {s or '-'} {i or '-'}": (sql, boundary) for (s, i), sql in statements.BOUNDARY.items()},
    "dispatch": (statements.DISPATCH, lambda: {**boundary(), **entry()}),
    "resume": (statements.RESUME, lambda: {"run": uuid.uuid4(), **entry()}),
    "take": (
        statements.TAKE,
        lambda: {
            "run": uuid.uuid4(),
            "token": uuid.uuid4(),
            "worker": "w",
            "lease": 15.0,
            "versions": ["a@1"],
            **entry(),
        },
    ),
    "park": (
        statements.PARK,
        lambda: {**fence(), "wakes": 0, "schema_version": 1, "credentials": "[]", "named": 20, **entry()},
    ),
    "finish": (
        statements.FINISH,
        lambda: {**fence(), "status": "succeeded", "result": "1", "error": None, **entry()},
    ),
    "release": (
        statements.RELEASE,
        lambda: {
            "run": uuid.uuid4(),
            "hold": uuid.uuid4(),
            "resolution": "approved",
            "answer": None,
            **entry(),
        },
    ),
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_plan_finds_rows_by_index_and_constants(name: str, many_rows: None) -> None:
    sql, params = CASES[name]
    nodes = plan(sql, params())
    assert any(n.get("Relation Name", "").startswith("runs_") for n in nodes)
    assert scans(nodes) == []


def test_sweepers_find_orphans_and_free_holds_by_partial_indexes(many_rows: None) -> None:
    """What has ended costs nothing: no look goes over the whole of a growing table."""
    orphans = Run.objects.orphaned().filter(stop_requested__isnull=True).order_by().values_list("pk")
    below = Run.objects.live().filter(parent=uuid.UUID(int=1)).order_by().values_list("pk")
    free = Hold.objects.free_above().order_by().values_list("pk")
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
    plans = [found.explain() for found in (orphans, below, free)]
    assert ["run_live_below" in plan for plan in plans[:2]] == [True, True]
    of_open_ones = {index.name for index in Hold._meta.indexes}
    assert any(index in plans[2] for index in of_open_ones), plans[2]
    assert "= ANY (runs_run.ancestors)" in plans[2].split("Index Cond: ")[-1]


def test_plan_of_a_join_to_the_fence_would_be_seen(many_rows: None) -> None:
    """The test above can fail: this is the shape that scanned across all runs."""
    sql = (
        "WITH fence AS (UPDATE runs_run SET epoch = epoch WHERE id = %(run)s RETURNING id)"
        " UPDATE runs_step s SET status = status FROM fence WHERE s.run_id = fence.id AND s.index = 1"
    )
    assert scans(plan(sql, {"run": uuid.uuid4()})) != []


# -- What "no row" and the counts mean ---------------------------------------------------------


def taken(run: Run) -> dict[str, Any]:
    fence = lifecycle.take(run.pk, "w1")
    assert fence is not None
    return fence.parameters()


def intended(fenced: dict[str, Any], **changes: Any) -> dict[str, Any]:
    call = {
        "index": 0,
        "tool": "pay",
        "tool_version": pay.version,
        "arguments": "{}",
        "digest": "d",
        "key": effects.key(fenced["run"], 0),
        "acts_for": 5.0,
    }
    return {**fenced, **call, **changes}


def test_boundary_dispatches() -> None:
    fenced = taken(submitted("payer"))
    assert prepared.row(statements.BOUNDARY["", "new"], intended(fenced)) == (0, False, 0, 0, 1)


@pytest.mark.parametrize("change", [{"epoch": 9}, {"token": uuid.uuid4()}, {"run": uuid.uuid4()}])
def test_boundary_with_another_fence(change: dict[str, Any]) -> None:
    """3: the epoch and the token, not the worker's name."""
    fenced = taken(submitted("payer"))
    assert prepared.row(statements.BOUNDARY["", "new"], {**intended(fenced), **change}) is None
    assert Step.objects.filter(run=fenced["run"]).count() == 0


def test_boundary_with_a_hold_keeps_the_receipt_and_starts_nothing() -> None:
    from runs import holds

    run = submitted("payer")
    fenced = taken(run)
    prepared.row(statements.BOUNDARY["", "new"], intended(fenced))
    holds.pause(run.pk, actor=CYD)
    both = {**boundary(), **intended(fenced, index=1), "done": 0}
    assert prepared.row(statements.BOUNDARY["row", "new"], both) == (1, False, 0, 1, 0)
    assert list(run.steps.values_list("index", "status", "settled")) == [(0, "done", 1)]


def test_boundary_with_a_hold_on_the_call_itself_starts_nothing(rules: Callable[..., None]) -> None:
    rules(pay="hold")
    run = driven("payer")
    assert open_hold(run).step.index == 0
    Run.objects.filter(pk=run.pk).update(status="queued", suspended_at=None)
    fenced = taken(run)
    again = {**boundary(), **fenced, "index": 0}
    assert prepared.row(statements.BOUNDARY["", "row"], again) == (0, False, 0, 0, 0)
    assert run.steps.get().status == "held"


def test_boundary_settles_a_step_once() -> None:
    fenced = taken(submitted("payer"))
    prepared.row(statements.BOUNDARY["", "new"], intended(fenced))
    receipt = {**boundary(), **fenced, "done": 0}
    assert prepared.row(statements.BOUNDARY["row", ""], receipt) == (0, False, 0, 1, 0)
    assert prepared.row(statements.BOUNDARY["row", ""], {**receipt, "result": "2"})[3] == 0  # type: ignore[index]
    assert Step.objects.get(run=fenced["run"]).result == "1"


def test_statements_are_prepared_by_the_server() -> None:
    driven("adder", n=3)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_prepared_statements WHERE starts_with(statement, %s)", ["\nWITH clock"]
        )
        assert cursor.fetchone()[0] >= 3


def test_number_of_statements_of_a_pure_step(django_assert_num_queries: Any) -> None:
    """One statement a step; the rest does not grow (one look for a hold before the first step, behind which no
    commit has looked)."""
    few, many = submitted("adder", n=1), submitted("adder", n=50)
    with django_assert_num_queries(7):
        lifecycle_of(few)
    with django_assert_num_queries(7 + 49):
        lifecycle_of(many)


def lifecycle_of(run: Run) -> None:
    from runs import execution

    execution.drive(run.pk)
