"""The connection breaks at a commit: it was made or it was not, and whoever asked for it does not know.

Both, for each verb that moves a run. The process that asked sees the same error in either case; what it leaves
behind is found by its lease, by the next pass or by asking again, and nothing is lost, doubled or half done.
"""

import json
import subprocess
import sys
from collections.abc import Callable

import pytest
from django.conf import settings

from runs import lifecycle
from runs.models import Hold, Run
from runs.states import RunStatus
from tests.crashes.own_postgres import Own
from tests.crashes.processes import Workers
from tests.crashes.test_two_installations import RULES, STOPS, Installation
from tests.crashes.wire import ALONE, Wire
from tests.factories import (
    all_go_on,
    approve,
    causes,
    drive,
    driven,
    go_on,
    later,
    open_hold,
    result,
    step,
    submitted,
    sweep_run,
    verbs,
)
from tests.outside import Outside

pytestmark = pytest.mark.django_db(transaction=True)
Rules = Callable[..., None]
LONG = 3600.0
BOTH = pytest.mark.parametrize("done", [False, True], ids=["not committed", "committed"])

# What the statements are known by.
INTENT, PURE = "'dispatched', 0,", "'', '', 0, '', '', '[]', fence.at"
RECEIPT = "settled = (SELECT position FROM fence)"
AGAIN = "attempt = attempt + 1"
HOLD, PARK, FINISH = 'INSERT INTO "runs_hold"', "INSERT INTO runs_snapshot", "ended_at = clock.at"

SETUP = """
import json, sys, uuid, django
django.setup()
from tests import authority
authority.stand_in()
from runs import endings, execution, holds, lifecycle, sweeper
from runs.models import Hold, Run
from tests.factories import CYD, approve
"""


def found_by_its_lease(run: Run) -> Run:
    later(settings.LEASE + 5)
    return go_on(run)


# -- Workers ------------------------------------------------------------------------------------


@BOTH
def test_take(done: bool, workers: Workers, wire: Wire, outside: Outside) -> None:
    run = submitted("payer")
    wire.cut("status = 'running', epoch = epoch + 1", at=ALONE, done=done)
    assert workers.drives(run) != 0
    assert wire.was_cut.is_set()
    assert (run.status, run.epoch) == ((RunStatus.RUNNING, 1) if done else (RunStatus.QUEUED, 0))
    found_by_its_lease(run)
    assert (run.status, len(outside.tried("pay"))) == (RunStatus.SUCCEEDED, 1)


@BOTH
@pytest.mark.parametrize("how", ["pay", "pay_keyed", "pay_checked"])
def test_intent(how: str, done: bool, workers: Workers, wire: Wire, outside: Outside) -> None:
    """No answer, no call. Where the intent was committed nobody else can tell that there was none: the same key
    again, or after its time a look; where neither is possible it is a question."""
    run = submitted("payer", how=how)
    wire.cut(INTENT, at=ALONE, done=done)
    assert workers.drives(run) != 0
    assert (wire.was_cut.is_set(), outside.tried(how), run.steps.count()) == (True, [], int(done))
    found_by_its_lease(run)
    later(LONG)
    go_on(run)
    if how == "pay" and done:
        assert (causes(run), outside.tried(how)) == (["in_doubt"], [])
        return
    assert (run.status, len(outside.tried(how))) == (RunStatus.SUCCEEDED, 1)


@BOTH
@pytest.mark.parametrize("how", ["pay", "pay_keyed", "pay_checked"])
def test_receipt(how: str, done: bool, workers: Workers, wire: Wire, outside: Outside) -> None:
    """F48: the worker lives and knows what came of the call, and says so over another connection: nobody is asked.
    A receipt that waited for the next intent's commit is of a tool that is found out or repeated under its key."""
    run = submitted("payer", how=how)
    wire.cut(RECEIPT, at=ALONE, done=done)
    assert workers.drives(run) != 0
    assert (wire.was_cut.is_set(), outside.n(how)) == (True, 1)
    found_by_its_lease(run)
    times = 2 if how == "pay_keyed" and not done else 1
    assert (run.status, len(outside.tried(how)), step(run, 0).attempt) == (RunStatus.SUCCEEDED, times, times)
    assert len(outside.keys(how)) == 1


@BOTH
def test_receipt_that_rides_with_the_next_intent(
    done: bool, workers: Workers, wire: Wire, outside: Outside
) -> None:
    """Two in one commit: both are there or neither is, and neither was called because of it."""
    run = submitted("transfer", how="pay_checked")
    wire.cut(RECEIPT, at=ALONE, done=done)
    assert workers.drives(run) != 0
    assert (wire.was_cut.is_set(), outside.n("note"), outside.tried("pay_checked")) == (True, 1, [])
    assert [(s.settled, s.effect) for s in run.steps.order_by("index")] == (
        [(1, "confirmed"), (None, "dispatched")] if done else [(None, "dispatched")]
    )
    found_by_its_lease(run)
    later(LONG)
    go_on(run)
    assert (run.status, outside.n("pay_checked"), len(outside.keys("note"))) == (RunStatus.SUCCEEDED, 1, 2)


