"""One agent that may stop for every cause there is, and what it needs: the tests' world of `test_every_cause`.

It writes down what it sees, from the start at every rebuild, so that a test can read the transcript of the last
process that drove it. `TEST_VARIANT` stands for code that was changed while a run waited.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from runs import credentials, dependencies
from runs.agents import RunContext, agent
from runs.tools import (
    Call,
    CredentialRefused,
    NeedsAuthorisation,
    Outcome,
    ToolContext,
    Unavailable,
    ask,
    outcomes,
    sleep,
    start,
    tool,
    wait_for,
)
from tests.agents_for_tests import TurnedDown, _answer
from tests.outside import Outside

VARIANT = "TEST_VARIANT"
SERVICE, SECRET = "witness-warehouse", "witness-vault"
ESTIMATE = 5
EDITED = 100  # added to the `n` of a call that was edited
LIMIT = 5.0  # seconds until a call counts as unanswered
KEY = "s3cr3t-of-the-vault"


class Word(BaseModel):
    word: str


def away() -> Path:
    """While this file is there the service is away."""
    return Outside.of_this_process().folder / "service.away"


def locked() -> Path:
    """While this file is there the credential needs its owner."""
    return Outside.of_this_process().folder / "secret.locked"


def _probe() -> None:
    if away().exists():
        raise ConnectionRefusedError("the warehouse is closed")


def _obtain() -> str:
    if locked().exists():
        raise NeedsAuthorisation("https://auth.example/again")
    return KEY


dependencies.register(SERVICE, _probe)
credentials.register(SECRET, _obtain)


def _acted(context: ToolContext, name: str, n: int) -> str:
    """One call at the outside; what happens to it is said by tool, or by tool and call (`act.3`)."""
    outside = Outside.of_this_process()
    word = outside.next(f"{name}.{n % EDITED}")
    word = outside.next(name) if word == "ok" else word
    acted = word in ("ok", "act_then_raise")
    outside.record(name, context.idempotency_key, context.attempt, {"n": n, "word": word}, acted=acted)
    if word == "away":
        raise Unavailable(SERVICE)
    if word == "unauthorised":
        raise CredentialRefused(SECRET)
    _answer(word, context.idempotency_key)
    return f"{name} {n} done"


def find(key: str) -> str | None:
    """Whether the checked call under this key happened."""
    outside = Outside.of_this_process()
    if outside.next("look") == "raise":
        raise ConnectionResetError("nobody knows")
    found = [call for call in outside.acted("act_checked") if call["key"] == key]
    return f"act_checked {found[0]['arguments']['n']} done" if found else None


@tool()
def remark(text: str) -> str:
    """Says {text}."""
    return f"said {text}"


@tool(
    effect=True,
    consequence="It is done at once.",
    refuses=(TurnedDown,),
    estimate={"tokens": ESTIMATE},
    timeout=LIMIT,
)
def act(context: ToolContext, n: int) -> str:
    """Acts; nobody can tell afterwards whether it did."""
    return _acted(context, "act", n)


@tool(effect=True, consequence="It is done at once.", timeout=LIMIT)
def act_approved(context: ToolContext, n: int) -> str:
    """Acts when a person agrees."""
    return _acted(context, "act_approved", n)


@tool(effect=True, consequence="It is done at once.", depends_on=[SERVICE])
def act_there(context: ToolContext, n: int) -> str:
    """Acts at the warehouse."""
    return _acted(context, "act_there", n)


@tool(effect=True, consequence="It is done at once.", credentials=[SECRET])
def act_signed(context: ToolContext, n: int) -> str:
    """Acts with the vault's key."""
    assert context.credential(SECRET) == KEY
    return _acted(context, "act_signed", n)


@tool(effect=True, consequence="It is done at once.", verify=find, timeout=LIMIT)
def act_checked(context: ToolContext, n: int) -> str:
    """Acts, and whether it did can be looked up."""
    return _acted(context, "act_checked", n)


@tool(effect=True, consequence="It is done at once.", idempotent=True, timeout=LIMIT, backoff=0.2)
def act_keyed(context: ToolContext, n: int) -> str:
    """Acts, under a key that is honoured."""
    return _acted(context, "act_keyed", n)


@agent()
async def small_witness(run: RunContext, n: int) -> str:
    return await remark(f"{n}, says the child")


#: The call that may stop for a cause; `n` tells those of one run apart.
WAYS: dict[str, Callable[[int], Call[Any]]] = {
    "remark": lambda n: remark(str(n)),
    "approval": act_approved,
    "question": lambda n: ask(f"which word, {n}?", Word),
    "allowance": act,
    "dependency": act_there,
    "credential": act_signed,
    "in_doubt": act_checked,
    "keyed": act_keyed,
    "timer": lambda n: sleep(3600 + n),
    "event": lambda n: wait_for(f"parcel {n}", Word),
    "child": lambda n: start(small_witness, n),
}


@agent()
async def witness(run: RunContext, cause: str) -> list[str]:
    """A remark, a call that may stop the run, a remark."""
    seen = Seen(run)
    seen.note(await remark("a" + os.environ.get(VARIANT, "")))
    seen.note(await WAYS.get(cause, act)(0))
    seen.note(await remark("b"))
    return seen.lines


@agent()
async def witness_above(run: RunContext, cause: str) -> list[str]:
    """The same, as a child."""
    return await start(witness, cause)


@agent()
async def spread(run: RunContext, stages: list[list[str]]) -> list[str]:
    """Calls side by side, stage after stage; what came of each, in order."""
    came: list[str] = []
    for stage in stages:
        calls = [WAYS[cause](len(came) + place) for place, cause in enumerate(stage)]
        came += [_said(outcome) for outcome in await outcomes(*calls)]
    return came


def _said(outcome: Outcome[Any]) -> str:
    if outcome.error is not None:
        return type(outcome.error).__name__
    return outcome.value.word if isinstance(outcome.value, Word) else str(outcome.value)


class Seen:
    """What the agent saw since it was built, kept in a file: the last one that was built wrote it last."""

    def __init__(self, run: RunContext) -> None:
        self.lines: list[str] = []
        self.file = transcript(run.id)
        self.file.write_bytes(b"")

    def note(self, value: object) -> None:
        self.lines.append(repr(value))
        self.file.write_bytes("\n".join(self.lines).encode())


def transcript(run: object) -> Path:
    return Outside.of_this_process().folder / f"seen.{run}"
