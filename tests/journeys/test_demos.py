"""`./run demo NAME`, end to end: each of the six ways to stop stands where the command says, what it prints can be
opened by whom it names, and what it says makes it go on does, with exactly so many effects outside."""

import json
import re
import subprocess
import sys

import httpx

from approvals.models import Request
from runs.models import Hold, Run
from tests.conftest import ROOT
from tests.stack import Stack, until
from tests.visitors import ANA, CYD, ELI, Rest, Visit, session_cookie

ADDRESS = re.compile(r"as (\S+@example\.com):\n  (http\S+)")


def demo(stack: Stack, *words: str, status: int = 0, **more: str) -> str:
    """What the command prints; it fits a terminal on the usual port."""
    done = subprocess.run(
        [sys.executable, "manage.py", "demo", *words],
        cwd=ROOT,
        env={**stack.environ, **more},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == status, done.stdout + done.stderr
    said = done.stdout if status == 0 else done.stderr
    usual = said.replace(stack.url, "http://localhost:8000").replace(
        stack.gateway.url, "http://127.0.0.1:8900"
    )
    assert [line for line in usual.splitlines() if len(line) > 80] == []
    return said


def newest(name: str) -> Run:
    return Run.objects.filter(labels__demo=name, parent=None).latest("created_at")


def set_up(stack: Stack, name: str) -> tuple[Run, str]:
    """The run that the command started and what it printed, whose pages open for whom it names."""
    said = demo(stack, name)
    assert "./run" in said or "as cyd@example.com" in said
    opened = {address: opens(stack, who, address) for who, address in ADDRESS.findall(said)}
    run = newest(name)
    assert f"{stack.url}{run.get_absolute_url()}" in opened or name == "doubt"
    assert {address: answer for address, answer in opened.items() if answer != 200} == {}
    return run, said


def opens(stack: Stack, who: str, address: str) -> int:
    cookie = session_cookie(stack, who)
    return httpx.get(address, cookies={cookie["name"]: cookie["value"]}, timeout=30).status_code


def causes(run: Run) -> list[str]:
    return sorted(Hold.objects.open().filter(run=run).values_list("cause", flat=True))


def ended(run: Run) -> str:
    until(lambda: Run.objects.get(pk=run.pk).ended, "the run has ended")
    run.refresh_from_db()
    return str(run.status)


def approve(visit: Visit, ref: str) -> None:
    ana = visit(ANA)
    ana.open(ref)
    for box in ana.page.locator("#approve input[type=checkbox], input[form=approve][type=checkbox]").all():
        box.check()
    ana.approve()
    assert ana.receipt().startswith("You approved: ")


# -- The six ---------------------------------------------------------------------------


def test_budget_is_raised(stack: Stack) -> None:
    before = len(stack.gateway.calls("/texts"))
    run, said = set_up(stack, "budget")
    assert (causes(run), len(stack.gateway.calls("/texts")) - before) == (["allowance"], 2)
    assert "./run demo budget --go-on" in said

    assert "succeeded" in demo(stack, "budget", "--go-on")
    assert (ended(run), len(stack.gateway.calls("/texts")) - before) == ("succeeded", 3)
    assert str(run.allowances.get().used.normalize()) == "5.7"


def test_budget_is_raised_on_the_page(stack: Stack, visit: Visit) -> None:
    run, _ = set_up(stack, "budget")
    cyd = visit(CYD)
    cyd.go(run.get_absolute_url())
    cyd.page.locator("summary", has_text="Top up…").click()
    cyd.page.get_by_label("By how much?").fill("0.80")
    cyd.page.get_by_role("button", name="Top up").click()
    assert ended(run) == "succeeded"
    assert str(run.allowances.get().limit.normalize()) == "5.8"  # 3.80 were used, and the call needs 2.00


def test_dependency_comes_back(stack: Stack) -> None:
    """Two runs wait; nobody resumes either."""
    first, said = set_up(stack, "dependency")
    second, _ = set_up(stack, "dependency")
    assert (causes(first), causes(second)) == (["dependency"] * 3, ["dependency"] * 3)
    assert stack.gateway.calls("/parcels") != []
    assert "./run demo dependency --back" in said

    demo(stack, "dependency", "--back")
    assert (ended(first), ended(second)) == ("succeeded", "succeeded")
    parcels = stack.gateway.get("/parcels")["parcels"]
    wanted = json.loads(first.input)["orders"] + json.loads(second.input)["orders"]
    assert sorted(each["order"] for each in parcels if each["order"] in wanted) == sorted(wanted)
    opened = Hold.objects.filter(run__in=(first, second), cause="dependency")
    assert {hold.released_by_kind for hold in opened} == {"system"}


def test_credential_is_authorised(stack: Stack) -> None:
    run, said = set_up(stack, "credential")
    assert causes(run) == ["credential"]
    [consent] = re.findall(r"http\S+/ledger/consent", said)
    assert "<form" in httpx.get(consent).text
    assert entries(stack, run) == 0

    assert "succeeded" in demo(stack, "credential", "--go-on")
    assert (ended(run), entries(stack, run)) == ("succeeded", 1)


def test_credential_is_authorised_by_its_owner(stack: Stack, visit: Visit) -> None:
    """On the provider's own page first; saying so without it ends where it began."""
    run, _ = set_up(stack, "credential")
    eli = visit(ELI)
    eli.go(run.get_absolute_url())
    eli.page.get_by_role("button", name="I have authorised it").click()
    eli.page.locator("ul.messages").wait_for()
    again = Hold.objects.filter(run=run, cause="credential")
    until(lambda: again.count() == 2 and causes(run) == ["credential"], "it is refused again")
    assert entries(stack, run) == 0

    eli.go(run.get_absolute_url())
    eli.page.get_by_role("link", name="Authorise again").click()
    eli.page.get_by_role("button", name="Allow it").click()
    eli.page.get_by_text("Thank you").wait_for()
    eli.go(run.get_absolute_url())
    eli.page.get_by_role("button", name="I have authorised it").click()
    assert (ended(run), entries(stack, run)) == ("succeeded", 1)


def entries(stack: Stack, run: Run) -> int:
    text = json.loads(run.input)["text"]
    return [each["text"] for each in stack.gateway.get("/ledger/entries")["entries"]].count(text)


def test_doubt_is_settled_by_a_person(stack: Stack, visit: Visit) -> None:
    run, said = set_up(stack, "doubt")
    charge = json.loads(run.input)["charge"]
    assert (causes(run), payouts(stack, charge)) == (["in_doubt"], 1)
    [known] = re.findall(r'^  (\{"id".*\})$', said, re.MULTILINE)
    assert "a person decides" in demo(stack, "doubt", "--go-on")
    assert Run.objects.get(pk=run.pk).status == "suspended"

    cyd = visit(CYD)
    cyd.go(f"/runs/{run.pk}/steps/0/doubt/")
    cyd.page.locator("#answer-happened").check()
    cyd.page.locator("#result").fill(known)
    cyd.page.locator("#reason").fill("The bank's list has it.")
    cyd.page.get_by_role("button", name="Settle").click()
    assert (ended(run), payouts(stack, charge)) == ("succeeded", 1)
    assert json.loads(run.result or "{}")["id"] == json.loads(known)["id"]


def payouts(stack: Stack, charge: str) -> int:
    return len(stack.gateway.calls(f"/charges/{charge}/payouts"))


def test_drift_is_asked_about_again(stack: Stack, visit: Visit) -> None:
    run, _ = set_up(stack, "drift")
    assert causes(run) == ["approval"]
    request = Request.objects.get(run=run)
    changed = [(each["name"], each["then"], each["now"]) for each in request.revision.changes]
    assert changed == [("refunded_so_far", '"0.00"', '"10.00"')]
    charge = json.loads(request.revision.arguments)["charge"]
    assert refunded(stack, charge) == ["10.00"]

    approve(visit, request.ref)
    assert (ended(run), refunded(stack, charge)) == ("succeeded", ["10.00", "30.00"])


def refunded(stack: Stack, charge: str) -> list[str]:
    return [each["amount"] for each in stack.gateway.get(f"/refunds?charge={charge}")["refunds"]]


def test_child_waits_for_its_paused_parent(stack: Stack, rest: Rest, visit: Visit) -> None:
    """Approved in the same inbox; nothing of it starts before the parent is resumed."""
    run, _ = set_up(stack, "child")
    assert causes(run) == ["child"]
    request = Request.objects.get(run__parent=run)
    charge = json.loads(request.revision.arguments)["charge"]
    assert rest.http.post(f"/runs/{run.pk}/pause", json={}).status_code == 200
    approve(visit, request.ref)
    until(lambda: causes(request.run) == ["ancestor"], "the child waits for its parent")
    assert refunded(stack, charge) == []

    assert rest.http.post(f"/runs/{run.pk}/resume", json={}).status_code == 200
    assert (ended(run), ended(request.run), refunded(stack, charge)) == ("succeeded", "succeeded", ["30.00"])


# -- Refused ---------------------------------------------------------------------------


def test_without_the_outside_it_says_what_to_start(stack: Stack) -> None:
    before = Run.objects.count()
    said = demo(stack, "budget", status=1, GATEWAY_URL="http://127.0.0.1:9")
    assert "Start everything with ./run" in said
    assert Run.objects.count() == before


def test_without_workers_it_says_so(stack: Stack) -> None:
    stack.end_workers()
    said = demo(stack, "budget", status=1)
    assert "No worker has taken the run" in said
    assert newest("budget").status == "queued"


def test_going_on_with_nothing_that_waits_says_so(stack: Stack) -> None:
    assert "One is set up by ./run demo budget" in " ".join(
        demo(stack, "budget", "--go-on", status=1).split()
    )
