"""Six ways to stop, each set up for real: the run, the outside world around it, and what to look at then.

`SITUATIONS` names them. Each says what it asks for (`arrange`, which also tells the outside how to behave), when
the run stands where it should, what a person is told (`tell`) and, where that is not a person's decision, what
makes it go on (`go_on`). `./run demo NAME` calls these; nothing here is needed to run agents.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import httpx
from django.conf import settings
from django.contrib.auth.models import User

from approvals import decisions
from approvals.models import Request
from approvals.presentation import questions
from approvals.states import RequestState, Verb
from examples import client, demo
from examples.agents.credential import CONSENT
from runs import allowance, credentials, dependencies, holds
from runs.actors import Actor
from runs.exceptions import NotSent
from runs.lifecycle import Limit, Submission
from runs.models import Hold, Run
from runs.states import Cause, RunStatus

OPERATOR, REVIEWER, SUBMITTER = "cyd@example.com", "ana@example.com", demo.SUBMITTER
ACTOR = Actor("command", "demo", "./run demo", "command", operator=True)
CARRIER = "/parcels"
FOR_LONG = 1_000_000


class NotReady(Exception):
    """Something the demo needs is not there; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Line:
    """Something to open or to type, and what for."""

    what: str
    shown: str


Told = Iterator[str | Line]


@dataclass(frozen=True, slots=True)
class Situation:
    """One way to stop. `go_on` None: a person decides, in a browser."""

    title: str
    cause: Cause
    arrange: Callable[[], Submission]
    tell: Callable[[Run], Told]
    go_on: Callable[[Run], str] | None = None
    meanwhile: Callable[[Run], None] | None = None
    stands: Callable[[Run], bool] | None = None

    def has_stopped(self, run: Run) -> bool:
        """Whether the run waits for the cause; what happens `meanwhile` may come then."""
        return run.status == RunStatus.SUSPENDED and waiting(run, self.cause).exists()

    def is_set_up(self, run: Run) -> bool:
        return self.has_stopped(run) and (self.stands is None or self.stands(run))


def waiting(run: Run, cause: Cause) -> Any:
    return Hold.objects.open().filter(run=run, cause=cause).order_by("opened_at")


def outside_answers() -> None:
    """Raises NotReady."""
    try:
        client.look("/faults")
    except (NotSent, client.Unclear, httpx.HTTPError, client.Refused):
        raise NotReady(
            f"The demo's outside service does not answer at {settings.GATEWAY_URL}. "
            "Start everything with ./run in this folder first, and try again from another shell."
        ) from None


# -- Saying it -------------------------------------------------------------------------


def at(path: str) -> str:
    return f"{settings.BASE_URL}{path}"


def page(run: Run, who: str, *, what: str = "The run") -> Line:
    return Line(f"{what}, as {who}:", at(run.get_absolute_url()))


def _waits(run: Run, cause: Cause) -> str:
    hold = waiting(run, cause).select_related("step").first()
    if hold is None:
        return f"The run is {run.status} now; nothing of it waits for that."
    where = f"Step {hold.step.index} ({hold.step.tool})" if hold.step else "The run"
    return f"{where} waits, {hold.get_cause_display().lower()}: {hold.why.rstrip('.')}."


def _submission(name: str, agent: str, limits: tuple[Limit, ...] = (), **arguments: Any) -> Submission:
    owner = User.objects.filter(username=SUBMITTER).values_list("pk", flat=True).first()
    labels = {"demo": name}
    return Submission(agent, arguments, labels, owner_id=str(owner or ""), limits=limits)


def _charge(amount: str) -> str:
    """A charge of its own for every run, so that two of them never meet."""
    bought = {"customer": "cus_881", "amount": amount, "description": "Desk lamp “Heron”"}
    return str(client.act("/charges", bought, refused=client.Refused)["id"])


def _ticket(paid: str, asks_for: str) -> int:
    wish = {"charge": _charge(paid), "asks_for": asks_for, "subject": "It flickers", "text": "It flickers."}
    return int(client.act("/tickets", wish, refused=client.Refused)["id"])


