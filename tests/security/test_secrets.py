"""Invariant 12: a tool that leaks its credential in every way it can, and then a look into everything we keep."""

import json
import logging
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from io import StringIO
from typing import Any

import pytest
import structlog
from django.apps import apps
from django.conf import settings
from django.db import connection

from config import logs
from runs import credentials, dependencies, jobs, queues, redaction
from runs.agents import RunContext, agent
from runs.exceptions import CredentialRefused, NeedsAuthorisation, NotSent, Unavailable
from runs.models import Run
from runs.tools import AgentError, Rejected, ToolContext, fact, outcomes, remember, tool
from tests.factories import approve, driven, go_on, later, open_hold, submitted
from tests.fixtures import alone, in_its_own_time, outside, registries, rules

__all__ = ["alone", "in_its_own_time", "outside", "registries", "rules"]

pytestmark = pytest.mark.django_db(transaction=True)

SECRET = 'sk_live_"quoted"/ünd+more\\0123456789'
PARTS = ("sk_live_", "0123456789", "nd+more")


class Leaky(Exception):
    """Declared: an agent may catch it."""


def find_leak(key: str) -> str | None:
    raise RuntimeError(f"verify failed with {credentials.value('psp')}")


def found_leak(key: str) -> str | None:
    return f"found with {credentials.value('psp')}"


@fact(source="psp")
def leaky_fact(how: str) -> str:
    """A fact"""
    if how == "fact_raises":
        raise ConnectionResetError(f"no answer for {credentials.value('psp')}")
    return f"seen with {credentials.value('psp')}"


def _noted(given: str) -> Exception:
    error = ConnectionResetError(f"401 for {given}")
    error.add_note(f"sent {given}")
    return error


def _caused(given: str) -> Exception:
    error = ValueError("outer")
    error.__cause__ = KeyError(given)
    return error


RAISES: dict[str, Callable[[str], BaseException]] = {
    "raises": _noted,
    "raises_declared": lambda given: Leaky(given, {"sent": given}),
    "raises_ours": lambda given: Rejected(f"no, {given}", given),
    "raises_from": _caused,
    "unavailable": lambda given: Unavailable("psp-api", f"503 for {given}"),
    "unavailable_name": lambda given: Unavailable(f"api of {given}"),
    "refused": lambda given: CredentialRefused("psp", f"401 for {given}"),
    "refused_name": lambda given: CredentialRefused(given, f"401 for {given}"),
    "needs": lambda given: NeedsAuthorisation(f"https://psp.example/?old={given}", f"old: {given}"),
    "unsent": lambda given: NotSent(f"no route with {given}"),
    "exits": SystemExit,
}
RETURNS: dict[str, Callable[[str], Any]] = {
    "returns": lambda given: {
        "text": given,
        "json": json.dumps({"key": given}),
        "repr": repr([given]),
        given: 1,
    },
    "returns_nothing_that_can_be_kept": lambda given: {given: float("nan")},
    "late": lambda given: time.sleep(0.4) or given,  # type: ignore[func-returns-value]
    "quiet": lambda given: "quiet",
}
HOWS = ["returns", "returns_nothing_that_can_be_kept", *RAISES]


def _leak(context: ToolContext, how: str) -> Any:
    given = context.credential("psp")
    logging.getLogger("leaky").warning("sent %s", given)
    structlog.get_logger("leaky").warning("sent", given=given, nested={"token": given})
    context.used(tokens=given)
    if how in RAISES:
        raise RAISES[how](given)
    return RETURNS.get(how, RETURNS["quiet"])(given)


@tool(credentials=("psp",), raises=(Leaky,))
def leak_pure(context: ToolContext, how: str) -> Any:
    return _leak(context, how)


@tool(effect=True, credentials=("psp",), raises=(Leaky,), refuses=(Leaky,), timeout=0.2)
def leak_effect(context: ToolContext, how: str) -> Any:
    return _leak(context, how)


