"""A run moves to another installation: what comes along, what is refused, and that nothing of it is done twice.

The other installation is this database before the run was there: it is made in a transaction that is undone.
"""

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import transaction

from runs import agents, allowance, endings, events, holds, lifecycle, moves, values
from runs.agents import RunContext
from runs.exceptions import BadBundle, NotFound, RunEnded, WrongState
from runs.models import Allowance, Event, FactReading, Hold, JournalEntry, Run, Snapshot, Step
from runs.moves import bundle, rows
from runs.states import Cause, RunStatus
from runs.tools import declared, sleep, wait_for
from tests import agents_for_tests as ours
from tests.factories import (
    CYD,
    NO_RUN,
    OPERATOR,
    answer,
    approve,
    causes,
    drive,
    driven,
    go_on,
    later,
    open_hold,
    result,
    step,
    submitted,
    verbs,
)
from tests.outside import Outside

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("invariants")]
Rules = Callable[..., None]


def moved(make: Callable[[], Run]) -> str:
    """The bundle of a run that `make` made in an installation of which nothing is left here."""
    kept: list[str] = []
    with transaction.atomic():
        moves.leave(make().pk, actor=OPERATOR, keep=kept.append)
        transaction.set_rollback(True)
    return kept[0]


def arrive(text: str) -> Run:
    return moves.arrive(text, actor=OPERATOR)


def changed(text: str, change: Callable[[dict[str, Any]], object], *, honest: bool = True) -> str:
    """The bundle with a changed body; `honest` makes the digest anew."""
    told = json.loads(text)
    change(told["body"])
    if honest:
        told["digest"] = values.digest(values.canonical(told["body"]))
    return json.dumps(told)


def questioner() -> Run:
    """Noted, answered once, and waiting for the second answer."""
    run = driven("questioner")
    answer(open_hold(run), number=1)
    run.refresh_from_db()
    return drive(run)


# -- Goes on ------------------------------------------------------------------------------


def test_arrive_goes_on_and_nothing_is_done_twice(outside: Outside) -> None:
    text = moved(questioner)
    run = arrive(text)
    assert (run.status, causes(run), run.position) == (RunStatus.SUSPENDED, ["question"], 2)
    answer(open_hold(run), number=2)
    run.refresh_from_db()
    assert (result(drive(run)), outside.n("note")) == ([1, 2], 1)
    assert verbs(run)[-5:] == ["imported", "released", "resumed", "taken", "succeeded"]


def test_leave_ends_the_run_here_and_keeps_its_history() -> None:
    run = questioner()
    kept: list[str] = []
    ended = moves.leave(run.pk, actor=OPERATOR, keep=kept.append)
    ended.refresh_from_db()
    assert (ended.status, causes(ended)) == (RunStatus.CANCELLED, [])
    last = JournalEntry.objects.of(run.stream).last()
    assert last is not None
    assert (last.verb, json.loads(last.detail)["why"], last.actor_name) == ("cancelled", moves.MOVED, "olu")
    assert len(kept) == 1


def test_everything_comes_along() -> None:
    seen: dict[str, Any] = {}

    def make() -> Run:
        run = questioner()
        seen.update(everything(run))
        return run

    run = arrive(moved(make))
    there = everything(run)
    assert there["journal"][:-1] == seen["journal"]
    for kind in ("steps", "holds", "snapshots", "readings", "events"):
        assert there[kind] == seen[kind], kind


def everything(run: Run) -> dict[str, Any]:
    return {
        "steps": [rows.out(row) for row in Step.objects.filter(run=run).order_by("index")],
        "holds": [rows.out(row) for row in Hold.objects.filter(run=run)],
        "snapshots": [rows.out(row) for row in Snapshot.objects.filter(run=run)],
        "readings": [rows.out(row) for row in FactReading.objects.filter(step__run=run)],
        "events": [rows.out(row) for row in Event.objects.filter(run=run)],
        "journal": [rows.out(row) for row in JournalEntry.objects.of(run.stream)],
    }