@BOTH
def test_pure_step(done: bool, workers: Workers, wire: Wire) -> None:
    run = submitted("adder", n=3)
    wire.cut(PURE, at=ALONE, done=done)
    assert workers.drives(run) != 0
    assert (wire.was_cut.is_set(), run.steps.count()) == (True, int(done))
    found_by_its_lease(run)
    assert (result(run), run.steps.count()) == (3, 3)


@BOTH
def test_hold(done: bool, workers: Workers, wire: Wire, outside: Outside, rules: Rules) -> None:
    """F45: asked once, whether the request was stored or not."""
    rules(pay="hold")
    workers.env["TEST_RULES"] = json.dumps({"pay": "hold"})
    run = submitted("payer")
    wire.cut(HOLD, done=done)
    assert workers.drives(run) != 0
    assert (wire.was_cut.is_set(), run.status, causes(run)) == (
        True,
        RunStatus.RUNNING,
        ["approval"] if done else [],
    )
    found_by_its_lease(run)
    assert (run.status, Hold.objects.filter(run=run).count()) == (RunStatus.SUSPENDED, 1)
    approve(open_hold(run))
    go_on(run)
    assert (run.status, outside.n("pay")) == (RunStatus.SUCCEEDED, 1)


@BOTH
def test_permit_consumed(done: bool, workers: Workers, wire: Wire, outside: Outside, rules: Rules) -> None:
    """F04: the approval is not used up by a call that was never made, nor used twice."""
    rules(pay_checked="hold")
    workers.env["TEST_RULES"] = json.dumps({"pay_checked": "hold"})
    run = driven("payer", how="pay_checked")
    approve(open_hold(run))
    wire.cut(AGAIN, done=done)
    assert workers.drives(run) != 0
    assert (wire.was_cut.is_set(), outside.tried("pay_checked"), step(run, 0).effect) == (
        True,
        [],
        "dispatched" if done else "",
    )
    found_by_its_lease(run)
    later(LONG)
    go_on(run)
    assert (run.status, outside.n("pay_checked")) == (RunStatus.SUCCEEDED, 1)


@BOTH
def test_park(done: bool, workers: Workers, wire: Wire, outside: Outside, rules: Rules) -> None:
    rules(pay="hold")
    workers.env["TEST_RULES"] = json.dumps({"pay": "hold"})
    run = submitted("payer")
    wire.cut(PARK, at=ALONE, done=done)
    assert workers.drives(run) != 0
    assert (wire.was_cut.is_set(), run.status) == (
        True,
        RunStatus.SUSPENDED if done else RunStatus.RUNNING,
    )
    found_by_its_lease(run)
    assert (run.status, causes(run), run.snapshots.count()) == (RunStatus.SUSPENDED, ["approval"], 1)
    approve(open_hold(run))
    go_on(run)
    assert (run.status, outside.n("pay")) == (RunStatus.SUCCEEDED, 1)


@BOTH
def test_finish(done: bool, workers: Workers, wire: Wire, outside: Outside) -> None:
    run = submitted("payer")
    wire.cut(FINISH, at=ALONE, done=done)
    assert workers.drives(run) != 0
    assert (wire.was_cut.is_set(), run.status) == (
        True,
        RunStatus.SUCCEEDED if done else RunStatus.RUNNING,
    )
    found_by_its_lease(run)
    assert (run.status, outside.n("pay"), verbs(run).count("succeeded")) == (RunStatus.SUCCEEDED, 1, 1)


@BOTH
def test_end_of_a_child(done: bool, workers: Workers, wire: Wire, outside: Outside) -> None:
    """The long way: the child's end and what hangs on it, in one transaction."""
    run = driven("boss")
    child = run.children.get()
    wire.cut('"ended_at" = ', done=done)
    assert workers.drives(child) != 0
    assert (wire.was_cut.is_set(), child.status) == (
        True,
        RunStatus.SUCCEEDED if done else RunStatus.RUNNING,
    )
    later(settings.LEASE + 5)
    all_go_on()
    run.refresh_from_db()
    assert (run.status, outside.n("pay"), verbs(run).count("resumed")) == (RunStatus.SUCCEEDED, 1, 1)


# -- Doors and the sweeper ------------------------------------------------------------------------

#: Says what each of two tries came to: an answer of the verb's, or that the database did not tell.
TWICE = """
from django.db import OperationalError
def tries(verb):
    for _ in range(2):
        try:
            print(json.dumps(str(verb())))
        except OperationalError:
            print(json.dumps("no answer"))
        except Exception as error:
            print(json.dumps(type(error).__name__))
"""
RELEASE = """
def verb():
    return approve(Hold.objects.get(run=uuid.UUID(sys.argv[1]), cause="approval")).resolution
tries(verb)
"""
PAUSE = "tries(lambda: holds.pause(uuid.UUID(sys.argv[1]), actor=CYD).cause)"
CANCEL = "tries(lambda: endings.cancel(uuid.UUID(sys.argv[1]), actor=CYD).status)"
SUBMIT = """
asked = lifecycle.Submission("adder", {"n": 1}, {}, owner_id="cyd", idempotency_key="k1")
tries(lambda: lifecycle.submit(asked, actor=CYD)[1])
"""
SWEEP = "tries(lambda: sweeper.sweep().get(sys.argv[1], 0))"


