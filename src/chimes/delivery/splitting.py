"""Text in parts that a channel takes, cut where a reader would cut it (pure)."""

from __future__ import annotations

import re
import unicodedata

_JOINER = "\u200d"
_AM = "\u0e33\u0eb3"  # written after its consonant, read as one with it
_LEADING_VOWELS = "เแโใไເແໂໃໄ"
_SKIN_TONES = range(0x1F3FB, 0x1F400)
_FLAGS = range(0x1F1E6, 0x1F200)
_JAMO = range(0x1160, 0x1200)
_BREAKS = (re.compile(r"\n[ \t]*\n"), re.compile(r"\n"), re.compile(r"[ \t\u3000]"))


def utf16_length(text: str) -> int:
    """As the Bot API counts."""
    return len(text) + sum(char > "\uffff" for char in text)


def split(text: str, limit: int) -> list[str]:
    """Parts of at most `limit` UTF-16 code units: cut between paragraphs, else lines, else words,
    else characters, and never inside what is shown as one character. Nothing is lost but the white
    space around the cuts; a text of white space has no parts."""
    parts = []
    rest = text.strip()
    while rest:
        end = _fitting(rest, limit)
        cut = len(rest) if end == len(rest) else _cut(rest, end)
        parts.append(rest[:cut].rstrip())
        rest = rest[cut:].lstrip()
    return parts


def _fitting(text: str, limit: int) -> int:
    """How many of its characters fit."""
    units = 0
    for place, char in enumerate(text):
        units += 2 if char > "\uffff" else 1
        if units > limit:
            return max(place, 1)
    return len(text)


def _cut(text: str, end: int) -> int:
    # A part of less than half the limit would only make for more parts.
    for pattern in _BREAKS:
        found = [match.start() for match in pattern.finditer(text, end // 2, end + 1)]
        if found:
            return found[-1]
    cut = end
    while cut > end // 2 and _together(text[cut - 1], text[cut]):
        cut -= 1
    return cut if cut > end // 2 else end


def _together(before: str, after: str) -> bool:
    """Whether a cut between the two would show either wrongly."""
    return (
        unicodedata.category(after) in ("Mn", "Me", "Mc")
        or after in _AM
        or before in _LEADING_VOWELS
        or _JOINER in (before, after)
        or ord(after) in _SKIN_TONES
        or ord(after) in _JAMO
        or (ord(before) in _FLAGS and ord(after) in _FLAGS)
    )