@tool(effect=True, credentials=("psp",), verify=find_leak, timeout=0.2)
def leak_verify(context: ToolContext, how: str) -> Any:
    return _leak(context, how)


@tool(effect=True, credentials=("psp",), verify=found_leak, timeout=0.2)
def leak_found(context: ToolContext, how: str) -> Any:
    return _leak(context, how)


@tool(effect=True, credentials=("psp",), facts=[leaky_fact], timeout=0.2)
def leak_fact(context: ToolContext, how: str) -> Any:
    return _leak(context, how)


TOOLS: dict[str, Any] = {
    "pure": leak_pure,
    "effect": leak_effect,
    "verify": leak_verify,
    "found": leak_found,
    "fact": leak_fact,
}


@agent()
async def leaker(run: RunContext, which: str, how: str, caught: bool = True) -> Any:
    try:
        return await TOOLS[which](how)
    except AgentError as error:
        if caught:
            return [str(error), *map(str, error.args)]
        raise


@agent()
async def two_leakers(run: RunContext) -> Any:
    return [str(o.value) for o in await outcomes(leak_effect("late"), leak_pure("returns"))]


@agent()
async def remembering_leaker(run: RunContext) -> Any:
    await leak_pure("quiet")
    kept = await remember("value", lambda: f"kept {credentials.value('psp')}")
    return [kept, credentials.value("psp")]


@agent()
async def failing_leaker(run: RunContext) -> None:
    await leak_pure("quiet")
    raise RuntimeError(f"the agent fails with {credentials.value('psp')}")


@pytest.fixture
def lines() -> Iterator[StringIO]:
    """What goes to standard output, in both styles, as an installation writes it."""
    said, root = StringIO(), logging.getLogger()
    handlers = []
    for style in ("text", "json"):
        handler = logging.StreamHandler(said)
        handler.setFormatter(logs.settings(level="INFO", style=style)["formatters"]["line"]["()"](style))
        root.addHandler(handler)
        handlers.append(handler)
    yield said
    for handler in handlers:
        root.removeHandler(handler)


@pytest.fixture
def leaking(rules: Callable[..., None]) -> None:
    credentials.register("psp", lambda: SECRET, renew=lambda: None)

    def probe() -> None:
        raise ConnectionResetError(f"still away with {SECRET}")

    dependencies.register("psp-api", probe)
    rules(leak_fact="hold")


def written() -> str:
    """Every column of every table as text."""
    found = []
    with connection.cursor() as cursor:
        for model in apps.get_models(include_auto_created=True):
            if not model._meta.managed:
                continue
            cursor.execute(f'SELECT t::text FROM "{model._meta.db_table}" t')
            found += [f"{model._meta.db_table}: {row[0]}" for row in cursor.fetchall()]
    return "\n".join(found)


def rung() -> str:
    """Everything in the queue, whatever its kind."""
    import redis

    found = []
    with redis.Redis.from_url(settings.REDIS_URL) as queue:
        for key in queue.scan_iter("*"):
            found.append(f"{key!r} {queue.dump(key)!r}")
            if queue.type(key) == b"hash":
                found.append(repr(queue.hgetall(key)))
    return "\n".join(found)


def leaks(text: str) -> list[str]:
    """Lines in which a part of the secret stands, in any way of writing it."""
    return [line for line in text.splitlines() if any(part in line for part in PARTS)]


@pytest.mark.parametrize("which", ["pure", "effect", "verify", "found"])
def test_leak_by_the_tool(which: str, leaking: None, lines: StringIO) -> None:
    redaction.keep_out("psp", SECRET)
    for how in HOWS:
        for caught in (True, False):
            go_on(driven("leaker", which=which, how=how, caught=caught), rounds=2)
    later(60)
    for run in Run.objects.all():
        go_on(run, rounds=2)
    jobs.probe("psp-api")
    assert leaks(written()) == []
    assert leaks(rung()) == []
    assert leaks(lines.getvalue()) == []
    assert "[psp removed]" in written()
    assert "[psp removed]" in lines.getvalue()


