"""Makes the characters visible that a reader would miss, and only those.

Owns the rule of what counts as hidden, padding, or look-alike. `reveal` cuts a text into
segments whose texts, joined, are the text again: nothing is removed, replaced or normalised.
It knows nothing of HTML: the templates escape and draw. It never decides; `flags` says what
was noticed and policy says what that means.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby

# Blank although their category says letter, mark or symbol; and the blocks kept for tags and selectors.
_BLANK = (
    {0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2065, 0x2800, 0x3164, 0xFFA0}
    | set(range(0x180B, 0x1810))
    | set(range(0xFE00, 0xFE10))
    | set(range(0xFFF0, 0xFFF9))
    | set(range(0xE0000, 0xE1000))
)
_CATEGORIES = {"Cf", "Cc", "Co", "Cn", "Cs", "Zl", "Zp", "Zs"}
_PLAIN = {"\n", "\t", " "}
_ZWNJ, _ZWJ, _VS16, _NBSP, _NARROW = "\u200c", "\u200d", "\ufe0f", "\u00a0", "\u202f"

# The three flags that are spelt with tag characters; any other use of tags is a message.
_TAG_FLAGS = tuple(
    "\U0001f3f4" + "".join(chr(0xE0000 + ord(letter)) for letter in code) + "\U000e007f"
    for code in ("gbeng", "gbsct", "gbwls")
)
_EMOJI = re.compile("[\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u23ff\u24c2\u25a0-\u27bf"
                    "\u2900-\u297f\u2b00-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff]")  # fmt: skip
_KEYCAP_BASE = set("0123456789#*")
_SKIN = {chr(code) for code in range(0x1F3FB, 0x1F400)}
_JOINING_SCRIPTS = {
    "ARABIC", "SYRIAC", "MONGOLIAN", "NKO", "DEVANAGARI", "BENGALI", "GURMUKHI", "GUJARATI", "ORIYA",
    "TAMIL", "TELUGU", "KANNADA", "MALAYALAM", "SINHALA", "KHMER", "MYANMAR", "TIBETAN", "THAANA",
}  # fmt: skip

# One pattern, so that a hostile text is read once. A run starts only where no blank stands before it
# (else every blank would be tried as a start). The first \n ends a line: four are three blank lines.
_PADDING = re.compile(
    r"(?<![ \t\r])(?P<lines>(?:[ \t\r]*+\n){4,})|(?P<spaces>[ \t]{20,}+)|(?P<trailing> ++(?=\r?\n|\Z))"
)
_UNREMARKABLE = re.compile(r"[\x20-\x7e\n\t]*")

_CONTROL_NAMES = (
    "NULL", "START OF HEADING", "START OF TEXT", "END OF TEXT", "END OF TRANSMISSION", "ENQUIRY",
    "ACKNOWLEDGE", "BELL", "BACKSPACE", "TAB", "LINE FEED", "VERTICAL TAB", "FORM FEED",
    "CARRIAGE RETURN", "SHIFT OUT", "SHIFT IN", "DATA LINK ESCAPE", "DEVICE CONTROL ONE",
    "DEVICE CONTROL TWO", "DEVICE CONTROL THREE", "DEVICE CONTROL FOUR", "NEGATIVE ACKNOWLEDGE",
    "SYNCHRONOUS IDLE", "END OF TRANSMISSION BLOCK", "CANCEL", "END OF MEDIUM", "SUBSTITUTE", "ESCAPE",
    "FILE SEPARATOR", "GROUP SEPARATOR", "RECORD SEPARATOR", "UNIT SEPARATOR",
)  # fmt: skip
_UNNAMED = {"Cc": "CONTROL", "Co": "PRIVATE USE", "Cs": "LONE SURROGATE", "Cn": "UNASSIGNED"}


MOST_SEGMENTS = 2_000


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of a text. `chip` says what cannot be seen in it; `quiet` that it belongs there."""

    text: str
    chip: str | None = None
    quiet: bool = False

    @property
    def alarm(self) -> bool:
        """Whether the chip is drawn instead of the text."""
        return self.chip is not None and not self.quiet

    @property
    def hidden(self) -> bool:
        """Whether these are characters nobody would see, as opposed to many blanks."""
        return self.alarm and str(self.chip).startswith("U+")

    @property
    def padding(self) -> bool:
        """Whether the blanks could push what follows out of sight; a trailing space cannot."""
        return self.alarm and not self.hidden and "trailing" not in str(self.chip)

    @property
    def breaks(self) -> bool:
        return self.text.endswith("\n")


