"""What the processes of the crash points do, each by its role: to submit, work, sweep, decide, settle.

People do what people do: they look at what is there now, and try again what they cannot see done.
"""

import json
import traceback
from typing import Any

import django_rq
from django.contrib.auth.models import User
from django.utils.module_loading import import_string

from approvals import decisions, looks
from approvals.decisions import Choice
from approvals.exceptions import Closed, Stale
from approvals.models import Request
from approvals.states import PENDING, RequestKind
from runs import allowance, doubts, lifecycle, sweeper
from runs.doubts import Said
from runs.exceptions import WrongState
from runs.models import Run, Step
from runs.states import EffectState
from runs.tools import declared
from tests.care import care
from tests.factories import CYD, OPERATOR
from tests.outside import Outside

ROUNDS = 25


def submit(agent: str, arguments: dict[str, Any], limits: dict[str, str]) -> int:
    """Somebody who submits with a key of their own, and may do so again."""
    asked = lifecycle.Submission(
        agent, arguments, {}, owner_id="0", idempotency_key="the run", limits=allowance.limits(limits)
    )
    return int(lifecycle.submit(asked, actor=CYD)[1])


def work() -> int:
    """A worker: each job that was rung for, until there is none. How many."""
    done = 0
    while work_once():
        done += 1
    return done


def work_once() -> bool:
    """A worker that takes one job. False: nobody rang."""
    queue = django_rq.get_queue("default")
    if not (ids := queue.get_job_ids(0, 1)):
        return False
    queue.pop_job_id()
    if (job := queue.fetch_job(ids[0])) is not None:
        try:
            import_string(job.func_name)(*job.args)
        except Exception:  # as RQ does: it is logged, and the next job is taken
            traceback.print_exc()
        queue.connection.delete(job.key)
    return True


def sweep() -> int:
    """A sweeper: passes until there is nothing to do. How many did something."""
    return next((passes for passes in range(ROUNDS) if not sweeper.sweep()), ROUNDS)


def decide() -> int:
    """A reviewer: whatever is open. How many they decided or asked a look for."""
    ana = User.objects.get(username="ana")
    return sum(_decide(request, ana) for request in Request.objects.filter(state__in=PENDING))


def _decide(request: Request, ana: User) -> bool:
    standing = request.revision
    if request.kind == RequestKind.QUESTION:
        choice = Choice("respond", standing.digest, answer={"word": "yes"})
    else:
        choice = Choice("approve", standing.digest, **care(standing, ana))
    try:
        return not decisions.decide(request.ref, person=ana, choice=choice).again
    except Closed:
        return False
    except Stale as stale:
        unwanted = request.look_wanted_at is None
        if stale.checking:
            looks.want(request)
        return unwanted


def settle() -> int:
    """An operator: looks in the outside whether what is in doubt happened, and says so. How many."""
    doubtful = Step.objects.filter(effect=EffectState.IN_DOUBT, settled__isnull=True)
    return sum(_settle(step) for step in doubtful)


def _settle(step: Step) -> bool:
    tool = declared.get(step.tool)
    if tool is None or tool.repeatable:
        return False
    happened = [call for call in Outside.of_this_process().acted() if call["key"] == step.key]
    said = Said("did_not_happen", "there is nothing")
    if happened:
        said = Said("happened", "it is there", json.dumps(_came_of(happened[0])))
    try:
        doubts.settle(step.run_id, step.index, said, actor=OPERATOR)
    except WrongState:
        return False
    return True


def _came_of(call: dict[str, Any]) -> str:
    """What the call answered, as the outside has it."""
    known: dict[str, Any] = call["arguments"]
    return str(known["said"]) if "said" in known else f"{call['tool']} {known['n']} done"


def carry_on() -> int:
    """Workers and sweepers, until there is nothing to do."""
    return _until_quiet(work, sweep)


def finish() -> int:
    """Everybody, until there is nothing to do."""
    return _until_quiet(work, sweep, decide, settle)


def _until_quiet(*acts: Any) -> int:
    for rounds in range(ROUNDS):
        if not sum([act() for act in acts]):
            return rounds
    raise AssertionError("it never comes to rest")


def root() -> Run:
    return Run.objects.filter(parent__isnull=True).earliest("created_at")
