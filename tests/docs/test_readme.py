"""The README's blocks do what it says, run as they stand against the real thing."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from approvals.models import Request
from config import launch
from examples.situations import SITUATIONS
from runs.models import Run
from tests.conftest import ROOT
from tests.docs import blocks
from tests.stack import Stack, until
from tests.visitors import ANA, session_cookie

README = ROOT / "README.md"
COMMANDS, MAIN_JOB, DEMOS, AGENT, SUBMIT, PICTURE = blocks.of(README)


def test_every_block_is_run_here_or_is_a_picture() -> None:
    languages = [block.language for block in (COMMANDS, MAIN_JOB, DEMOS, AGENT, SUBMIT, PICTURE)]
    assert languages == ["sh", "sh", "sh", "python", "sh", "text"]


def test_the_two_commands_are_there() -> None:
    words = [line.split("#")[0].split() for line in COMMANDS.code.splitlines()]
    assert words == [["./run"], ["./run", "test"]]
    assert "test" in launch.VERBS
    assert "up" in launch.VERBS  # what `./run` alone means
    assert (ROOT / "run").stat().st_mode & 0o111


def test_the_demos_are_those_there_are() -> None:
    """Each is run from its command to its end in tests/journeys/test_demos.py."""
    words = [line.split("#")[0].split() for line in DEMOS.code.splitlines()]
    assert words == [["./run", "demo", name] for name in SITUATIONS]


def test_the_main_job_is_ten_lines() -> None:
    assert len([line for line in MAIN_JOB.code.splitlines() if line]) <= 10


def _approve(stack: Stack, ref: str) -> None:
    """What Ana's browser does: reads the page, and sends the form that is on it."""
    cookie = session_cookie(stack, ANA)
    with httpx.Client(base_url=stack.url, cookies={cookie["name"]: cookie["value"]}, timeout=30) as browser:
        page = browser.get(f"/requests/{ref}").text
        [form] = re.findall(r'<form id="approve".*?</form>', page, re.DOTALL)
        fields = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', form))
        questions = re.findall(r'name="(basis-\d)" value="yes"', form)
        said = browser.post(f"/requests/{ref}/decide", data={**fields, **dict.fromkeys(questions, "yes")})
        assert (said.status_code, fields["decision"]) == (303, "approve"), said.text


def _ref(agent: str) -> str:
    found = Request.objects.filter(run__agent=agent, state="open").order_by("-opened_at")
    return until(found.first, f"a request of {agent}").ref


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl on PATH; apt install curl")
def test_the_main_job(stack: Stack, tmp_path: Path) -> None:
    (tmp_path / "var").symlink_to(stack.var)
    script = MAIN_JOB.code.replace("http://localhost:8000", stack.url)
    assert script != MAIN_JOB.code
    shell = subprocess.Popen(["sh", "-euc", script], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    try:
        ref = _ref("refund-desk")
        until(lambda: stack.mails(ANA, ref), "the mail that told Ana")  # what is decided already is not told
        _approve(stack, ref)
        said, _ = shell.communicate(timeout=60)
    finally:
        shell.kill()
    run = json.loads(said)
    assert (shell.returncode, run["status"], run["result"]["amount"]) == (0, "succeeded", "240.00")
    [call] = stack.gateway.calls(f"/charges/{_charge(stack)}/refunds")
    assert call["body"] == {"amount": "240.00"}
    assert str(Request.objects.get(ref=ref).run_id) == run["id"]


def _charge(stack: Stack) -> str:
    return str(stack.gateway.get("/tickets/5512")["charge"])


def test_the_agent(stack: Stack, tmp_path: Path) -> None:
    """Put where the README says, named in AGENTS, started by its command, approved, done."""
    assert AGENT.code.startswith("# shop/agents.py\n")
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "agents.py").write_text(AGENT.code)
    more = {"AGENTS": "examples.agents,shop.agents", "PYTHONPATH": str(tmp_path)}
    assert more["AGENTS"] in README.read_text()
    stack.end_workers()  # a version is taken by workers that have it, and the others would answer the bell
    stack.start_workers(2, **more)

    command = SUBMIT.code.split()
    assert command[0] == "./run"
    done = subprocess.run(
        [sys.executable, "manage.py", *command[1:]],
        cwd=ROOT,
        env={**stack.environ, **more},
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.returncode == 0, done.stderr
    run_id, address, status, why = done.stdout.splitlines()
    assert (address, status) == (f"{stack.url}/runs/{run_id}/", "suspended")
    assert why == "waits (approval): No rule allows what this tool changes."

    _approve(stack, _ref("buyer"))
    run = until(Run.objects.filter(pk=run_id, status="succeeded").first, "the buyer has bought")
    stack.end_workers()
    assert re.fullmatch(r'"Bought for 120.00 EUR, order \w{8}"', str(run.result))
