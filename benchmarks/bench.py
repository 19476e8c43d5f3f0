"""Peers and us, in one sitting on one PostgreSQL: `./run bench` prints the table; see `README.md` beside this.

./run bench [--only 1,4] [--rounds 5] [--quick] [--rows N] [--json FILE]
"""

import argparse
import json
import os
import platform
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import psycopg

from benchmarks import engines, table
from benchmarks.figures import FIGURES, measure
from benchmarks.ours import Ours
from benchmarks.peers import environment
from benchmarks.peers.sides import Peers
from benchmarks.sitting import QUICK, Amounts, Sitting
from config.folders import CannotStart


def main(arguments: Sequence[str]) -> int:
    options = read(arguments)
    amounts = how_much(options)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # whatever was started is ended
    try:
        with engines.running() as found:
            python = None if options.without_peers else environment.python(found.home)
            ours = Ours(found)
            try:
                peers = Peers(found, python)
                sitting = Sitting(found, ours, peers, amounts, raw=found.database("raw"))
                lines, failed = measured(sitting, options.only)
                machine = what_machine(found)
            finally:
                ours.close()
    except CannotStart as error:
        sys.exit(f"bench: {error}")
    print(told(lines, machine))
    if options.json:
        said = {"machine": machine, "amounts": asdict(amounts), "lines": [one.as_json() for one in lines]}
        options.json.write_text(json.dumps(said, indent=2) + "\n")
    if failed:
        print(f"Not measured, for the reasons above: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def read(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run bench", description=__doc__.splitlines()[0])
    parser.add_argument("--only", type=figures, default=tuple(FIGURES), metavar="1,4", help="these figures")
    parser.add_argument("--rounds", type=at_least(1), help="of everything; the table has the medians")
    parser.add_argument("--quick", action="store_true", help="fewer and smaller: a look, not a measurement")
    parser.add_argument("--rows", type=at_least(2000), help="how many runs lie in the big tables")
    parser.add_argument("--waiting", type=at_least(100), help="how many wait in figure 5")
    parser.add_argument(
        "--dbos-waiting", type=at_least(1), help="how many of DBOS's wait there: a thread each"
    )
    parser.add_argument("--without-peers", action="store_true", help="only our own columns")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all rounds there, too")
    return parser.parse_args(arguments)


def figures(text: str) -> tuple[str, ...]:
    wanted = tuple(dict.fromkeys(text.split(",")))
    if unknown := [name for name in wanted if name not in FIGURES]:
        raise argparse.ArgumentTypeError(f"no figure {unknown[0]!r}; there are {', '.join(FIGURES)}")
    return wanted


def at_least(least: int) -> Any:
    def whole(text: str) -> int:
        if not text.isascii() or not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} on")
        return int(text)

    return whole


def how_much(options: argparse.Namespace) -> Amounts:
    base = QUICK if options.quick else Amounts()
    said = {name: getattr(options, name) for name in ("rounds", "rows", "waiting", "dbos_waiting")}
    return replace(base, **{name: value for name, value in said.items() if value is not None})


def measured(sitting: Sitting, wanted: Sequence[str]) -> tuple[list[table.Line], list[str]]:
    """In the order of the targets; and the figures that could not be measured, which keep no other from it."""
    lines: list[table.Line] = []
    failed = []
    for name in (name for name in FIGURES if name in wanted):
        began = time.monotonic()
        try:
            lines += measure(name, sitting)
        except Exception:
            traceback.print_exc()
            failed.append(name)
        print(f"figure {name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return lines, failed


def what_machine(found: engines.Engines) -> dict[str, Any]:
    with psycopg.connect(found.address) as server:
        version = server.info.parameter_status("server_version")
    return {
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "postgresql": version,
        "load": [round(load, 2) for load in os.getloadavg()],
    }


def told(lines: Sequence[table.Line], machine: dict[str, Any]) -> str:
    head = (
        "{cpus} CPUs, Python {python}, PostgreSQL {postgresql} (durable), load {load[0]} {load[1]} {load[2]}"
    )
    return f"{head.format(**machine)}\n{table.printed(lines)}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
