"""What a reader would miss is shown, and nothing else is touched: the rule's vectors, one by one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from approvals.presentation import reveal

HIDDEN = [
    ("invoice_\u202efdp.exe", ["U+202E RIGHT-TO-LEFT OVERRIDE"]),
    ("acme\u200b.com", ["U+200B ZERO WIDTH SPACE"]),
    (
        "ok\U000e0069\U000e0067",
        ["U+E0069 TAG LATIN SMALL LETTER I", "U+E0067 TAG LATIN SMALL LETTER G"],
    ),
    ("a\u3164b", ["U+3164 HANGUL FILLER"]),
    ("x\U000e0101", ["U+E0101 VARIATION SELECTOR-18"]),
    ("pay\u00a0me", ["U+00A0 NO-BREAK SPACE"]),
    ("ab\b\bcd", ["U+0008 BACKSPACE ×2"]),
    ("a\u2028b", ["U+2028 LINE SEPARATOR"]),
    ("Subject\r\nBcc: x", ["U+000D CARRIAGE RETURN"]),
    ("a\u034fb", ["U+034F COMBINING GRAPHEME JOINER"]),
    ("a\u2800b", ["U+2800 BRAILLE PATTERN BLANK"]),
    ("a\x00b", ["U+0000 NULL"]),
    ("a\x7fb", ["U+007F DELETE"]),
    ("a\ue000b", ["U+E000 PRIVATE USE"]),
    ("a\ud800b", ["U+D800 LONE SURROGATE"]),
    ("a\ufffeb", ["U+FFFE UNASSIGNED"]),
    ("a\u200db", ["U+200D ZERO WIDTH JOINER"]),
    ("x\ufe0f", ["U+FE0F VARIATION SELECTOR-16"]),
    (
        "\U0001f3f4\U000e0069\U000e0067\U000e007f",
        ["U+E0069 TAG LATIN SMALL LETTER I", "U+E0067 TAG LATIN SMALL LETTER G", "U+E007F CANCEL TAG"],
    ),
]

QUIET = [
    ("👩\u200d💻", "\u200d"),
    ("👩🏽\u200d💻", "\u200d"),
    ("❤\ufe0f", "\ufe0f"),
    ("1\ufe0f\u20e3", "\ufe0f"),
    ("می\u200cخواهم", "\u200c"),
    ("क्\u200dष", "\u200d"),
    ("pay 240\u00a0€ now", "\u00a0"),
    ("about 1\u202f204 people", "\u202f"),
    (
        "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
        "\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
    ),
]

PLAIN = [
    "Refund €240 to Zoë",
    "two\nlines\tand a tab",
    "Müller & Söhne",
    "日本カタカナ",
    "",
    "Пожалуйста, верните 240",
]


def chips(text: str) -> list[str | None]:
    return [segment.chip for segment in reveal.reveal(text) if segment.alarm]


@pytest.mark.parametrize(("text", "expected"), HIDDEN)
def test_reveal_hidden_characters_become_chips(text: str, expected: list[str]) -> None:
    assert chips(text) == expected


@pytest.mark.parametrize(("text", "quiet"), QUIET)
def test_reveal_characters_at_their_work_are_counted_without_alarm(text: str, quiet: str) -> None:
    assert chips(text) == []
    assert "".join(s.text for s in reveal.reveal(text) if s.quiet) == quiet


@pytest.mark.parametrize("text", PLAIN)
def test_reveal_ordinary_text_is_one_segment_at_most(text: str) -> None:
    assert reveal.reveal(text) == ([reveal.Segment(text)] if text else [])
    assert not reveal.flags(text)


@given(
    st.text(alphabet=st.characters(), max_size=80) | st.text(alphabet=" \n\r\t\u200da👩\ufe0f", max_size=80)
)
def test_reveal_joined_is_the_text(text: str) -> None:
    assert "".join(segment.text for segment in reveal.reveal(text)) == text


@given(st.text(alphabet=st.characters(), max_size=40))
def test_reveal_leaves_no_hidden_character_without_a_chip(text: str) -> None:
    shown = "".join(segment.text for segment in reveal.reveal(text) if segment.chip is None)
    assert [c for c in shown if reveal.is_hidden(c)] == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pay" + "\n" * 501 + "harm", ["500 blank lines"]),
        ("\n" * 500 + "harm", ["500 blank lines"]),
        ("pay" + "\r\n" * 501 + "harm", ["500 blank lines"]),
        ("pay" + " \t\n" * 501 + "harm", ["500 blank lines"]),
        ("pay" + " " * 5000 + "harm", ["5,000 spaces"]),
        ("pay" + "\t" * 5000 + "harm", ["5,000 spaces and tabs"]),
        ("a\n\n\nb", []),
        ("a" + " " * 19 + "b", []),
        ("a  \nb", ["2 trailing spaces"]),
        ("a ", ["1 trailing space"]),
    ],
)
def test_reveal_padding_becomes_one_chip_with_its_count(text: str, expected: list[str]) -> None:
    assert chips(text) == expected


def test_reveal_a_trailing_space_is_shown_but_is_no_flag() -> None:
    assert chips("a ") == ["1 trailing space"]
    assert not reveal.flags("a ")


@pytest.mark.parametrize(
    ("text", "labels", "plain"),
    [
        ("p\u0430ypal.com", ("letters of more than one script",), "xn--pypal-4ve.com"),
        ("write to b@ex\u0430mple.com now", ("letters of more than one script",), "b@xn--exmple-4nf.com"),
        ("сайт.рф", ("letters outside ASCII in an identifier",), "xn--80aswg.xn--p1ai"),
        ("kö/ln", ("letters outside ASCII in an identifier",), "xn--k-1ga/ln"),
        ("acme\u200b.com", ("1 hidden character",), None),
        ("x" + "\n" * 9 + "y", ("padding",), None),
        ("Zoë", (), None),
        ("👩\u200d💻", (), None),
    ],
)
def test_flags_say_what_was_noticed(text: str, labels: tuple[str, ...], plain: str | None) -> None:
    noticed = reveal.flags(text)
    assert (tuple(noticed), noticed.plain) == (labels, plain)


def test_flags_count_every_hidden_character() -> None:
    assert reveal.flags("a\u200b\u200b\u202eb").hidden == 3
