"""A run arrives: everything in its bundle is checked, and it goes on as the same run. All of it, or nothing.

Checked are the bundle's own digest, the digests of arguments, the effects' keys, the record's chain and the last
snapshot, the journal's chain, and that agent, tools and shared allowances are known here. What was approved and not
used is asked again: an approval is a person's word to people of another place.
"""

from collections.abc import Iterable
from typing import Any

from django.db import DatabaseError, transaction

from runs import agents, allowance, effects, holds, journal, lifecycle, values
from runs.actors import Actor
from runs.exceptions import BadBundle, BadValue, WrongState
from runs.models import Allowance, Draw, Event, FactReading, Hold, JournalEntry, Run, Snapshot, Step
from runs.models.snapshot import SCHEMA_VERSION
from runs.moves import bundle, contract
from runs.moves.bundle import Body, Row
from runs.moves.contract import Who
from runs.moves.rows import back
from runs.replay import Entry
from runs.snapshots import chained
from runs.states import ENDED, Cause, RunStatus
from runs.tools import declared

Steps = dict[int, Step]


def arrive(text: str | bytes, *, actor: Actor) -> Run:
    """The run of a bundle, which goes on here as soon as something of it may start.

    Raises BadBundle: it is none, a newer one, or not as it was written. WrongState: the run is here already, or its
    agent, a tool or a shared allowance is not.
    """
    body = bundle.read(text)
    try:
        with transaction.atomic():
            return _arrive(body, actor)
    except (AttributeError, BadValue, DatabaseError, KeyError, TypeError, ValueError) as error:
        said = (str(error).splitlines() or [""])[0][:300]  # a database's further lines are whole rows
        raise BadBundle(f"the bundle does not fit: {type(error).__name__}: {said}") from error


def _arrive(body: Body, actor: Actor) -> Run:
    run = _run(body)
    _refuse_unknown(run, body)
    source = run.status
    lifecycle.adopt(run)
    steps = _steps(run, body.steps)
    kept = _allowances(run, body)
    _holds(run, body.holds, steps, kept)
    _rest(run, body, steps)
    _refuse_changed(run, steps)
    _journal(run, body.journal)
    journal.write(run, actor, "imported", was=source)
    for name, part in contract.parts().items():
        part.arrive(run, body.parts[name], actor=actor)
    _go_on(run, actor)
    return run


# -- The run -----------------------------------------------------------------------------


def _run(body: Body) -> Run:
    run = back(Run, body.run)
    if set(body.parts) != set(contract.parts()):
        raise BadBundle("the bundle has other parts than this installation: another release made it")
    who = Who("", "")
    for name, part in contract.parts().items():
        who = part.who(body.parts[name], run)
    run.owner_id, run.submitter_id = who.owner_id, who.submitter_id
    return run


def _refuse_unknown(run: Run, body: Body) -> None:
    if Run.objects.filter(pk=run.pk).exists():
        raise WrongState(f"run {run.pk} is here already")
    if run.status in ENDED or run.status == RunStatus.RUNNING:
        raise BadBundle(f"the run in the bundle is {run.status}")
    if agents.find(run.agent, run.agent_version) is None:
        raise WrongState(f"there is no agent {run.agent}@{run.agent_version} here")
    unknown = {
        row["tool"] for row in body.steps if row["settled"] is None and declared.get(row["tool"]) is None
    }
    if unknown:
        raise WrongState(f"there is no tool {min(unknown)} here, and the run waits to call it")


# -- What belongs to it ------------------------------------------------------------------


def _steps(run: Run, told: list[Row]) -> Steps:
    rows = [back(Step, row, run=run) for row in told]
    if [row.index for row in rows] != list(range(len(rows))):
        raise BadBundle("the steps in the bundle are not all there")
    for row in rows:
        if row.settled is None:
            row.permit = ""  # an approval of another place
    return {row.index: row for row in Step.objects.bulk_create(rows)}


def _of(steps: Steps, index: Any) -> Step | None:
    return None if index is None else steps[index]


def _holds(run: Run, told: list[Row], steps: Steps, kept: dict[tuple[str, str], Allowance]) -> None:
    rows = []
    for row in told:
        hold = back(Hold, row, more=("step", "allowance"), run=run, step=_of(steps, row["step"]))
        if hold.cause == Cause.ALLOWANCE:
            hold.subject = _lacks(row["allowance"], kept)
            allowance.amount(hold.detail["need"], "/need")
        rows.append(hold)
    Hold.objects.bulk_create(rows)
    still = [hold for hold in rows if hold.is_open]
    _refuse_counts("run", run.open_holds, sum(hold.step_id is None for hold in still))
    for step in steps.values():
        _refuse_counts(f"step {step.index}", step.open_holds, sum(hold.step_id == step.pk for hold in still))


