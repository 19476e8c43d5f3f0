"""The view digest covers exactly what is shown and will run, and nothing that moves by itself."""

import re
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from approvals import requests
from approvals.presentation import digests
from approvals.presentation.words import WORDS
from runs import values
from tests.approvals import desk

FACTS = [
    {
        "name": "status",
        "value": '"paid"',
        "title": "Status",
        "kind": "blocking",
        "read_at": "2026-01-01T00:00:00+00:00",
    },
    {
        "name": "given",
        "value": '"0.00"',
        "title": "Given",
        "kind": "material",
        "read_at": "2026-01-01T00:00:00+00:00",
    },
]
SHOWN: dict[str, Any] = {
    "ref": "7Q2F8M3K00",
    "number": 1,
    "tool": "give_back",
    "tool_version": "a" * 64,
    "arguments_digest": values.digest('{"amount":"240.00"}'),
    "facts": FACTS,
    "judgement": {
        "tier": "R2",
        "policy_version": 3,
        "quorum": 1,
        "why": "x",
        "decide_within": 60,
        "undo_window": 0,
    },
    "principal": "maria@example.org",
    "agent": "desk@1",
}


def fact(index: int, **changes: Any) -> list[dict[str, Any]]:
    return [{**each, **changes} if place == index else each for place, each in enumerate(FACTS)]


def judged(**changes: Any) -> dict[str, Any]:
    return {**SHOWN["judgement"], **changes}


@pytest.mark.parametrize(
    "changes",
    [
        {"ref": "7Q2F8M3K01"},
        {"number": 2},
        {"tool": "give_more"},
        {"tool_version": "b" * 64},
        {"arguments_digest": values.digest('{"amount":"240.0"}')},
        {"facts": fact(0, value='"disputed"')},
        {"facts": fact(0, value=None)},
        {"facts": fact(0, name="state")},
        {"facts": fact(1, value="0.00")},
        {"facts": FACTS[:1]},
        {"facts": FACTS[::-1]},
        {"facts": []},
        {"judgement": judged(tier="R3")},
        {"judgement": judged(policy_version=4)},
        {"judgement": judged(quorum=2)},
        {"principal": ""},
        {"agent": "desk@2"},
    ],
)
def test_digest_changes_with_what_is_shown(changes: dict[str, Any]) -> None:
    assert digests.view(**{**SHOWN, **changes}) != digests.view(**SHOWN)


@pytest.mark.parametrize(
    "changes",
    [
        {"facts": fact(0, read_at="2027-06-06T12:00:00+00:00")},
        {"facts": fact(0, problem="slow")},
        {"judgement": judged(decide_within=6000, consume_within=9)},
        {"judgement": judged(why="another rule says so", rule="other")},
    ],
)
def test_digest_stays_with_what_moves_by_itself(changes: dict[str, Any]) -> None:
    assert digests.view(**{**SHOWN, **changes}) == digests.view(**SHOWN)


def test_digest_is_sha256_over_the_label_and_canonical_json() -> None:
    assert re.fullmatch(r"[0-9a-f]{64}", digests.view(**SHOWN))
    assert digests.view(**dict(reversed(SHOWN.items()))) == digests.view(**SHOWN)


def test_digest_tells_unreadable_from_the_word() -> None:
    unreadable, word = fact(0, value=None), fact(0, value='"unreadable"')
    assert digests.view(**{**SHOWN, "facts": unreadable}) != digests.view(**{**SHOWN, "facts": word})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("A", 1, "x"), ("A", 1, "y")),
        (("A", 1, "x"), ("A", 2, "x")),
        (("A", 1, "x"), ("B", 1, "x")),
        (("A1", 1, "x"), ("A", 11, "x")),
    ],
)
def test_fingerprint_differs_with_each_of_its_parts(
    one: tuple[str, int, str], other: tuple[str, int, str]
) -> None:
    assert digests.fingerprint(*one) != digests.fingerprint(*other)
    assert digests.fingerprint(*one) == digests.fingerprint(*one)


def test_fingerprint_is_four_words_and_eight_digits() -> None:
    assert (len(WORDS), len(set(WORDS))) == (256, 256)
    assert all(re.fullmatch("[a-z]{3,8}", word) for word in WORDS)
    found = {digests.fingerprint("A", number, "x") for number in range(2000)}
    assert len(found) == 2000
    assert all(re.fullmatch(r"([a-z]+-){3}[a-z]+ [0-9a-f]{8}", each) for each in found)
    assert {word for each in found for word in each.split()[0].split("-")} == set(WORDS)


@pytest.mark.django_db
def test_stored_digest_is_that_of_what_is_stored(people: SimpleNamespace) -> None:
    request = desk.opened(on_behalf_of="maria@example.org")
    desk.look(request, given=Decimal("1.00"))
    desk.decide(request, people.ana, edit=desk.edited(request, amount="1.00"), seen=frozenset({"given_back"}))
    stored = list(request.revisions.order_by("number"))
    assert [revision.number for revision in stored] == [1, 2, 3]
    assert [requests.view_digest(desk.fresh(request), revision) for revision in stored] == [
        r.digest for r in stored
    ]
    assert len({revision.digest for revision in stored}) == 3


@pytest.mark.django_db
def test_two_requests_of_equal_calls_have_two_digests(people: SimpleNamespace) -> None:
    """A decision is about one request, whatever else looks like it."""
    assert desk.opened().revision.digest != desk.opened().revision.digest


@pytest.mark.django_db
def test_more_time_keeps_the_digest(people: SimpleNamespace) -> None:
    request = desk.opened()
    before = request.revision.digest
    desk.Request.objects.filter(pk=request.pk).update(decide_by="2099-01-01T00:00:00Z")
    assert requests.view_digest(desk.fresh(request), desk.fresh(request).revision) == before