def _fail(kind: str, path: str, times: int, **more: Any) -> None:
    fault = {"kind": kind, "path": path, "times": times, **more}
    client.act("/faults", fault, refused=client.Refused)


# -- Budget ------------------------------------------------------------------------------


def _budget() -> Submission:
    limits = (Limit("money:EUR", Decimal("5.00")),)
    lamps = ["The lamp “Ember”", "The lamp “Heron”", "The lamp “Pier”"]
    return _submission("budget", "copywriter", limits, lamps=lamps)


def _tell_budget(run: Run) -> Told:
    yield "Three texts are to be written, each estimated at 2.00 EUR; the run may use 5.00. Two were."
    yield _waits(run, Cause.ALLOWANCE)
    yield page(run, OPERATOR)
    yield Line("To go on, raise the limit there, or here:", "./run demo budget --go-on")
    yield "A limit that does not cover the call changes nothing."


def _top_up(run: Run) -> str:
    row = run.allowances.get(unit="money:EUR")
    row = allowance.top_up(row.pk, Decimal("5.00"), actor=ACTOR, why="the demo")
    return f"The limit is {row.limit:.2f} EUR now."


# -- Dependency --------------------------------------------------------------------------


def _dependency() -> Submission:
    if not any(fault["path"] == CARRIER for fault in client.look("/faults")["faults"]):
        _fail("503", CARRIER, FOR_LONG)
    made = Run.objects.filter(labels__demo="dependency").count()
    return _submission("dependency", "dispatcher", orders=[40001 + made * 3 + place for place in range(3)])


def _tell_dependency(run: Run) -> Told:
    yield "Three parcels are to be sent, and the carrier is away (503). Nothing was sent."
    yield _waits(run, Cause.DEPENDENCY)
    yield page(run, OPERATOR)
    yield Line("To bring the carrier back:", "./run demo dependency --back")
    yield (
        "Nobody has to resume the run: the carrier is looked at again and again, and once it answers what "
        "waits goes on."
    )


def _bring_back(run: Run) -> str:
    client.end_faults(CARRIER)
    dependencies.ring_now("carrier", actor=ACTOR, why="the demo brought it back")  # else within minutes
    return "The carrier is back, and is looked at now; what waits for it goes on by itself."


# -- Credential --------------------------------------------------------------------------


def _credential() -> Submission:
    client.act("/ledger/consent/revoke", {}, refused=client.Refused)
    made = Run.objects.filter(labels__demo="credential").count()
    return _submission("credential", "bookkeeper", text=f"Lamp oil, invoice {700 + made}", amount="18.40")


def _tell_credential(run: Run) -> Told:
    yield "An amount is to be booked. The token was refused, and no other is given out: the consent was taken back."
    yield _waits(run, Cause.CREDENTIAL)
    yield Line("First allow it again, in the books' own page:", f"{settings.GATEWAY_URL}{CONSENT}")
    yield page(run, SUBMITTER, what="Then say so on the run's page")
    yield Line("Or both at once, here:", "./run demo credential --go-on")
    yield f"{SUBMITTER} owns the credential; the agent saw neither token nor refusal."


def _authorise(run: Run) -> str:
    client.act("/ledger/consent/give", {}, refused=client.Refused)
    credentials.authorised("ledger", actor=ACTOR, why="the demo")
    return "The consent was given again, and the credential is authorised."


# -- Doubt -------------------------------------------------------------------------------


def _doubt() -> Submission:
    charge = _charge("48.70")
    _fail("drop", client.address("charges", charge, "payouts"), 1, method="POST")
    return _submission("doubt", "goodwill", charge=charge, amount="15.00")


def _asks_a_person(run: Run) -> bool:
    """The time is over in which the call might still act."""
    return not waiting(run, Cause.IN_DOUBT).filter(look_again_at__isnull=False).exists()


