"""Agents and tools of the tests. The tools talk to `tests.outside`, so that any process may run them."""

import os
import time
from decimal import Decimal
from typing import Any

from pydantic import BaseModel

from runs.agents import RunContext, agent
from runs.tools import (
    ChildFailed,
    NotSent,
    PartlyFailed,
    ToolContext,
    ask,
    fact,
    outcomes,
    remember,
    sleep,
    start,
    together,
    tool,
    wait_for,
)
from tests.outside import Outside

SHORT = 0.3  # seconds until a payment counts as unanswered


class TurnedDown(Exception):
    """The payee's bank says no: certainly not done."""


class Answer(BaseModel):
    number: int


def _receive(context: ToolContext, name: str, **arguments: Any) -> Any:
    """One call at the outside, and what it was told to do to it."""
    outside = Outside.of_this_process()
    word = outside.next(name)
    acts = word in ("ok", "unkept", "exit", "act_then_hang", "act_then_raise", "act_then_wait")
    outside.record(name, context.idempotency_key, context.attempt, arguments, acted=acts)
    return _answer(word, context.idempotency_key)


def _answer(word: str, key: str) -> Any:
    match word:
        case "ok":
            return f"receipt {key[:8]}"
        case "unkept":
            return float("nan")
        case "exit":
            raise SystemExit(3)
        case "hang" | "act_then_hang":
            time.sleep(20)
        case "wait" | "act_then_wait":
            _wait_for("go")
            return f"receipt {key[:8]}"
        case "raise" | "act_then_raise":
            raise ConnectionResetError("the line went dead")
        case "not_sent":
            raise NotSent("connection refused")
        case "refuse":
            raise TurnedDown("no such account")
    raise AssertionError(word)


def _wait_for(name: str) -> None:
    folder = Outside.of_this_process().folder
    (folder / "waiting").touch()
    while not (folder / name).exists():
        time.sleep(0.01)


def find_payment(key: str) -> str | None:
    """Whether a payment under this key happened."""
    outside = Outside.of_this_process()
    if outside.next("find") == "raise":
        raise ConnectionResetError("no answer \x00 from the bank")
    return f"receipt {key[:8]}" if any(call["key"] == key for call in outside.acted()) else None


@fact(source="bank")
def balance(to: str) -> str:
    """Balance of the payee"""
    word = Outside.of_this_process().next("balance")
    if word == "raise":
        raise ConnectionResetError("the bank does not answer")
    return word


@tool()
def add(a: int, b: int) -> int:
    return a + b


@tool(retries=2, backoff=0.01, retry_on=(ConnectionResetError,))
def read_page(name: str) -> str:
    """A pure tool that may fail for a while."""
    word = Outside.of_this_process().next("read_page")
    Outside.of_this_process().record("read_page", "", 0, {"name": name}, acted=True)
    if word == "raise":
        raise ConnectionResetError("not now")
    if word == "hang":
        time.sleep(20)
    return word


@tool(effect=True, refuses=(TurnedDown,), timeout=SHORT, consequence="{amount} leave the account for {to}.")
def pay(context: ToolContext, amount: Decimal, to: str) -> str:
    """Pay {amount} to {to}."""
    return _receive(context, "pay", amount=str(amount), to=to)  # type: ignore[no-any-return]


@tool(effect=True, idempotent=True, refuses=(TurnedDown,), timeout=SHORT, backoff=0.2)
def pay_keyed(context: ToolContext, amount: Decimal, to: str) -> str:
    """Pay {amount} to {to}, under a key the bank honours."""
    return _receive(context, "pay_keyed", amount=str(amount), to=to)  # type: ignore[no-any-return]


@tool(effect=True, verify=find_payment, refuses=(TurnedDown,), timeout=SHORT)
def pay_checked(context: ToolContext, amount: Decimal, to: str) -> str:
    """Pay {amount} to {to}, and see whether it happened."""
    return _receive(context, "pay_checked", amount=str(amount), to=to)  # type: ignore[no-any-return]


@tool(effect=True, retries=2, backoff=0.01, timeout=SHORT)
def pay_retried(context: ToolContext, amount: Decimal, to: str) -> str:
    """Pay {amount} to {to}; a connection that was never made is tried again."""
    return _receive(context, "pay_retried", amount=str(amount), to=to)  # type: ignore[no-any-return]


@tool(effect=True, idempotent=True, retries=2, backoff=0.01, retry_on=(ConnectionResetError,), timeout=SHORT)
def pay_again(context: ToolContext, amount: Decimal, to: str) -> str:
    """Pay {amount} to {to}; a line that went dead is tried again with the same key."""
    return _receive(context, "pay_again", amount=str(amount), to=to)  # type: ignore[no-any-return]


@tool(effect=True, on_interrupt="detach", timeout=30)
def pay_detached(context: ToolContext, amount: Decimal, to: str) -> str:
    """Pay {amount} to {to}; nobody has to wait for it."""
    return _receive(context, "pay_detached", amount=str(amount), to=to)  # type: ignore[no-any-return]


@tool(effect=True, verify=find_payment, on_interrupt="cancel", timeout=30)
def pay_cancelled(context: ToolContext, amount: Decimal, to: str) -> str:
    """Pay {amount} to {to}; it may be cut off, and the bank tells whether it happened."""
    return _receive(context, "pay_cancelled", amount=str(amount), to=to)  # type: ignore[no-any-return]


@tool(effect=True, facts=[balance], timeout=SHORT)
def pay_if(context: ToolContext, amount: Decimal, to: str) -> str:
    """Pay {amount} to {to}, seeing the balance."""
    return _receive(context, "pay_if", amount=str(amount), to=to)  # type: ignore[no-any-return]


