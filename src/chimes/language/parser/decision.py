"""Selects the phrase that states the time; the remaining text is the task (ADR 23)."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from chimes.language.parser.grammars import GRAMMARS, any_of
from chimes.language.parser.parts import (
    Clock,
    Date,
    Delay,
    Interval,
    InZone,
    PartOfDay,
    Problem,
    RelativeDay,
    RelativeMonthDay,
    RelativeWeekday,
    Unclear,
)
from chimes.language.parser.phrases import Meaning, Phrase, meaning_of, phrases
from chimes.language.parser.text import Text, is_chinese, is_latin

# Words next to a time phrase that change its meaning lead to a question.

_NUMERAL = rf"(?:(?<![a-z0-9])[0-9]+|{any_of(lambda words: words.numeral)})"
_UNIT = f"(?:{any_of(lambda words: words.unit)})"
_LINK = rf" ?(?:{any_of(lambda words: words.number_link)}|[-,.、/⁄+&])? ?"
_BEGINS_WITH_NUMBER = re.compile(f"[0-9]|{any_of(lambda words: words.first_number)}")
#: `two or |three minutes`, `1天|2小时后`, `一百|二十分钟后`: the number starts before the phrase.
_NUMBER_BEFORE = re.compile(rf"(?:{_NUMERAL}|{_UNIT}){_LINK}$|负$|-$")
_NUMBER_LINKED = re.compile(rf"{_NUMERAL} ?(?:[-/⁄]|{any_of(lambda words: words.range_link)}) ?$")
#: Words that change the phrase after them.
_CHANGED = re.compile(f"(?:{any_of(lambda words: words.negation)})[ ,]*$")
#: Words that may precede a phrase.
_JOINERS = re.compile(f"(?:[ ,、&/+()]|{any_of(lambda words: words.before)})+")
#: Maximum distance of such words.
_FAR = 80
_HALF_RANGE = re.compile(r"[^\s]-$")
#: `明|后天`, `大|明天`: two days, or none.
_DAY_BEFORE = re.compile(r"[今明昨前大后]$")
_DAY = re.compile(r"大?[今明后昨]天")
_DOTTED = re.compile(r"[ ,]*[0-9]{1,2}\.[0-9]{2}(?! ?(?:น|[ap]\.?m))")
#: Remains of a time that was not parsed.
_LEFT_OVER = re.compile(
    r" ?,? ?(?:[:.-]{1,3} ?[0-9]|(?!1:1(?![0-9]))[0-9]+ ?(?:$|:)|[+%]"
    rf"|{any_of(lambda words: words.left_over)})|{any_of(lambda words: words.left_over_glued)}"
)
_TOKEN = re.compile(r"[a-z0-9:.ก-๛]{0,20}")
_UNKNOWN_ZONE = re.compile(any_of(lambda words: words.unknown_zone))
_OF_EVENT = re.compile(f"[ ,]*(?:{any_of(lambda words: words.of_event)})")
#: `1 hour |20`.
_HOURS_AND = re.compile(rf"(?:{any_of(lambda words: words.hours_and)}) (?=[0-9]{{1,2}}(?![0-9:.]))")
_LASTING = [(re.compile(grammar.lasting), grammar.duration) for grammar in GRAMMARS]


def check_before(folded: str, chosen: Phrase, lead: str) -> None:
    """Checks the text before the phrase (`lead`, without the request). Raises Unclear."""
    joined = _JOINERS.match(folded, chosen.start)
    start = joined.end() if joined else chosen.start
    first = chosen.parts[0]
    before = folded[max(0, start - _FAR) : start]
    counts = isinstance(first, Delay | RelativeDay | Date | Interval)
    if _BEGINS_WITH_NUMBER.match(folded, start):
        began = (_NUMBER_BEFORE if counts else _NUMBER_LINKED).search(before)
        if began and before.strip(" -,"):
            raise Unclear("residue", words=began[0].strip())
        if isinstance(first, Delay) and before.endswith(("-", "负")):
            raise Unclear("residue", words=before[-1])
    changed = _CHANGED.search(lead) or _CHANGED.search(before) or _HALF_RANGE.search(before)
    if changed:
        raise Unclear("residue", words=changed[0].strip(" ,"))
    if _DAY.match(folded, start) and (other := _DAY_BEFORE.search(before)):
        raise Unclear("residue", words=other[0])
    of_event = lead and is_chinese(lead[-1]) and lead[-1] not in "在再"
    if isinstance(first, Delay) and not joined and of_event:
        # "Five minutes after" something else.
        raise Unclear("ambiguous")
    if _DOTTED.match(folded, chosen.start) and lead.strip():
        # May be a price or a version.
        raise Unclear("ambiguous")


def check_behind(folded: str, chosen: Phrase) -> None:
    """Checks the text after the phrase. Raises Unclear."""
    for index, (_, end) in enumerate(chosen.stretches):
        left = _LEFT_OVER.match(folded, end)
        if left:
            raise Unclear("residue", words=_whole_words(folded, left))
        if index == len(chosen.stretches) - 1:
            _check_zone(folded, chosen, end)
    if chosen.has(Delay, Interval):
        _check_duration(folded, chosen)


def _whole_words(folded: str, found: re.Match[str]) -> str:
    """The text up to the next space: `:30`, not `:3`."""
    more = _TOKEN.match(folded, found.end())
    return folded[found.start() : more.end() if more else found.end()].strip()


def _check_zone(folded: str, chosen: Phrase, end: int) -> None:
    """`9am |California time`: an unknown zone."""
    if not chosen.has(Clock):
        return
    found = _UNKNOWN_ZONE.match(folded, end)
    if found:
        raise Unclear("residue", words=_whole_words(folded, found).strip(" ,("), choice="zone")


def _check_duration(folded: str, chosen: Phrase) -> None:
    end = chosen.end
    event = _OF_EVENT.match(folded, end)
    if event:
        raise Unclear("residue", words=event[0].strip(" ,"))
    tail = folded[max(0, end - 24) : end + 3]
    if any(found.end() == min(24, end) + 1 for found in _HOURS_AND.finditer(tail)):
        raise Unclear("residue", words=folded[end : end + 3].strip())
    step = next((part.step for part in chosen.parts if isinstance(part, Interval)), None)
    if step is None:
        return
    for pattern, length in _LASTING:
        limit = pattern.search(folded, end)
        # In "every hour walk for 5 minutes" the duration belongs to the task.
        if limit and (length(limit["d"]) > step or not folded[end : limit.start()].strip(" ,")):
            raise Unclear("residue", words=limit[0])


_REQUESTS = [re.compile(grammar.request) for grammar in GRAMMARS]
_UNSEEN = "\u200b\u200c\u200d\u2060\ufeff"
_BEFORE = f" \t\n,;:-–—([、，；：（【「『《“/|·{_UNSEEN}"
_AFTER = f" \t\n,;:-–—)]、，；：）】」』》”/|·。{_UNSEEN}"
#: Between a day and a time, these may attach the time to something else.
_ABOUT = re.compile(any_of(lambda words: words.about))
_EVERY = re.compile(any_of(lambda words: words.every))
_THEN = re.compile(any_of(lambda words: words.then))
#: Clear time words that cannot be part of the task at the beginning of a text.
_DAYS = (Clock, Date, Delay, RelativeDay, RelativeWeekday, RelativeMonthDay)
#: "Every" without a readable time or a task after it.
_UNREAD_EVERY = re.compile(f"[ ,]*(?:{any_of(lambda words: words.unread_every)})[ ]?[^ ,]*")
_OF_TASK = re.compile(any_of(lambda words: words.of_task))
#: "This", "next" directly before a phrase that does not include it change its meaning.
_WHICH_BEFORE = re.compile(f"(?:{any_of(lambda words: words.which_before)})$")
_YEAR_BEFORE = re.compile(rf"(?:[0-9]{{2,4}}|{any_of(lambda words: words.year_before)})[ ,]*$")
#: A time this close to a day belongs to it.
_NEAR = 12
#: Maximum length of a request.
_LEAD = 80
_ONLY_SIGNS = re.compile(r"[\W_]*")


@dataclass(frozen=True, slots=True)
class Decision:
    """The meaning of the time phrase and the text around it."""

    meaning: Meaning
    task: str


def decide(text: Text) -> Decision:
    """Finds the one phrase that states the time. Raises Unclear."""
    folded = text.folded
    found = _through_requests(folded, [_trimmed(folded, each) for each in phrases(folded)])
    if not found:
        raise Unclear("date", "time")
    whole = [phrase for phrase in found if _unclear(phrase) is None]
    if len(whole) > 1:
        raise Unclear("contradiction")
    chosen = whole[0] if whole else _split(folded, found)
    try:
        meaning = meaning_of(chosen)
    except Unclear as unclear:
        narrowed = _narrowed(folded, unclear, chosen, found)
        narrowed.place = _place_of_answer(narrowed, chosen)
        raise narrowed from None
    if zone := _zone_at_end(folded, found, chosen):
        chosen = chosen.joined(zone)
        meaning = meaning_of(chosen)
    _check_around(folded, chosen, [each for each in found if not _within(each, chosen)])
    return Decision(meaning, _task(text, chosen))


def _narrowed(text: str, unclear: Unclear, chosen: Phrase, found: list[Phrase]) -> Unclear:
    """The question without the parts that the text already answers."""
    if unclear.missing == ("residue",):
        return Unclear("residue", words=unclear.words or text[chosen.start : chosen.end])
    if unclear.missing not in (("time",), ("date", "time")):
        return unclear
    given = [each for each in found if each.start > chosen.start and _is_clock(each)]
    between = text[chosen.end : given[0].start].strip(" ,") if given else ""
    if not between or len(between) > _NEAR or _ABOUT.search(between):
        return unclear
    return Unclear("date") if unclear.missing[0] == "date" else Unclear("residue", words=between)


def _place_of_answer(unclear: Unclear, chosen: Phrase) -> tuple[int, int] | None:
    """Position of the ambiguous hour or zone; after the days if there is no time."""
    if unclear.missing == ("time",):
        return chosen.end, chosen.end
    for part, place, _ in chosen.items:
        if unclear.readings and isinstance(part, Clock) and part.certainty == "open":
            return place
        if unclear.choice == "zone" and isinstance(part, Problem) and part.choice == "zone":
            return place
    return None


def _trimmed(text: str, phrase: Phrase) -> Phrase:
    """The phrase without trailing task names: `every day at 9am |daily report`."""
    for count in range(1, len(phrase.items)):
        start = phrase.items[count].place[0]
        named = _OF_TASK.match(text, start)
        if named is None or named.end() != phrase.end or start == phrase.items[count - 1].place[0]:
            continue
        less = phrase.first(count)
        if less.has(Clock) and _unclear(less) is None:
            if named["adverb"]:
                return less
            without = meaning_of(less)
            if _unclear(phrase) is None and replace(meaning_of(phrase), weekday=None) == without:
                # Still parsed, so that a weekday that contradicts the date leads to a question.
                return replace(phrase, stretches=less.stretches, trimmed=True)
    return phrase


def _unclear(phrase: Phrase) -> Unclear | None:
    """The question that this phrase would lead to."""
    try:
        meaning_of(phrase)
    except Unclear as unclear:
        return unclear
    return None


def _within(phrase: Phrase, chosen: Phrase) -> bool:
    return phrase.stretches[0] in chosen.stretches


def _through_requests(text: str, found: list[Phrase]) -> list[Phrase]:
    """Joins phrases that only a request such as "remind me" separates."""
    merged: list[Phrase] = []
    for phrase in found:
        between = text[merged[-1].end : phrase.start] if merged else ""
        # "At 3pm remind me of tomorrow" or "tomorrow at 3pm"?
        apart = merged and _is_clock(merged[-1]) and not _EVERY.match(text, phrase.start)
        if merged and not apart and _is_request(between):
            merged[-1] = merged[-1].joined(phrase)
        else:
            merged.append(phrase)
    return merged


def _is_request(between: str) -> bool:
    at = 0
    while at < len(between):
        if between[at] in " ,":
            at += 1
            continue
        ends = [hit.end() for each in _REQUESTS if (hit := each.match(between, at))]
        if not ends:
            return False
        at = max(ends)
    return True


def _without_request(lead: str) -> str:
    """The text before a phrase, without the request that introduces it."""
    lead = lead[-_LEAD:]
    for at in range(len(lead)):
        inside = at and is_latin(lead[at]) and is_latin(lead[at - 1])
        if not inside and lead[at] not in " ," and _is_request(lead[at:]):
            return lead[:at]
    return lead


def _split(text: str, found: list[Phrase]) -> Phrase:
    """Combines a day with a time at the very end of the text, or asks the best question."""
    first, last = found[0], found[-1]
    if len(found) == 2 and _is_end(text, last) and _belong(text, first, last):
        return first.joined(last)
    # The question is about the phrase with the most content.
    return max(found, key=lambda each: (_weight(each), -each.start))


def _belong(text: str, first: Phrase, last: Phrase) -> bool:
    """`every day … at 9am`, `tomorrow … at 9am`; `at 9am … every day`."""
    if _ABOUT.search(text[first.end : last.start]):
        return False
    if _is_clock(last):
        unclear = _unclear(first)
        return _is_marked(last) and unclear is not None and unclear.missing == ("time",)
    unclear = _unclear(last)
    again = _EVERY.match(text, last.start) is not None
    return _is_clock(first) and again and unclear is not None and unclear.missing == ("time",)


def _is_clock(phrase: Phrase) -> bool:
    return phrase.has(Clock) and phrase.has_only(Clock, InZone, PartOfDay)


def _is_marked(phrase: Phrase) -> bool:
    return any(isinstance(part, Clock) and part.marked for part in phrase.parts)


def _weight(phrase: Phrase) -> int:
    return sum(not isinstance(part, PartOfDay | Problem) for part in phrase.parts)


def _is_end(text: str, phrase: Phrase) -> bool:
    return _ONLY_SIGNS.fullmatch(text, phrase.end) is not None


def _zone_at_end(text: str, found: list[Phrase], chosen: Phrase) -> Phrase | None:
    last = found[-1]
    if last is chosen or not _is_end(text, last):
        return None
    return last if last.has_only(InZone) else None


def _check_around(text: str, chosen: Phrase, others: list[Phrase]) -> None:
    """Checks time words outside the chosen phrase that may affect it."""
    first = chosen.parts[0]
    year = _YEAR_BEFORE.search(text, 0, chosen.start)
    if year and isinstance(first, Date) and first.year is None:
        raise Unclear("residue", words=year[0].strip())
    which = _WHICH_BEFORE.search(text, 0, chosen.start)
    if which:
        raise Unclear("residue", words=which[0].strip())
    for start in (0, *(end for _, end in chosen.stretches)):
        unread = _UNREAD_EVERY.match(text, start)
        trimmed = chosen.trimmed and start == chosen.end
        if unread and start != chosen.start and not trimmed:
            raise Unclear("residue", words=unread[0].strip(" ,"))
    check_before(text, chosen, _without_request(text[: chosen.start]))
    check_behind(text, chosen)
    for other in others:
        words = text[other.start : other.end]
        ahead = other.start < chosen.start and _is_request(text[: other.start])
        if _EVERY.search(words) or (ahead and other.has(*_DAYS)):
            raise Unclear("contradiction")
        between = text[chosen.end : other.start]
        second = _is_clock(other) and _is_marked(other) and _THEN.search(between)
        if second and not _ABOUT.search(between):
            # "At 9am do this, and at 5pm do that."
            raise Unclear("contradiction", words=words)
        limited = any(
            isinstance(part, Problem) and part.missing == ("residue",) for part in other.parts
        )
        if limited and (_is_end(text, other) or other.start < chosen.start):
            raise Unclear("residue", words=words)


def _task(text: Text, chosen: Phrase) -> str:
    pieces: list[str] = []
    at = 0
    for start, end in (*chosen.stretches, (len(text.folded), len(text.folded))):
        piece = text.between(at, start)
        if at:
            piece = piece.lstrip(_AFTER)
        if start < len(text.folded):
            piece = piece.rstrip(_BEFORE)
        if at and piece.startswith('"') and piece.count('"') % 2:
            # The quotation mark was opened before the phrase.
            piece = piece[1:]
        if not _ONLY_SIGNS.fullmatch(piece):
            pieces.append(piece.strip())
        at = end
    task = ""
    for piece in pieces:
        close = not task or (is_chinese(task[-1]) and is_chinese(piece[0]))
        task += piece if close else f" {piece}"
    return task