def test_approval_with_its_facts_waits_on(rules: Rules, outside: Outside) -> None:
    rules(pay_if="hold")
    outside.will("balance", "100")
    run = arrive(moved(lambda: driven("payer", how="pay_if")))
    assert (causes(run), FactReading.objects.get(step__run=run).value) == (["approval"], '"100"')
    outside.will("balance", "100")
    approve(open_hold(run))
    run.refresh_from_db()
    assert (drive(run).status, outside.n("pay_if")) == (RunStatus.SUCCEEDED, 1)


def test_pause_comes_along_and_is_lifted_by_those_with_the_right() -> None:
    def make() -> Run:
        run = driven("questioner")
        holds.pause(run.pk, actor=OPERATOR, why="moving house")
        run.refresh_from_db()
        return run

    run = arrive(moved(make))
    assert causes(run) == ["question", "person"]
    with pytest.raises(WrongState, match="an operator paused this run"):
        holds.unpause(run.pk, actor=CYD)
    holds.unpause(run.pk, actor=OPERATOR)


def test_timer_ends_when_it_would_have(outside: Outside) -> None:
    async def sleeper(run: RunContext) -> str:
        await sleep(600)
        return "slept"

    agents.register(agents.Agent("moves-sleeper", "1", sleeper))
    run = arrive(moved(lambda: driven("moves-sleeper")))
    later(590)
    assert go_on(run).status == RunStatus.SUSPENDED
    later(610)
    assert result(go_on(run)) == "slept"


def test_event_that_came_early_comes_along() -> None:
    async def waiter(run: RunContext) -> str:
        await ours.ask("ready?", ours.Answer)
        return await wait_for("paid", str)

    agents.register(agents.Agent("moves-waiter", "1", waiter))

    def make() -> Run:
        run = driven("moves-waiter")
        events.tell(run.pk, name="paid", event_id="evt-1", payload="yes", actor=CYD)
        run.refresh_from_db()
        return run

    run = arrive(moved(make))
    answer(open_hold(run), number=1)
    run.refresh_from_db()
    assert result(drive(run)) == "yes"


def test_doubt_is_settled_there_under_the_same_key(outside: Outside) -> None:
    """The call acted, and its answer was lost; the other installation asks the outside and finds it."""
    outside.will("pay_checked", "act_then_raise")
    outside.will("find", "raise")

    def make() -> Run:
        run = driven("payer", how="pay_checked")
        later(60)
        return run

    run = arrive(moved(make))
    assert causes(run) == ["in_doubt"]
    later(120)
    assert (go_on(run).status, outside.n("pay_checked")) == (RunStatus.SUCCEEDED, 1)
    assert outside.keys("pay_checked") == {step(run, 0).key}


def test_diverged_run_goes_on_where_the_code_is_right() -> None:
    known = agents.find("questioner", "1")
    assert known is not None

    async def wrong(run: RunContext) -> int:
        return 0

    def make() -> Run:
        run = questioner()
        answer(open_hold(run), number=2)
        agents._registry["questioner", "1"] = agents.Agent("questioner", "1", wrong)
        run.refresh_from_db()
        drive(run)
        agents._registry["questioner", "1"] = known
        return run

    run = arrive(moved(make))
    assert causes(run) == ["diverged"]
    holds.release(open_hold(run).pk, actor=OPERATOR, resolution="look_again")
    run.refresh_from_db()
    assert result(drive(run)) == [1, 2]


def test_queued_run_that_misses_its_version_moves_to_where_it_is(settings: Any) -> None:
    from runs import versions

    def make() -> Run:
        run = submitted("adder", n=3)
        assert versions.hold(run.pk)
        return run

    run = arrive(moved(make))
    assert (run.status, causes(run)) == (RunStatus.QUEUED, [])
    assert result(drive(run)) == 3


# -- Allowances ------------------------------------------------------------------------------


def metered(*, shared: str = "") -> Run:
    asked = lifecycle.Submission(
        "questioner",
        {},
        {},
        owner_id="cyd",
        limits=allowance.limits({"steps": 5}),
        draws_on=(shared,) if shared else (),
    )
    run, _ = lifecycle.submit(asked, actor=CYD)
    return drive(run)


def test_its_own_allowance_comes_along_as_used() -> None:
    seen: list[Decimal] = []

    def make() -> Run:
        run = metered()
        seen.append(run.allowances.get().used)
        return run

    run = arrive(moved(make))
    row = run.allowances.get()
    assert (row.limit, [row.used], row.draws.count() > 0) == (5, seen, True)
    answer(open_hold(run), number=1)
    run.refresh_from_db()
    drive(run)
    row.refresh_from_db()
    assert row.used >= seen[0]


