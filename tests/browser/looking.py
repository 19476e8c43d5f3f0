"""A page in each way people have it: pictures of it, whether it fits, and what axe says of it.

The pictures stay in the folder the environment's SCREENSHOTS names, if it does.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.browser import axe
from tests.visitors import Visitor

WIDTHS = (1280, 375)
HEARD = (("light", 1280), ("dark", 375))  # both of each
BACKGROUND = "() => getComputedStyle(document.body).backgroundColor"
OVERFLOW = """() => {
    const page = document.documentElement;
    if (page.scrollWidth <= page.clientWidth) return [];
    const right = (element) => Math.round(element.getBoundingClientRect().right);
    return [...document.querySelectorAll('body *')].filter(element => right(element) > page.clientWidth)
        .slice(0, 5).map(element => `${element.tagName}.${element.className} ${right(element)}`);
}"""
Look = Callable[[Visitor, str], None]


@pytest.fixture
def look(tmp_path: Path) -> Iterator[Look]:
    """Pictures of the page a visitor is on, and whether it fits; at the end nothing was wrong with any."""
    heard: dict[str, list[str]] = {}
    folder = Path(os.environ.get("SCREENSHOTS") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)

    def take(visitor: Visitor, name: str) -> None:
        page, seen, said = visitor.page, {}, []
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            for width in WIDTHS:
                page.set_viewport_size({"width": width, "height": 800})
                page.screenshot(path=folder / f"{name}-{width}-{scheme}.png", full_page=True, caret="initial")
                if (scheme, width) in HEARD:
                    said += axe.violations(page)
            seen[scheme] = page.evaluate(BACKGROUND)
        heard[name] = said
        page.emulate_media(color_scheme="light")
        page.set_viewport_size({"width": 320, "height": 800})
        assert (name, page.evaluate(OVERFLOW)) == (name, [])
        page.set_viewport_size({"width": 1280, "height": 800})
        assert (name, seen["light"] != seen["dark"]) == (name, True)

    yield take
    assert {name: said for name, said in heard.items() if said} == {}
