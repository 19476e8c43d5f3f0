"""Tools that reserve and charge, those that give back and undo, and agents that use them."""

from typing import Any

from runs.agents import RunContext, agent
from runs.tools import ToolContext, Unavailable, sleep, tool
from tests.agents_for_tests import SHORT, TurnedDown, _receive
from tests.outside import Outside


def find_release(key: str) -> str | None:
    outside = Outside.of_this_process()
    if outside.next("find_release") == "raise":
        raise ConnectionResetError("no answer")
    return f"receipt {key[:8]}" if any(call["key"] == key for call in outside.acted()) else None


@tool(effect=True, timeout=SHORT, refuses=(TurnedDown,))
def free(context: ToolContext, place: str, result: str) -> str:
    """Free {place}."""
    return _receive(context, "free", place=place, result=result)  # type: ignore[no-any-return]


@tool(effect=True, timeout=SHORT, idempotent=True, refuses=(TurnedDown,))
def free_keyed(context: ToolContext, place: str, key: str) -> str:
    """Free {place}, under a key the outside honours."""
    return _receive(context, "free_keyed", place=place, key=key)  # type: ignore[no-any-return]


@tool(effect=True, timeout=SHORT, verify=find_release)
def free_checked(context: ToolContext, place: str) -> str:
    """Free {place}, and see whether it happened."""
    return _receive(context, "free_checked", place=place)  # type: ignore[no-any-return]


@tool(effect=True, timeout=SHORT, release=free)
def book(context: ToolContext, place: str) -> str:
    """Book {place}."""
    return _receive(context, "book", place=place)  # type: ignore[no-any-return]


@tool(effect=True, timeout=SHORT, release=free_keyed)
def book_keyed(context: ToolContext, place: str) -> str:
    """Book {place}."""
    return _receive(context, "book_keyed", place=place)  # type: ignore[no-any-return]


@tool(effect=True, timeout=SHORT, release=free_checked)
def book_checked(context: ToolContext, place: str) -> str:
    """Book {place}."""
    return _receive(context, "book_checked", place=place)  # type: ignore[no-any-return]


@tool(effect=True, timeout=SHORT)
def refund(context: ToolContext, amount: int, result: str) -> str:
    """Refund {amount}."""
    return _receive(context, "refund", amount=amount, result=result)  # type: ignore[no-any-return]


@tool(effect=True, timeout=SHORT)
def recall(context: ToolContext, amount: int, key: str) -> str:
    """Recall {amount}: needs no result of what it undoes."""
    return _receive(context, "recall", amount=amount, key=key)  # type: ignore[no-any-return]


@tool(effect=True, timeout=SHORT, compensate=refund)
def charge(context: ToolContext, amount: int) -> str:
    """Charge {amount}."""
    return _receive(context, "charge", amount=amount)  # type: ignore[no-any-return]


@tool(effect=True, timeout=SHORT, compensate=recall)
def send_money(context: ToolContext, amount: int) -> str:
    """Send {amount}."""
    return _receive(context, "send_money", amount=amount)  # type: ignore[no-any-return]


@tool(effect=True, idempotent=True, timeout=SHORT, compensate=recall)
def send_again(context: ToolContext, amount: int) -> str:
    """Send {amount}, under a key the outside honours."""
    return _receive(context, "send_again", amount=amount)  # type: ignore[no-any-return]


@tool(effect=True, idempotent=True, timeout=SHORT)
def send_there(context: ToolContext, amount: int) -> str:
    """Send {amount}, by way of a bank that may be closed."""
    if Outside.of_this_process().next("bank") == "closed":
        raise Unavailable("bank", "closed")
    return _receive(context, "send_there", amount=amount)  # type: ignore[no-any-return]


@tool(effect=True, timeout=SHORT, release=free_keyed, compensate=recall)
def rent(context: ToolContext, place: str, amount: int) -> str:
    """Rent {place} for {amount}: it may be given back, or undone."""
    return _receive(context, "rent", place=place, amount=amount)  # type: ignore[no-any-return]


BOOKS = {"book": book, "book_keyed": book_keyed, "book_checked": book_checked}


@agent()
async def booker(run: RunContext, how: str = "book", then: str = "") -> str:
    """Books a seat; then fails, sleeps, or gives it back itself."""
    booked = await BOOKS[how]("seat 1")
    if then == "fail":
        raise ValueError("no more")
    if then == "sleep":
        await sleep(3600)
    if then == "back":
        await free("seat 1", booked)
    if then == "other":
        await free("seat 2", booked)
    return booked


@agent()
async def charger(run: RunContext, then: str = "") -> list[Any]:
    """Two charges and a plain transfer that nothing undoes."""
    from tests.agents_for_tests import note

    done = [await charge(1), await charge(2), await note("done")]
    if then == "sleep":
        await sleep(3600)
    return done


@agent()
async def sender(run: RunContext) -> str:
    """One transfer, and what came of it."""
    try:
        return await send_money(5)
    except Exception as error:
        return f"{type(error).__name__}: {', '.join(map(str, error.args))}"


@agent()
async def resender(run: RunContext) -> str:
    """One transfer that may be repeated, and what came of it."""
    try:
        return await send_again(5)
    except Exception as error:
        return f"{type(error).__name__}: {', '.join(map(str, error.args))}"


@agent()
async def sender_there(run: RunContext) -> str:
    return await send_there(5)


@agent()
async def renter(run: RunContext) -> str:
    return await rent("seat 1", 5)
