"""Type checkers know what awaiting a call gives, and refuse calls that do not fit: mypy is asked, for real."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.integration  # starts mypy

AGENT = """
from datetime import timedelta
from decimal import Decimal
from pydantic import BaseModel
from runs.agents import RunContext, agent
from runs.tools import ToolContext, ask, outcomes, remember, sleep, start, together, tool, wait_for

class Refund(BaseModel):
    id: str

class Choice(BaseModel):
    vendor: str

@tool(effect=True)
def issue_refund(context: ToolContext, charge: str, amount: Decimal) -> Refund:
    return Refund(id="re_1")

@tool()
def price(sku: str) -> int:
    return 1

@agent()
async def clerk(run: RunContext, charge: str, *, amount: Decimal = Decimal(1)) -> Refund:
    return await issue_refund(charge, amount)

@agent(version="2")
async def desk(run: RunContext, ticket: int) -> str:
    reveal_type(await issue_refund("ch_1", Decimal("1.00")))
    reveal_type(await together(price("a"), issue_refund("ch_1", amount=Decimal(1))))
    reveal_type((await outcomes(price("a"), price("b")))[1].get())
    reveal_type(await ask("Which?", Choice))
    reveal_type(await remember("n", lambda: 3))
    reveal_type(await start(clerk, "ch_1", amount=Decimal(2)))
    reveal_type(await together(start(clerk, "ch_1"), wait_for("arrived", Choice)))
    reveal_type(await wait_for("arrived", int, within=timedelta(days=1)))
    await sleep(timedelta(hours=1))
    await start(clerk)
    await start(clerk, 5)
    await start(clerk, "ch_1", amount="2.00")
    await start(price, "a")
    await sleep("1 h")
    await wait_for("arrived", int, within="1 h")
    start(clerk, "ch_1")
    await issue_refund("ch_1")
    await issue_refund("ch_1", "1.00")
    await price(sku=5)
    issue_refund("ch_1", Decimal(1))
    return "done"
"""


def _complaints(folder: Path) -> list[str]:
    source = folder / "desk.py"
    source.write_text(AGENT)
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--no-error-summary",
        "--cache-dir",
        str(folder / "cache"),
        str(source),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return [re.sub(r"^.*?desk\.py:", "", line) for line in done.stdout.splitlines() if "desk.py" in line]


def test_awaiting_a_call_has_the_type_of_its_result(tmp_path: Path) -> None:
    said = _complaints(tmp_path)
    revealed = [re.search(r'"(.*)"', line).group(1) for line in said if "Revealed type" in line]  # type: ignore[union-attr]
    assert revealed == [
        "desk.Refund",
        "tuple[int, desk.Refund]",
        "int",
        "desk.Choice",
        "int",
        "desk.Refund",
        "tuple[desk.Refund, desk.Choice]",
        "int",
    ]
    refused = [line.rpartition("[")[2].rstrip("]") for line in said if ": error:" in line]
    assert refused == [
        "call-arg",
        *["arg-type"] * 5,
        "unused-awaitable",
        *("call-arg", "arg-type", "arg-type", "unused-awaitable"),
    ]