def _tell_doubt(run: Run) -> Told:
    step = run.steps.get(tool="make_payout")
    charge = json.loads(step.arguments)["charge"]
    paid = client.look("/payouts", charge=charge)["payouts"]
    yield "The bank paid 15.00 EUR, and the connection broke before it said so. It is not asked a second time."
    yield _waits(run, Cause.IN_DOUBT)
    yield Line(f"What the bank has ({len(paid)}):", f"curl '{settings.GATEWAY_URL}/payouts?charge={charge}'")
    yield Line(
        f"To go on, settle it, as {OPERATOR}:", at(f"{run.get_absolute_url()}steps/{step.index}/doubt/")
    )
    for each in paid:
        known = {"id": each["id"], "charge": charge, "amount": each["amount"]}
        yield Line("It happened; its result is:", json.dumps(known))


# -- Drift -------------------------------------------------------------------------------


def _drift() -> Submission:
    return _submission("drift", "refund-desk", ticket=_ticket("48.70", "30.00"))


def _move_the_world(run: Run) -> None:
    """Ana approves, and before the call is made somebody else refunds a part: the run is paused meanwhile."""
    request = Request.objects.get(run=run)
    ana = User.objects.filter(username=REVIEWER).first()
    if ana is None:
        raise NotReady(f"{REVIEWER}, who approves the refund first, is not there any more.")
    holds.pause(run.pk, actor=ACTOR, why="The demo moves the world before the call.")
    try:
        standing = request.revision
        basis = {question.id: "yes" for question in questions.of(standing)}
        choice = decisions.Choice(Verb.APPROVE, standing.digest, basis=basis, door=ACTOR.door)
        decisions.decide(request.ref, person=ana, choice=choice)
        charge = json.loads(request.revision.arguments)["charge"]
        part = {"amount": "10.00", "reason": "refunded elsewhere"}
        client.act(client.address("charges", charge, "refunds"), part, refused=client.Refused)
    finally:
        holds.unpause(run.pk, actor=ACTOR, why="The world has moved.")


def _asked_again(run: Run) -> bool:
    return Request.objects.filter(run=run, state=RequestState.OPEN, number__gt=1).exists()


def _tell_drift(run: Run) -> Told:
    yield (
        f"A refund of 30.00 EUR was approved (by this command, as {REVIEWER}). Before the call was made, "
        "somebody else refunded 10.00 EUR of the same payment. So nothing was sent, and people are asked again."
    )
    yield _waits(run, Cause.APPROVAL)
    address = Request.objects.get(run=run).get_absolute_url()
    yield Line(f"See what changed, and decide again, as {REVIEWER}:", at(address))
    yield page(run, OPERATOR)


# -- Child -------------------------------------------------------------------------------


def _child() -> Submission:
    return _submission("child", "after-sales", tickets=[_ticket("48.70", "30.00")])


def _child_asks(run: Run) -> bool:
    return Request.objects.filter(run__parent=run, state=RequestState.OPEN).exists()


def _tell_child(run: Run) -> Told:
    yield "An after-sales agent started a refund desk, and that one's refund needs an approval."
    yield _waits(run, Cause.CHILD)
    request = Request.objects.filter(run__parent=run).select_related("run").latest("opened_at")
    yield Line(f"To go on, approve it, as {REVIEWER}:", at(request.get_absolute_url()))
    yield page(run, OPERATOR, what="The parent")
    yield page(request.run, OPERATOR, what="The child")
    yield (
        "Or pause the parent first, on its page: the child's approved refund is not made until the parent "
        "is resumed."
    )


SITUATIONS = {
    "budget": Situation(
        "A call that the run's allowance does not cover", Cause.ALLOWANCE, _budget, _tell_budget, _top_up
    ),
    "dependency": Situation(
        "A service that is away", Cause.DEPENDENCY, _dependency, _tell_dependency, _bring_back
    ),
    "credential": Situation(
        "A token that is not accepted any more", Cause.CREDENTIAL, _credential, _tell_credential, _authorise
    ),
    "doubt": Situation(
        "A call that may or may not have happened",
        Cause.IN_DOUBT,
        _doubt,
        _tell_doubt,
        stands=_asks_a_person,
    ),
    "drift": Situation(
        "A world that changed after the approval",
        Cause.APPROVAL,
        _drift,
        _tell_drift,
        meanwhile=_move_the_world,
        stands=_asked_again,
    ),
    "child": Situation(
        "A run that waits for another one", Cause.CHILD, _child, _tell_child, stands=_child_asks
    ),
}
