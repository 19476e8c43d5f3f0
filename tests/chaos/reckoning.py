"""What came of it all: the rows, what the doors acknowledged, and the log of the outside, held against each other.

*Lost*: acknowledged and not there, or recorded as done and not done, or done and recorded by nobody. *Doubled*: done
more than once under one key, or decided more than once. *Stranded*: not ended, and nothing that is open says why.
*Waiting*: not ended or not known, although everybody has said what there was to say. *Broken*: an invariant.
Only zeros pass. Needs Django, on the database of the chaos.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from approvals.models import Decision, Policy, Request
from approvals.states import Verb
from runs import journal, values
from runs.models import Hold, JournalEntry, Run, Step
from runs.states import ENDED, EffectState, RunStatus
from tests import invariants
from tests.approvals import fixtures as of_requests
from tests.chaos import outside, people

SHOWN = 15  # sentences of each row
#: Where a request may stand whose standing revision was approved, answered or rejected.
AFTER = {
    Verb.APPROVE: {"consumed", "superseded"},
    Verb.RESPOND: {"in_force", "superseded"},
    Verb.REJECT: {"rejected", "superseded"},
}
ZEROS = ("lost", "doubled", "stranded", "waiting", "broken")


@dataclass(frozen=True)
class Table:
    """Counts, and under each of `ZEROS` a sentence for every one that is not as it must be."""

    runs: Counter[str]
    decisions: int
    refused: int
    effects: int
    settled: int
    faults: Counter[str]
    wrong: dict[str, list[str]] = field(default_factory=dict)

    @property
    def passes(self) -> bool:
        return not any(self.wrong[name] for name in ZEROS)

    def text(self) -> str:
        how = ", ".join(f"{count} {status}" for status, count in self.runs.most_common())
        kinds = ", ".join(f"{count} × {kind}" for kind, count in self.faults.most_common())
        rows = [
            ("runs", self.runs.total(), how),
            ("decisions", self.decisions, f"and {self.refused:,} refused, because somebody was first"),
            ("effects", self.effects, f"of which people settled {self.settled:,} that were in doubt"),
            *((name, len(self.wrong[name]), _MEANS[name]) for name in ZEROS),
            ("faults", self.faults.total(), kinds),
        ]
        return "\n".join(f"  {name:<10}{count:>7,}   {says}".rstrip() for name, count, says in rows)

    def sentences(self) -> Iterator[str]:
        for name in ZEROS:
            found = self.wrong[name]
            yield from (f"{name}: {sentence}" for sentence in found[:SHOWN])
            if len(found) > SHOWN:
                yield f"{name}: and {len(found) - SHOWN} more"


_MEANS = {
    "lost": "acknowledged or recorded, and not there; or done, and recorded by nobody",
    "doubled": "done or decided more than once",
    "stranded": "not ended, and nothing open says why",
    "waiting": "not ended or in doubt, although everybody has answered",
    "broken": "invariants",
}


def reckon(folder: Path, faults: Counter[str]) -> Table:
    """`folder` has the accounts of the people and the log of the outside."""
    acts = outside.acts(folder / "outside.jsonl")
    steps = {step.key: step for step in Step.objects.exclude(key="").select_related("run").order_by("id")}
    runs = {str(run.pk): run for run in Run.objects.all()}
    doubled = [*_done_twice(acts), *_decided_twice()]
    lost = [
        *_unsubmitted(folder, runs),
        *_undecided(folder),
        *_undone(acts, steps),
        *_unrecorded(acts, steps),
    ]
    stranded, waiting = _live(runs)
    broken = [
        *invariants.broken(),
        *(f"journal: {b.stream} #{b.seq} {b.what}" for b in journal.broken([Request, Policy])),
        *of_requests._broken(),
    ]
    return Table(
        runs=Counter(run.status for run in runs.values()),
        decisions=Decision.objects.count(),
        refused=JournalEntry.objects.filter(verb="refused", stream__startswith="request:").count(),
        effects=len(acts),
        settled=JournalEntry.objects.filter(verb="settled").count(),
        faults=faults,
        wrong={
            "lost": lost,
            "doubled": doubled,
            "stranded": stranded,
            "waiting": waiting + [f"{_named(s)} is in doubt" for s in steps.values() if _open(s)],
            "broken": broken,
        },
    )


def _named(step: Step) -> str:
    return f"step {step.index} ({step.tool}) of run {step.run_id} ({step.run.status})"


def _open(step: Step) -> bool:
    return step.effect in (EffectState.IN_DOUBT, EffectState.DISPATCHED)


# -- Twice -------------------------------------------------------------------------------------


def _done_twice(acts: list[dict[str, Any]]) -> Iterator[str]:
    for key, count in Counter(act["key"] for act in acts).items():
        if count > 1:
            tool = next(act["tool"] for act in acts if act["key"] == key)
            yield f"{tool} acted {count} times under the key {key}"


def _decided_twice() -> Iterator[str]:
    """Every request of the chaos needs one person, so of each revision one decision stands at most."""
    for revision, count in Counter(Decision.objects.values_list("revision", flat=True)).items():
        if count > 1:
            yield f"revision {revision} has {count} decisions"


# -- Lost --------------------------------------------------------------------------------------


def _unsubmitted(folder: Path, runs: dict[str, Run]) -> Iterator[str]:
    for said in people.told(folder, "submit"):
        if said["run"] not in runs:
            yield f"run {said['run']} was acknowledged, and there is no row"


def _undecided(folder: Path) -> Iterator[str]:
    made = {str(d.pk): d for d in Decision.objects.select_related("revision", "request__run")}
    for said in people.told(folder, "decide"):
        decision = made.get(said["decision"])
        if decision is None:
            yield f"decision {said['decision']} of {said['request']} was acknowledged, and there is no row"
        elif not _counts(decision):
            request = decision.request
            yield f"{decision.verb} of {request.ref} was acknowledged, and it is {request.state}"


def _counts(decision: Decision) -> bool:
    """Whether what was decided holds, where its run ended well and its revision still stands."""
    request = decision.request
    stands = request.run.status == RunStatus.SUCCEEDED and decision.revision.number == request.number
    return not stands or request.state in AFTER[Verb(decision.verb)]


def _undone(acts: list[dict[str, Any]], steps: dict[str, Step]) -> Iterator[str]:
    """Recorded as done; and what was done is what was recorded, byte for byte."""
    by_key = {act["key"]: act for act in acts}
    for key, step in steps.items():
        if step.effect != EffectState.CONFIRMED:
            continue
        act = by_key.get(key)
        if act is None:
            yield f"{_named(step)} is recorded as done, and the outside has no act of it"
        elif json.dumps(act["answer"]) not in _kept(step):
            yield f"{_named(step)} is recorded as {_kept(step)}, and the outside said {act['answer']!r}"
        elif values.parse(step.sent) != {"amount": act["amount"]}:
            yield f"{_named(step)} was to send {step.sent}, and sent {act['amount']}"


def _kept(step: Step) -> list[str | None]:
    """The result; of what was settled after the end of its run, what was said then."""
    return [step.result] if step.settled else [item.get("text") for item in step.evidence]


def _unrecorded(acts: list[dict[str, Any]], steps: dict[str, Step]) -> Iterator[str]:
    for key, act in {act["key"]: act for act in acts}.items():
        step = steps.get(key)
        if step is None:
            yield f"{act['tool']} acted under the key {key}, which no step has"
        elif step.effect == EffectState.REFUSED:
            yield f"{_named(step)} acted, and is recorded as not done"


# -- Not ended -----------------------------------------------------------------------------------


def _live(runs: dict[str, Run]) -> tuple[list[str], list[str]]:
    """Those that nobody will take any further, and those that wait for something that has a name."""
    stranded, waiting = [], []
    for run in runs.values():
        if run.status in ENDED:
            continue
        open_holds = [h for h in Hold.objects.open().filter(run=run) if h.why]
        named = f"run {run.pk} ({run.agent}) is {run.status}"
        if run.status == RunStatus.SUSPENDED and open_holds:
            waiting.append(f"{named}: {', '.join(f'{h.cause}: {h.why}' for h in open_holds)}")
        else:
            stranded.append(f"{named}, rung {run.rings} times, its lease until {run.lease_until}")
    return stranded, waiting
