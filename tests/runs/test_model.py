"""One run, anything that may happen to it in any order, and a small oracle that says what may have come of it.

The same examples every time, so that CI says the same twice; `MODEL_SEED=5 MODEL_EXAMPLES=20000` explores others.
`MODEL_SHRINK=1` makes what failed small, which takes its minutes.
Everything is in one process and one transaction an example: what needs processes or commits is in `tests/races`
and `tests/crashes`.
"""

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import hypothesis
import pytest
from django.conf import settings
from django.db import transaction
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from runs import (
    allowance,
    credentials,
    dependencies,
    doubts,
    effects,
    endings,
    events,
    holds,
    lifecycle,
    points,
    sweeper,
)
from runs.clock import now
from runs.exceptions import RunsError
from runs.invocation import Known
from runs.lifecycle import Fence
from runs.models import Allowance, Hold, Run, Step
from runs.states import Cause, RunStatus
from tests import agents_of_causes as world
from tests import invariants as invariants_of_rows
from tests.factories import CYD, OPERATOR, answer, approve, drive, later, metered, reject
from tests.outside import Outside
from tests.runs.oracle import MAY_WAIT_FOR, PEOPLES, Oracle, Slot

EXAMPLES = int(os.environ.get("MODEL_EXAMPLES", "500"))
SEED = os.environ.get("MODEL_SEED")
SHRINK = bool(os.environ.get("MODEL_SHRINK"))
VERBS = (
    "recover",
    "stop",
    "resume",
    "expire_holds",
    "look_again",
    "tell_parents",
    "free_below",
    "cover",
)
#: Where a process may die; in a call of several at once only where the main thread stands.
POINTS = (
    "after-boundary",
    "after-intent-before-call",
    "after-effect-before-record",
    "before-park",
    "after-park",
    "before-finish",
)
WORDS = {
    "keyed": ["raise", "act_then_raise", "not_sent"],
    "approval": ["raise", "act_then_raise", "not_sent"],
    "allowance": ["raise", "act_then_raise", "not_sent", "refuse"],
    "dependency": ["away", "act_then_raise"],
    "credential": ["unauthorised", "raise"],
    "in_doubt": ["raise", "act_then_raise", "not_sent"],
}
EXPIRES = 10_000.0
PLANS = st.lists(
    st.lists(st.sampled_from(sorted(MAY_WAIT_FOR)), min_size=1, max_size=3), min_size=1, max_size=3
)


class Killed(BaseException):
    """As if the process had died."""


def die() -> None:
    raise Killed


