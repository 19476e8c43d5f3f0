"""The reference run of the crash points: a run that does one of everything, and the world that it talks to.

What its tools answer depends on nothing but their arguments, so that two runs that saw the same have the same
transcript. What reached the outside is in `tests.outside`, mails too.
"""

import time
from decimal import Decimal
from pathlib import Path
from typing import Any

from django.core.mail.backends.base import BaseEmailBackend
from django.core.mail.message import EmailMessage

from runs import credentials, dependencies
from runs.agents import RunContext, agent
from runs.tools import CredentialRefused, ToolContext, fact, start, together, tool
from tests.outside import Outside

SECRET, SERVICE = "reference-vault", "reference-bank"
LIMIT = 20.0  # seconds until a call counts as unanswered


class Mails(BaseEmailBackend):
    """Mails reach the outside as calls do; what tells them apart is who gets them and what about."""

    def send_messages(self, messages: list[EmailMessage]) -> int:
        for message in messages:
            told = {"to": message.to[0], "subject": message.subject}
            Outside.of_this_process().record("mail", str(message.to[0]), 1, told, acted=True)
        return len(messages)


def _done(context: ToolContext, name: str, said: str) -> str:
    Outside.of_this_process().record(
        name, context.idempotency_key, context.attempt, {"said": said}, acted=True
    )
    return said


def find(key: str) -> str | None:
    """What happened under this key."""
    found = [call for call in Outside.of_this_process().acted() if call["key"] == key]
    return found[0]["arguments"]["said"] if found else None


dependencies.register(SERVICE, lambda: None)


def _obtain() -> str:
    return f"{_key().read_text() if _key().exists() else 'first'} s3cr3t of the reference vault"


def _renew() -> None:
    _key().write_text("second")


def _key() -> Path:
    return Outside.of_this_process().folder / "vault"


credentials.register(SECRET, _obtain, renew=_renew)


@fact(source="bank", kind="material", fresh_for=86400)
def funds(to: str) -> str:
    """What {to} has"""
    return "1000.00"


@tool(name="reference.consult", estimate={"tokens": 2})
def consult(n: int) -> int:
    """Consult page {n}."""
    return n * n


@tool(name="reference.linger")
def linger(seconds: float) -> float:
    """Take {seconds} s."""
    time.sleep(seconds)
    return seconds


@tool(
    name="reference.file",
    effect=True,
    consequence="It is done at once.",
    idempotent=True,
    timeout=LIMIT,
    backoff=0.05,
    estimate={"tokens": 3},
)
def file(context: ToolContext, text: str) -> str:
    """File {text}, under a key that is honoured."""
    return _done(context, "file", f"filed {text}")


@tool(name="reference.post", effect=True, consequence="It is done at once.", verify=find, timeout=LIMIT)
def post(context: ToolContext, text: str) -> str:
    """Post {text}; whether it happened can be looked up."""
    return _done(context, "post", f"posted {text}")


@tool(
    name="reference.remit",
    effect=True,
    consequence="It is done at once.",
    facts=[funds],
    credentials=[SECRET],
    depends_on=[SERVICE],
    timeout=LIMIT,
)
def remit(context: ToolContext, to: str, amount: Decimal) -> str:
    """Remit {amount} to {to}; nobody can tell afterwards whether it happened."""
    assert context.credential(SECRET)
    return _done(context, "remit", f"remitted {amount} to {to}")


@tool(name="reference.stamp", effect=True, consequence="It is done at once.", timeout=LIMIT)
def stamp(context: ToolContext, text: str) -> str:
    """Stamp {text}; nobody can tell afterwards whether it happened, and nobody is asked before."""
    return _done(context, "stamp", f"stamped {text}")


@tool(name="reference.vacate", effect=True, consequence="It is done at once.", idempotent=True, timeout=LIMIT)
def vacate(context: ToolContext, room: str) -> str:
    """Give {room} back."""
    return _done(context, "vacate", f"vacated {room}")


@tool(
    name="reference.reserve",
    effect=True,
    consequence="It is done at once.",
    verify=find,
    release=vacate,
    timeout=LIMIT,
)
def reserve(context: ToolContext, room: str) -> str:
    """Reserve {room} until the run ends."""
    return _done(context, "reserve", f"reserved {room}")


@tool(name="reference.fetch", retries=1, backoff=0.01, retry_on=(ConnectionResetError,))
def fetch(n: int) -> int:
    """Fetch page {n}; a line that goes dead is tried again."""
    if Outside.of_this_process().next("fetch") == "raise":
        raise ConnectionResetError("the line went dead")
    return n


@tool(
    name="reference.sign",
    effect=True,
    consequence="It is done at once.",
    idempotent=True,
    credentials=[SECRET],
    timeout=LIMIT,
)
def sign(context: ToolContext, text: str) -> str:
    """Sign {text} with the vault's key, which may be out of date."""
    if context.credential(SECRET).startswith("first"):
        raise CredentialRefused(SECRET)
    return _done(context, "sign", f"signed {text}")


@agent(owner="owen@example.org")
async def apprentice(run: RunContext, n: int) -> list[str]:
    """The child: one pure call, one effect."""
    return [str(await consult(n)), await file(f"page {n}")]


@agent(owner="owen@example.org")
async def reference(run: RunContext) -> list[Any]:
    """Each kind of tool; one call that a person decides, a batch, a child, a claim, and more after them."""
    seen: list[Any] = [await consult(1), await file("a"), await post("b"), await reserve("room 1")]
    seen.append(await remit("ACME", Decimal("240.00")))
    seen += await together(consult(2), file("c"), post("d"))  # type: ignore[arg-type]
    seen += await start(apprentice, 3)
    seen += [await consult(4), await stamp("e")]
    return seen


@agent(owner="owen@example.org")
async def lingerer(run: RunContext) -> list[Any]:
    """Long enough for its lease to be renewed."""
    return [await linger(1.2), await stamp("f")]


@agent(owner="owen@example.org")
async def unlucky(run: RunContext) -> list[Any]:
    """A line that goes dead once, and a key that is out of date."""
    return [await fetch(1), await sign("g"), await stamp("h")]