def test_a_shared_allowance_is_taken_by_name_with_what_is_left_here() -> None:
    team = allowance.share("team", lifecycle.Limit("steps", Decimal(100)), actor=OPERATOR)
    before = team.used
    run = arrive(moved(lambda: metered(shared="team")))
    assert sorted(row.name for row in run.allowances.all()) == [run.stream, "team"]
    team.refresh_from_db()
    assert team.used == before


def test_a_shared_allowance_that_is_missing() -> None:
    def make() -> Run:
        allowance.share("team", lifecycle.Limit("steps", Decimal(100)), actor=OPERATOR)
        return metered(shared="team")

    text = moved(make)
    with pytest.raises(WrongState, match="no shared allowance “team” of steps here"):
        arrive(text)
    nothing_here()


def test_a_hold_for_its_allowance_is_topped_up_there() -> None:
    def make() -> Run:
        asked = lifecycle.Submission("adder", {"n": 3}, {}, limits=allowance.limits({"steps": 1}))
        run, _ = lifecycle.submit(asked, actor=CYD)
        return drive(run)

    run = arrive(moved(make))
    hold = open_hold(run, Cause.ALLOWANCE)
    row = run.allowances.get()
    assert hold.subject == str(row.pk)
    allowance.top_up(row.pk, Decimal(5), actor=OPERATOR)
    allowance.release_covered(row.pk)
    run.refresh_from_db()
    assert result(go_on(run)) == 3


# -- What cannot leave -------------------------------------------------------------------------


def refused(run: Run, why: str) -> None:
    run.refresh_from_db()
    before = (run.status, run.seq)
    kept: list[str] = []
    with pytest.raises(WrongState, match=why):
        moves.leave(run.pk, actor=OPERATOR, keep=kept.append)
    run.refresh_from_db()
    assert ((run.status, run.seq), kept) == (before, [])


def test_leave_a_queued_run() -> None:
    refused(submitted("adder", n=1), "it is queued. Pause it, and export it when it is suspended")


def test_leave_a_running_run() -> None:
    run = submitted("adder", n=1)
    assert lifecycle.take(run.pk, "w")
    run.refresh_from_db()
    refused(run, "it is running")


def test_leave_a_run_that_ended() -> None:
    run = driven("adder", n=1)
    with pytest.raises(RunEnded, match="succeeded"):
        moves.leave(run.pk, actor=OPERATOR, keep=print)


def test_leave_twice() -> None:
    run = questioner()
    moves.leave(run.pk, actor=OPERATOR, keep=str)
    with pytest.raises(RunEnded, match="cancelled"):
        moves.leave(run.pk, actor=OPERATOR, keep=print)


def test_leave_an_unknown_run() -> None:
    with pytest.raises(NotFound):
        moves.leave(NO_RUN, actor=OPERATOR, keep=print)


def test_leave_while_a_call_may_still_act(outside: Outside) -> None:
    outside.will("pay", "act_then_raise")
    refused(driven("payer"), "step 0 may still act until")


def test_leave_a_child_and_a_parent() -> None:
    async def parent(run: RunContext) -> list[int]:
        return await ours_start(run)

    from runs.tools import start

    async def ours_start(run: RunContext) -> list[int]:
        return await start(ours.questioner)

    agents.register(agents.Agent("moves-parent", "1", parent))
    run = driven("moves-parent")
    refused(run, "children of it have not ended")
    child = drive(Run.objects.get(parent=run))
    refused(child, f"it is a child of run {run.pk}")
    endings.cancel(child.pk, actor=CYD)
    refused(run, "it has yet to hear of a child's end")


def test_leave_when_the_bundle_cannot_be_kept() -> None:
    run = questioner()

    def full(text: str) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        moves.leave(run.pk, actor=OPERATOR, keep=full)
    run.refresh_from_db()
    assert (run.status, causes(run)) == (RunStatus.SUSPENDED, ["question"])


# -- What cannot arrive -------------------------------------------------------------------------


