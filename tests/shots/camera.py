"""Pictures of a page as it stands: wide and narrow, light and dark, the whole of it, small enough for a repository."""

from pathlib import Path
from typing import Literal

from playwright.sync_api import Page

from tests.shots import palette

WIDTHS = {1280: 800, 390: 844}
AT_REST = "() => { document.activeElement.blur(); window.scrollTo(0, 0); }"
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


def shoot(page: Page, room: Page, folder: Path, name: str) -> list[Path]:
    """The page is left wide and light, as it was found; `room` is an empty one, where pictures are made small."""
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    page.evaluate(AT_REST)
    for width, height in reversed(WIDTHS.items()):
        page.set_viewport_size({"width": width, "height": height})
        for scheme in reversed(SCHEMES):
            page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            made.append(folder / f"{name}-{width}-{scheme}.png")
            made[-1].write_bytes(palette.reduced(room, page.screenshot(full_page=True)))
    return made
