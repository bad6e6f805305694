"""Finding the phrases of time in a text: rows of parts with nothing unread between them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from chimes.language.parsing import digits, en_words, th_words, zh_words
from chimes.language.parsing.parts import Clock, Found, Part, Problem, Span
from chimes.language.parsing.rules import Rule, longest
from chimes.language.parsing.text import is_chinese, is_latin, is_thai
from chimes.language.parsing.zones import zone_at

_JOINING = (en_words.JOINING, th_words.JOINING, zh_words.JOINING)
_LISTING = (en_words.LISTING, th_words.LISTING, zh_words.LISTING)
_LISTED = re.compile(r"[,、&/+]")
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
        )


def phrases(text: str) -> list[Phrase]:
    """All phrases of time, in their order."""
    return _Scanner(text).phrases()


class _Scanner:
    """Tries at each place the rules of the script that is found there."""

    def __init__(self, text: str) -> None:
        self.text = text
        thai = th_words.RULES if any(map(is_thai, text)) else []
        chinese = zh_words.RULES if any(map(is_chinese, text)) else []
        self.everything: list[Rule] = [*digits.RULES, *en_words.RULES, *thai, *chinese]

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
        end = at = start
        kept = kept_end = 0
        while at < len(self.text):
            found = self._part(at)
            if found is not None:
                listed += [_is_list(self.text[end:at]), *(False for _ in found.parts[1:])]
                parts += found.parts
                end = at = found.end
                if not _is_loose(parts[-1]):
                    kept, kept_end = len(parts), end
                continue
            after = self._joined(at)
            if after is None:
                break
            at = after
        # Words such as "until" belong to the time only if something of it follows.
        if kept == 0:
            return None
        return Phrase(((start, kept_end),), tuple(parts[:kept]), tuple(listed[:kept]))

    def _joined(self, at: int) -> int | None:
        """Behind a space or a word that only joins parts."""
        if self.text[at] in " ,、&/+":
            return at + 1
        if self._is_inside(at):
            return None
        for pattern in (*_JOINING, *_LISTING):
            found = pattern.match(self.text, at)
            if found:
                return found.end()
        return None

    def _part(self, at: int) -> Found | None:
        if self.text[at] == " " or self._is_inside(at):
            return None
        found = zone_at(self.text, at) or longest(self._rules(at), self.text, at)
        return None if found is None else self._range(at, found)

    def _is_inside(self, at: int) -> bool:
        """Latin words are entered at their beginning only."""
        text = self.text
        return bool(at) and is_latin(text[at]) and is_latin(text[at - 1])

    def _rules(self, at: int) -> list[Rule]:
        character = self.text[at]
        if is_thai(character):
            return th_words.RULES
        if is_chinese(character):
            return zh_words.RULES
        return en_words.RULES if character.isalpha() else self.everything

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
        last = longest(self.everything, self.text, link.end())
        if last is None or len(last.parts) > 1 or not isinstance(last.parts[0], Clock):
            return first
        return Found((*first.parts[:-1], Span(start, last.parts[0])), last.end)


def _is_list(between: str) -> bool:
    return bool(_LISTED.search(between)) or any(each.search(between) for each in _LISTING)


def _is_loose(part: Part) -> bool:
    return isinstance(part, Problem) and part.loose
