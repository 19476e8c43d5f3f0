"""Who comes while everything breaks: submitters with a key, reviewers, operators. Each a process that may be killed.

What a door acknowledged is a line in a file of the process, written after the answer; so the reckoning knows what
must not be lost. `python -m tests.chaos.people ROLE NUMBER SEED FOLDER`, which ends with SIGTERM.
"""

import json
import os
import random
import sys
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import django

if __name__ == "__main__":
    django.setup()

from http.client import HTTPConnection, HTTPException

from django.contrib.auth.models import Group, User
from django.db import DatabaseError, InterfaceError, close_old_connections

from approvals import decisions, policies
from approvals.decisions import Choice, Decided
from approvals.exceptions import ApprovalsError
from approvals.models import ApiKey, Request
from approvals.states import RequestKind
from runs import allowance, doubts, endings, events, holds, stops, values
from runs.actors import Actor
from runs.doubts import Said
from runs.exceptions import RunsError
from runs.models import Allowance, Hold, Run, Step
from runs.states import Cause
from tests.chaos import agents, outside

GROUP = "chaos reviewers"
REVIEWERS = ("ana", "ben", "eve")
OPERATOR = Actor("person", "olu", "olu", "admin", operator=True)
ADDRESS, KEY = "CHAOS_WEB", "CHAOS_KEY"
AT_MOST = 120  # live runs; more wait to be submitted
SOON = 4  # seconds in which a decision of the hasty kind can be made
BASIS = {"1": "yes"}  # to the one question there is about what has none of its own
THINK = 1  # seconds in which a decision can be taken back


def _rule(name: str, tool: str, outcome: str, **more: Any) -> dict[str, Any]:
    return {"pass": "verdict", "name": name, "tool": tool, "expression": "true", "outcome": outcome, **more}


RULES = [
    {"pass": "tier", "name": "medium", "tool": "*", "expression": "true", "outcome": "R2"},
    _rule("approved", "chaos_approved", "hold", group=GROUP),
    _rule("thought over", "chaos_approved_slowly", "hold", group=GROUP, undo_seconds=THINK),
    _rule("soon", "chaos_approved_soon", "hold", group=GROUP, decide_within=SOON),
    _rule("questions", "abeyance.ask", "hold", group=GROUP),
    _rule("the rest", "*", "allow"),
]


def prepare() -> str:
    """The rules, the reviewers and a submitter, whose key is returned."""
    policies.seed(RULES)
    group, _ = Group.objects.get_or_create(name=GROUP)
    for name in REVIEWERS:
        User.objects.create(username=name, email=f"{name}@example.org").groups.add(group)
    owner = User.objects.create(username="cyd", email="cyd@example.org")
    return str(ApiKey.objects.create_key(name="chaos", owner=owner)[1])


# -- What was acknowledged -----------------------------------------------------------------------


