"""`./run shots`: the pictures of the documentation, made anew into `docs/img`.

An installation of its own with the demo's data, driven to each state by the demo's people with a browser; of each
state four pictures: wide and narrow, light and dark. What is in them is the same each time but references and times.
`./run` names the engines.
"""

import argparse
import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
os.environ.setdefault("DJANGO_ALLOW_ASYNC_UNSAFE", "true")  # as for the browser tests: see tests/conftest.py

import django

django.setup()

from playwright.sync_api import Browser, sync_playwright

from config.environment import ROOT
from tests.conftest import CHROMIUM
from tests.shots import camera, scenes
from tests.stack import Stack

ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]


def main(given: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="./run shots", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--to", type=Path, default=ROOT / "docs" / "img", metavar="FOLDER")
    folder: Path = parser.parse_args(given).to
    if CHROMIUM is None:
        print("./run shots needs Chromium on PATH; apt install chromium", file=sys.stderr)
        return 1
    with _stack() as stack, _browser() as browser:
        room = browser.new_page()
        shown = scenes.play(stack, browser)
        made = [file for name, page in shown for file in camera.shoot(page, room, folder, name)]
    sizes = [file.stat().st_size for file in made]
    print(f"{len(made)} pictures in {folder}: {sum(sizes) // 1000} kB, the largest {max(sizes) // 1000} kB")
    return 0


@contextlib.contextmanager
def _stack() -> Iterator[Stack]:
    with tempfile.TemporaryDirectory(prefix="abeyance-shots-") as folder:
        stack = Stack(Path(folder))
        try:
            stack.start()
            with stack.inside():
                yield stack
        finally:
            stack.stop()


@contextlib.contextmanager
def _browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