def nothing_here() -> None:
    assert [
        Run.objects.count(),
        Step.objects.count(),
        Hold.objects.count(),
        JournalEntry.objects.count(),
    ] == [0] * 4
    assert Allowance.objects.count() == 0


def test_arrive_twice() -> None:
    text = moved(questioner)
    run = arrive(text)
    before = run.seq
    with pytest.raises(WrongState, match="is here already"):
        arrive(text)
    run.refresh_from_db()
    assert run.seq == before


def test_arrive_where_it_came_from() -> None:
    run = questioner()
    kept: list[str] = []
    moves.leave(run.pk, actor=OPERATOR, keep=kept.append)
    with pytest.raises(WrongState, match="is here already"):
        arrive(kept[0])


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", "no JSON", '{"format": "abeyance-run"}', '{"format":"abeyance-run","schema":true}'],
)
def test_arrive_with_what_is_no_bundle(text: str) -> None:
    with pytest.raises(BadBundle):
        arrive(text)
    nothing_here()


def test_arrive_with_a_newer_bundle() -> None:
    told = json.loads(moved(questioner))
    told["schema"] = bundle.SCHEMA + 1
    with pytest.raises(
        BadBundle, match=f"schema {bundle.SCHEMA + 1}, and this installation knows {bundle.SCHEMA}"
    ):
        arrive(json.dumps(told))
    nothing_here()


def test_arrive_with_a_bundle_cut_off() -> None:
    with pytest.raises(BadBundle, match="no bundle"):
        arrive(moved(questioner)[:-200])
    nothing_here()


def test_arrive_with_a_bundle_changed_on_the_way() -> None:
    text = changed(moved(questioner), lambda body: body["run"].update(on_behalf_of="eve"), honest=False)
    with pytest.raises(BadBundle, match="its digest differs"):
        arrive(text)
    nothing_here()


TAMPERED: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "a result": (lambda b: b["steps"][0].update(result='"forged"'), "not those that its record was made of"),
    "a status": (lambda b: b["steps"][0].update(status="raised"), "not those that its record was made of"),
    "arguments": (
        lambda b: b["steps"][0].update(arguments='{"text":"b"}'),
        "step 0 in the bundle is not as it was",
    ),
    "a key": (lambda b: b["steps"][0].update(key="0" * 40), "step 0 in the bundle is not as it was: its key"),
    "a step gone": (lambda b: b["steps"].pop(0), "are not all there"),
    "the last step gone": (lambda b: b["steps"].pop(), "does not fit|not all there|holds bind"),
    "unsettled": (lambda b: b["steps"][0].update(settled=None), "step_settled_has_result"),
    "a hold gone": (lambda b: b["holds"].pop(), "holds bind step 2"),
    "a hold closed": (
        lambda b: b["holds"][-1].update(released_at=b["run"]["created_at"], resolution="approved"),
        "holds bind step 2",
    ),
    "a journal entry": (
        lambda b: b["journal"][0].update(actor_name="eve"),
        "journal in the bundle is broken at entry 1",
    ),
    "a journal entry gone": (lambda b: b["journal"].pop(1), "journal in the bundle is broken"),
    "the journal's end": (lambda b: b["journal"].pop(), "not the end that the run remembers"),
    "another stream": (lambda b: b["journal"][0].update(stream="run:x"), "it is an entry of run:x"),
    "the record": (lambda b: b["run"].update(record="00" * 32), "not those that its record was made of"),
    "the snapshot": (
        lambda b: b["snapshots"][-1].update(record="00" * 32),
        "not those that its snapshot was made of",
    ),
    "a newer snapshot": (lambda b: b["snapshots"][-1].update(schema_version=99), "newer than is known here"),
    "a run that ended": (lambda b: b["run"].update(status="succeeded"), "the run in the bundle is succeeded"),
    "a status nobody knows": (lambda b: b["steps"][0].update(effect="done"), "does not fit"),
    "a column less": (lambda b: b["run"].pop("labels"), "has other columns than here"),
    "a column more": (lambda b: b["steps"][0].update(extra=1), "has other columns than here"),
    "a type": (lambda b: b["run"].update(position="two"), "does not fit at run.position: not int"),
    "a time": (lambda b: b["run"].update(created_at="2026-01-01T00:00:00"), "no time zone"),
    "an id": (lambda b: b["run"].update(id="7"), "does not fit at run.id"),
    "a null": (lambda b: b["run"].update(agent=None), "does not fit at run.agent"),
    "a name too long": (lambda b: b["run"].update(taken_by="x" * 101), "does not fit"),
    "a parent": (lambda b: b["run"].update(ancestors=["x"]), "a run below others does not move"),
    "a part": (lambda b: b["parts"].update(other={}), "has other parts"),
    "a kind": (lambda b: b.pop("events"), "does not fit at /events"),
    "another's allowance": (lambda b: b["allowances"].append(OF_ANOTHER), "an allowance of another run"),
    "a hold of no step": (lambda b: b["holds"][-1].update(step=77), "does not fit"),
}
OF_ANOTHER = {
    "name": "team",
    "unit": "steps",
    "limit": None,
    "soft": None,
    "soft_told_at": None,
    "used": "0",
    "reserved": "0",
    "created_at": "2026-01-01T00:00:00+00:00",
}