class OneRun(RuleBasedStateMachine):
    run: Run

    def __init__(self) -> None:
        super().__init__()
        self.outside = Outside.of_this_process()
        for file in self.outside.folder.iterdir():
            file.unlink()
        self.atomic = transaction.atomic()
        self.atomic.__enter__()
        self.ahead = 0.0
        self.seen = 0
        later(0)

    def teardown(self) -> None:
        try:
            if hasattr(self, "run"):
                self.comes_to_its_end()
        finally:
            transaction.set_rollback(True)
            self.atomic.__exit__(None, None, None)

    @initialize(stages=PLANS, limit=st.sampled_from([None, "0", "4", "9"]), data=st.data())
    def submit(self, stages: list[list[str]], limit: str | None, data: st.DataObject) -> None:
        self.oracle = Oracle(stages)
        for slot in self.oracle.slots:
            if slot.kind in WORDS:
                words = data.draw(st.lists(st.sampled_from(WORDS[slot.kind]), max_size=2))
                self.outside.will(f"{slot.tool}.{slot.n}", *words)
        limits = {} if limit is None else {"tokens": limit}
        self.run = metered("spread", limits, stages=stages)

    # -- Workers -----------------------------------------------------------------------------

    @rule()
    def drive(self) -> None:
        with self.moving():
            drive(self.run)

    @rule(point=st.sampled_from(POINTS))
    def drive_and_die(self, point: str) -> None:
        with self.moving():
            try:
                with points.on(point, die):
                    drive(self.run)
            except Killed:
                self.run.refresh_from_db()
            self.join()

    @rule(seconds=st.sampled_from([3, 100, 4000, EXPIRES + 1]))
    def wait_and_sweep(self, seconds: float) -> None:
        self.ahead += seconds
        later(self.ahead)
        self.sweep()

    @rule()
    def sweep(self) -> None:
        self.expire()
        for name in VERBS:
            verb = sweeper._verbs[name]
            for item in list(verb.find(now())):
                verb.act(item)
        self.compare(may_go={*MAY_GO_IN_A_SWEEP})

    @rule()
    def write_as_a_worker_that_lost_it(self) -> None:
        """3: with the epoch before, nothing moves."""
        run = self.load()
        before = (run.status, run.epoch, run.wakes, run.position, run.seq)
        fence = Fence(run.pk, run.epoch - 1, run.pk, "old")
        for write in (
            lambda: lifecycle.park(fence, run.wakes),
            lambda: lifecycle.hand_back(fence, "old"),
            lambda: endings.finish(fence, RunStatus.SUCCEEDED, result="[]"),
        ):
            with pytest.raises(RunsError):
                write()
        run = self.load()
        assert (run.status, run.epoch, run.wakes, run.position, run.seq) == before

    # -- People --------------------------------------------------------------------------------

    @rule()
    def pause(self) -> None:
        if not self.load().ended:
            holds.pause(self.run.pk, actor=OPERATOR)
            self.oracle.placed(None, "person")

    @rule()
    def unpause(self) -> None:
        if (None, "person") in self.oracle.holds:
            holds.unpause(self.run.pk, actor=OPERATOR)
            self.oracle.released(None, "person")

    @rule(cause=st.sampled_from([Cause.ANCESTOR, Cause.DIVERGED, Cause.VERSION]))
    def bind(self, cause: Cause) -> None:
        if not self.load().ended and (None, cause) not in self.oracle.holds:
            holds.place(lifecycle.lock(self.run.pk), cause=cause, actor=OPERATOR)
            self.oracle.placed(None, cause)

    @rule()
    def unbind(self) -> None:
        for hold in Hold.objects.open().filter(run=self.run, step=None).exclude(cause=Cause.PERSON):
            holds.release(hold.pk, actor=OPERATOR, resolution="back")
            self.oracle.released(None, hold.cause)

    @rule(data=st.data(), verb=st.sampled_from(["approve", "approve", "reject", "edit"]))
    def decide(self, data: st.DataObject, verb: str) -> None:
        if (hold := self.one(data, Cause.APPROVAL)) is None:
            return
        slot = self.slot(hold)
        if verb == "reject":
            reject(hold)
            slot.says = "Rejected"
        else:
            n = slot.n + world.EDITED if verb == "edit" else slot.n
            approve(hold, arguments={"n": n} if verb == "edit" else None)
            slot.approved.append(n)
        self.oracle.released(slot.n, hold.cause)

    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        if (hold := self.one(data, Cause.QUESTION)) is not None:
            answer(hold, word="yes")
            self.slot(hold).says = "yes"
            self.oracle.released(self.slot(hold).n, hold.cause)

    @rule(data=st.data(), word=st.sampled_from(["happened", "did_not_happen"]))
    def settle(self, data: st.DataObject, word: doubts.Answer) -> None:
        if (hold := self.one(data, Cause.IN_DOUBT)) is None:
            return
        slot, text = self.slot(hold), json.dumps("settled") if word == "happened" else None
        try:
            doubts.settle(self.run.pk, slot.n, doubts.Said(word, "looked", text), actor=OPERATOR)
        except RunsError:
            return  # it may still act
        self.oracle.released(slot.n, hold.cause)
        if word == "happened":
            slot.says = "settled"
        else:
            slot.again += 1

    @rule(why=st.just("enough"))
    @precondition(lambda self: self.oracle.kinds()["remark"] > 1)
    def cancel(self, why: str) -> None:
        if not self.load().ended:
            endings.cancel(self.run.pk, actor=CYD, why=why)
            if self.load().ended:
                self.oracle.ended()

    # -- What runs wait for -----------------------------------------------------------------------

    @rule(data=st.data())
    def tell(self, data: st.DataObject) -> None:
        """Also before anybody waits, and the same again."""
        waiting = [slot for slot in self.oracle.slots if slot.kind == "event"]
        if waiting and not self.load().ended:
            slot = data.draw(st.sampled_from(waiting))
            name = f"parcel {slot.n}"
            events.tell(self.run.pk, name=name, event_id=name, payload={"word": "yes"}, actor=CYD)
            self.oracle.released(slot.n, "event")

    @rule(data=st.data())
    def bring_evidence(self, data: st.DataObject) -> None:
        """A late receipt, or one under another key."""
        dispatched = Step.objects.filter(run=self.run, effect__in=["dispatched", "in_doubt"]).pending()
        found = list(dispatched.order_by("index"))
        if not found:
            return
        step = data.draw(st.sampled_from(range(len(found))))
        self.bring(found[step], stray=data.draw(st.booleans()))

    def bring(self, step: Step, *, stray: bool) -> None:
        slot = self.oracle.slots[step.index]
        digest = step.executed_digest or step.arguments_digest
        kept = effects.evidence(
            self.run.pk,
            step.index,
            effect_key="another" if stray else step.key,
            attempt=step.attempt,
            digest=digest,
            known=Known("returned", json.dumps("late")),
            actor=OPERATOR,
        )
        assert kept is not stray
        if kept:
            slot.says = "late"
            self.oracle.released(slot.n, "in_doubt")

    @rule(away=st.booleans())
    def service(self, away: bool) -> None:
        world.away().touch() if away else world.away().unlink(missing_ok=True)
        dependencies.probe(world.SERVICE)

    @rule(locked=st.booleans())
    def secret(self, locked: bool) -> None:
        world.locked().touch() if locked else world.locked().unlink(missing_ok=True)
        if not locked and self.held(Cause.CREDENTIAL):
            credentials.authorised(world.SECRET, actor=OPERATOR)
            self.compare(may_go={"credential"})

    @rule(by=st.sampled_from([1, 5, 20]))
    def top_up(self, by: int) -> None:
        for row in Allowance.objects.filter(runs=self.run, limit__isnull=False):
            allowance.top_up(row.pk, allowance.amount(by), actor=OPERATOR)
        self.compare(may_go={"allowance"})

    @rule()
    def lower(self) -> None:
        for row in Allowance.objects.filter(runs=self.run, limit__gt=0):
            allowance.set_limit(row.pk, allowance.amount(0), None, actor=OPERATOR)

    @rule()
    def drive_children(self) -> None:
        for child in self.run.children.filter(status=RunStatus.QUEUED):
            drive(child)

    # -- What must hold -----------------------------------------------------------------------------

    @invariant()
    def rows_are_whole(self) -> None:
        if hasattr(self, "run"):
            assert invariants_of_rows.broken() == []
            self.compare(may_go=set())

    def comes_to_its_end(self) -> None:
        """Whatever was done to it: once nothing is in its way any more it ends, and the agent was told right."""
        self.clear_the_way()
        for _ in range(40):
            run = self.load()
            if run.ended:
                break
            self.ahead += 4100
            later(self.ahead)
            self.sweep()
            self.open_all()
            self.drive()
            self.drive_children()
        run = self.load()
        assert run.ended, (run.status, self.oracle.holds)
        assert invariants_of_rows.broken() == []
        if run.status == RunStatus.SUCCEEDED:
            assert json.loads(run.result or "") == self.oracle.result()
        else:
            assert run.status == RunStatus.CANCELLED, run.error

    def clear_the_way(self) -> None:
        self.service(False)
        self.secret(False)
        if not self.load().ended:
            self.unbind()
            self.unpause()
        for slot in self.oracle.slots:
            self.outside.will(f"{slot.tool}.{slot.n}")

    def open_all(self) -> None:
        """Everything people may do for it."""
        if self.load().ended:
            return
        self.service(False)
        self.secret(False)
        self.top_up(1000)
        for hold in list(Hold.objects.open().filter(run=self.run).exclude(step=None)):
            slot = self.slot(hold)
            if hold.cause == Cause.APPROVAL:
                approve(hold)
                slot.approved.append(slot.n)
            elif hold.cause == Cause.QUESTION:
                answer(hold, word="yes")
                slot.says = "yes"
            elif hold.cause == Cause.EVENT:
                name = f"parcel {slot.n}"
                events.tell(self.run.pk, name=name, event_id=name, payload={"word": "yes"}, actor=CYD)
            elif hold.cause == Cause.IN_DOUBT and slot.kind not in ("keyed", "in_doubt"):
                self.bring(hold.step, stray=False)  # type: ignore[arg-type]
                continue
            else:
                continue
            self.oracle.released(slot.n, hold.cause)

    # -- Looking ---------------------------------------------------------------------------------------

    @contextmanager
    def moving(self) -> Iterator[None]:
        """A worker has the run: what is bound before stays so, whatever it does."""
        version = (None, "version") in self.oracle.holds and self.load().status == RunStatus.QUEUED
        if version:  # whoever takes it has its version
            self.oracle.released(None, "version")
        bound = {slot.n for slot in self.oracle.slots if self.oracle.bound(slot.n)}
        yield
        calls = self.outside.tried()[self.seen :]
        self.seen += len(calls)
        said = [(c["tool"], c["arguments"]["n"], c["arguments"]["word"]) for c in calls]
        self.oracle.saw(said, bound=bound)
        if self.load().ended:
            self.oracle.ended()
        self.compare(may_go=set(), may_come=True)

    def compare(self, *, may_go: set[str], may_come: bool = False) -> None:
        found = {
            (index, str(cause))
            for index, cause in Hold.objects.open().filter(run=self.run).values_list("step__index", "cause")
        }
        if not self.load().ended:
            self.oracle.stands(found, may_go=may_go, may_come=may_come)
        assert self.oracle.wrong == []

    def expire(self) -> None:
        """What the next sweep lets lapse: the oracle knows what each call is told then."""
        at = now()
        for hold in Hold.objects.open().filter(run=self.run, expires_at__lte=at).exclude(step=None):
            if hold.cause in (Cause.APPROVAL, Cause.QUESTION):
                self.slot(hold).says = "Expired"

    def load(self) -> Run:
        self.run.refresh_from_db()
        if self.run.ended and not self.oracle.over:
            self.oracle.ended()
        return self.run

    def held(self, cause: Cause) -> list[Hold]:
        return list(Hold.objects.open().filter(run=self.run, cause=cause).order_by("step__index"))

    def one(self, data: st.DataObject, cause: Cause) -> Hold | None:
        found = self.held(cause)
        return found[data.draw(st.integers(0, len(found) - 1))] if found else None

    def slot(self, hold: Hold) -> Slot:
        assert hold.step is not None
        return self.oracle.slots[hold.step.index]

    @staticmethod
    def join() -> None:
        """The threads of calls that a dead worker left behind come to their end first."""
        for thread in threading.enumerate():
            if thread is not threading.main_thread() and thread.name.startswith("Thread-"):
                thread.join(timeout=5)


MAY_GO_IN_A_SWEEP = {cause for causes in MAY_WAIT_FOR.values() for cause in causes} | {"ancestor"}
assert not MAY_GO_IN_A_SWEEP & PEOPLES


@pytest.mark.timeout(1200)
@pytest.mark.django_db
def test_one_run_under_anything(
    rules: Callable[..., None], outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Holds of every cause, releases, deaths, late evidence, expiries, top-ups, pauses: the invariants after each."""
    rules(act_approved="hold", expires_in=EXPIRES)
    monkeypatch.setattr(settings, "LEASE", 60.0)
    asked = hypothesis.settings(
        max_examples=EXAMPLES,
        stateful_step_count=12,
        deadline=None,
        phases=[Phase.generate, Phase.shrink] if SHRINK else [Phase.generate],
        derandomize=SEED is None,
        database=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    machine = OneRun if SEED is None else hypothesis.seed(int(SEED))(OneRun)
    run_state_machine_as_test(machine, settings=asked)  # type: ignore[no-untyped-call]
