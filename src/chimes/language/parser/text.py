"""Normalised text: NFKC, ASCII digits, lower case, single spaces.

Every character keeps its original position, so that the task keeps its spelling.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

_DASHES = dict.fromkeys("‐‑‒–—―−~〜～→", "-")
_QUOTES = {"’": "'", "‘": "'", "ʼ": "'", "“": '"', "”": '"'}
# Traditional to simplified, only for characters of the grammar.
_SIMPLIFIED = dict(
    zip(
        "點鐘鍾週個後兩時號間禮這從開紐約東倫內過淩雙單當為終經隔當節兒幾壹貳參倆敦復舊羅馬韓國臺灣",
        "点钟钟周个后两时号间礼这从开纽约东伦内过凌双单当为终经隔当节儿几一二三两敦复旧罗马韩国台湾",
        strict=True,
    )
)
_SAME = _DASHES | _QUOTES | _SIMPLIFIED
_NIKHAHIT, _SARA_AA, _SARA_AM, _SARA_E, _SARA_AE = "\u0e4d", "\u0e32", "\u0e33", "\u0e40", "\u0e41"


@dataclass(frozen=True, slots=True)
class Text:
    """`folded` is the normalised text; `origin[i]` is the position of its character i in `raw`."""

    raw: str
    folded: str
    origin: tuple[int, ...]

    def between(self, start: int, end: int) -> str:
        """The original text of a range of `folded`."""
        return self.raw[self.origin[start] : self.origin[end]]


def fold(raw: str) -> Text:
    found: list[str] = []
    origin: list[int] = []
    for index, each in enumerate(raw):
        for character in _folded(each):
            if character == " " and (not found or found[-1] == " "):
                continue
            if found and (joined := _JOINED.get((found[-1], character))):
                found[-1] = joined
                continue
            if found and found[-1] in _TONES and character in _VOWELS:
                # Combining marks in another order look the same.
                found[-1], character = character, found[-1]
            found.append(character)
            origin.append(index)
    return Text(raw, "".join(found), (*origin, len(raw)))


_TONES, _VOWELS = frozenset("่้๊๋"), frozenset("ัิีึืุู")
#: NFKC takes the Thai vowel AM apart, and many type AE as two E.
_JOINED = {(_NIKHAHIT, _SARA_AA): _SARA_AM, (_SARA_E, _SARA_E): _SARA_AE}


def _folded(character: str) -> str:
    if character.isascii():
        return " " if character.isspace() else _SAME.get(character, character.lower())
    found = []
    for each in unicodedata.normalize("NFKC", character).lower():
        category = unicodedata.category(each)
        if category == "Nd":
            found.append(str(unicodedata.decimal(each)))
        elif each.isspace():
            found.append(" ")
        elif category not in ("Cf", "Cc"):
            found.append(_SAME.get(each, each))
    return "".join(found)


def is_chinese(character: str) -> bool:
    return "\u3400" <= character <= "\u9fff"


def is_latin(character: str) -> bool:
    """A letter or digit that is part of a word between spaces."""
    return character.isascii() and character.isalnum()


def is_thai(character: str) -> bool:
    return "\u0e00" <= character <= "\u0e7f"