@pytest.mark.parametrize("what", sorted(TAMPERED))
def test_arrive_with_a_tampered_bundle(what: str) -> None:
    """Whoever makes the digest anew meets the others."""
    change, why = TAMPERED[what]
    text = changed(moved(questioner), change)
    with pytest.raises(BadBundle, match=why):
        arrive(text)
    nothing_here()


def test_arrive_where_the_version_is_unknown() -> None:
    text = moved(questioner)
    del agents._registry["questioner", "1"]
    with pytest.raises(WrongState, match="there is no agent questioner@1 here"):
        arrive(text)
    nothing_here()


def test_arrive_where_a_tool_is_unknown(rules: Rules) -> None:
    rules(pay="hold")
    text = moved(lambda: driven("payer"))
    del declared._registry["pay"]
    with pytest.raises(WrongState, match="there is no tool pay here"):
        arrive(text)
    nothing_here()


# -- Commands -------------------------------------------------------------------------------------


def test_commands_write_and_read_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "run.json"
    with transaction.atomic():
        run = questioner()
        call_command("export", str(run.pk), output=str(target))
        transaction.set_rollback(True)
    assert (target.stat().st_mode & 0o777, list(tmp_path.glob("*.part"))) == (0o600, [])
    call_command("import", str(target))
    assert capsys.readouterr().out.splitlines()[-2] == str(run.pk)
    assert Run.objects.get().status == RunStatus.SUSPENDED
    with pytest.raises(CommandError, match=r"nothing was imported: run .* is here already"):
        call_command("import", str(target))


def test_export_never_overwrites(tmp_path: Path) -> None:
    target = tmp_path / "run.json"
    target.write_text("precious")
    run = questioner()
    with pytest.raises(CommandError, match="is there already"):
        call_command("export", str(run.pk), output=str(target))
    run.refresh_from_db()
    assert (target.read_text(), run.status) == ("precious", RunStatus.SUSPENDED)


def test_export_that_is_refused_leaves_no_file(tmp_path: Path) -> None:
    run = submitted("adder", n=1)
    with pytest.raises(CommandError, match="it is queued"):
        call_command("export", str(run.pk), output=str(tmp_path / "run.json"))
    assert list(tmp_path.glob("run*")) == []


@pytest.mark.parametrize(("name", "given"), [("export", "7"), ("import", "/nowhere/x.json")])
def test_commands_with_what_is_not_there(name: str, given: str) -> None:
    with pytest.raises(CommandError):
        call_command(name, given)


# -- Nothing is forgotten --------------------------------------------------------------------------

#: What hangs on a run, and moves with it or is said not to.
KNOWN = {
    "Run.again_of", "Run.parent", "Step.run", "Step.compensated_by", "Hold.run", "Hold.step", "Hold.child",
    "FactReading.step", "Snapshot.run", "Event.run", "Event.step", "Allowance.runs", "Draw.run",
    "Request.run", "Request.step", "Request.hold",
}  # fmt: skip


def test_whoever_hangs_something_on_a_run_decides_whether_it_moves() -> None:
    from django.apps import apps

    found = {
        f"{model.__name__}.{field.name}"
        for model in apps.get_models()
        for field in model._meta.get_fields()
        if field.is_relation and field.concrete and field.related_model in (Run, Step, Hold)
    }
    assert found == KNOWN