@pytest.mark.parametrize("how", ["quiet", "fact_raises"])
def test_leak_by_a_fact(how: str, leaking: None, lines: StringIO) -> None:
    run = driven("leaker", which="fact", how=how)
    approve(open_hold(run))
    go_on(run)
    assert "[psp removed]" in written()
    assert leaks(written()) + leaks(lines.getvalue()) == []


@pytest.mark.parametrize("name", ["remembering-leaker", "failing-leaker"])
def test_leak_by_the_agent(name: str, leaking: None) -> None:
    driven(name)
    assert "[psp removed]" in written()
    assert leaks(written()) == []


def test_leak_by_a_result_that_comes_late(leaking: None) -> None:
    run = driven("two-leakers")
    deadline = time.monotonic() + 10
    while not run.steps.exclude(evidence=[]).exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert "[psp removed]" in written()
    assert leaks(written()) == []


def test_leak_by_a_provider(leaking: None, lines: StringIO) -> None:
    """What it handed out before must not stand in what it raises now."""
    driven("leaker", which="pure", how="quiet")

    def fails() -> str:
        raise ConnectionResetError(f"the vault refused {SECRET}")

    credentials.register("psp", fails)
    driven("leaker", which="pure", how="quiet")
    assert "the vault refused [psp removed]" in written()
    assert leaks(written()) + leaks(lines.getvalue()) == []


def test_leak_by_a_job_that_failed(leaking: None, lines: StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    """RQ keeps tracebacks; the loop logs them. A worker of its own: it is the one that writes them down."""
    code = """
import django; django.setup()
from runs import execution, redaction, queues, worker
redaction.keep_out("psp", SECRET)
def fails(key):
    given = {"psp": SECRET}
    raise RuntimeError(f"the loop fails with {SECRET}")
execution.drive = fails
worker.Worker().work(burst=True)
"""
    run = submitted("leaker", which="pure", how="quiet")
    from tests.conftest import _database_url

    while queues.length() < 1:
        queues.ring(run.pk)
        time.sleep(0.1)
    env = {
        "DATABASE_URL": _database_url(),
        "REDIS_URL": settings.REDIS_URL,
        "SECRET_KEY": "x",
        "LOCAL": "1",
        "DJANGO_SETTINGS_MODULE": "config.settings",
        "PATH": "/usr/bin:/bin",
        "AGENTS": "",
    }
    done = subprocess.run(
        [sys.executable, "-c", f"SECRET = {SECRET!r}\n{code}"],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "the loop fails with [psp removed]" in done.stdout + done.stderr
    assert (
        "the loop fails with [psp removed]" in rung().replace("\\\\", "\\") or "psp removed" in exceptions()
    )
    assert leaks(done.stdout + done.stderr) == []
    assert leaks(rung()) + leaks(exceptions()) == []


def exceptions() -> str:
    """What RQ keeps of failed jobs."""
    from rq.results import Result

    queue = queues._bell()
    found = []
    for job_id in queue.failed_job_registry.get_job_ids():
        job = queue.fetch_job(job_id)
        result: Result | None = job.latest_result() if job else None
        found.append(str(result.exc_string if result else job.exc_info if job else ""))
    return "\n".join(found)


def test_leak_not_by_what_travels_with_a_call(leaking: None) -> None:
    """Neither a context, nor what the gate says, shows it when it is printed."""
    from runs.gate import Go

    run = submitted("leaker", which="pure", how="quiet")
    context = ToolContext(run.pk, 0, "key", 1, {"psp": SECRET})
    assert leaks(repr(context) + repr(Go("{}", credentials={"psp": SECRET}))) == []


def test_find_a_leak_that_is_there(leaking: None) -> None:
    """The look itself works: a value that nobody handed out is found wherever it is put."""
    driven("leaker", which="pure", how=SECRET)
    assert leaks(written()) != []
