"""`demo`: the demo's people, key and rules, on the first start only. `demo NAME` sets up one way to stop;
`demo code ana` prints a code of Ana's second factor.

The one place from where the application reaches into `examples`: its `demo` makes the people, its `situations` say
what is set up and what is told of it.
"""

import textwrap
import time
from argparse import ArgumentParser
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db.models import QuerySet

from approvals import policies
from approvals.exceptions import ApprovalsError
from examples import demo, situations
from examples.policies import SEED
from examples.situations import ACTOR, SITUATIONS, Line, Situation, Told
from runs import lifecycle
from runs.exceptions import RunsError
from runs.models import Run
from runs.states import ENDED, RunStatus

STANDS_WITHIN = 60.0
TAKEN_WITHIN = 15.0
WIDTH = 78
CODE = "code"


def started_here(name: str) -> QuerySet[Run]:
    """Live runs that this command set up, the newest first; anybody may label a run of theirs like one."""
    who = {"submitter_kind": ACTOR.kind, "submitter_id": ACTOR.id}
    found = Run.objects.filter(labels__demo=name, parent=None, **who)
    return found.exclude(status__in=ENDED).order_by("-created_at")


class Command(BaseCommand):
    help = (
        "Makes the demo's people, key and rules, unless they were made before. With a name: sets up a run "
        "that stops for that cause, and says what to look at."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "name", nargs="?", choices=[*SITUATIONS, CODE], help="one way to stop, or a code for somebody"
        )
        parser.add_argument("who", nargs="?", default="ana", help="whose code: ana, ben, cyd, dot or eli")
        parser.add_argument(
            "--go-on", "--back", dest="go_on", action="store_true", help="let the newest such run go on"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        name = options["name"]
        if name is None:
            if options["go_on"]:
                raise CommandError(f"What should go on? Name one of: {', '.join(SITUATIONS)}.")
            self._prepare(options["verbosity"])
            return
        if name == CODE:
            self._code(options["who"])
            return
        try:
            situations.outside_answers()
            if options["go_on"]:
                self._go_on(name, SITUATIONS[name])
            else:
                self._set_up(name, SITUATIONS[name])
        except (situations.NotReady, RunsError, ApprovalsError) as refused:
            raise CommandError(_filled(str(refused), after="CommandError: ")) from None

    def _prepare(self, verbosity: int) -> None:
        made = demo.prepare()
        self.stdout.write("The demo's people are made" if made else "The demo's people were made before")
        if verbosity > 1:
            self.stdout.write(demo.notes().read_text())

    def _code(self, who: str) -> None:
        if not settings.DEMO:
            raise CommandError("This is no demo: codes come from people's own authenticator apps.")
        try:
            code, left = demo.code(who)
        except LookupError:
            raise CommandError(f"Nobody in the demo is called {who}.") from None
        self.stdout.write(code)
        self.stderr.write(f"Used once. The next one comes in {left} s.")

    # -- Setting up ----------------------------------------------------------------------

    def _set_up(self, name: str, situation: Situation) -> None:
        policies.supply(SEED, actor=ACTOR, why=f"./run demo {name}")
        run, _ = lifecycle.submit(situation.arrange(), actor=ACTOR)
        self._say(f"{situation.title}: a run is started, which takes a few seconds.")
        if situation.meanwhile is not None:
            _until(run, situation.has_stopped)
            situation.meanwhile(run)
        _until(run, situation.is_set_up)
        self._tell(situation.tell(run))

    def _go_on(self, name: str, situation: Situation) -> None:
        run = next((each for each in started_here(name) if situation.has_stopped(each)), None)
        if run is None:
            raise situations.NotReady(f"No run waits for that. One is set up by ./run demo {name}")
        if situation.go_on is None:
            self._say("No command does this: a person decides.")
            self._tell(situation.tell(run))
            return
        self._say(situation.go_on(run))
        _until(run, lambda each: each.ended or not situation.has_stopped(each))
        _until(run, lambda each: each.ended)
        self._say(f"The run {run.status}.", "", situations.at(run.get_absolute_url()))

    # -- Saying --------------------------------------------------------------------------

    def _tell(self, told: Told) -> None:
        for each in told:
            self._say("")
            if isinstance(each, Line):
                self._say(each.what)
                self.stdout.write(f"  {each.shown}")
            else:
                self._say(each)
        self._say("", f"Everybody's password is in {demo.short(demo.notes())}.")

    def _say(self, *paragraphs: str) -> None:
        for each in paragraphs:
            self.stdout.write(_filled(each))
        self.stdout.flush()


def _filled(text: str, *, after: str = "") -> str:
    """In lines that fit a terminal; addresses and commands stay whole. `after` stands before the first line."""
    indent = " " * len(after)
    lines = textwrap.wrap(text, WIDTH, initial_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines)[len(indent) :]


def _until(run: Run, stands: Callable[[Run], bool]) -> None:
    """Waits until it is so. Raises NotReady, and says what the run does instead."""
    started = time.monotonic()
    while not stands(run):
        waited = time.monotonic() - started
        if run.ended and not stands(run):
            raise situations.NotReady(f"The run {run.status} instead: {_address(run)}")
        if run.status == RunStatus.QUEUED and run.epoch == 0 and waited > TAKEN_WITHIN:
            raise situations.NotReady(
                f"No worker has taken the run in {waited:.0f} s. Start everything with ./run in this folder; "
                f"the run goes on then: {_address(run)}"
            )
        if waited > STANDS_WITHIN:
            raise situations.NotReady(f"After {waited:.0f} s the run is {run.status}: {_address(run)}")
        time.sleep(0.2)
        run.refresh_from_db()


def _address(run: Run) -> str:
    return situations.at(run.get_absolute_url())
