"""Finding the phrases of time in a text: rows of parts with nothing unread between them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from chimes.language.parsing import digits, en_words, th_words, zh_words
from chimes.language.parsing.parts import Clock, Found, Part, Problem, Span
from chimes.language.parsing.rules import Book
from chimes.language.parsing.text import is_chinese, is_latin, is_thai
from chimes.language.parsing.zones import zone_at

_DIGITS = Book(digits.RULES)
_ENGLISH = Book(en_words.RULES)
_THAI = Book(th_words.RULES)
_CHINESE = Book(zh_words.RULES)
#: So many words and signs in a row may join two parts, or lead up to the first.
_MOST_JOINERS = 8
_LISTING = re.compile("|".join(["[,、&/+]", en_words.LISTING, th_words.LISTING, zh_words.LISTING]))
_JOINING = re.compile(
    "|".join([_LISTING.pattern, "[ ()]", en_words.JOINING, th_words.JOINING, zh_words.JOINING])
)
_RANGING = re.compile(r" ?(?:-|to|until|till|through|ถึง|จนถึง|到|至) ?")
_BETWEEN = re.compile(r" ?(?:and|และ|กับ|和|与) ?")


@dataclass(frozen=True, slots=True)
class Phrase:
    """A row of parts and the stretches [start, end) of text that it takes up.

    `listed[i]`: "and", or what means it, stands before part i.
    """

    stretches: tuple[tuple[int, int], ...]
    parts: tuple[Part, ...]
    listed: tuple[bool, ...]
    #: Where each part stands.
    places: tuple[tuple[int, int], ...] = ()
    #: Words of time behind it were left to the task.
    trimmed: bool = False

    @property
    def start(self) -> int:
        return self.stretches[0][0]

    @property
    def end(self) -> int:
        return self.stretches[-1][1]

    def joined(self, other: Phrase) -> Phrase:
        """Both, as if nothing stood between them."""
        return Phrase(
            (*self.stretches, *other.stretches),
            (*self.parts, *other.parts),
            (*self.listed, *other.listed),
            (*self.places, *other.places),
            other.trimmed,
        )

    def first(self, count: int) -> Phrase:
        """Its first parts, of one stretch."""
        return Phrase(
            ((self.start, self.places[count - 1][1]),),
            self.parts[:count],
            self.listed[:count],
            self.places[:count],
            trimmed=True,
        )


def phrases(text: str) -> list[Phrase]:
    """All phrases of time, in their order."""
    return _Scanner(text).phrases()


class _Scanner:
    """Tries at each place the rules of the script that is found there."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.everything = [_DIGITS, _ENGLISH]
        if any(map(is_thai, text)):
            self.everything.append(_THAI)
        if any(map(is_chinese, text)):
            self.everything.append(_CHINESE)
        self.known: dict[int, Found | None] = {}

    def phrases(self) -> list[Phrase]:
        found: list[Phrase] = []
        at = 0
        while at < len(self.text):
            phrase = None if self.text[at] == " " else self._phrase(at)
            if phrase is None:
                at += 1
            else:
                found.append(phrase)
                at = phrase.end
        return found

    def _phrase(self, start: int) -> Phrase | None:
        parts: list[Part] = []
        listed: list[bool] = []
        places: list[tuple[int, int]] = []
        end = at = start
        kept = kept_end = 0
        joiners = 0
        while at < len(self.text) and joiners <= _MOST_JOINERS:
            found = self._part(at)
            if found is not None:
                listed += [_is_list(self.text[end:at]), *(False for _ in found.parts[1:])]
                parts += found.parts
                places += [(at, found.end)] * len(found.parts)
                end = at = found.end
                if _is_loose(parts[-1]):
                    joiners += _MOST_JOINERS // 2
                else:
                    kept, kept_end, joiners = len(parts), end, 0
                continue
            after = self._joined(at)
            if after is None:
                break
            joiners += 1
            at = after
        # Words such as "until" belong to the time only if something of it follows.
        if kept == 0:
            return None
        return Phrase(
            ((start, kept_end),), tuple(parts[:kept]), tuple(listed[:kept]), tuple(places[:kept])
        )

    def _joined(self, at: int) -> int | None:
        """Behind a space or a word that only joins parts."""
        found = None if self._is_inside(at) else _JOINING.match(self.text, at)
        return None if found is None else found.end()

    def _part(self, at: int) -> Found | None:
        if at not in self.known:
            self.known[at] = self._read(at)
        return self.known[at]

    def _read(self, at: int) -> Found | None:
        if self.text[at] == " " or self._is_inside(at):
            return None
        found = zone_at(self.text, at) or self._longest(self._books(at), at)
        return None if found is None else self._range(at, found)

    def _is_inside(self, at: int) -> bool:
        """Latin words are entered at their beginning only."""
        text = self.text
        return bool(at) and is_latin(text[at]) and is_latin(text[at - 1])

    def _books(self, at: int) -> list[Book]:
        character = self.text[at]
        if is_thai(character):
            return [_THAI]
        if is_chinese(character):
            return [_CHINESE]
        return [_ENGLISH] if character.isalpha() else self.everything

    def _longest(self, books: list[Book], at: int) -> Found | None:
        found = [each for book in books if (each := book.longest(self.text, at))]
        return max(found, key=lambda each: each.end, default=None)

    def _range(self, at: int, first: Found) -> Found:
        """`9:00 to 17:00`; what is no range is returned as it came."""
        start = first.parts[-1]
        if not isinstance(start, Clock):
            return first
        link = _RANGING.match(self.text, first.end)
        if link is None and self.text[:at].rstrip().endswith(("between", "ระหว่าง")):
            link = _BETWEEN.match(self.text, first.end)
        if link is None:
            return first
        last = self._longest(self.everything, link.end())
        if last is None or len(last.parts) > 1 or not isinstance(last.parts[0], Clock):
            return first
        return Found((*first.parts[:-1], Span(start, last.parts[0])), last.end)


def _is_list(between: str) -> bool:
    return _LISTING.search(between) is not None


def _is_loose(part: Part) -> bool:
    return isinstance(part, Problem) and part.loose
