"""The code blocks of a page, so that tests can run them as they stand."""

import re
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import ROOT

PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").glob("*.md")),
    ROOT / "examples" / "README.md",
    ROOT / "benchmarks" / "README.md",
]
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_PICTURE = re.compile(r'\b(?:src|srcset)="([^"]+)"')
_SHOWN = re.compile(r"!\[[^\]]*\]\([^)]*\)|<img\b[^>]*>")
_SAYS = re.compile(r'!\[[^\]\s][^\]]*\]|\balt="[^"\s][^"]*"')


@dataclass(frozen=True, slots=True)
class Block:
    language: str
    code: str


def of(page: Path) -> list[Block]:
    return [Block(*found) for found in _BLOCK.findall(page.read_text())]


def links(page: Path) -> list[str]:
    """Addresses of links and pictures, outside blocks."""
    text = _BLOCK.sub("", page.read_text())
    return [*_LINK.findall(text), *_PICTURE.findall(text)]


def unsaid(page: Path) -> list[str]:
    """Pictures without a text for who does not see them."""
    return [shown for shown in _SHOWN.findall(_BLOCK.sub("", page.read_text())) if not _SAYS.search(shown)]
