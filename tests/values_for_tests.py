"""An agent whose values are of every kind, for processes that tests start; it compares them after a stop."""

import uuid
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum

from pydantic import BaseModel, ConfigDict

from runs.agents import RunContext, agent
from runs.tools import ask, tool
from tests.agents_for_tests import Answer


class Colour(Enum):
    RED = "red"


class Inner(BaseModel):
    id: uuid.UUID
    price: Decimal


class Kept(BaseModel):
    """What F28 names, and the texts of F30 that are kept as they are. A model says itself how it writes bytes."""

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    at: datetime
    day: date
    amount: Decimal
    id: uuid.UUID
    raw: bytes
    numbers: set[int]
    colour: Colour
    large: int
    inner: Inner
    text: str


MADE = Kept(
    at=datetime(2026, 3, 7, 13, 0, 5, 123456, tzinfo=timezone(timedelta(hours=2))),
    day=date(2026, 3, 7),
    amount=Decimal("1.10"),
    id=uuid.UUID("12345678-1234-5678-1234-567812345678"),
    raw=b"\x00\xff",
    numbers={3, 1, 2},
    colour=Colour.RED,
    large=2**80,
    inner=Inner(id=uuid.UUID(int=7), price=Decimal("0.10")),
    text="\U0001f469‍\U0001f4bb مرحبا",
)


@tool()
def make_all() -> Kept:
    return MADE


@tool()
def make_bad(text: str) -> str:
    return {"nul": "a\x00b", "surrogate": "\ud83c"}[text]


@agent()
async def keeper_of_all(run: RunContext) -> list[str]:
    """What differs in value or type after a stop, by name."""
    kept = await make_all()
    await ask("go on?", Answer)
    names = list(type(kept).model_fields)
    same = [
        n
        for n in names
        if getattr(kept, n) == getattr(MADE, n) and type(getattr(kept, n)) is type(getattr(MADE, n))
    ]
    written = [str(kept.amount), str(kept.at.utcoffset()), str(kept.inner.price)]
    return [*sorted(set(names) - set(same)), *written]


@agent()
async def maker_of_bad(run: RunContext, text: str) -> str:
    """A result that cannot be kept is an error with a path, and the run goes on."""
    try:
        await make_bad(text)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "kept"