@dataclass(frozen=True, slots=True)
class Flags:
    """What was noticed in a text. `plain` spells its look-alikes in ASCII, when there are any."""

    hidden: int = 0
    padding: int = 0
    mixed_script: bool = False
    not_ascii: bool = False
    plain: str | None = None

    def __iter__(self) -> Iterator[str]:
        return iter(self.labels)

    def __bool__(self) -> bool:
        return bool(self.hidden or self.padding or self.mixed_script or self.not_ascii)

    @property
    def labels(self) -> tuple[str, ...]:
        """The flags in words, worst first."""
        said = (
            (self.hidden, _counted(self.hidden, "hidden character")),
            (self.mixed_script, "letters of more than one script"),
            (self.not_ascii and not self.mixed_script, "letters outside ASCII in an identifier"),
            (self.padding, "padding"),
        )
        return tuple(words for present, words in said if present)


def reveal(text: str) -> list[Segment]:
    """Cut `text` into segments; their texts joined are `text`."""
    segments: list[Segment] = []
    position = 0
    for start, end, chip in _padding(text):
        segments += _characters(text, position, start)
        segments.append(Segment(text[start:end], chip))
        position = end
    return segments + _characters(text, position, len(text))


def drawn(text: str) -> list[Segment]:
    """As `reveal` says, for a page; a text with more to mark than a page can bear is written with escapes."""
    segments = reveal(text)
    if len(segments) <= MOST_SEGMENTS:
        return segments
    written = "".join(_escape(c) if is_hidden(c) else c for c in text)
    return [
        Segment("", f"{len(segments):,} marks; hidden characters are written as escapes"),
        Segment(written),
    ]


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def flags(text: str) -> Flags:
    """What in `text` deserves a reviewer's second look."""
    segments = reveal(text)
    suspects = _suspects("".join(_seen(segment) for segment in segments))
    mixed = any(_is_mixed(token) for token in suspects)
    foreign = any(_LOOKS_LIKE_ADDRESS.search(token) for token in suspects)
    return Flags(
        hidden=sum(len(s.text) for s in segments if s.hidden),
        padding=sum(1 for s in segments if s.padding),
        mixed_script=mixed,
        not_ascii=foreign,
        plain=" ".join(plain(token) for token in suspects) if mixed or foreign else None,
    )


def plain(identifier: str) -> str:
    """`identifier` in ASCII: labels as in a host's punycode, or with escapes where there is none."""
    return _LABEL.sub(lambda found: _punycode(found[0]), identifier)


def name(character: str) -> str:
    """`U+202E RIGHT-TO-LEFT OVERRIDE`, also for characters without a name in the standard."""
    code = ord(character)
    words = unicodedata.name(character, "")
    if not words:
        words = "DELETE" if code == 0x7F else _UNNAMED.get(unicodedata.category(character), "NO NAME")
    if code < len(_CONTROL_NAMES):
        words = _CONTROL_NAMES[code]
    return f"U+{code:04X} {words}"


def is_hidden(character: str) -> bool:
    """Whether a reader could miss `character`, wherever it stands."""
    if character in _PLAIN:
        return False
    return ord(character) in _BLANK or unicodedata.category(character) in _CATEGORIES


# -- Padding ------------------------------------------------------------------


def _padding(text: str) -> Iterator[tuple[int, int, str]]:
    """Runs of nothing, in order: (start, end, what to say)."""
    for found in _PADDING.finditer(text):
        yield found.start(), found.end(), _PADDING_WORDS[found.lastgroup or ""](found)


def _blank_lines(found: re.Match[str]) -> str:
    ends_a_line = found.start() > 0
    return f"{found[0].count(chr(10)) - ends_a_line:,} blank lines"


def _spaces(found: re.Match[str]) -> str:
    return f"{len(found[0]):,} spaces{' and tabs' if chr(9) in found[0] else ''}"


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


_PADDING_WORDS: dict[str, Callable[[re.Match[str]], str]] = {
    "lines": _blank_lines,
    "spaces": _spaces,
    "trailing": lambda found: _counted(len(found[0]), "trailing space"),
}


# -- Characters ---------------------------------------------------------------


def _characters(text: str, start: int, end: int) -> list[Segment]:
    """Segments of text[start:end]; neighbours outside it are still looked at."""
    if _UNREMARKABLE.fullmatch(text, start, end):
        return [Segment(text[start:end])] if start < end else []
    described = ((text[i], *_describe(text, i)) for i in range(start, end))
    segments: list[Segment] = []
    for (chip, quiet), run in groupby(described, key=lambda d: d[1:]):
        piece = "".join(d[0] for d in run)
        repeated = chip is not None and len(piece) > 1
        segments.append(Segment(piece, f"{chip} \u00d7{len(piece):,}" if repeated else chip, quiet))
    return segments


def _describe(text: str, i: int) -> tuple[str | None, bool]:
    if not is_hidden(text[i]):
        return None, False
    return name(text[i]), _is_quiet(text, i)


