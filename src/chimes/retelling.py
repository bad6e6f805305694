"""Sentences that were written down in English, said again in the reader's language.

What a store keeps of a run is plain text: why it failed, why a slot was left out, what the system
wrote into its log. Such a text is held against the templates of those who write things down (the
catalogue `records.mo`); the one that it was made from gives the sentence of the reader's language,
with the same values in it. What people or their programs wrote fits no template and stays as it
is; a line of a log, which may be theirs, has to fit one very well.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from string import Formatter

from chimes.i18n import ENGLISH, LOCALE, Message

#: A text that is longer is nobody's sentence.
_LONGEST = 2000
_DEEPEST = 4
_MOST_PARTS = 20
_BETWEEN_SENTENCES = ("\n", "; ")
_LITTLE_ENDIAN = b"\xde\x12\x04\x95"
_WORD = re.compile(r"[A-Za-z]{2,}")


@dataclass(frozen=True, slots=True)
class _Care:
    """What a sentence has to bring of its own to be recognised by it."""

    words: int
    letters: int


_USUAL = _Care(2, 10)
_OF_A_LINE = _Care(3, 14)


@dataclass(frozen=True, slots=True)
class _Template:
    """English text with holes: a piece before each hole, and one at the end."""

    pieces: tuple[str, ...]
    #: The name of each hole.
    holes: tuple[str, ...]
    translation: str

    @property
    def letters(self) -> int:
        return sum(char.isalpha() for piece in self.pieces for char in piece)

    @property
    def length(self) -> int:
        return sum(map(len, self.pieces))

    @property
    def words(self) -> list[str]:
        return [word for piece in self.pieces for word in _WORD.findall(piece)]

    @property
    def key(self) -> str:
        """A word that every text made from it has: the longest of those that touch no hole."""
        last = len(self.pieces) - 1
        found = [""]
        for number, piece in enumerate(self.pieces):
            for match in _WORD.finditer(piece):
                touches = (number > 0 and match.start() == 0) or (
                    number < last and match.end() == len(piece)
                )
                if not touches:
                    found.append(match[0])
        return max(found, key=len)

    def meets(self, care: _Care) -> bool:
        return len(self.words) >= care.words and self.letters >= care.letters

    def values_in(self, text: str) -> dict[str, str] | None:
        """What stands in the holes, if the text was made from this. Each piece is looked for from
        the left, which finds a way if there is one and takes no time to go back."""
        first, *between, last = self.pieces
        end = len(text) - len(last)
        if not (text.startswith(first) and text.endswith(last) and len(first) <= end):
            return None
        found: dict[str, str] = {}
        start = len(first)
        for hole, piece in zip(self.holes, (*between, None), strict=True):
            place = end if piece is None else text.find(piece, start, end)
            if place < 0:
                return None
            found.setdefault(hole, text[start:place])
            start = place + len(piece or "")
        return found


def retold(text: str, language: str) -> str:
    """The same text in this language, if it is a sentence of ours."""
    return _told(text, language, _USUAL)


def retold_line(text: str, language: str) -> str:
    """The same for what may be anybody's: a line of a log, a note."""
    return _told(text, language, _OF_A_LINE)


def _told(text: str, language: str, care: _Care) -> str:
    if language == ENGLISH:
        return text
    if isinstance(text, Message):
        return text.in_language(language)
    return text if len(text) > _LONGEST else _retold(text, language, _DEEPEST, care)


@lru_cache(maxsize=4096)
def _retold(text: str, language: str, depth: int, care: _Care) -> str:
    # A single word is a name or a code, and programs read it.
    if " " not in text or not depth:
        return text
    found = _exact(text, language, care) or _made(text, language, depth, care)
    if found is None and depth == _DEEPEST and care is _USUAL:
        found = _sentence_by_sentence(text, language, care)
    return text if found is None else found


def _exact(text: str, language: str, care: _Care) -> str | None:
    found = _messages(language).get(text)
    return found if found and _Template((text,), (), found).meets(care) else None


def _made(text: str, language: str, depth: int, care: _Care) -> str | None:
    index = _templates(language)
    candidates = [each for word in set(_WORD.findall(text)) for each in index.get(word, ())]
    # The most telling one first.
    for template in sorted(candidates, key=lambda each: (-each.letters, -each.length)):
        if not template.meets(care):
            return None
        values = template.values_in(text)
        if values is not None:
            inside = {name: _retold(it, language, depth - 1, care) for name, it in values.items()}
            return _filled(template.translation, inside)
    return None


def _sentence_by_sentence(text: str, language: str, care: _Care) -> str | None:
    for separator in _BETWEEN_SENTENCES:
        parts = text.split(separator)
        if 1 < len(parts) <= _MOST_PARTS:
            return separator.join(_retold(each, language, _DEEPEST - 1, care) for each in parts)
    return None


@cache
def _messages(language: str) -> Mapping[str, str]:
    """Each English template with the one of this language; a plural under both of its forms."""
    found: dict[str, str] = {}
    for english, translated in _pairs(
        (LOCALE / language / "LC_MESSAGES" / "records.mo").read_bytes()
    ):
        text = translated.partition("\0")[0]
        found.update({form: text for form in english.split("\0") if form and text})
    return found


def _pairs(data: bytes) -> Iterator[tuple[str, str]]:
    """All that a compiled catalogue holds, plurals parted by NUL. gettext looks single messages
    up only, and Babel, which can list them, takes half a second to load: too long for a message
    to a chat."""
    order = "<" if data.startswith(_LITTLE_ENDIAN) else ">"
    count, english, translated = struct.unpack_from(f"{order}3I", data, 8)

    def text(table: int, number: int) -> str:
        length, start = struct.unpack_from(f"{order}2I", data, table + 8 * number)
        return data[start : start + length].decode()

    return ((text(english, number), text(translated, number)) for number in range(count))


@cache
def _templates(language: str) -> Mapping[str, tuple[_Template, ...]]:
    """Those with holes, by a word that a text made from them must have."""
    found: dict[str, list[_Template]] = {}
    for english, translation in _messages(language).items():
        template = _parsed(english, translation)
        if template is not None and template.key and template.meets(_USUAL):
            found.setdefault(template.key, []).append(template)
    return {key: tuple(each) for key, each in found.items()}


def _parsed(english: str, translation: str) -> _Template | None:
    try:
        parts = list(Formatter().parse(english))
    except ValueError:
        return None  # a sentence without values may have a brace in it
    pieces, holes, piece = [], [], ""
    for literal, name, _, _ in parts:
        piece += literal
        if name is not None:
            pieces.append(piece)
            holes.append(name)
            piece = ""
    if not holes or not all(holes):
        return None
    return _Template((*pieces, piece), tuple(holes), translation)


def _filled(template: str, values: dict[str, str]) -> str:
    """As they stood in the text: they were formatted when it was written."""
    return "".join(
        literal + (values.get(name, "") if name is not None else "")
        for literal, name, _, _ in Formatter().parse(template)
    )