@tool(effect=True, idempotent=True)
def note(context: ToolContext, text: str) -> str:
    """Write down {text}."""
    return _receive(context, "note", text=text)  # type: ignore[no-any-return]


@tool(name="slow_add", timeout=60)
def slow_add(a: int, b: int) -> int:
    """Adds when it is told to."""
    _wait_for("go")
    return a + b


@tool(timeout=60, on_interrupt="cancel")
def slow_read(a: int, b: int) -> int:
    """Adds when it is told to, and may be cut off."""
    _wait_for("go")
    return a + b


PAYS = {
    "pay_again": pay_again,
    "pay_detached": pay_detached,
    "pay_cancelled": pay_cancelled,
    "pay": pay,
    "pay_keyed": pay_keyed,
    "pay_checked": pay_checked,
    "pay_retried": pay_retried,
    "pay_if": pay_if,
}


@agent()
async def adder(run: RunContext, n: int) -> int:
    total = 0
    for step in range(n):
        total = await add(total, step)
    return total


@agent(owner="owen@example.org")
async def transfer(run: RunContext, how: str = "pay", amount: Decimal = Decimal("250.00")) -> dict[str, str]:
    """A note, a payment, a note."""
    await note("a")
    call = PAYS[how](amount, "ACME")
    try:
        paid = await call
    except Exception as error:
        paid = f"{type(error).__name__}: {error}"
    await note("b")
    said = call.decision
    return {
        "paid": paid,
        "decision": "" if said is None else f"{said.verb} by {said.by}: {said.note}",
        "proposed": str(call.proposed["amount"]),
        "executed": str(call.executed["amount"]),
    }


@agent()
async def payer(run: RunContext, how: str = "pay") -> str:
    """One payment, and what comes of it is the result."""
    return await PAYS[how](Decimal("250.00"), "ACME")


@agent()
async def questioner(run: RunContext) -> list[int]:
    await note("open")
    first = await ask("the first number?", Answer)
    second = await ask("the second number?", Answer)
    return [first.number, second.number]


@agent()
async def batch(run: RunContext, how: str = "pay") -> list[str]:
    """Three payments at once; what came of each, in order."""
    calls = [PAYS[how](Decimal(amount), to) for amount, to in (("1.00", "A"), ("2.00", "B"), ("3.00", "C"))]
    found = await outcomes(*calls)
    return [o.get() if o.error is None else f"{type(o.error).__name__}: {o.error.args[0]}" for o in found]


@agent()
async def strict_batch(run: RunContext) -> list[str]:
    """The same with `together`, caught."""
    try:
        done = await together(add(1, 2), pay(Decimal("1.00"), "A"), add(3, 4))
    except PartlyFailed as failed:
        return [str(o.value) if o.error is None else type(o.error).__name__ for o in failed.outcomes]
    return [str(value) for value in done]


@agent()
async def uncaught_batch(run: RunContext) -> None:
    await together(add(1, 2), pay(Decimal("1.00"), "A"))


@agent()
async def keeper(run: RunContext) -> list[str]:
    """A value taken once, a payment after it, and the value again."""
    kept = await remember("a moment", _moment)
    await pay(Decimal("1.00"), "A")
    return [kept, kept]


def _moment() -> str:
    return f"{time.time_ns()} {os.getpid()}"


@agent()
async def slow_adder(run: RunContext, n: int) -> int:
    total = 0
    for step in range(n):
        total = await slow_add(total, step)
    return total


@agent()
async def slow_reader(run: RunContext) -> int:
    return await slow_read(1, 2)


@agent()
async def page_reader(run: RunContext) -> list[str]:
    """Two pages, one after the other."""
    return [await read_page("one"), await read_page("two")]


@agent()
async def three_pages(run: RunContext) -> list[str]:
    return list(await together(read_page("one"), read_page("two"), read_page("three")))


@agent()
async def starts_payer(run: RunContext, how: str) -> str:
    """A child that pays."""
    return await start(payer, how=how)


@agent()
async def stubborn(run: RunContext) -> None:
    """Spins, and swallows whatever interrupts it."""
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass


@agent(owner="bo@example.org")
async def boss(run: RunContext, how: str = "pay") -> str:
    """A note, a child that pays, a note."""
    await note("before")
    try:
        paid = await start(payer, how=how)
    except ChildFailed as failed:
        paid = f"{failed.status}: {failed.kind}: {failed.message}"
    await note("after")
    return paid


@agent(owner="chi@example.org")
async def chief(run: RunContext) -> str:
    """A child with a child that pays."""
    return await start(boss)


@agent()
async def crew(run: RunContext) -> list[str]:
    """Two children and a payment at once; what came of each, in order."""
    found = await outcomes(start(payer), start(payer, how="pay_keyed"), pay(Decimal("9.00"), "C"))
    return [str(o.value) if o.error is None else type(o.error).__name__ for o in found]


@agent()
async def expectant(
    run: RunContext, name: str = "arrived", within: float | None = None, times: int = 1
) -> list[int]:
    """Waits for so many events, one after the other."""
    return [await wait_for(name, int, within=within) for _ in range(times)]


@agent()
async def dozer(run: RunContext, seconds: float) -> str:
    await sleep(seconds)
    return await note("awake")


@agent()
async def pair(run: RunContext) -> list[int]:
    """Two waits for the same event at once."""
    return list(await together(wait_for("arrived", int), wait_for("arrived", int)))
