"""`submit AGENT name=value …`: starts a run from the command line, and may wait for it.

A value is read as the signature wants it: as it was typed, else as JSON. The limits are those of REST. The
run has no owner: operators see it, and only whom it acts for (`--for`) is kept from deciding its requests.
"""

import json
import math
import time
from argparse import ArgumentParser, ArgumentTypeError
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from pydantic import ValidationError

from runs import agents, allowance, lifecycle, values
from runs.actors import Actor
from runs.agents import Agent
from runs.exceptions import BadArguments, BadValue, RunsError
from runs.models import Hold, Run
from runs.serializers import Submit
from runs.states import RunStatus

LOOK_EVERY = 0.2


class Command(BaseCommand):
    help = "Starts a run and prints its id and address."
    requires_system_checks: list[str] = []

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        parser = super().create_parser(prog_name, subcommand, **kwargs)
        parser.parse_args = parser.parse_intermixed_args  # type: ignore[method-assign]  # options stand anywhere
        return parser

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("agent", help="the agent's name")
        parser.add_argument(
            "arguments", nargs="*", default=[], metavar="name=value", help="its input, one argument each"
        )
        parser.add_argument("--input", default="{}", metavar="JSON", help="its input as one JSON object")
        parser.add_argument(
            "--label", action="append", default=[], metavar="KEY=VALUE", help="may be repeated"
        )
        parser.add_argument(
            "--allowance",
            action="append",
            default=[],
            metavar="UNIT=AMOUNT",
            help="what it may use, as in money:EUR=12.50 or steps=100; may be repeated",
        )
        parser.add_argument(
            "--draws-on", action="append", default=[], metavar="NAME", help="a shared allowance it draws on"
        )
        parser.add_argument("--for", dest="person", default="", help="e-mail of whom the run acts for")
        parser.add_argument(
            "--wait", type=_seconds, default=0, metavar="SECONDS", help="for its end, or a stop"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            asked = _submission(options)
            run, _ = lifecycle.submit(asked, actor=Actor.command())
        except BadArguments as refused:
            raise CommandError(_sentences(refused.errors)) from None
        except RunsError as refused:
            raise CommandError(str(refused)) from None
        self.stdout.write(f"{run.id}\n{settings.BASE_URL}{run.get_absolute_url()}")
        if options["wait"] > 0:
            self.stdout.flush()
            _until_still(run, options["wait"])
            self.stdout.write(_state(run))
            if run.ended and run.status != RunStatus.SUCCEEDED:
                raise CommandError("it did not succeed")


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise ArgumentTypeError(f"{text!r} is not a number of seconds, such as 60")
    return seconds


# -- What was asked for ------------------------------------------------------------


def _submission(options: dict[str, Any]) -> lifecycle.Submission:
    made = agents.latest(options["agent"])
    typed = _pairs(options["arguments"], "an argument")
    base = _input(options["input"])
    if both := sorted(typed.keys() & base.keys()):
        raise CommandError(f"{both[0]}: given twice, by itself and in --input")
    labels = _pairs(options["label"], "a label")
    try:
        asked = Submit(
            agent=made.name, input=_fitted(made, base, typed), labels=labels, on_behalf_of=options["person"]
        )
    except ValidationError as error:
        raise CommandError(_sentences(values.problems(error))) from None
    return lifecycle.Submission(
        asked.agent,
        asked.input,
        asked.labels,
        asked.on_behalf_of,
        limits=allowance.limits(_pairs(options["allowance"], "an allowance")),
        draws_on=tuple(dict.fromkeys(options["draws_on"])),
    )


def _pairs(given: list[str], what: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not (name and equals):
            raise CommandError(f"{pair!r}: {what} is written name=value")
        if name in found:
            raise CommandError(f"{name}: given twice")
        found[name] = value
    return found


def _input(text: str) -> dict[str, Any]:
    try:
        value = values.parse(text)
    except BadValue as refused:
        raise CommandError(f"--input: {refused}") from None
    if not isinstance(value, dict):
        raise CommandError("--input: a JSON object is wanted")
    return value


def _fitted(made: Agent[..., Any], base: dict[str, Any], typed: dict[str, str]) -> dict[str, Any]:
    """The arguments as typed, and as JSON where they do not fit as typed."""
    asked: dict[str, Any] = {**base, **typed}
    names = made.signature.model.model_fields
    if unknown := [name for name in asked if name not in names]:
        takes = ", ".join(names) or "none"
        raise CommandError(f"{unknown[0]}: {made.name} has no such argument; it takes: {takes}")
    for name in _misfits(made, asked) & typed.keys():
        asked[name] = _as_json(typed[name])
    return asked


def _misfits(made: Agent[..., Any], asked: dict[str, Any]) -> set[str]:
    try:
        made.signature.write_json(asked)
    except BadArguments as refused:
        return {path.split("/")[1] for path, _ in refused.errors if path}
    return set()


def _as_json(text: str) -> Any:
    try:
        return values.parse(text)
    except BadValue:
        return text


def _sentences(problems: list[tuple[str, str]]) -> str:
    return "\n".join(f"{path.lstrip('/') or 'the input'}: {said}" for path, said in problems)


# -- What became of it ---------------------------------------------------------------


def _until_still(run: Run, seconds: float) -> None:
    """Until it has ended or stands still, or the time is over."""
    until = time.monotonic() + seconds
    while not (run.ended or run.status == RunStatus.SUSPENDED) and time.monotonic() < until:
        time.sleep(LOOK_EVERY)
        run.refresh_from_db(fields=["status", "result", "error"])


def _state(run: Run) -> str:
    if run.status == RunStatus.SUCCEEDED:
        return f"succeeded\n{_pretty(run.result)}"
    if run.ended:
        return f"{run.status}\n{_pretty(run.error)}"
    waits = [f"waits ({hold.cause}): {hold.why}" for hold in Hold.objects.open().filter(run=run)]
    return "\n".join([str(run.status), *waits])


def _pretty(text: str | None) -> str:
    return "" if text is None else json.dumps(json.loads(text), indent=2, ensure_ascii=False)
