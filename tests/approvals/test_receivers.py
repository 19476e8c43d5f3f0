"""What approvals hears and adds: requests come with their holds, and the sweeper does what is due, once."""

from types import SimpleNamespace

import pytest
from django.core import mail

from approvals import jobs, looks
from approvals.models import Request
from runs import clock, execution, gate, sweeper
from runs.models import Hold, Run
from tests.approvals import desk

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("whole")]


@pytest.fixture(autouse=True)
def outbox(settings: object) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"  # type: ignore[attr-defined]


def swept(*names: str) -> dict[str, int]:
    """One pass of the verbs of approvals."""
    done = {}
    for name in names:
        verb = sweeper._verbs[name]
        done[name] = sum(verb.act(item) for item in verb.find(clock.now()))
    return done


def test_authority_is_registered() -> None:
    assert type(gate.contract._authority).__module__ == "approvals.authority"


def test_hold_without_anything_asked_makes_no_request(people: SimpleNamespace) -> None:
    run = desk.submitted()
    desk.holds.pause(run.pk, actor=desk.EDITOR)
    assert (Hold.objects.count(), Request.objects.count()) == (1, 0)


def test_request_that_cannot_be_made_undoes_its_hold(people: SimpleNamespace) -> None:
    """A run never waits for a request that could not be created."""
    run = desk.submitted()

    def fails(**kwargs: object) -> None:
        raise RuntimeError("no")

    desk.signals.hold_placed.connect(fails, dispatch_uid="a test's")
    try:
        with pytest.raises(RuntimeError):
            execution.drive(run.pk)
    finally:
        desk.signals.hold_placed.disconnect(dispatch_uid="a test's")
    assert (Hold.objects.filter(run=run).count(), Request.objects.count()) == (0, 0)
    Run.objects.filter(pk=run.pk).update(lease_until=clock.now() - desk.timedelta(seconds=1))
    assert desk.lifecycle.recover(run.pk) is True
    execution.drive(run.pk)
    assert Request.objects.get().state == "open"


def test_sweep_sends_the_mails_once(people: SimpleNamespace) -> None:
    desk.opened()
    assert (swept("mail"), swept("mail"), len(mail.outbox)) == ({"mail": 2}, {"mail": 0}, 2)


def test_sweep_lets_decisions_take_effect_when_their_window_ends(people: SimpleNamespace) -> None:
    desk.change_rule("desk", undo_window=60)
    request = desk.opened()
    desk.decide(request, people.ana)
    assert swept("take_effect") == {"take_effect": 0}
    desk.later(61)
    assert (swept("take_effect"), swept("take_effect")) == ({"take_effect": 1}, {"take_effect": 0})
    assert desk.result(request)["result"] == "given 240.00"


def test_sweep_rings_for_a_look_that_nobody_made_and_not_at_every_pass(people: SimpleNamespace) -> None:
    """Without a worker the queue does not fill."""
    request = desk.opened()
    looks.want(request)
    assert swept("look") == {"look": 0}
    desk.later(11)
    assert (swept("look"), swept("look")) == ({"look": 1}, {"look": 0})
    desk.later(22)
    assert swept("look") == {"look": 1}
    jobs.look(str(request.pk))
    desk.later(33)
    assert swept("look") == {"look": 0}


def test_look_job_of_an_id_that_no_row_has_is_dropped(people: SimpleNamespace) -> None:
    """F44 (d)."""
    jobs.look("00000000-0000-4000-8000-000000000000")


def test_sweep_expires_what_nobody_decided(people: SimpleNamespace) -> None:
    request = desk.opened()
    desk.later(3601)
    assert (swept("expire_holds"), swept("expire_holds")) == ({"expire_holds": 1}, {"expire_holds": 0})
    assert desk.counts(request) == ("expired", 0, 0)
    assert desk.result(request)["error"] == "Expired"


def test_whole_sweep_finds_everything_that_is_due(people: SimpleNamespace) -> None:
    desk.opened()
    assert sweeper.sweep() == {"mail": 2}
    assert sweeper.sweep() == {}
