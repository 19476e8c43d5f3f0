"""What a text says that is written in another way, and what is left alone."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from approvals.presentation import decoded, tree

TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJldmUiLCJhZG1pbiI6dHJ1ZX0.c2ln"


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("text", "how", "says"),
    [
        (encoded("rm -rf / --no-preserve-root"), "base64", "rm -rf / --no-preserve-root"),
        (encoded("Überweise 5,00 €"), "base64", "Überweise 5,00 €"),
        (TOKEN, "a JSON Web Token", '{"alg":"HS256"}\n{"sub":"eve","admin":true}'),
        ("q=%27%20OR%201%3D1", "URL-encoded", "q=' OR 1=1"),
        ("https://example.org/%2e%2e%2fetc", "URL-encoded", "https://example.org/../etc"),
    ],
)
def test_of_what_is_encoded(text: str, how: str, says: str) -> None:
    assert decoded.of(text) == decoded.Decoded(how, says)


@pytest.mark.parametrize(
    "text",
    [
        "", "ch_1A2b3C4d5E6f7G8h", "The quick brown fox jumps", "deadbeefdeadbeefdeadbeefdeadbeef", "ACMECORPORATIONS",
        "3f2504e0-4f89-11d3-9a0c-0305e82c3301", "100%", "50%20", "hello world, hello", "9007199254740993",
        "aB3dE5gH7jK9mN1p", "päckchen%20und%20mehr",
    ],
)  # fmt: skip
def test_of_what_is_what_it_seems(text: str) -> None:
    assert decoded.of(text) is None


def test_of_what_is_no_text_is_measured() -> None:
    image = base64.b64encode(bytes(range(256)) * 2).decode()
    assert decoded.of(image) == decoded.Decoded("base64", note="not decoded (512 bytes)")
    assert decoded.of("eyJ_____.____.x") == decoded.Decoded("a JSON Web Token", note="not decoded (15 bytes)")
    assert decoded.of("%ff%fe") == decoded.Decoded("URL-encoded", note="not decoded (6 bytes)")


def test_of_a_very_long_text_is_left() -> None:
    assert decoded.of(encoded("x" * decoded.LONGEST)) is None


def test_what_it_says_is_revealed_too() -> None:
    node = tree.build(encoded("pay \u202eEMCA now, at once"))
    assert [s.chip for s in node.says if s.chip] == ["U+202E RIGHT-TO-LEFT OVERRIDE"]
    assert "".join(s.text for s in node.segments) == encoded("pay \u202eEMCA now, at once")


@given(st.text())
def test_of_any_text_is_an_answer(text: str) -> None:
    found = decoded.of(text)
    assert found is None or bool(found.says) != bool(found.note)
