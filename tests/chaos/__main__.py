"""`./run chaos --minutes N --seed S`: thousands of short runs while everything breaks, and a table of what came of it.

Load and faults for so long; then nothing fails any more, everybody answers what there is to answer, and it waits
until all is quiet. Exit status 0 only if the zeros are zeros. The same seed makes the same runs and the same faults.
The logs are kept, and their folder is said, unless all is well. `./run` holds `VAR_DIR` for us.
"""

import argparse
import math
import os
import secrets
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

import django

from config.environment import ROOT
from config.folders import CannotStart
from tests.chaos.world import World

LONGEST = 24 * 60.0  # minutes


def main(given: Sequence[str]) -> int:
    asked = arguments(given)
    for sign in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(sign, _ended)
    logs = Path(os.environ["VAR_DIR"]) / "logs"
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir(parents=True)
    passes = False
    try:
        passes = _chaos(asked.minutes, asked.seed, logs)
    finally:
        if not passes:
            print(f"The logs are in {_kept(logs, asked.seed)}", flush=True)
            print(f"The same again: ./run chaos --minutes {asked.minutes:g} --seed {asked.seed}", flush=True)
    return 0 if passes else 1


def _kept(logs: Path, seed: str) -> Path:
    """Only now: the browser tests empty that folder whenever they start."""
    kept = ROOT / "test-results" / f"chaos-{seed}"
    shutil.rmtree(kept, ignore_errors=True)
    kept.parent.mkdir(exist_ok=True)
    return Path(shutil.move(logs, kept))


def arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run chaos", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--minutes", type=_minutes, default=1.0, metavar="N", help="how long things fail (1)")
    parser.add_argument(
        "--seed", type=_seed, default=secrets.token_hex(3), metavar="S", help="what is chosen"
    )
    return parser.parse_args(given)


def _minutes(text: str) -> float:
    try:
        minutes = float(text)
    except ValueError:
        minutes = math.nan
    if not 0 < minutes <= LONGEST:
        raise argparse.ArgumentTypeError(f"{text!r}: minutes are a number above 0, {LONGEST:g} at most")
    return minutes


def _seed(text: str) -> str:
    if not (text.isascii() and text.isalnum() and len(text) <= 40):
        raise argparse.ArgumentTypeError(f"{text!r}: a seed is up to 40 letters and digits")
    return text


def _ended(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


# -- The whole --------------------------------------------------------------------------------------


def _chaos(minutes: float, seed: str, logs: Path) -> bool:
    print(f"Chaos for {minutes:g} min with the seed {seed}", flush=True)
    world = World(logs.parent, logs, seed, os.environ)
    try:
        world.start_engines()
        world.prepare()
        os.environ.update(world.environ)  # from which Django's settings are read
        django.setup()
        from tests.chaos import course  # looks at rows

        return course.run(world, minutes * 60)
    finally:
        world.stop()


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except CannotStart as error:
        print(f"run: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
