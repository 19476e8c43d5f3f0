"""The material sections of a revision: at R3 each is opened by a form, and the server keeps which were."""

import json
import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

from approvals.models import Revision
from approvals.presentation import tree

RUN, FACTS = "run", "facts"
SAMPLE, DOMAINS = 10, 8


@dataclass(frozen=True, slots=True)
class Section:
    name: str
    title: str


def material(revision: Revision) -> list[Section]:
    """What has to be opened before an R3 is approved: what will run, the facts, and each long list."""
    found = [Section(RUN, "What will run")]
    if revision.facts:
        found.append(Section(FACTS, "Facts, then and now"))
    return found + [Section(f"list-{name}", f"{name} ({len(items):,})") for name, items in _long(revision)]


def unopened(revision: Revision, opened: list[str]) -> list[Section]:
    return [section for section in material(revision) if section.name not in opened]


def lists(revision: Revision) -> list[dict[str, Any]]:
    """The long lists as their sections show them: the count, where e-mail addresses lead, and some at random."""
    return [
        {
            "name": f"list-{name}",
            "title": name,
            "count": len(items),
            "domains": _domains(items),
            "sample": random.sample(items, SAMPLE),
        }
        for name, items in _long(revision)
    ]


def _long(revision: Revision) -> list[tuple[str, list[Any]]]:
    values = json.loads(revision.arguments)
    return [(k, v) for k, v in values.items() if isinstance(v, list) and len(v) > tree.LONG_LIST]


def _domains(items: list[Any]) -> list[tuple[str, int]]:
    """The most frequent domains, and how many are at others; nothing where not all are addresses."""
    if not all(isinstance(item, str) and "@" in item for item in items):
        return []
    counts = Counter(item.rpartition("@")[2].lower() for item in items)
    most = counts.most_common(DOMAINS)
    rest = sum(counts.values()) - sum(count for _, count in most)
    return [*most, *([(f"{len(counts) - DOMAINS:,} other domains", rest)] if rest else [])]