def _lacks(told: Any, kept: dict[tuple[str, str], Allowance]) -> str:
    """The id here of what a hold waits for; none that the run does not draw on."""
    if told is None:
        return ""
    name, unit = told
    return str(kept[name, unit].pk)


def _refuse_counts(what: str, told: int, there: int) -> None:
    if told != there:
        raise BadBundle(f"the bundle says that {told} holds bind {what}, and {there} do")


def _allowances(run: Run, body: Body) -> dict[tuple[str, str], Allowance]:
    """Its own come along; shared ones must be here by name, with what is left of them here."""
    own = [back(Allowance, row) for row in body.allowances]
    if any(row.name != run.stream for row in own):
        raise BadBundle("the bundle has an allowance of another run")
    kept = {(row.name, row.unit): row for row in Allowance.objects.bulk_create(own)}
    for name, unit in body.shared:
        shared = Allowance.objects.shared().filter(name=name, unit=unit).first()
        if shared is None:
            raise WrongState(f"there is no shared allowance “{name}” of {unit} here; make it first")
        kept[name, unit] = shared
    run.allowances.set(kept.values())
    draws = [
        back(Draw, row, more=("unit",), run=run, allowance=kept[run.stream, row["unit"]])
        for row in body.draws
    ]
    Draw.objects.bulk_create(draws)
    return kept


def _rest(run: Run, body: Body, steps: Steps) -> None:
    FactReading.objects.bulk_create(
        back(FactReading, row, more=("step",), step=steps[row["step"]]) for row in body.readings
    )
    Snapshot.objects.bulk_create(back(Snapshot, row, run=run) for row in body.snapshots)
    Event.objects.bulk_create(
        back(Event, row, more=("step",), run=run, step=_of(steps, row["step"])) for row in body.events
    )


def _journal(run: Run, told: list[Row]) -> None:
    entries = [back(JournalEntry, row) for row in told]
    if broken := journal.adopt(run, entries):
        raise BadBundle(f"the run's journal in the bundle is broken at entry {broken.seq}: {broken.what}")


# -- Whether it is what it was -------------------------------------------------------------


def _refuse_changed(run: Run, steps: Steps) -> None:
    for step in steps.values():
        if why := _changed(run, step):
            raise BadBundle(f"step {step.index} in the bundle is not as it was: {why}")
    settled = [_entry(step) for step in steps.values() if step.settled is not None]
    if sorted(entry.settled or 0 for entry in settled) != list(range(1, run.position + 1)):
        raise BadBundle("the settled steps in the bundle are not all there")
    _refuse_record("record", bytes(run.record), settled, run.position)
    last = Snapshot.objects.filter(run=run).order_by("-number").first()
    if last is not None:
        if last.schema_version > SCHEMA_VERSION:
            raise BadBundle(f"the run's snapshot has schema {last.schema_version}, newer than is known here")
        _refuse_record("snapshot", bytes(last.record), settled, last.steps)


def _changed(run: Run, step: Step) -> str:
    if values.digest(step.arguments) != step.arguments_digest:
        return "its arguments"
    if step.executed is not None and values.digest(step.executed) != step.executed_digest:
        return "what was sent"
    return "its key" if step.key and step.key != effects.key(run.pk, step.index) else ""


def _refuse_record(what: str, head: bytes, settled: Iterable[Entry], count: int) -> None:
    if chained(settled, count) != head:
        raise BadBundle(f"the steps in the bundle are not those that its {what} was made of")


def _entry(step: Step) -> Entry:
    return Entry(
        id=step.pk,
        index=step.index,
        tool=step.tool,
        tool_version=step.tool_version,
        digest=step.arguments_digest,
        status=step.status,
        result=step.result,
        settled=step.settled,
        open_holds=step.open_holds,
        effect=step.effect,
        executed=step.executed,
        executed_digest=step.executed_digest,
        decision=step.decision,
    )


# -- Going on ------------------------------------------------------------------------------


def _go_on(run: Run, actor: Actor) -> None:
    run.refresh_from_db()
    for hold in Hold.objects.open().filter(run=run, cause=Cause.VERSION):
        holds.release_locked(run, hold, actor=actor, resolution="version_is_back")
    run.refresh_from_db()
    if holds.may_start(run):
        lifecycle.resume(run, actor)
    run.refresh_from_db()