class Account:
    """The file of one process; one that was killed is continued."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def note(self, **said: Any) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps(said) + "\n")


def told(folder: Path, role: str) -> list[dict[str, Any]]:
    """What was acknowledged to all of one role. A half line was not written after an answer that anybody got."""
    lines = [line for file in sorted(folder.glob(f"{role}-*.jsonl")) for line in file.read_text().split("\n")]
    return [json.loads(line) for line in lines if line.endswith("}")]


# -- Submitting -------------------------------------------------------------------------------


def submitting(number: int, seed: str, account: Account, folder: Path) -> Callable[[], None]:
    """By REST, under an idempotency key, again until it is acknowledged."""
    mine = [line["n"] for line in told(folder, "submit") if line["by"] == number]
    state = {"n": max(mine, default=-1) + 1}

    def once() -> None:
        if Run.objects.live().count() >= AT_MOST:
            time.sleep(0.2)
            return
        n = state["n"]
        rng = random.Random(
            f"{seed} run {number} {n}"
        )  # of the run, not of the process: it is the same again
        [made] = rng.choices(list(agents.MIX), list(agents.MIX.values()))
        body: dict[str, Any] = {"agent": made.name, "input": {"amount": 1000 * number + n}}
        if made is agents.chaos_metered:
            body["allowance"] = {"tokens": str(2 * agents.TOKENS)}
        run = _post(body, f"{seed}-{number}-{n}")
        if run is None:
            time.sleep(0.2)
            return
        account.note(by=number, n=n, run=run, agent=made.name)
        state["n"] = n + 1

    return once


def _post(body: dict[str, Any], key: str) -> str | None:
    """The id of the run; None: it was not acknowledged."""
    headers = {
        "Authorization": f"Bearer {os.environ[KEY]}",
        "Content-Type": "application/json",
        "Idempotency-Key": key,
    }
    line = HTTPConnection("127.0.0.1", int(os.environ[ADDRESS]), timeout=10)
    try:
        line.request("POST", "/api/v1/runs", json.dumps(body), headers)
        said = line.getresponse()
        content = said.read()
    except (OSError, HTTPException):
        return None
    finally:
        line.close()
    if said.status in (200, 201):
        return str(json.loads(content)["id"])
    if said.status < 500:
        raise AssertionError(f"{said.status}: {content!r}")
    return None


# -- Deciding -------------------------------------------------------------------------------------


def deciding(number: int, seed: str, account: Account, folder: Path) -> Callable[[], None]:
    """The oldest requests, which is what the others decide as well; now and then one that is closed."""
    rng = random.Random(f"{seed} decide {number}")

    def once() -> None:
        late = rng.random() < 0.05
        found = Request.objects.exclude(state="open") if late else Request.objects.filter(state="open")
        some = list(found.order_by("opened_at" if not late else "-opened_at")[: 1 if late else 4])
        if not some:
            time.sleep(0.1)
        for request in some:
            decide(request, REVIEWERS[number], rng, account)
            time.sleep(rng.choice((0.0, 0.02, 0.1)))

    return once


def decide(request: Request, who: str, rng: random.Random, account: Account) -> None:
    """One decision, and sometimes the same click twice. Refusals are as they must be: somebody else was first."""
    person = User.objects.get(username=who)
    choice = _choice(request, rng)
    for _ in range(2 if rng.random() < 0.2 else 1):
        try:
            decided = decisions.decide(request.ref, person=person, choice=choice)
        except (ApprovalsError, RunsError):
            return
        _note(account, choice, decided)


def _note(account: Account, choice: Choice, decided: Decided) -> None:
    if decided.decision is not None:
        account.note(
            decision=str(decided.decision.pk),
            request=decided.request.ref,
            verb=choice.verb,
            again=decided.again,
            waits_for=decided.waits_for,
        )


def _choice(request: Request, rng: random.Random) -> Choice:
    digest, nonce = request.revision.digest, f"n{rng.getrandbits(60)}"
    if request.kind == RequestKind.QUESTION:
        return Choice("respond", digest, answer={"number": rng.randrange(100)}, nonce=nonce)
    kind = rng.random()
    if kind < 0.15:
        return Choice("reject", digest, reason="not now", nonce=nonce)
    if kind < 0.35:
        amount = json.loads(request.revision.arguments)["amount"]
        edit = values.canonical({"amount": amount + 100_000})
        return Choice("approve", digest, edit=edit, basis=BASIS, nonce=nonce)
    return Choice("approve", digest, basis=BASIS, nonce=nonce)


# -- Operating --------------------------------------------------------------------------------------


def operating(number: int, seed: str, account: Account, folder: Path) -> Callable[[], None]:
    """Pauses, stops, cancels and resumes some; tops up, tells of events and settles doubts for all."""
    rng = random.Random(f"{seed} operate {number}")
    log = folder / "outside.jsonl"

    def once() -> None:
        live = list(Run.objects.live().values_list("pk", flat=True)[:AT_MOST])
        if live:
            verb = rng.choices((holds.pause, stops.stop_now, endings.cancel, holds.unpause), (4, 3, 2, 6))[0]
            refused(lambda: verb(rng.choice(live), actor=OPERATOR, why="chaos"))
        if rng.random() < 0.5:
            resume_some(rng)
        answer_events()
        top_up()
        if rng.random() < 0.1:
            settle(log)
        time.sleep(rng.choice((0.1, 0.3, 0.6)))

    return once


def refused(act: Callable[[], object]) -> None:
    """A verb that comes too late for a run says so; that is an answer."""
    try:
        act()
    except RunsError:
        return


def paused() -> list[Any]:
    return list(Hold.objects.open().filter(cause=Cause.PERSON).values_list("run", flat=True))


def resume_some(rng: random.Random) -> None:
    for run in paused():
        if rng.random() < 0.3:
            refused(lambda run=run: holds.unpause(run, actor=OPERATOR))


def answer_events() -> None:
    for run in Hold.objects.waiting_for(Cause.EVENT, agents.EVENT).values_list("run", flat=True):
        told = {"name": agents.EVENT, "event_id": str(run), "payload": {"number": 1}}
        refused(lambda run=run, told=told: events.tell(run, actor=OPERATOR, **told))


def top_up() -> None:
    short = Hold.objects.open().filter(cause=Cause.ALLOWANCE).values_list("subject", flat=True)
    for row in Allowance.objects.filter(pk__in=[int(subject) for subject in short]):
        refused(lambda row=row: allowance.top_up(row.pk, Decimal(3 * agents.TOKENS), actor=OPERATOR))


def settle(log: Path) -> int:
    """Says of each effect in doubt what the outside's log says of it. How many were in doubt."""
    steps = list(Step.objects.in_doubt().select_related("run"))
    for step in steps:
        # Whether it may still act is asked before the log is read: after both, what is not there never will be.
        over = not doubts.forbids(step.run, step, "did_not_happen")
        if (said := _seen(log, step.key)) or over:
            said = said or Said("did_not_happen", "it is not in their log")
            refused(lambda step=step, said=said: doubts.settle(step.run_id, step.index, said, actor=OPERATOR))
    return len(steps)


def _seen(log: Path, key: str) -> Said | None:
    answers = [act["answer"] for act in outside.acts(log) if act["key"] == key]
    return Said("happened", "it is in their log", json.dumps(answers[0])) if answers else None


# -- A process -----------------------------------------------------------------------------------------

ROLES = {"submit": submitting, "decide": deciding, "operate": operating}


def main(role: str, number: int, seed: str, folder: Path) -> None:
    once = ROLES[role](number, seed, Account(folder / f"{role}-{number}.jsonl"), folder)
    while True:
        try:
            once()
        except (DatabaseError, InterfaceError):  # as a web process: the next request connects anew
            close_old_connections()
            time.sleep(0.2)


if __name__ == "__main__":
    from runs import agents as registry

    registry.load()
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], Path(sys.argv[4]))
