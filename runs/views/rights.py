"""Who may pause, stop, resume and cancel which run, as pages offer and refuse it."""

from runs import holds
from runs.callers import Caller
from runs.models import Hold, Run
from runs.states import Cause, RunStatus


def may(caller: Caller, run: Run, standing: list[Hold]) -> dict[str, bool]:
    """The verbs that make sense now, for this caller. `standing`: the run's open holds."""
    paused = next((hold for hold in standing if hold.cause == Cause.PERSON), None)
    over = run.ended or run.stop_requested is not None
    controls = caller.may_control(run)
    return {
        "pause": not over and may_pause(caller, run) and (paused is None or _takes_over(caller, paused)),
        "stop": not over and controls and _stops_more(run, paused),
        "resume": paused is not None
        and may_resume(caller, run, paused)
        and not holds.not_theirs(run, paused, caller.actor),
        "cancel": not over and controls,
    }


def _takes_over(caller: Caller, paused: Hold) -> bool:
    return caller.operator and not paused.by_operator


def _stops_more(run: Run, paused: Hold | None) -> bool:
    """Stop now is more than a pause only while a worker has the run."""
    stopped = paused is not None and bool(paused.detail.get("stop_now"))
    return run.status == RunStatus.RUNNING and not stopped


def may_pause(caller: Caller, run: Run) -> bool:
    return caller.may_control(run) or caller.may_pause(run)


def may_resume(caller: Caller, run: Run, paused: Hold | None) -> bool:
    """Whoever controls the run, or placed this pause; whose it is to lift, the verb decides."""
    who = (caller.actor.kind, caller.actor.id)
    theirs = paused is not None and (paused.opened_by_kind, paused.opened_by_id) == who
    return caller.may_control(run) or theirs