def tried(workers: Workers, script: str, *given: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", SETUP + TWICE + script, *given],
        cwd=settings.BASE_DIR,
        env=workers.env,
        stdout=subprocess.PIPE,
        timeout=60,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith(b'"')]


@BOTH
def test_release(done: bool, workers: Workers, wire: Wire, outside: Outside, rules: Rules) -> None:
    """F04: pressed again; the run goes on once, rung for or not."""
    rules(pay="hold")
    run = driven("payer")
    wire.cut("SET released_at", done=done)
    said = tried(workers, RELEASE, str(run.pk))
    assert said == ["no answer", "HoldClosed" if done else "approved"]
    run.refresh_from_db()
    assert (run.status, verbs(run).count("released"), verbs(run).count("resumed")) == (RunStatus.QUEUED, 1, 1)
    later(settings.SWEEP_EVERY + 1)
    if done:  # nobody was rung for
        assert sweep_run(run) == ["ring"]
    assert (drive(run).status, outside.n("pay")) == (RunStatus.SUCCEEDED, 1)


@BOTH
def test_pause(done: bool, workers: Workers, wire: Wire) -> None:
    run = submitted("adder", n=1)
    wire.cut('INSERT INTO "runs_hold"', done=done)
    assert tried(workers, PAUSE, str(run.pk)) == ["no answer", "person"]
    assert (causes(run), verbs(run).count("held")) == (["person"], 1)


@BOTH
def test_cancel(done: bool, workers: Workers, wire: Wire) -> None:
    run = submitted("adder", n=1)
    wire.cut('"ended_at" = ', done=done)
    assert tried(workers, CANCEL, str(run.pk)) == ["no answer", "RunEnded" if done else "cancelled"]
    assert verbs(run).count("cancelled") == 1


@BOTH
def test_submit_with_a_key(done: bool, workers: Workers, wire: Wire) -> None:
    """The same request again, with the same key, as the API asks for: one run."""
    wire.cut('INSERT INTO "runs_run"', done=done)
    assert tried(workers, SUBMIT) == ["no answer", "False" if done else "True"]
    assert Run.objects.count() == 1


@BOTH
@pytest.mark.parametrize("verb", ["recover", "expire_holds"])
def test_sweeper(verb: str, done: bool, workers: Workers, wire: Wire, rules: Rules) -> None:
    """The pass goes on without that item, and the next one does what is still to be done."""
    rules(pay="hold", expires_in=5)
    if verb == "recover":
        run = submitted("payer")
        lifecycle.take(run.pk, "somebody")
    else:
        run = driven("payer")
    later(30)
    wire.cut('UPDATE "runs_run"' if verb == "recover" else "SET released_at", done=done)
    assert tried(workers, SWEEP, verb) == ["0", "0" if done else "1"]
    run.refresh_from_db()
    assert wire.was_cut.is_set()
    moved = "recovered" if verb == "recover" else "resumed"
    assert (run.status, verbs(run).count(moved)) == (RunStatus.QUEUED, 1)


#: A reviewer's page, and their program: what both answer, and what is there afterwards.
DECIDES = """
from django.test import Client
from runs.models import JournalEntry
request = Request.objects.get()
browser = Client(raise_request_exception=False, SERVER_NAME="localhost")
browser.force_login(User.objects.get(username=sys.argv[1]))
form = {"decision": "approve", "view_digest": request.revision.digest, "form_nonce": "n1", "note": "my thought"}
form["basis-1"] = "yes"
for _ in range(2):
    answer = browser.post("/requests/" + request.ref + "/decide", form)
    print("answer", answer.status_code, "my thought" in answer.content.decode())
request.refresh_from_db()
print("state", request.state, Permit.objects.count(), request.decisions.count(), request.run.status)
"""


@BOTH
def test_decide(done: bool, workers: Workers, wire: Wire, outside: Outside, own: Own) -> None:
    """F04, F74: the page says that nobody knows and shows what was typed; pressed again it is one decision."""
    there = Installation(workers.env | {"DATABASE_URL": own.url})
    there.runs(RULES + STOPS, "ana")
    here = Installation(workers.env)
    wire.cut('INSERT INTO "approvals_decision"', done=done)
    said = here.runs(DECIDES, "ana").splitlines()
    assert wire.was_cut.is_set()
    assert said[-3:] == ["answer 503 True", "answer 303 False", "state in_force 1 1 queued"]
    there.runs("execution.drive(Run.objects.get().pk)")
    told = there.told()
    assert (told["status"], told["requests"], outside.n("pay")) == ("succeeded", ["consumed"], 1)