def _is_quiet(text: str, i: int) -> bool:
    """Whether the hidden character at `i` is doing the job it was made for."""
    test = _QUIET.get(text[i])
    return test(text, i) if test else _in_tag_flag(text, i)


def _joins_emoji(text: str, i: int) -> bool:
    before = i - 1
    while before >= 0 and (text[before] == _VS16 or text[before] in _SKIN):
        before -= 1
    return before >= 0 and bool(_EMOJI.match(text[before])) and bool(_EMOJI.match(_at(text, i + 1)))


def _joins_letters(text: str, i: int) -> bool:
    before, after = _script(_at(text, i - 1)), _script(_at(text, i + 1))
    return before == after and before in _JOINING_SCRIPTS


def _joins(text: str, i: int) -> bool:
    return _joins_letters(text, i) or _joins_emoji(text, i)


def _presents_emoji(text: str, i: int) -> bool:
    before = _at(text, i - 1)
    keycap = before in _KEYCAP_BASE and _at(text, i + 1) == "\u20e3"
    return keycap or bool(_EMOJI.match(before))


def _spaces_a_number(text: str, i: int) -> bool:
    """A no-break space in prose that keeps a number or a mark with its neighbour."""
    if " " not in text:
        return False
    around = (_at(text, i - 1), _at(text, i + 1))
    return any(c and unicodedata.category(c)[0] in "NP" for c in around)


def _in_tag_flag(text: str, i: int) -> bool:
    if not 0xE0020 <= ord(text[i]) <= 0xE007F:
        return False
    window = range(max(0, i - 6), i)
    return any(text.startswith(_TAG_FLAGS, start) and i < start + 7 for start in window)


_QUIET: dict[str, Callable[[str, int], bool]] = {
    _ZWJ: _joins,
    _ZWNJ: _joins_letters,
    _VS16: _presents_emoji,
    _NBSP: _spaces_a_number,
    _NARROW: _spaces_a_number,
}


def _at(text: str, i: int) -> str:
    return text[i] if 0 <= i < len(text) else ""


# -- Look-alikes --------------------------------------------------------------

# Possessive, and never tried inside a run again: the time a hostile text takes grows with its length only.
_LABEL = re.compile(r"(?:[\w-]|[^\x00-\x7f])++")
_LONGEST_LABEL = 63
_LOOKS_LIKE_ADDRESS = re.compile(r"@|://|[/\\]|\w\.\w{2,}|\d")
_ADDRESS = re.compile(r"@.|://.", re.DOTALL)
_DOTTED = re.compile(r"(?<![\w-])[\w-]++(?:\.[\w-]++)++")


# Kana stand beside ideographs in every Japanese name; the three signs stand beside Latin units.
_SAME_SCRIPT = {
    "HIRAGANA": "CJK", "KATAKANA": "CJK", "KATAKANA-HIRAGANA": "CJK",
    "MICRO": "LATIN", "FEMININE": "LATIN", "MASCULINE": "LATIN",
}  # fmt: skip


def _seen(segment: Segment) -> str:
    """What a reader sees of a segment."""
    if segment.hidden:
        return " " if segment.text.isspace() else ""
    return segment.text


def _suspects(visible: str) -> list[str]:
    """The identifiers with letters outside ASCII."""
    if visible.isascii():
        return []
    return [token for token in _identifiers(visible) if any(c.isalpha() and not c.isascii() for c in token)]


def _identifiers(text: str) -> list[str]:
    """What in `text` names something: the whole of a single word, else the addresses in the prose."""
    words = text.split()
    return words if len(words) < 2 else [each for word in words for each in _addresses(word)]


def _addresses(word: str) -> list[str]:
    """What in a word of prose is an address: all of it, or the host names in it."""
    if _ADDRESS.search(word):
        return [word]
    return [found for found in _DOTTED.findall(word) if _ends_like_a_host(found)]


def _ends_like_a_host(name: str) -> bool:
    return any(len(label) > 1 and label[:2].isalpha() for label in name.split(".")[1:])


def _is_mixed(token: str) -> bool:
    """Whether one label of `token` has letters of two scripts."""
    labels = re.split(r"[\W\d_]+", token)
    return any(len({_script(c) for c in label if c.isalpha()} - {""}) > 1 for label in labels)


def _script(character: str) -> str:
    """The first word of a letter's or mark's name is its script, near enough (no data file needed)."""
    if not character or unicodedata.category(character)[0] not in "LM":
        return ""
    words = unicodedata.name(character, "").split(" ")
    return _SAME_SCRIPT.get(words[0], words[0])


def _punycode(label: str) -> str:
    if label.isascii():
        return label
    try:
        if len(label) <= _LONGEST_LABEL:
            return label.encode("idna").decode("ascii")
    except UnicodeError:
        pass
    return label.encode("ascii", "backslashreplace").decode("ascii")
