"""Secrets of this process, kept out of text: in whichever form they are written, and never half."""

import base64
import json
import logging
from urllib.parse import quote

import pytest

from config import logs
from runs import recorded, redaction
from runs.exceptions import Rejected, ToolFailed

SECRET = 'pa/ss "wörd"\\&x'


class Refused(Exception):
    pass


@pytest.mark.parametrize(
    "written",
    [
        SECRET,
        json.dumps(SECRET),
        json.dumps(SECRET, ensure_ascii=False),
        json.dumps(json.dumps({"text": SECRET})),
        json.dumps(json.dumps(json.dumps([SECRET], ensure_ascii=False), ensure_ascii=False)),
        repr(SECRET),
        repr([SECRET]),
        f"https://bank.example/?key={quote(SECRET)}",
        f"https://bank.example/?key={quote(SECRET, safe='')}",
        base64.b64encode(SECRET.encode()).decode(),
        base64.urlsafe_b64encode(SECRET.encode()).decode(),
    ],
)
def test_scrub_every_way_it_is_written(written: str) -> None:
    redaction.keep_out("psp", SECRET)
    clean = redaction.scrub(f"before {written} after")
    assert "[psp removed]" in clean
    assert "wörd" not in clean
    assert "w\\u00f6rd" not in clean
    assert clean.startswith("before ")
    assert clean.endswith(" after")


def test_scrub_leaves_other_text_as_it_is() -> None:
    redaction.keep_out("psp", SECRET)
    assert redaction.scrub("nothing of it") == "nothing of it"


def test_scrub_the_longer_of_two_first() -> None:
    redaction.keep_out("short", "abcdef")
    redaction.keep_out("long", "abcdef-and-more")
    assert redaction.scrub("abcdef-and-more, abcdef") == "[long removed], [short removed]"


def test_keep_out_forgets_the_oldest_of_very_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "REMEMBERED", 10)
    for number in range(50):
        redaction.keep_out("psp", f"value-{number:04}")
    assert len(redaction._secrets) == 10
    assert redaction.scrub("value-0049") == "[psp removed]"


def test_kept_scrubs_before_it_cuts() -> None:
    """Cut first, half of it would stay."""
    redaction.keep_out("psp", "0123456789")
    assert redaction.kept("x" * 10 + "0123456789", 15) == "x" * 10 + "[psp "


def test_kept_shows_what_the_database_refuses() -> None:
    assert redaction.kept("a\x00b\ud800", 50) == "a\\x00b\\ud800"


def test_said_of_an_error_that_cannot_be_read() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise ValueError

    assert redaction.said(Broken(), 100) == "Broken: (its text could not be read: ValueError)"


def test_scrub_value_keeps_its_shape() -> None:
    redaction.keep_out("psp", SECRET)
    assert redaction.scrub_value({"a": [SECRET, 1, None]}) == {"a": ["[psp removed]", 1, None]}


def test_record_an_error_as_itself_without_the_secret() -> None:
    """An agent that catches the declared type still does."""
    redaction.keep_out("psp", SECRET)
    text = recorded.write(Refused(f"no: {SECRET}", 3), (Refused,))
    found = recorded.read(text, (Refused,))
    assert (type(found), found.args) == (Refused, ("no: [psp removed]", 3))
    ours = recorded.read(recorded.write(Rejected(SECRET), ()), ())
    assert ours == Rejected("[psp removed]")
    other = recorded.read(recorded.write(KeyError(SECRET), ()), ())
    assert isinstance(other, ToolFailed)
    assert "wörd" not in other.message


@pytest.mark.parametrize("style", ["json", "text"])
def test_log_no_secret_and_no_locals(style: str) -> None:
    """In the message, in what goes with it, in a traceback; and locals, which are shown cut off, are not shown."""
    redaction.keep_out("psp", SECRET)
    line = logs.settings(level="INFO", style=style)["formatters"]["line"]["()"](style)
    in_a_local = "value-" * 60
    try:
        raise ValueError(f"401 for {SECRET}")
    except ValueError as error:
        found = (type(error), error, error.__traceback__)
    record = logging.LogRecord("tool", logging.ERROR, __file__, 1, f"sent {SECRET}", (), found)
    record.given = SECRET
    said = line.format(record)
    assert "[psp removed]" in said
    assert "wörd" not in said
    assert "w\\u00f6rd" not in said
    assert "value-value-" not in said
    assert in_a_local
